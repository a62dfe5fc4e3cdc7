"""An impact as a section of the audit's report: ``sections/impact.json`` of its folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from visleak.impact import figures, scatter
from visleak.impact.headline import headlines, principal
from visleak.impact.markup import about, main_grids, reading
from visleak.impact.results import Impact
from visleak.markup import Grid, markdown_cell

#: File of the section among those of the audit.
NAME: Final = "impact.json"

#: Most panels of a drawing.
PANELS: Final = 3


def section(result: Impact) -> dict[str, Any]:
    """Return the section: title, Markdown, tables as texts, drawings as SVG.

    What it says goes through the report's own escaping once more.
    """
    lines = [f"- {markdown_cell(line)}" for line in headlines(result)]
    lines += ["", f"{markdown_cell(about(result))}.", ""]
    lines += [f"- {markdown_cell(line)}" for line in (*result.notes, *reading(result))]
    return {
        "title": "Impact on scores",
        "markdown": "\n".join(lines) + "\n",
        "tables": [_table(grid) for grid in main_grids(result)],
        "svg": list(_drawings(result)),
    }


def _table(grid: Grid) -> dict[str, Any]:
    return {"caption": grid.title, "header": grid.header, "rows": grid.rows}


def _drawings(result: Impact) -> Iterator[dict[str, str]]:
    leaks, every = _panels(result)
    told = "What parts of the benchmark gain over the whole"
    if len(leaks) < every:
        told += f"; {len(leaks)} of {every} leaks, gains.svg has all"
    # one panel beneath the other, so that a telephone shows them large enough
    drawn = (
        (told, figures.gains(result, columns=1, only=leaks)),
        ("Original numbers against fair ones", scatter.fair(result)),
    )
    for title, files in drawn:
        if files:
            yield {"title": title, "svg": files["svg"].decode("utf-8")}


def _panels(result: Impact) -> tuple[list[str], int]:
    """Return the leaks to draw, that of the sentences among them, and how many there are."""
    every = [leak for leak, count in result.leaks.items() if count]
    main = principal(result)
    # what is hard or soft says more than what is soft only
    wide = [leak for leak in every if leak == main or not leak.endswith(" only")]
    return sorted(wide, key=lambda leak: leak != main)[:PANELS], len(every)
