"""A study as a document, and the files of its folder."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

import numpy as np

from visleak.quantities import counted
from visleak.rates import Rate, percent
from visleak.reporting import Column, Document, Figure, Table, latex, markdown, page
from visleak.reporting.charts import Panel, bar_chart, leak_bars, matrices
from visleak.reporting.markup import Grid
from visleak.storage import REPORT, AuditSummary, RunFolder, TotalSummary
from visleak.study.config import Plan, Study, Values, plan, shown
from visleak.study.results import KIND, RATES, Cell, Rates, Result, Union, as_dict, plan_dict
from visleak.study.running import locate, missing_sets

RESULT: Final = "study.json"
PAGE: Final = "study.html"

CELLS: Final = (
    *("query_set", "reference_set", "coverage", "modality", "rate"),
    *("count", "total", "share", "low", "high", "published_percent"),
)
UNIONS: Final = ("query_set", "coverage", "reference_sets", *CELLS[4:])

#: Rates of the tables: name and words.
SHOWN: Final = (
    ("hard", "hard"),
    ("soft", "soft"),
    ("hard_or_soft", "hard or soft"),
    ("near_or_exact", "near or exact"),
)
#: Columns of the table of comparisons on a terminal.
TERMINAL: Final = ("benchmark", "reference", "images", *(f"{words} %" for _, words in SHOWN))

#: Panels of the matrices: rate, title, map of colours.
DEGREES: Final = (
    ("hard", "Hard leaks, %", "Reds"),
    ("soft", "Soft leaks, %", "Blues"),
    ("hard_or_soft", "Hard or soft, %", "Purples"),
)
GRADES: Final = (
    ("exact", "Exact, %", "Reds"),
    ("near", "Near, %", "Oranges"),
    ("near_or_exact", "Near or exact, %", "Purples"),
)

BOTH: Final = ("svg", "png")
_REPEATS: Final = "Repeats within a set (near or exact; no leaks)"
READING: Final = (
    "shares are of the readable images of a benchmark; an image has the degree of its most similar"
    " reference, so hard and soft are disjoint; intervals are 95 % Wilson intervals",
    "a lower threshold misses fewer leaks and reports more look-alikes; grades tell them apart"
    " where pixels were verified",
    "layout after Ramos et al., Data leakage in visual datasets (2025), figures 3 and 4",
)


def document(result: Result) -> Document:
    """Return a study as a document."""
    first, *others = result.headlines or ("no benchmark was compared",)
    run = result.run
    notes = [*result.notes, *_missing(run.plan, run.missing), extent(run.plan)]
    notes += [f"published: {result.paper.source}"] if result.paper.source else []
    repeats = [[each.query, f"{each.images:,}", f"{each.pairs:,}"] for each in result.repeats]
    return Document(
        title=run.study.title,
        headline=first,
        lines=tuple(others),
        tables=(
            comparisons(result),
            *(_matrix(result, rate, title) for rate, title, _ in (*DEGREES, GRADES[-1])),
            _of_unions("Leaks into any of its references", result, "any"),
            _of_unions("Within a dataset", result, "intra"),
            Grid(_REPEATS, ["set", "images", "pairs"], repeats),
            Grid("Not compared", ["comparison or set", "reason"], _left_out(result), texts=2),
        ),
        figures=tuple(_figures(result)),
        notes=tuple(notes),
        reading=READING,
    )


def write(result: Result, folder: Path) -> Path:
    """Write everything about a study beside its audits; ``study.json`` comes last.

    Returns:
        The folder.
    """
    run, made = RunFolder(folder, KIND), document(result)
    figures = {name: file for each in made.figures for name, file in each.by_name().items()}
    cells, unions = [], []
    for cell in result.cells:
        each = cell.comparison
        about = (each.query, each.reference, each.coverage, cell.modality)
        cells += [about + row for row in _rate_rows(cell.rates, cell.paper)]
    for union in result.unions:
        own = (union.query, union.coverage, " ".join(union.references))
        unions += [own + row for row in _rate_rows(union.rates, union.paper)]
    files = {
        **figures,
        "comparisons.csv": Table("", tuple(map(Column, CELLS)), cells).arrow(),
        "benchmarks.csv": Table("", tuple(map(Column, UNIONS)), unions).arrow(),
        "study.md": markdown(made),
        "study.tex": latex(made),
        PAGE: page(made, links=list(_links(result))),
    }
    run.finish(as_dict(result), files)
    return folder


def _links(result: Result) -> Iterator[tuple[str, str]]:
    """Yield the reports of the audits that have one: the command writes them."""
    queries: dict[tuple[str, str], list[str]] = {}
    for cell in result.cells:
        if (result.run.audits[cell.comparison].folder / REPORT).is_file():
            key = cell.comparison.reference, cell.audit
            queries.setdefault(key, []).append(cell.comparison.query)
    for (reference, audit), names in queries.items():
        yield f"Pairs of {', '.join(names)} in {reference}", f"{quote(audit)}/{REPORT}"


# -- files -------------------------------------------------------------------------------------


def _rate_rows(rates: Rates, paper: Values) -> Iterator[tuple[str, ...]]:
    for name in RATES:
        if rate := rates[name]:
            numbers = map(_number, (rate.share, rate.low, rate.high))
            yield (name, str(rate.count), str(rate.total), *numbers, shown(paper.get(name)))


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6f}".rstrip("0").rstrip(".")


# -- figures -----------------------------------------------------------------------------------


def _figures(result: Result) -> Iterator[Figure]:
    intra = [union for union in result.unions if union.coverage == "intra"]
    hard = "Hard and soft leaks of benchmarks (columns) into training sets (rows)"
    yield Figure("matrix", hard, _matrices(result, DEGREES, "matrix"))
    near = "Exact and near copies of benchmarks (columns) in training sets (rows)"
    yield Figure("grades", near, _matrices(result, GRADES, "grades"))
    inside = "Leaks of each benchmark into the other sets of its dataset"
    yield Figure("intra", inside, _bars(intra, "Leaks within a dataset", "intra"))
    union = "Leaks of each benchmark into any of its references"
    yield Figure("union", union, _bars(result.totals, "Leaks into any training set", "union"))


def _matrices(
    result: Result, panels: Sequence[tuple[str, str, str]], name: str
) -> dict[str, bytes]:
    rows, columns = result.rows, result.columns
    cells = [[result.cell(query, reference) for query in columns] for reference in rows]
    # the last panel sums up the others
    if not any(cell.rates[panels[-1][0]] for cell in result.cells):
        return {}

    def share(cell: Cell | None, rate: str) -> float:
        found = cell.rates[rate] if cell else None
        return found.share if found else math.nan

    def panel(rate: str, title: str, colours: str) -> Panel:
        shares = np.array([[share(cell, rate) for cell in row] for row in cells], np.float64)
        texts = [[shown(cell.paper.get(rate)) if cell else "" for cell in row] for row in cells]
        return Panel(title, shares.reshape(len(rows), len(columns)), colours, texts)

    return matrices(rows, columns, [panel(*each) for each in panels], name, BOTH)


def _bars(unions: Sequence[Union], title: str, name: str) -> dict[str, bytes]:
    """Draw hard and soft leaks stacked, with the interval of their sum."""
    none = Rate.of(0, 1)
    rows = []
    for union in unions:
        total, published = union.rates["hard_or_soft"], union.paper.get("hard_or_soft")
        if total and total.total:
            hard, soft = (union.rates[rate] or none for rate in ("hard", "soft"))
            mark = published if isinstance(published, float) else None
            rows.append((union.query, hard, soft, total, mark))
    return bar_chart(
        leak_bars(rows),
        name,
        title=title,
        label="images that leak, %; the line is the 95 % interval of the sum",
        legend=("hard", "soft"),
        mark="published sum",
        kinds=BOTH,
    )


# -- tables ------------------------------------------------------------------------------------


def _matrix(result: Result, rate: str, title: str) -> Grid:
    """Return references by queries; where something is published, ours / published."""
    cells = [[result.cell(query, name) for query in result.columns] for name in result.rows]
    flat = [cell for row in cells for cell in row if cell]
    published = any(shown(cell.paper.get(rate)) for cell in flat)
    rows = [
        [reference, *(_share(cell, rate) for cell in row)]
        for reference, row in zip(result.rows, cells, strict=True)
    ]
    title += " (ours / published)" if published else ""
    known = any(cell.rates[rate] for cell in flat)
    return Grid(title, ["reference", *result.columns], rows if known else [])


def _share(cell: Cell | None, rate: str) -> str:
    found = cell.rates[rate] if cell else None
    if cell is None or found is None:
        return "–"
    published = shown(cell.paper.get(rate))
    return percent(found.share) + (f" / {published}" if published else "")


def comparisons(result: Result) -> Grid:
    """Return one row per comparison, with counts and intervals."""
    about = ["benchmark", "reference", "coverage", "modality"]
    rows = [
        [c.comparison.query, c.comparison.reference, c.comparison.coverage, c.modality]
        for c in result.cells
    ]
    return _with_rates("Comparisons", about, rows, [(c.rates, c.paper) for c in result.cells])


def _of_unions(title: str, result: Result, coverage: str) -> Grid:
    """Return one row per benchmark over several references."""
    unions = [union for union in result.unions if union.coverage == coverage]
    rows = [
        [u.query, u.references[0] if len(u.references) == 1 else str(len(u.references))]
        for u in unions
    ]
    found = [(union.rates, union.paper) for union in unions]
    return _with_rates(title, ["benchmark", "references"], rows, found)


def _with_rates(
    title: str,
    about: Sequence[str],
    rows: Sequence[Sequence[str]],
    found: Sequence[tuple[Rates, Values]],
) -> Grid:
    """Return rows with images, and for each known rate count, share, interval and published."""
    names = [(name, words) for name, words in SHOWN if any(rates[name] for rates, _ in found)]
    published = {name for name, _ in names if any(shown(paper.get(name)) for _, paper in found)}
    header = [*about, "images"]
    for name, words in names:
        header += [words, f"{words} %", "95 % CI"]
        header += ["published %"] if name in published else []
    body = []
    for row, (rates, paper) in zip(rows, found, strict=True):
        known = next((rate for name, _ in names if (rate := rates[name])), None)
        cells = [*row, f"{known.total:,}" if known else "–"]
        for name, _ in names:
            rate = rates[name]
            if rate is None or not rate.total:
                cells += ["–", "–", "–"]
            else:
                interval = f"{percent(rate.low)}-{percent(rate.high)}"
                cells += [f"{rate.count:,}", percent(rate.share), interval]
            cells += [shown(paper.get(name)) or "–"] if name in published else []
        body.append(cells)
    return Grid(title, header, body if names else [], texts=len(about))


def _left_out(result: Result) -> list[list[str]]:
    plan = result.run.plan
    rows = []
    for left in (*result.failed, *plan.included):
        rows.append([f"{left.comparison.query} against {left.comparison.reference}", left.why])
    rows += [[name, why] for name, why in absent(plan, result.run.missing).items()]
    return [*rows, *([name, "in no comparison"] for name in plan.idle)]


def absent(plan: Plan, missing: Mapping[str, str]) -> dict[str, str]:
    """Return the sets that are not there: why, and how many comparisons lack them."""
    skipped = [left.comparison for left in plan.skipped]
    lacking = Counter(name for each in skipped for name in {each.query, each.reference})
    return {
        name: f"{why} ({counted(lacking[name], 'comparison')})" for name, why in missing.items()
    }


def _missing(plan: Plan, missing: Mapping[str, str]) -> list[str]:
    return [f"not there: {name}: {why}" for name, why in absent(plan, missing).items()]


def planned(plan: Plan) -> Grid:
    """Return a plan as a table: every comparison, and what becomes of it."""
    rows = []
    for each in plan.comparisons:
        own = f", own copies left out by {each.match}" if each.match else ""
        rows.append([each.reference, each.query, each.coverage, f"compare{own}"])
    for word, lefts in (("left out", plan.included), ("skipped", plan.skipped)):
        for left in lefts:
            each = left.comparison
            rows.append([each.reference, each.query, each.coverage, f"{word}: {left.why}"])
    return Grid("Plan", ["reference", "benchmark", "coverage", "what"], rows, texts=4)


def extent(plan: Plan) -> str:
    """Return how much a plan holds, in words."""
    return (
        f"{counted(len(plan.comparisons), 'comparison')} in"
        f" {counted(len(plan.by_reference()), 'audit')}; {len(plan.included)} left out as known"
        f" inclusions, {len(plan.skipped)} skipped because a set is not there"
    )


def plan_of(study: Study) -> tuple[Document, dict[str, object]]:
    """Return what a study would compare, for people and as plain values; nothing is opened."""
    missing = missing_sets(locate(study))
    made = plan(study, missing)
    notes = (*_missing(made, missing), *(f"in no comparison: {name}" for name in made.idle))
    document = Document("Plan", extent(made), lines=notes, tables=(planned(made),))
    return document, plan_dict(study, made)


def failures(result: Result) -> list[str]:
    """Return a line for each thing that went wrong: the first comparison it cost, and how many."""
    lines = []
    for why in dict.fromkeys(left.why for left in result.failed):
        first, *others = [left.comparison for left in result.failed if left.why == why]
        more = f" and {len(others)} more" if others else ""
        lines.append(f"{first.query} against {first.reference}{more}: {why}")
    return lines


def not_compared(result: Result) -> list[str]:
    """Return a line for each set whose source is given and does not exist: a gate fails by it."""
    return [
        f"gates: set {name!r} was compared with nothing ({why}); correct its source, or empty it"
        for name, why in result.run.missing.items()
        if result.run.study.named(name).source.strip()
    ]


def summary(result: Result) -> AuditSummary:
    """Return sets and totals of a study, as the gates read them."""
    audited = {s.name: s for audit in result.run.audits.values() for s in audit.summary.sets}
    totals = zip(result.totals, result.headlines, strict=True)
    return AuditSummary(
        sets=tuple(audited[s.name] for s in result.run.study.sets if s.name in audited),
        totals=tuple(TotalSummary(union.query, line, union.rates) for union, line in totals),
    )
