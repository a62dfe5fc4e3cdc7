"""A trace as a section of the audit's report: ``sections/memorization.json`` of its folder."""

from __future__ import annotations

from typing import Any, Final

from visleak.markup import Grid, markdown_cell
from visleak.memorization.tracing.headline import headlines
from visleak.memorization.tracing.markup import about, grids, reading
from visleak.memorization.tracing.records import Trace
from visleak.plots import Bar, rate_bars
from visleak.stats import Rate

#: File of the section among those of the audit.
NAME: Final = "memorization.json"


def section(result: Trace) -> dict[str, Any]:
    """Return the section: title, headline, Markdown, tables as texts, drawings as SVG.

    What it says goes through the report's own escaping once more.
    """
    first, *more = headlines(result)
    lines = [f"**{markdown_cell(first)}.**", ""]
    lines += [f"- {markdown_cell(line)}" for line in (*more, *about(result), *result.notes)]
    lines += [f"- {markdown_cell(line)}" for line in reading(result)]
    return {
        "title": "Memorization: who is the source of the generated images?",
        "headline": f"{first[:1].upper()}{first[1:]}.",
        "markdown": "\n".join(lines) + "\n",
        "tables": [_table(grid) for grid in grids(result)],
        "svg": [{"title": "What became of the generated images", "svg": fates(result)}],
    }


def fates(result: Trace) -> str:
    """Return bars of how many images are copies, of the same layout, similar, or neither."""
    total = len(result.matches)
    kinds = (
        ("near-duplicates", "near", ("exact", "near")),
        ("same layout, other colours", "soft", ("layout",)),
        ("not verified", "different", ()),
    )
    bars = []
    for name, colour, grades in kinds:
        count = sum(
            match.grade in grades if match.verified else not grades for match in result.matches
        )
        rate = Rate.of(count, total)
        bars.append(Bar(name, f"{count:,} of {total:,}", colour, rate.share, rate.low, rate.high))
    return rate_bars(bars, "Generated images")


def _table(grid: Grid) -> dict[str, Any]:
    return {"caption": grid.title, "header": grid.header, "rows": grid.rows}
