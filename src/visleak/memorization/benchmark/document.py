"""A benchmark as document, figure and files, laid out as tables 3 to 5 of Hong et al. 2024."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from visleak.memorization.benchmark.plan import Scene
from visleak.memorization.benchmark.results import (
    GENERAL,
    NONE,
    SCORES,
    TRIGGER,
    Benchmark,
    Entry,
    Measurements,
    MethodRow,
    Score,
    label_of,
    line_name,
    name_of,
    number,
    p_value,
    short,
    shown_columns,
    signed,
)
from visleak.memorization.extraction.images import ImageStore
from visleak.memorization.metrics import LIMIT
from visleak.quantities import counted
from visleak.reporting import Column, Document, Figure, Table, latex, markdown
from visleak.reporting.contact_sheet import Tile, contact_sheet
from visleak.reporting.document import LONGEST
from visleak.reporting.drawing import COLOURS, INK, MARKS, as_text, cut, figure_of, saved, titled
from visleak.reporting.markup import Grid
from visleak.stats.group_intervals import GroupInterval
from visleak.storage import File

#: What can be drawn against top-1 similarity, with its heading.
PANELS: Final = (
    (TRIGGER, "clip", "CLIP score, trigger prompts"),
    (TRIGGER, "aesthetic", "aesthetic score, trigger prompts"),
    (GENERAL, "clip", "CLIP score, general prompts"),
    (GENERAL, "aesthetic", "aesthetic score, general prompts"),
)


def tradeoff(result: Benchmark, columns: int = 2) -> dict[str, bytes]:
    """Return the curves of methods, weak to strong, as SVG and PNG; up and left is better."""
    known = [row for row in result.rows if not math.isnan(row.value(TRIGGER, "top1"))]
    panels = [p for p in PANELS if any(not math.isnan(row.value(*p[:2])) for row in known)]
    if not panels or not result.lines:
        return {}
    columns = min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    width, height = 4.25 * columns, 3.6 * rows + 1.2
    with figure_of((width, height)) as figure:
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, panel in zip(grid, panels, strict=False):
            _panel(axes, result, panel)
        for axes in grid[len(panels) :]:
            axes.remove()
        figure.tight_layout(rect=(0, 0, 1, 1 - 1.05 / height), h_pad=1.5, w_pad=1.5)
        model = as_text(cut(short(str(result.about["model"].get("name", ""))), 40))
        below = f"{model}, {result.triggers.prompts:,} trigger prompts; better is up and to the"
        below += " left" + "; thin lines: 95 % intervals of the strongest settings" * (columns > 1)
        titled(figure, "What mitigations trade similarity for", below)
        figure.legend(
            *grid[0].get_legend_handles_labels(), loc="upper left", ncols=3 * columns - 1,
            fontsize=8.5, bbox_to_anchor=(0.12 / width, 1 - 0.6 / height), borderaxespad=0,
        )  # fmt: skip
        return saved(figure, "benchmark tradeoff")


def _panel(axes: Any, result: Benchmark, panel: tuple[str, str, str]) -> None:
    """Draw one number against top-1 similarity; intervals of the strongest settings only."""
    scenario, name, heading = panel
    edge: dict[str, object] = {"mec": "white", "mew": 0.8, "zorder": 4}

    def point(row: MethodRow) -> tuple[float, float]:
        return row.value(TRIGGER, "top1"), row.value(scenario, name)

    for at, line in enumerate(result.lines):
        colour, mark = COLOURS[at % len(COLOURS)], MARKS[at % len(MARKS)]
        rows = [result.base, *result.of(line)]
        x, y = zip(*map(point, rows), strict=True)
        label = as_text(cut(line_name(line), 28))
        axes.plot(x, y, color=colour, marker=mark, lw=1.7, ms=6, label=label, **edge)
        # intervals of every setting would hide the lines
        last, (right, up) = rows[-1], point(rows[-1])
        across, along = last.score(TRIGGER, "top1"), last.score(scenario, name)
        if across is not None and along is not None:
            faint: dict[str, object] = {"color": colour, "lw": 0.9, "alpha": 0.45, "zorder": 2}
            axes.plot((across.interval.low, across.interval.high), (up, up), **faint)
            axes.plot((right, right), (along.interval.low, along.interval.high), **faint)
        # which end is which
        axes.annotate(
            as_text(cut(last.setting.partition(", ")[0], 16)), (right, up), xytext=(0, -10.5),
            textcoords="offset points", fontsize=8.5, color=colour, ha="center", va="center",
            zorder=7, annotation_clip=True,
        )  # fmt: skip
    base = as_text(name_of(NONE))
    axes.plot(*point(result.base), "X", color=INK, ms=7.5, label=base, **edge | {"zorder": 5})
    points = [point(row) for row in result.rows]
    if result.reference is not None and (scenario, name) == (TRIGGER, "clip"):
        points.append((result.reference.similarity.value, result.reference.clip.value))
        axes.plot(*points[-1], "*", color="#f0b400", ms=13, mec=INK, mew=0.8, zorder=6,
                  label="reference")  # fmt: skip
    # all points, and of intervals what is near them
    known = [each for each in points if not any(map(math.isnan, each))]
    for limit, values in zip((axes.set_xlim, axes.set_ylim), zip(*known, strict=True), strict=True):
        low, high = min(values), max(values)
        room = 0.2 * (high - low) or 0.05 * max(abs(high), 1.0)
        limit(low - room, high + room)
    similarity = str(result.about["similarity"]["name"]).partition(":")[0]
    axes.set_xlabel(f"top-1 similarity ({as_text(cut(similarity, 26))})", fontsize=9)
    axes.set_title(heading, fontsize=9.5, loc="left", color=INK, fontweight="normal")
    axes.grid(True)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8.5)


#: Table of single images, sheet of the worst ones, and the section among those of an audit.
MEASUREMENTS: Final = "measurements.parquet"
SHEET: Final = "worst.png"
SECTION: Final = "memorization-benchmark.json"
#: Images per row of the sheet, and rows at most.
ACROSS: Final = 8
ROWS: Final = 40
#: A change with a smaller probability is significant; the mark of a number that changed.
LEVEL: Final = 0.05
CHANGED: Final = "*"
#: Which direction of a number is better.
ARROWS: Final[Mapping[bool, str]] = {True: "↑", False: "↓"}
#: Images that the floor of a similarity is measured on.
FLOORS: Final[Mapping[str, str]] = {TRIGGER: "other prompts' images", GENERAL: "general prompts"}
#: Numbers of the floor and of the reference performance.
COPYING: Final = ("top1", "top3", "share")
_TEXT: Final = pa.string()
_REAL: Final = pa.float64()
_WHOLE: Final = pa.int64()

#: ``benchmark.csv``: one row per method, setting, scenario and number.
_LINES: Final[Mapping[str, pa.DataType]] = {
    "method": _TEXT, "setting": _TEXT, "strength": _REAL, "scenario": _TEXT, "number": _TEXT,
    "value": _REAL, "low": _REAL, "high": _REAL, "prompts": _WHOLE, "groups": _WHOLE,
    "effective": _REAL, "change": _REAL, "change_low": _REAL, "change_high": _REAL, "p": _REAL,
    "p_holm": _REAL, "judge": _TEXT,
}  # fmt: skip


def document(
    result: Benchmark, *, sheet: bool = False, columns: int = 2, drawn: bool = True
) -> Document:
    """Return a benchmark as a document; a terminal needs no figure ``drawn``."""
    files = tradeoff(result, columns) if drawn else {}
    by = f" (similarity: {result.about['similarity']['name']})"
    return Document(
        title="Mitigations: effect on memorization and cost",
        headline=headline(result),
        lines=(*verdicts(result), *cautions(result)),
        # tables may be copied out of their page, so that each names its similarity
        tables=(
            main_grid(result, by),
            curve_grid(result, by),
            distance_grid(result),
            change_grid(result, by),
            cost_grid(result),
        ),
        figures=(Figure("tradeoff", "The trade-off", files, shown=True),),
        images=(("The worst images by aesthetic score", SHEET),) if sheet else (),
        notes=(*about(result), *result.notes),
        reading=tuple(reading(result)),
    )


def headline(result: Benchmark) -> str:
    """Return which method lowers similarity most at what cost, as one line."""
    base = result.base
    top = number(base.value(TRIGGER, "top1"))
    parts = []
    for row in strongest(result):
        change = row.value(TRIGGER, "clip") - base.value(TRIGGER, "clip")
        cost = "" if math.isnan(row.value(TRIGGER, "clip")) else f" (CLIP {signed(change)})"
        parts.append(f"{number(row.value(TRIGGER, 'top1'))} with {label_of(row)}{cost}")
    if not parts:
        return f"without mitigation the top-1 similarity is {top}"
    return f"top-1 similarity {top} without mitigation; {', '.join(parts)}"


def strongest(result: Benchmark) -> Iterator[MethodRow]:
    """Yield the row of each method with the lowest top-1 similarity."""
    for line in result.lines:
        rows = [row for row in result.of(line) if not math.isnan(row.value(TRIGGER, "top1"))]
        if rows:
            yield min(rows, key=lambda row: row.value(TRIGGER, "top1"))


def verdicts(result: Benchmark) -> list[str]:
    """Return for each method whether it succeeds by the paper's rule, in words."""
    return [_verdict(result, row) for row in strongest(result)]


