"""The study's tables: for people as texts, for machines as rows of CSV."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from visleak.markup import Grid, latex_table, markdown_cell, markdown_table
from visleak.stats import Rate, percent
from visleak.study.paper import Values, shown
from visleak.study.plan import LeftOut, Plan
from visleak.study.results import RATES, Cell, Rates, Result, Union
from visleak.study.texts import counted

CELLS: Final = (
    *("query_set", "reference_set", "coverage", "modality", "rate"),
    *("count", "total", "share", "low", "high", "published_percent"),
)
UNIONS: Final = ("query_set", "coverage", "reference_sets", *CELLS[4:])

#: Matrices: rate and title.
MATRICES: Final = (
    ("hard", "Hard leaks, %"),
    ("soft", "Soft leaks, %"),
    ("hard_or_soft", "Hard or soft, %"),
    ("near_or_exact", "Near or exact, %"),
)

#: Rates of the tables of unions and comparisons: name and words.
SHOWN: Final = (
    ("hard", "hard"),
    ("soft", "soft"),
    ("hard_or_soft", "hard or soft"),
    ("near_or_exact", "near or exact"),
)


def cell_rows(result: Result) -> Iterator[tuple[str, ...]]:
    """Yield the rows of ``comparisons.csv``: one a comparison and rate."""
    for cell in result.cells:
        each = cell.comparison
        about = (each.query, each.reference, each.coverage, cell.modality)
        yield from (about + row for row in _rate_rows(cell.rates, cell.paper))


def union_rows(result: Result) -> Iterator[tuple[str, ...]]:
    """Yield the rows of ``benchmarks.csv``: one a benchmark, coverage and rate."""
    for union in result.unions:
        about = (union.query, union.coverage, " ".join(union.references))
        yield from (about + row for row in _rate_rows(union.rates, union.paper))


def _rate_rows(rates: Rates, paper: Values) -> Iterator[tuple[str, ...]]:
    for name in RATES:
        rate = rates[name]
        if rate is not None:
            numbers = (_number(value) for value in (rate.share, rate.low, rate.high))
            published = shown(paper.get(name))
            yield (name, str(rate.count), str(rate.total), *numbers, published)


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6f}".rstrip("0").rstrip(".")


def matrices(result: Result) -> list[Grid]:
    """Return the figures' matrices as tables; one without a number is left out."""
    found = [_matrix(result, rate, title) for rate, title in MATRICES]
    return [grid for grid in found if grid.rows]


def lists(result: Result) -> list[Grid]:
    """Return the tables with counts and intervals; one without a number is left out."""
    found = [
        _of_unions("Leaks into any of its references", result, "any"),
        _of_unions("Within a dataset", result, "intra"),
        _comparisons(result),
    ]
    if result.repeats:
        rows = [[r.query, f"{r.images:,}", f"{r.pairs:,}"] for r in result.repeats]
        title = "Repeats within a set (near or exact; no leaks)"
        found.append(Grid(title, ["set", "images", "pairs"], rows))
    return [grid for grid in found if grid.rows]


def _matrix(result: Result, rate: str, title: str) -> Grid:
    """Return references by queries; where something is published, ours / published."""
    rows = []
    published = known = False
    for reference in result.rows:
        row = [reference]
        for query in result.columns:
            cell = result.cell(query, reference)
            known |= cell is not None and cell.rates[rate] is not None
            published |= cell is not None and bool(shown(cell.paper.get(rate)))
            row.append(_share(cell, rate))
        rows.append(row)
    title += " (ours / published)" if published else ""
    return Grid(title, ["reference", *result.columns], rows if known else [])


def _share(cell: Cell | None, rate: str) -> str:
    found = cell.rates[rate] if cell is not None else None
    if cell is None or found is None:
        return "–"
    published = shown(cell.paper.get(rate))
    return percent(found.share) + (f" / {published}" if published else "")


def _of_unions(title: str, result: Result, coverage: str) -> Grid:
    """Return one row a benchmark over several references."""
    unions = [union for union in result.unions if union.coverage == coverage]
    names = _known([union.rates for union in unions])
    papers = [union.paper for union in unions]
    header = ["benchmark", "references", "images", *_rate_header(names, papers)]
    rows = [
        [
            union.query,
            _listed(union),
            *_rate_cells(union.rates, union.paper, names, papers),
        ]
        for union in unions
    ]
    return Grid(title, header, rows if names else [])


def _listed(union: Union) -> str:
    return union.references[0] if len(union.references) == 1 else str(len(union.references))


def _comparisons(result: Result) -> Grid:
    names = _known([cell.rates for cell in result.cells])
    papers = [cell.paper for cell in result.cells]
    about = ["benchmark", "reference", "coverage", "modality", "images"]
    rows = [
        [
            cell.comparison.query,
            cell.comparison.reference,
            cell.comparison.coverage,
            cell.modality,
            *_rate_cells(cell.rates, cell.paper, names, papers),
        ]
        for cell in result.cells
    ]
    return Grid("Every comparison", [*about, *_rate_header(names, papers)], rows if names else [])


