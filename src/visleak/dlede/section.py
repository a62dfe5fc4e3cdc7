"""D-LeDe as a section of the audit's report: ``sections/dlede.json`` of its folder.

The audit's pairs are what may explain the curve: both stand on one page.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from visleak.dlede import figures
from visleak.dlede.hash_figure import hash_distances
from visleak.dlede.headline import headline
from visleak.dlede.markup import about, cautions, findings, main_grids, reading
from visleak.dlede.results import DLeDe
from visleak.markup import Grid, markdown_cell

#: File of the section among those of the audit.
NAME: Final = "dlede.json"


def section(result: DLeDe) -> dict[str, Any]:
    """Return the section: title, headline, Markdown, tables as texts, drawings as SVG.

    What it says goes through the report's own escaping once more.
    """
    lines = [f"**{markdown_cell(headline(result))}.**", "", f"{markdown_cell(about(result))}.", ""]
    told = (*cautions(result), *findings(result), *result.notes, *reading(result))
    lines += [f"- {markdown_cell(line)}" for line in told]
    return {
        "title": "D-LeDe: does retraining betray the leak?",
        "headline": f"{headline(result)}.",
        "markdown": "\n".join(lines) + "\n",
        "tables": [_table(grid) for grid in main_grids(result)],
        "svg": list(_drawings(result)),
    }


def _table(grid: Grid) -> dict[str, Any]:
    return {"caption": grid.title, "header": grid.header, "rows": grid.rows}


def _drawings(result: DLeDe) -> Iterator[dict[str, str]]:
    for title, make in (
        ("Scores by share of leaked test images", figures.curve),
        ("Relative increases by step, and the threshold", figures.increases),
        ("Alike pictures by perceptual hash", hash_distances),
    ):
        files = make(result, small=True)
        if files:
            yield {"title": title, "svg": files["svg"].decode("utf-8")}