def meets(result: Benchmark, row: MethodRow) -> tuple[bool | None, bool | None]:
    """Return whether a row reaches the reference, and keeps its CLIP score; ``None`` if unknown."""
    top, clip = row.value(TRIGGER, "top1"), row.value(TRIGGER, "clip")
    goal = math.nan if result.reference is None else result.reference.similarity.value
    reached = None if math.isnan(goal) or math.isnan(top) else top <= goal
    stays = None if math.isnan(clip) else clip >= result.base.value(TRIGGER, "clip")
    return reached, stays


def _verdict(result: Benchmark, lowest: MethodRow) -> str:
    rows, base = result.of(lowest.line), result.base.value(TRIGGER, "top1")
    winner = next((row for row in rows if meets(result, row) == (True, True)), None)
    row = winner or lowest
    reached, stays = meets(result, row)
    goal = math.nan if result.reference is None else result.reference.similarity.value
    text = f"{label_of(row)}: top-1 {number(base)} to"
    text += f" {number(row.value(TRIGGER, 'top1'))}{_surely(row, 'top1')}"
    if reached is not None:
        text += f", {'at or below' if reached else 'above'} the reference {number(goal)}"
    clip = row.score(TRIGGER, "clip")
    if clip is not None and clip.change is not None:
        text += f", CLIP by {signed(clip.change.value)}{_surely(row, 'clip')}"
    needs = {"a reference performance": reached, "CLIP scores": stays}
    lacking = [name for name, known in needs.items() if known is None]
    if lacking:
        return f"{text}; success cannot be judged without {' and '.join(lacking)}"
    if base <= goal:
        text += ": without mitigation it is at or below the reference already, and none can"
        return f"{text} succeed"
    if winner is not None:
        chance = "" if _is_significant(row, "top1") else ", by a change that may be chance"
        return f"{text}: it succeeds by the paper's rule{chance}"
    text += ": it does not succeed by the paper's rule"
    kept = [row for row in rows if meets(result, row)[1]]
    if not kept:
        return f"{text}, and no setting keeps the CLIP score"
    best = min(kept, key=lambda each: each.value(TRIGGER, "top1"))
    reaches = f"{number(best.value(TRIGGER, 'top1'))}{_surely(best, 'top1')}"
    where = best.setting or "its one setting"
    return f"{text}; with the CLIP score kept it reaches {reaches} with {where}"


