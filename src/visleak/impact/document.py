"""An impact as a document and as files: the papers' tables, figures, and how to read them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa

from visleak.impact.benchmark import LEAKS
from visleak.impact.figures import fair_scatter, gains
from visleak.impact.headline import deviating, estimated, headlines, probability, score, signed
from visleak.impact.predictions.plausibility import FEWEST
from visleak.impact.results import (
    ENOUGH_DRAWS,
    Comparison,
    Effect,
    Flip,
    Gap,
    Impact,
    MatchedComparison,
    Row,
)
from visleak.impact.run import Check, CheckedFile
from visleak.quantities import counted
from visleak.reporting import Column, Document, Figure, Table, latex, markdown
from visleak.reporting.document import Show
from visleak.stats.bootstrap import Estimate
from visleak.storage import File, RunFolder

KIND: Final = "visleak impact"
TITLE: Final = "Impact on scores"
SECTION: Final = "impact.json"  # file of the section among those of the audit
SIDE_BY_SIDE: Final = 3  # models or metrics in a table: more would be wider than a page

#: Pairs of models are listed if they change places, or may with this probability.
MAY_FLIP: Final = 0.05

#: Leaks that a terminal has room for where there are several scores: those of the papers' tables
#: (hard, and hard or soft, which Ramos et al. call soft), and cumulative grades.
_CUMULATIVE: Final = ("hard", "hard or soft", "near or exact", "similar or closer")

#: Where a document is read: in files of its own, in the audit's page, on a terminal.
Medium = Literal["files", "page", "terminal"]

#: Columns of files whose names differ from those of the records.
_RENAMED: Final = {
    "adjusted": "p_holm",
    "within_classes": "p_within_classes",
    "within_classes_adjusted": "p_within_classes_holm",
}


def write(result: Impact, folder: str | os.PathLike[str]) -> Path:
    """Write an impact into a folder, ``impact.json`` last, and return the folder.

    Files of an earlier result that this one does not have are removed.
    """
    run = RunFolder(folder, KIND)
    run.finish(run.document("; ".join(headlines(result)), result), files(result))
    return run.path


def read_impact(folder: str | os.PathLike[str]) -> Impact:
    """Return the impact that a folder holds.

    Raises:
        UsageError: there is none.
        VisleakError: it is damaged, or from a newer visleak.
    """
    return RunFolder(folder, KIND).read(Impact)


def files(result: Impact) -> dict[str, File]:
    """Return the files of an impact by name, but for its JSON."""
    page = document(result)
    found: dict[str, File] = {}
    for figure in page.figures:
        found |= figure.by_name()
    found |= {name: table if table.num_rows else None for name, table in _stored(result).items()}
    return found | {"impact.md": markdown(page), "impact.tex": latex(page)}


def _stored(result: Impact) -> dict[str, pa.Table]:
    """Return the tables of files: numbers as they are, in the metric's unit."""
    rows: list[dict[str, object]] = []
    compared: list[dict[str, object]] = []
    for effect in result.effects:
        name = {"model": effect.model, "metric": effect.metric}
        direction = {"less_is_better": effect.lower}
        rows += [name | direction | _flat(row, without="dominated") for row in effect.rows]
        compared += [name | _flat(c, without="twinned") | _twins(c) for c in effect.comparisons]
    gaps = [
        _flat(gap, without="changed")
        | dict(zip(("right_on_fair_only", "right_on_original_only"), gap.changed, strict=True))
        for gap in result.gaps
    ]
    return {
        "impact.csv": pa.Table.from_pylist(rows),
        "comparisons.csv": pa.Table.from_pylist(compared),
        "flips.csv": pa.Table.from_pylist([_flat(flip) for flip in result.flips]),
        "gaps.csv": pa.Table.from_pylist(gaps),
    }