def short(result: Result) -> Grid:
    """Return one row a comparison for a terminal: shares, and the published total."""
    names = _known([cell.rates for cell in result.cells])
    published = _has_published("hard_or_soft", [cell.paper for cell in result.cells])
    header = ["benchmark", "reference", "images", *(f"{words} %" for _, words in names)]
    rows = []
    for cell in result.cells:
        known = next((cell.rates[name] for name, _ in names if cell.rates[name]), None)
        row = [cell.comparison.query, cell.comparison.reference]
        row.append(f"{known.total:,}" if known else "–")
        row += [percent(rate.share) if (rate := cell.rates[name]) else "–" for name, _ in names]
        row += [shown(cell.paper.get("hard_or_soft")) or "–"] if published else []
        rows.append(row)
    return Grid("Comparisons", [*header, *(["published %"] if published else [])], rows)


def _known(rates: Sequence[Rates]) -> list[tuple[str, str]]:
    """Return the rates of :data:`SHOWN` that anything is known of."""
    return [(name, words) for name, words in SHOWN if any(each[name] for each in rates)]


def _has_published(name: str, papers: Sequence[Values]) -> bool:
    return any(shown(paper.get(name)) for paper in papers)


def _rate_header(names: Sequence[tuple[str, str]], papers: Sequence[Values]) -> list[str]:
    header = []
    for name, words in names:
        header += [words, "%", "95 % CI"]
        header += ["published %"] if _has_published(name, papers) else []
    return header


def _rate_cells(
    rates: Rates, paper: Values, names: Sequence[tuple[str, str]], papers: Sequence[Values]
) -> list[str]:
    """Return images, and for each rate its count, share, interval, and what is published."""
    known = next((rates[name] for name, _ in names if rates[name] is not None), None)
    row = [f"{known.total:,}" if known is not None else "–"]
    for name, _ in names:
        row += _rate_texts(rates[name])
        row += [shown(paper.get(name)) or "–"] if _has_published(name, papers) else []
    return row


def _rate_texts(rate: Rate | None) -> list[str]:
    if rate is None or not rate.total:
        return ["–", "–", "–"]
    interval = f"{percent(rate.low)}-{percent(rate.high)}"
    return [f"{rate.count:,}", percent(rate.share), interval]


def left_out(result: Result) -> list[tuple[str, list[str]]]:
    """Return what was not compared: a title and lines each, in words."""
    plan = result.run.plan
    found = [
        ("Came to nothing", [_left(left) for left in result.failed]),
        ("Known inclusions, not compared", [_left(left) for left in plan.included]),
        ("Sets that are not there", absent(plan, result.run.missing)),
        ("Sets in no comparison", list(plan.idle)),
    ]
    return [(title, lines) for title, lines in found if lines]


def absent(plan: Plan, missing: Mapping[str, str]) -> list[str]:
    """Return the sets that are not there, why, and how many comparisons lack them."""
    lines = []
    for name, why in missing.items():
        lacking = [left for left in plan.skipped if name in _sides(left)]
        lines.append(f"{name}: {why} ({counted(len(lacking), 'comparison')})")
    return lines


def _sides(left: LeftOut) -> tuple[str, str]:
    return left.comparison.query, left.comparison.reference


def _left(left: LeftOut) -> str:
    return f"{left.comparison.query} against {left.comparison.reference}: {left.why}"


def markdown(result: Result) -> str:
    """Return ``study.md``."""
    lines = [f"# {markdown_cell(result.title)}", ""]
    lines += [f"- {markdown_cell(line)}" for line in (*result.headlines, *result.notes)]
    for grid in (*matrices(result), *lists(result)):
        lines += [
            "",
            f"## {markdown_cell(grid.title)}",
            "",
            *markdown_table(grid),
        ]
    for title, left in left_out(result):
        lines += ["", f"## {markdown_cell(title)}", ""]
        lines += [f"- {markdown_cell(line)}" for line in left]
    if result.paper.source:
        lines += ["", f"Published: {markdown_cell(result.paper.source)}"]
    return "\n".join(lines) + "\n"


def latex(result: Result) -> str:
    """Return ``study.tex``: every table, to be included in a document."""
    lines = ["% needs \\usepackage{booktabs}"]
    for grid in (*matrices(result), *lists(result)):
        lines += ["", *latex_table(grid)]
    return "\n".join(lines) + "\n"


def planned(plan: Plan) -> Grid:
    """Return a plan as a table: every comparison, and what becomes of it."""
    rows = [[e.reference, e.query, e.coverage, _done(e.match)] for e in plan.comparisons]
    for word, lefts in (("left out", plan.included), ("skipped", plan.skipped)):
        for left in lefts:
            each = left.comparison
            rows.append([each.reference, each.query, each.coverage, f"{word}: {left.why}"])
    return Grid("Plan", ["reference", "benchmark", "coverage", "what"], rows)


def _done(match: str) -> str:
    return f"compare, own copies left out by {match}" if match else "compare"


def extent(plan: Plan) -> str:
    """Return how much a plan holds, in words."""
    return (
        f"{counted(len(plan.comparisons), 'comparison')} in"
        f" {counted(len(plan.by_reference()), 'audit')}; {len(plan.included)} left out as known"
        f" inclusions, {len(plan.skipped)} skipped because a set is not there"
    )