def _surely(row: MethodRow, name: str) -> str:
    """Return the probability of a number's own change, as text in brackets."""
    score = row.score(TRIGGER, name)
    if score is None or score.change is None:
        return ""
    chance = "" if _is_significant(row, name) else ", not significant"
    return f" ({p_value(score.change.p_holm)}{chance})"


def _is_significant(row: MethodRow, name: str) -> bool:
    score = row.score(TRIGGER, name)
    return score is not None and score.change is not None and score.change.p_holm < LEVEL


def cautions(result: Benchmark) -> list[str]:
    """Return what limits every number below, one line each."""
    lines = []
    name = str(result.about["similarity"]["name"])
    if not name.startswith("sscd"):
        lines.append(
            f"similarity is {cut(name, LONGEST)}, not SSCD as in the paper: its numbers, and the"
            f" limit {LIMIT:g} of the share, mean something else, and only compare the methods of"
            " this benchmark"
        )
    if result.triggers.groups < 2:
        lines.append(
            "all trigger prompts reproduce the same images: they are one group, and nothing can be"
            " said with confidence"
        )
    elif result.triggers.effective < 6:
        lines.append(
            f"the trigger prompts are worth {result.triggers.effective:.1f} independent ones:"
            " intervals are wide, and no paired test can be sure"
        )
    return [*lines, *_floor(result), *_limits(result)]