def _flat(record: Effect | Row | Comparison | Flip | Gap, without: str = "") -> dict[str, object]:
    """Return the fields of a record; an estimate has columns for its ends, too."""
    found: dict[str, object] = {}
    for each in fields(record):
        value, name = getattr(record, each.name), _RENAMED.get(each.name, each.name)
        if isinstance(value, Estimate):
            found |= {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
        elif name != without:
            found[name] = value
    return found


def _twins(comparison: Comparison) -> dict[str, object]:
    if (twins := comparison.twinned) is None:
        twins = MatchedComparison(0, 0, 0, (0.0,) * 4, math.nan, Estimate(math.nan), math.nan)
    return {
        "twinned": twins.leaked,
        "twins": twins.leaked * twins.twins,
        "twinned_score": twins.score,
        "twinned_difference": twins.difference.value,
        "twinned_difference_low": twins.difference.low,
        "twinned_difference_high": twins.difference.high,
        "p_twinned": twins.p,
        "p_twinned_holm": twins.adjusted,
    }


def document(result: Impact, medium: Medium = "files") -> Document:
    """Return an impact as a document; a terminal has fewer leaks and columns, and no figures."""
    first, *more = headlines(result)
    brief = medium == "terminal"
    shown = _brief(result) if brief else result
    left = [leak for leak, count in result.leaks.items() if count and leak not in shown.leaks]
    scatter = Figure("fair", "Original against fair scores", fair_scatter(result), shown=True)
    notes = [about(result), "in parentheses: 95 % intervals", *result.notes, *_left_out(result)]
    return Document(
        title=TITLE,
        headline=first,
        lines=tuple(more),
        tables=tuple(table for table in tables(shown, brief=brief) if table.rows),
        figures=() if brief else (_gains(result, medium), scatter),
        notes=(*notes, *([f"in the files only: {', '.join(left)}"] if left else [])),
        reading=() if brief else tuple(_reading(result)),
    )


def _gains(result: Impact, medium: Medium) -> Figure:
    title = "Gains of parts of the benchmark over the whole"
    if medium == "files":
        return Figure("gains", title, gains(result), shown=True)
    every = [leak for leak, count in result.leaks.items() if count]
    main = result.principal
    # cumulative leaks are more informative than soft ones alone
    wide = [leak for leak in every if leak == main or not leak.endswith(" only")]
    drawn = sorted(wide, key=lambda leak: leak != main)[:3]
    if len(drawn) < len(every):
        title += f"; {len(drawn)} of {len(every)} leaks, gains.svg has all"
    # one panel beneath the other, so that a phone shows them large enough
    return Figure("gains", title, gains(result, columns=1, only=drawn))


def _brief(result: Impact) -> Impact:
    """Return a result with the leaks that a terminal has room for: cumulative and user-defined."""
    if len(result.effects) == 1:
        return result
    known = {name for name, *_ in LEAKS}
    kept = {result.principal, *_CUMULATIVE, *(leak for leak in result.leaks if leak not in known)}
    effects = [
        replace(
            effect,
            rows=tuple(row for row in effect.rows if row.leak in ("", *kept)),
            comparisons=tuple(each for each in effect.comparisons if each.leak in kept),
        )
        for effect in result.effects
    ]
    return replace(
        result,
        leaks={leak: images for leak, images in result.leaks.items() if leak in kept},
        effects=tuple(effects),
        flips=tuple(flip for flip in result.flips if flip.leak in kept),
    )


def about(result: Impact) -> str:
    """Return what was compared, in words."""
    reviewed = ", with the verdicts of reviewers" if result.judged else ""
    references = " and ".join(result.references)
    return f"{result.images:,} images of {result.test_set} against {references}{reviewed}"


def _left_out(result: Impact) -> Iterator[str]:
    names = [leak for leak, count in result.leaks.items() if not count]
    if names:
        yield f"omitted from the tables, because no image leaks in this sense: {', '.join(names)}"
    steady = sum(not _may_flip(flip) for flip in result.flips)
    if steady:
        yield (
            f"{steady:,} of {len(result.flips):,} orders of two models hold in more than"
            f" {100 * (1 - MAY_FLIP):.0f} % of resamples; flips.csv has all"
        )


def _reading(result: Impact) -> Iterator[str]:
    yield "gains are over the whole benchmark, in points where scores are percentages"
    draws = "drawn rows" if is_drawn(result.effects) else "random and class-matched rows"
    count = result.settings.get("draws")
    times = f"{count:,} draws" if isinstance(count, int) else "draws"
    if isinstance(count, int) and count < ENOUGH_DRAWS:
        yield f"{draws} have no interval, as {times} are too few; others are confidence intervals"
    else:
        yield f"intervals of {draws} hold 95 % of {times}, the others are confidence intervals"
    yield (
        "drawn rows share their draws: the same images for every model and metric, and those of"
        " fewer images are among those of more, so such rows rise and fall together"
    )
    yield "p is from a permutation test; Holm's correction is over models, metrics and leaks"
    if any(effect.comparisons for effect in result.effects):
        yield (
            "fair is the score on the images that do not leak, with classes weighted as in the"
            " whole benchmark; inflation is the score of the whole minus that of the images that"
            " do not leak"
        )
    if result.settings.get("difficulty"):
        yield (
            "twins (difficulty-matched) are images that do not leak, of the class and difficulty"
            " of leaked ones, each used once; harder than: mean share of images that are easier"
        )
    if result.gaps:
        yield (
            "gap is the error on the fair test set minus that on the original, in points; relative"
            " is the gap as a percentage of the original error"
        )
    if result.flips:
        yield (
            "chance is how often two models change places in resamples of the images, behind how"
            " often the first is behind on the images that do not leak"
        )


def tables(result: Impact, *, brief: bool = False) -> Iterator[Table]:
    """Yield the tables of a page, some without rows; brief ones have fewer columns."""
    yield from _score_tables(result, brief=brief)
    for build in (_comparisons, _matched_tables, _fair_tables):
        yield from (build(result, metric, brief=brief) for metric in result.metrics)
    yield _flip_table(result, brief=brief)
    for metric in dict.fromkeys(gap.metric for gap in result.gaps):
        yield _gap_table(result, [gap for gap in result.gaps if gap.metric == metric], brief=brief)


def _number(heading: str, show: Callable[[Any], str] | None = None) -> Column:
    return Column(heading=heading, show=show, number=True)


def _score(heading: str, percent: bool) -> Column:
    return _number(heading, partial(score, percent=percent))


def _estimate(heading: str, percent: bool, *, sign: bool = False, ends: bool = True) -> Column:
    return _number(heading, partial(estimated, percent=percent, sign=sign, ends=ends))


def metric_name(result: Impact, metric: str) -> str:
    """Return a metric as it is shown, with its direction where lower is better."""
    lower = any(effect.lower for effect in result.effects if effect.metric == metric)
    return f"{metric} (lower is better)" if lower else metric


def is_drawn(effects: Sequence[Effect]) -> bool:
    """Whether parts that need not be drawn were, so that scores have deviations (table 4)."""
    rows = (row for effect in effects for row in effect.rows if row.draws > 1)
    return any(row.subset not in ("random", "class-matched") for row in rows)


def parts(result: Impact, effects: Sequence[Effect]) -> list[tuple[str, str]]:
    """Return leak and subset of each row; a leak that no image has is left out."""
    every = dict.fromkeys((row.leak, row.subset) for effect in effects for row in effect.rows)
    order = {leak: place for place, leak in enumerate(["", *result.leaks])}
    wanted = [part for part in every if not part[0] or result.leaks.get(part[0])]
    # parts of only some models come last within their leak
    return sorted(wanted, key=lambda part: order.get(part[0], len(order)))


def _score_tables(result: Impact, *, brief: bool) -> Iterator[Table]:
    """Yield the parts of the benchmark with scores and gains, models or metrics side by side.

    One model has its metrics side by side (table 4 of Ramos et al.), several have a table per
    metric (table 3), at most :data:`SIDE_BY_SIDE` of them each.
    """
    by_metric = len(result.models) == 1 and len(result.metrics) > 1
    for metric in result.metrics[:1] if by_metric else result.metrics:
        effects = [each for each in result.effects if by_metric or each.metric == metric]
        title = result.models[0] if by_metric else metric_name(result, metric)
        starts = range(0, len(effects), SIDE_BY_SIDE)
        for number, start in enumerate(starts, 1):
            own = effects[start : start + SIDE_BY_SIDE]
            names = [metric_name(result, e.metric) if by_metric else e.model for e in own]
            place = f" ({number} of {len(starts)})" if len(starts) > 1 else ""
            whole = f"Scores on parts of {result.test_set}: {title}{place}"
            yield _side_by_side(result, own, names, whole, ends=not brief or len(own) == 1)


def _side_by_side(
    result: Impact, effects: Sequence[Effect], names: Sequence[str], title: str, *, ends: bool
) -> Table:
    drawn = is_drawn(effects)
    columns = [Column(heading="leak"), Column(heading="subset"), _number("images", str)]
    for effect, name in zip(effects, names, strict=True):
        percent = effect.percent
        show = partial(_row_score, percent=percent, drawn=drawn, ends=ends)
        columns.append(_number(f"{name} %" if percent else name, show))
        columns.append(_estimate("gain", percent, sign=True, ends=ends))
    rows = []
    for leak, subset in parts(result, effects):
        found = [effect.row(leak, subset) for effect in effects]
        # models may have predictions for more or fewer images
        counts = [row.images for row in found if row is not None]
        low, high = min(counts), max(counts)
        cells: list[object] = [leak, subset, f"{low:,}" if low == high else f"{low:,}-{high:,}"]
        for row in found:
            cells += [row, row and row.gain]
        rows.append(cells)
    title += ", mean ± standard deviation over draws" * drawn
    return Table(title, tuple(columns), rows, limit=len(rows))


def _row_score(row: Row, *, percent: bool, drawn: bool, ends: bool) -> str:
    if drawn:
        return deviating(row, percent=percent)
    return estimated(row.score, percent=percent, ends=ends)


def _compared(result: Impact, metric: str) -> tuple[list[tuple[Effect, Comparison]], bool]:
    """Return the comparisons in a metric, and whether its scores are percentages."""
    found = [
        (effect, each)
        for effect in result.effects
        for each in effect.comparisons
        if effect.metric == metric and result.leaks.get(each.leak)
    ]
    # the same for all models
    return found, bool(found) and found[0][0].percent


def _comparisons(result: Impact, metric: str, *, brief: bool) -> Table:
    found, percent = _compared(result, metric)
    hidden = {"leaked", "others"} if brief else set()
    if all(math.isnan(each.within_classes) for _, each in found):
        hidden.add("within classes")
    rows = [
        (
            *(effect.model, each.leak, each.leaked, each.others, each.difference),
            _corrected(each.p, each.adjusted),
            _corrected(each.within_classes, each.within_classes_adjusted),
        )
        for effect, each in found
    ]
    title = f"Leaked images against the others, {metric_name(result, metric)}"
    headings = ["model", "leak", "leaked", "others", "difference", "p (Holm)", "within classes"]
    shown = {"difference": _difference(percent)}
    return Table.of(title, headings, rows, 2, show=shown, hidden=hidden, limit=len(rows))


def _difference(percent: bool) -> Callable[[Any], str]:
    return partial(estimated, percent=percent, sign=True)


def _corrected(p: float, adjusted: float) -> str | None:
    return None if math.isnan(p) else f"{probability(p)} ({probability(adjusted)})"


def _matched_tables(result: Impact, metric: str, *, brief: bool) -> Table:
    """Return leaked images against others of their class and difficulty."""
    found, percent = _compared(result, metric)
    rows = []
    for effect, each in found:
        if (twins := each.twinned) is not None:
            leaked, others, _, matched = (f"{100 * share:.1f}" for share in twins.difficulty)
            own = (effect.model, each.leak, f"{twins.leaked:,} of {each.leaked:,}")
            compared = (twins.leaked * twins.twins, twins.difference)
            p = _corrected(twins.p, twins.adjusted)
            rows.append((*own, *compared, p, leaked, others, matched))
    name = metric_name(result, metric)
    title = f"Leaked images against others of the same class and difficulty, {name}"
    harder = ("leaked harder than %", "others %", "twins %")
    headings = ("model", "leak", "matched", "twins", "difference", "p (Holm)", *harder)
    shown, hidden = {"difference": _difference(percent)}, harder if brief else ()
    return Table.of(title, headings, rows, 2, show=shown, hidden=hidden, limit=len(rows))


def _fair_tables(result: Impact, metric: str, *, brief: bool) -> Table:
    found, percent = _compared(result, metric)
    # on a terminal inflation is the gain of what does not leak, and a note counts lost classes
    hidden = {"images", "inflation", "classes lost"} if brief else set()
    if not any(each.classes_lost for _, each in found):
        hidden.add("classes lost")
    rows = [
        (
            *(effect.model, each.leak, each.others, effect.original.score.value),
            *(each.fair, each.inflation, each.classes_lost),
        )
        for effect, each in found
    ]
    shown: Show = {
        "original": partial(score, percent=percent),
        "fair": partial(estimated, percent=percent),
        "inflation": _difference(percent),
    }
    title = f"Scores of images that do not leak, {metric_name(result, metric)}{', %' * percent}"
    title += "; classes weighted as in the whole"
    headings = ["model", "leak", "images", "original", "fair", "inflation", "classes lost"]
    return Table.of(title, headings, rows, 2, show=shown, hidden=hidden, limit=len(rows))


def _flip_table(result: Impact, *, brief: bool) -> Table:
    rows = []
    for flip in filter(_may_flip, result.flips):
        effect = result.effect(flip.first, flip.metric)
        show = partial(signed, percent=effect is not None and effect.percent)
        order = (flip.leak, flip.first, flip.second, show(flip.original), show(flip.fair))
        chances = ("yes" if flip.flipped else "no", flip.chance, flip.behind)
        rows.append((metric_name(result, flip.metric), *order, *chances))
    shown = dict.fromkeys(("chance %", "behind %"), partial(score, percent=True))
    title = "Models that change places without the leaked images, or may"
    names, hidden = ("metric", "leak", "first", "second"), ("metric",) if brief else ()
    headings = (*names, "original", "fair", "change", *shown)
    return Table.of(title, headings, rows, 4, show=shown, hidden=hidden, limit=len(rows))


def _may_flip(flip: Flip) -> bool:
    return flip.flipped or flip.chance >= MAY_FLIP


def _gap_table(result: Impact, gaps: Sequence[Gap], *, brief: bool) -> Table:
    """Return errors on the original and the fair test set; the best in bold."""
    rows = [
        (
            *(gap.model, gap.original.value, gap.fair.value, gap.gap, gap.relative),
            *(gap.p, gap.images),
        )
        for gap in gaps
    ]
    names = ("original %", "fair %", "gap", "relative %")
    numbers = zip(*map(_gap_numbers, gaps), strict=True)
    shown: Show = {
        **dict.fromkeys(names, partial(score, percent=True)),
        **{"gap": _difference(percent=True), "p": probability},
    }
    what = "Error" if gaps[0].metric == "accuracy" else f"Error ({gaps[0].metric})"
    title = f"{what} on {result.test_set} and on its fair test set"
    headings, hidden = ("model", *names, "p", "images"), ("images",) if brief else ()
    bold = _best(dict(zip(names, numbers, strict=True)))
    return Table.of(title, headings, rows, show=shown, hidden=hidden, bold=bold, limit=len(rows))


def _gap_numbers(gap: Gap) -> tuple[float, float, float, float]:
    """Return the numbers of a gap that are compared between models."""
    return gap.original.value, gap.fair.value, gap.gap.value, gap.relative


def _best(values: Mapping[str, Sequence[float]]) -> frozenset[tuple[int, str]]:
    """Return the cells of the values nearest to zero per column; one row alone is not the best."""
    found = set()
    for name, column in values.items():
        # values that are equal in the table are equal
        shown = [round(abs(value), 4) for value in column]
        known = [value for value in shown if not math.isnan(value)]
        if len(column) > 1 and known:
            found |= {(row, name) for row, value in enumerate(shown) if value == min(known)}
    return frozenset(found)


def several_document(results: Mapping[str, Impact], medium: Medium = "files") -> Document:
    """Return several audits side by side: models by rows, data sets by groups of columns.

    Models are matched by name: one that has predictions for some audits only has no numbers for
    the others.
    """
    brief = medium == "terminal"
    first, *more = _several_headlines(results)
    # cells are empty where an audit is without a model
    tables = (_several_fair(results), _several_gaps(results), _several_parts(results, brief=brief))
    notes = [] if brief else [f"{name}: {about(each)}" for name, each in results.items()]
    notes += [f"{name}: {note}" for name, each in results.items() for note in each.notes]
    return Document(
        title=TITLE,
        headline=first,
        lines=tuple(more),
        tables=tuple(table for table in tables if table.rows),
        notes=(
            *notes,
            "Holm's correction is over the models, metrics and leaks of each audit alone",
        ),
    )


def write_several(results: Mapping[str, Impact], folder: str | os.PathLike[str]) -> Path:
    """Write each audit's result into a folder of its name, and all of them side by side."""
    run = RunFolder(folder, KIND)
    run.result.unlink(missing_ok=True)
    for name, result in results.items():
        write(result, run.path / name)
    page = several_document(results)
    content = run.document("; ".join(_several_headlines(results)), audits=dict(results))
    content["kind"] = f"{KIND} of several audits"
    run.finish(content, {"impact.md": markdown(page), "impact.tex": latex(page)})
    return run.path


def _several_headlines(results: Mapping[str, Impact]) -> list[str]:
    """Return the headlines of each audit, with its name; files in doubt come first."""
    every = [(name, line) for name, result in results.items() for line in headlines(result)]
    every.sort(key=lambda each: not each[1].startswith("warning:"))
    return [f"{name}: {line}" for name, line in every]


def _models(results: Mapping[str, Impact]) -> list[str]:
    return list(dict.fromkeys(model for result in results.values() for model in result.models))


def _several_fair(results: Mapping[str, Impact]) -> Table:
    """Return scores on all images and on those that do not leak, model by model."""
    columns, named = [Column(heading="model")], []
    cells: dict[str, list[object]] = {model: [model] for model in _models(results)}
    for name, result in results.items():
        effects = {effect.model: effect for effect in result.first_effects}
        first = next(iter(effects.values()), None)
        percent = first is not None and first.percent
        metric = "" if first is None else first.metric + " %" * percent
        named.append(f"{name}: {metric}, {result.principal}")
        columns += [
            _score(f"{name}: all", percent),
            _estimate(f"{name}: fair", percent),
            _number("fair - all", partial(signed, percent=percent)),
        ]
        for model, row in cells.items():
            effect = effects.get(model)
            each = effect.comparison(result.principal) if effect is not None else None
            if effect is None or each is None:
                row += [None, None, None]
            else:
                whole = effect.original.score.value
                row += [whole, each.fair, each.fair.value - whole]
    title = "Scores of all images, and of those that do not leak with classes weighted as in the"
    title += f" whole ({', '.join(named)})"
    return Table(title, tuple(columns), list(cells.values()), limit=len(cells))


def _several_gaps(results: Mapping[str, Impact]) -> Table:
    """Return errors on test sets and fair ones, as table 2 of Barz & Denzler; the best in bold."""
    own = {name: result for name, result in results.items() if result.gaps}
    models, values = _models(own), {}
    for name, result in own.items():
        first = {gap.model: _gap_numbers(gap) for gap in reversed(result.gaps)}
        for at, heading in enumerate(("error %", "fair %", "gap", "relative gap %")):
            numbers = [first[model][at] if model in first else math.nan for model in models]
            values[f"{name}: {heading}"] = numbers
    columns = (Column(heading="model"), *(_score(name, percent=True) for name in values))
    rows = list(zip(models, *values.values(), strict=True))
    title = "Errors on the test sets and on the fair ones"
    return Table(title, columns, rows, limit=len(rows), bold=_best(values))


def _several_parts(results: Mapping[str, Impact], *, brief: bool) -> Table:
    """Return the parts of all test sets, a column of scores for each model of each audit."""
    effects = [
        (name, _brief(result) if brief else result, effect)
        for name, result in results.items()
        for effect in result.first_effects
    ]
    known = dict.fromkeys(part for _, result, effect in effects for part in parts(result, [effect]))
    leaks = list(dict.fromkeys(leak for leak, _ in known))
    known_parts = sorted(known, key=lambda part: leaks.index(part[0]))
    columns = [Column(heading="leak"), Column(heading="subset")]
    rows: list[list[object]] = [[*part] for part in known_parts]
    for name, result, effect in effects:
        found = [effect.row(*part) for part in known_parts]
        own: list[tuple[Column, Callable[[Row], object]]] = []
        if result.models[0] == effect.model:
            own.append((_number(f"{name}: images"), lambda row: row.images))
        heading = f"{name}: {effect.model}{' %' * effect.percent}"
        own.append((_score(heading, effect.percent), lambda row: row.score.value))
        if not brief:
            gain = _number("gain", partial(signed, percent=effect.percent))
            own.append((gain, lambda row: row.gain.value))
        for column, value in own:
            columns.append(column)
            for cells, row in zip(rows, found, strict=True):
                cells.append(row and value(row))
    return Table("Scores on parts of the test sets", tuple(columns), rows, limit=len(rows))


def check_lines(found: Check) -> list[str]:
    """Return doubts first, then file by file."""
    files = "file fits" if len(found.files) == 1 else f"{len(found.files):,} files fit"
    fits = f"the {files} {found.test_set}, as far as can be checked"
    fewest = min((file.answered for file in found.files), default=FEWEST)
    if fewest < FEWEST:
        fits = (
            f"with predictions for {counted(fewest, 'image')} nothing is known of ids, rows and"
            f" class names: {FEWEST} are needed to tell files that are mixed up from weak models"
        )
    lines = [f"warning: {doubt}" for doubt in found.doubts] or [fits]
    for file in found.files:
        lines += [_check_line(file, found.images), *(f"  {note}" for note in file.notes)]
    return lines


def _check_line(file: CheckedFile, images: int) -> str:
    where = " (fair test set)" if file.fair else ""
    scores = ", ".join(f"{name} {score(v, percent=False)}" for name, v in file.scores.items())
    how = f"{' and '.join(file.checked)} compared with the audited labels"
    if not file.checked:
        how = "no predicted classes or labels to compare: ids and order were only compared with"
        how += " other models"
    answered = f"predictions for {file.answered:,} of {images:,} images"
    return f"{file.model}{where}: {answered}; {scores}; {how}"
