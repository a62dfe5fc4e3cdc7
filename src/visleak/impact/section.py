"""An impact as a section of the audit's report: ``sections/impact.json`` of its folder."""

from __future__ import annotations

from typing import Any, Final

from visleak.impact import figures, scatter
from visleak.impact.headline import headlines
from visleak.impact.markup import about, reading
from visleak.impact.results import Impact
from visleak.impact.tables import fair, flips, gaps, layouts, tests
from visleak.markup import Grid, markdown_cell

#: File of the section among those of the audit.
NAME: Final = "impact.json"


def section(result: Impact) -> dict[str, Any]:
    """Return the section: title, Markdown, tables as texts, drawings as SVG.

    What it says goes through the report's own escaping once more.
    """
    lines = [f"- {markdown_cell(line)}" for line in headlines(result)]
    lines += ["", f"{markdown_cell(about(result))}.", ""]
    lines += [f"- {markdown_cell(line)}" for line in (*result.notes, *reading(result))]
    grids = [*layouts(result), *tests(result), *fair(result), *flips(result), *gaps(result)]
    return {
        "title": "Impact on scores",
        "markdown": "\n".join(lines) + "\n",
        "tables": [_table(grid) for grid in grids],
        "svg": list(_drawings(result)),
    }


def _table(grid: Grid) -> dict[str, Any]:
    return {"caption": grid.title, "header": grid.header, "rows": grid.rows}


def _drawings(result: Impact) -> list[dict[str, str]]:
    # one panel beneath the other, so that a telephone shows them large enough
    drawn = (
        ("What parts of the benchmark gain over the whole", figures.gains(result, columns=1)),
        ("Original numbers against fair ones", scatter.fair(result)),
    )
    return [
        {"title": title, "svg": files["svg"].decode("utf-8")} for title, files in drawn if files
    ]