def _floor(result: Benchmark) -> Iterator[str]:
    """Yield how similar images are to memorized ones that they do not reproduce."""
    found = result.floor
    if result.base.score(TRIGGER, "share") is None:
        return
    if found is None:
        yield (
            "floor of the similarity: not measured, there are no memorized images of another group"
            " and no general prompts; a share above 0 may be that of images that are not memorized"
        )
        return
    low, high = number(found.share.low), number(found.share.high)
    ends = "" if math.isnan(found.share.low) else f", 95 % {low} to {high}"
    whose = "general prompts" if found.source == GENERAL else "other trigger prompts"
    yield (
        f"floor of the similarity: of {found.images:,} images of {whose}, which do not reproduce"
        f" the memorized image, {number(found.share.value)} are more similar to it than {LIMIT:g}"
        f"{ends}; their top-1 is {number(found.top1.value)}. A share at the floor shows no"
        " memorization"
    )
    base = result.base.value(TRIGGER, "share")
    if 0 < base <= max(found.share.value, found.share.high):
        yield (
            f"the share without mitigation, {number(base)}, is within the interval of the floor:"
            " it does not show that these prompts are memorized"
        )


def _limits(result: Benchmark) -> Iterator[str]:
    """Yield the limits of what the numbers show."""
    many, plain = result.triggers.images, result.general
    if result.base.value(TRIGGER, "share") == 0:
        yield (
            f"without mitigation no image is more similar than {LIMIT:g} to the memorized images of"
            " its prompt: there may be nothing for a method to remove"
        )
    if many < 3:
        yield f"with {counted(many, 'image')} per trigger prompt top-3 is the mean of all"
    judged = result.about["alignment"] or result.about["aesthetic"]
    if plain is not None and not judged:
        yield (
            "of general prompts only seconds were measured: neither a CLIP score (--clip) nor an"
            " aesthetic score (--aesthetic) was requested"
        )
    shared = any(row.about.get("options", {}).get("scope") == "batch" for row in result.rows)
    # one l of Wen et al. where the scenarios have other numbers of images
    if shared and plain is not None and plain.images != many:
        yield (
            f"wen with scope=batch compares l with one norm over all images of a prompt: {many:,}"
            f" of a trigger prompt, {plain.images:,} of a general one, whose images may have a D"
            f" {math.sqrt(many / plain.images):.2g} times as large before they are changed; the"
            " cost on general prompts is that of another l"
            f" (--general-images {many} makes them equal)"
        )


def about(result: Benchmark) -> Iterator[str]:
    """Yield what was measured, one line each."""

    def named(value: object) -> str:
        return cut(str(value), LONGEST)

    facts, own, plain, found = result.about, result.triggers, result.general, result.reference
    model, sampling = facts["model"], facts["sampling"]
    yield (
        f"model {named(model.get('name', ''))}, {model.get('precision', '')};"
        f" {sampling['steps']} steps, guidance {sampling['guidance']:g}, seed {facts['seed']};"
        " every method starts from the same noises for the same prompt"
    )
    yield (
        f"{own.prompts:,} trigger prompts in {own.groups:,} groups, worth {own.effective:.1f}"
        f" independent ones; {own.images:,} images each; memorized images known of"
        f" {own.referenced:,}"
    )
    if plain is not None:
        yield f"{plain.prompts:,} general prompts, {counted(plain.images, 'image')} each"
    yield f"similarity: {named(facts['similarity']['name'])} ({facts['similarity']['number']})"
    if facts["alignment"] is not None:
        yield f"CLIP score: {named(facts['alignment']['name'])}, cosine against the prompt"
    if facts["aesthetic"] is not None:
        yield f"aesthetic score: {named(facts['aesthetic']['name'])}"
    if facts["real"] is not None:
        yield (
            f"distances: {named(facts['real']['name'])}, features of"
            f" {named(facts['real']['features'])}; comparable only where both are the same"
        )
    if found is not None:
        yield (
            f"reference performance: the image of {named(found.source)} with the best CLIP score"
            " for a prompt"
        )


def reading(result: Benchmark) -> list[str]:
    """Return how to read the tables, one line each."""
    shown = list(dict.fromkeys(name for _, name in columns_of(result)))
    lines = [
        "; ".join(f"{SCORES[name].short}: {SCORES[name].words}" for name in shown),
        "intervals hold 95 %: whole groups of prompts that share memorized images vary; a star"
        " marks what a paired test against no mitigation, corrected for the number of settings"
        " (Holm), calls changed",
        "hypervolume: the share of the area between the base's similarity and 0, and 0 and the"
        " base's CLIP or aesthetic score, that the settings of a method cover together; 1 is"
        " a method that removes all similarity and changes nothing else",
        "the paper's rule: a method succeeds where top-1 similarity comes down to the reference,"
        " what a search for the prompt would show, while the CLIP score stays at least the base's",
    ]
    if any(row.distance is not None for row in result.rows):
        lines.append(
            "distances fall with mitigation because images become more diverse: they rank nothing"
        )
    return lines


def columns_of(result: Benchmark) -> list[tuple[str, str]]:
    """Return scenario and name of the numbers that the tables show: those that were measured."""
    shown = shown_columns(str(result.about["deviation"]))
    return [each for each in shown if any(row.score(*each) is not None for row in result.rows)]


def main_grid(result: Benchmark, by: str = "") -> Grid:
    """Return the table of methods and settings, with floor and reference performance."""
    shown = columns_of(result)
    rows = [
        [name_of(row.method), row.setting, *(cell(row.score(*each)) for each in shown)]
        for row in result.rows
    ]
    # beneath the row without mitigation
    rows[1:1] = [
        [
            method,
            FLOORS[source] if method == "floor" else short(source),
            *(cell(Score(*at, values[at], None)) if at in values else "" for at in shown),
        ]
        for method, source, values in _marks(result)
    ]
    header = ["method", "setting", *(heading(*each) for each in shown)]
    return Grid(f"Mitigations on trigger and general prompts{by}", header, rows, texts=2)


def heading(scenario: str, name: str) -> str:
    """Return the heading of a number, with the direction that is better."""
    column = SCORES[name]
    text = f"{column.short} {ARROWS[column.rising]}"
    return text if scenario == TRIGGER else f"general {text}"


def cell(score: Score | None) -> str:
    """Return a number with its interval, and a star where a paired test calls it changed."""
    if score is None:
        return "-"
    places = SCORES[score.name].places
    star = CHANGED if score.change is not None and score.change.p_holm < LEVEL else ""
    value, ends = number(score.interval.value, places), _ends(score.interval, places)
    return f"{value}{star} ({ends})" if ends else f"{value}{star}"


def _ends(found: GroupInterval, places: int = 3) -> str:
    known = not math.isnan(found.low)
    return f"{number(found.low, places)} to {number(found.high, places)}" if known else ""


def _marks(result: Benchmark) -> Iterator[tuple[str, str, dict[tuple[str, str], GroupInterval]]]:
    """Yield floor and reference performance: name, source, and their numbers by scenario, name."""
    if result.floor is not None:
        values = {(TRIGGER, name): getattr(result.floor, name) for name in COPYING}
        yield "floor", result.floor.source, values
    if result.reference is not None:
        found = result.reference
        values = {(TRIGGER, "top1"): found.similarity, (TRIGGER, "clip"): found.clip}
        yield "reference", found.source, values


def change_grid(result: Benchmark, by: str = "") -> Grid:
    """Return every change against no mitigation, with its interval and probability."""

    def probability(value: float) -> str:
        return p_value(value).removeprefix("p ").removeprefix("= ").replace("is not known", "-")

    rows = []
    for row in result.rows[1:]:
        for scenario, name in columns_of(result):
            score = row.score(scenario, name)
            if score is None or score.change is None:
                continue
            change, column = score.change, SCORES[name]
            low, high = (signed(end, column.places) for end in (change.low, change.high))
            rows.append(
                [
                    *(label_of(row), f"{scenario} {column.short}"),
                    signed(change.value, column.places),
                    "-" if math.isnan(change.low) else f"{low} to {high}",
                    *(probability(change.p), probability(change.p_holm)),
                ]
            )
    header = ["method", "number", "change", "95 % interval", "p", "p, all settings"]
    return Grid(f"Changes against no mitigation{by}", header, rows, texts=2)


def curve_grid(result: Benchmark, by: str = "") -> Grid:
    """Return the hypervolumes, the largest of a kind in bold."""
    names = {"clip": "similarity and CLIP", "aesthetic": "similarity and aesthetic score"}
    rows, bold = [], set()
    for at, curve in enumerate(result.curves):
        own = [line_name(curve.line), names[curve.name], str(curve.settings)]
        rows.append([*own, number(curve.volume.value), _ends(curve.volume) or "-"])
        rivals = [each.volume.value for each in result.curves if each.name == curve.name]
        if len(rivals) > 1 and curve.volume.value == max(rivals):
            bold.add((at, 3))
    header = ["method", "trade-off", "settings", "hypervolume", "95 % interval"]
    title = f"Hypervolume of each trade-off{by}"
    return Grid(title, header, rows, texts=2, bold=frozenset(bold))


def distance_grid(result: Benchmark) -> Grid:
    """Return table 4: distances of the trigger prompts' images to a set of real ones."""
    rows = []
    for row in result.rows:
        found = row.distance
        if found is not None:
            ends = f" ({found.kernel_low:.3g} to {found.kernel_high:.3g})"
            kernel = f"{found.kernel:.3g}{'' if math.isnan(found.kernel_low) else ends}"
            rows.append([label_of(row), f"{found.frechet:.2f}", kernel, f"{found.images:,}"])
    real = result.about["real"]
    # of other features than Inception's it is another number
    fid = real is not None and str(real["features"]).startswith("inception")
    header = ["method", "FID ↓" if fid else "Fréchet distance ↓", "kernel distance ↓", "images"]
    return Grid("Distance to real images", header, rows)


def cost_grid(result: Benchmark) -> Grid:
    """Return the seconds per image, and by how much that is more than without mitigation."""
    header, rows = ["method"], [[label_of(row)] for row in result.rows]
    for scenario in (TRIGGER, GENERAL)[: 1 if result.general is None else 2]:
        header += [f"{scenario}: seconds per image", "times the base"]
        base = result.base.seconds[scenario]
        for cells, row in zip(rows, result.rows, strict=True):
            seconds = row.seconds[scenario]
            cells += [f"{seconds:.3g}", f"{seconds / base:.2f}" if base else "-"]
    return Grid("Cost", header, rows)


def files(
    result: Benchmark, entries: Sequence[Entry], scenes: Sequence[Scene], sheet: bytes
) -> dict[str, File]:
    """Return the tables, figures and pages of a benchmark, by name of file."""
    made = document(result, sheet=bool(sheet))
    return {
        MEASUREMENTS: pa.concat_tables(
            _measurements(entry, scene) for entry in entries for scene in scenes
        ),
        "benchmark.csv": lines_table(result),
        "costs.csv": costs_table(result),
        "benchmark.tex": latex(made),
        **made.figures[0].by_name(),
        SHEET: sheet,
        "benchmark.md": markdown(made),
    }


def _measurements(entry: Entry, scene: Scene) -> pa.Table:
    found, jobs = entry.measured[scene.name], scene.jobs
    texts = {"method": entry.method, "setting": entry.setting, "scenario": scene.name}
    return pa.table(
        {
            **{name: pa.array([text] * len(jobs), _TEXT) for name, text in texts.items()},
            "prompt": pa.array([job.prompt for job in jobs], _TEXT),
            "seed": pa.array([job.seed for job in jobs], _WHOLE),
            **{
                name: pa.array(getattr(found, name).ravel(), _REAL, from_pandas=True)
                for name in ("similarity", "clip", "aesthetic", "seconds")
            },
            "image": pa.array([digest for row in found.digests for digest in row], _TEXT),
        }
    )


def lines_table(result: Benchmark) -> pa.Table:
    """Return every number with its interval and change."""
    rows: list[dict[str, object]] = []
    for row in result.rows:
        own = {"method": row.method, "setting": row.setting, "strength": row.strength}
        rows += [own | _line(result, each) for each in row.scores]
        if row.distance is not None:
            far = row.distance
            kernel = {"value": far.kernel, "low": far.kernel_low, "high": far.kernel_high}
            ends = {"frechet_distance": {"value": far.frechet}, "kernel_distance": kernel}
            for name, values in ends.items():
                more = {"scenario": TRIGGER, "number": name, "judge": judge_of(result, name)}
                rows.append(own | more | values)
    for method, source, found in _marks(result):
        own = {"method": method, "setting": source}
        rows += [own | _line(result, Score(*at, each, None)) for at, each in found.items()]
    return pa.Table.from_pylist(rows, schema=pa.schema(list(_LINES.items())))


def _line(result: Benchmark, score: Score) -> dict[str, object]:
    found, change = score.interval, score.change
    names = ("value", "low", "high", "prompts", "groups", "effective")
    line: dict[str, object] = {name: getattr(found, name) for name in names}
    line |= {
        "scenario": score.scenario,
        "number": score.name,
        "judge": judge_of(result, score.name),
    }
    if change is not None:
        line |= {"change": change.value, "change_low": change.low, "change_high": change.high}
        line |= {"p": change.p, "p_holm": change.p_holm}
    return line


def judge_of(result: Benchmark, name: str) -> str:
    """Return what a number was measured by."""
    kinds = {"clip": "alignment", "frechet_distance": "real", "kernel_distance": "real"}
    kind = "aesthetic" if name.startswith("aesthetic") else kinds.get(name, "similarity")
    judge = result.about[kind] or {}
    return str(judge.get("features" if kind == "real" else "name", ""))


def costs_table(result: Benchmark) -> pa.Table:
    """Return the seconds per image, which alone differ from one run to another."""
    columns = (*map(Column, ("method", "setting", "scenario")), Column("seconds_per_image", _REAL))
    rows = [(row.method, row.setting, *each) for row in result.rows for each in row.seconds.items()]
    return Table("Cost", columns, rows).arrow()


def worst_of(measured: Measurements, count: int = ACROSS) -> list[tuple[str, float]]:
    """Return digest and score of the lowest aesthetic scores, one per prompt, each image once."""
    found: dict[str, float] = {}
    places = np.argsort(measured.aesthetic, axis=1, kind="stable")
    scores = np.take_along_axis(measured.aesthetic, places, axis=1)[:, 0]
    for prompt in np.argsort(scores, kind="stable").tolist():
        digest = measured.digests[prompt][int(places[prompt, 0])]
        if np.isfinite(scores[prompt]):
            found.setdefault(digest, float(scores[prompt]))
        if len(found) == count:
            break
    return list(found.items())


def worst_sheet(rows: Sequence[MethodRow], entries: Sequence[Entry], images: ImageStore) -> bytes:
    """Return the worst images of each method by aesthetic score, as PNG."""
    shown = []
    for row, entry in list(zip(rows, entries, strict=True))[:ROWS]:
        worst = worst_of(entry.measured[TRIGGER])
        tiles = [Tile(f"{score:.2f}", partial(images.pixels, digest)) for digest, score in worst]
        shown.append((label_of(row), tiles))
    below = "trigger prompts, at most one image each, the worst first"
    return contact_sheet("The worst images by aesthetic score", below, shown)
