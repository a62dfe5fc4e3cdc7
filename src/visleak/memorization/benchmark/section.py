"""A benchmark as a section of an audit's report: ``sections/memorization-benchmark.json``.

The audit is that of the trace whose prompts were tested, so that what a model replays and what
helps against it stand on one page.
"""

from __future__ import annotations

from typing import Any, Final

from visleak.markup import Grid, markdown_cell
from visleak.memorization.benchmark.figures import tradeoff
from visleak.memorization.benchmark.headline import headline, verdicts
from visleak.memorization.benchmark.markup import about, cautions, reading
from visleak.memorization.benchmark.records import Benchmark
from visleak.memorization.benchmark.tables import grids

#: File of the section among those of the audit.
NAME: Final = "memorization-benchmark.json"


def section(result: Benchmark) -> dict[str, Any]:
    """Return the section: title, headline, Markdown, tables as texts, drawings as SVG.

    What it says goes through the report's own escaping once more.
    """
    said = headline(result)
    said = f"{said[:1].upper()}{said[1:]}."
    lines = [f"**{markdown_cell(said)}**", ""]
    told = (*verdicts(result), *cautions(result), *about(result), *result.notes, *reading(result))
    lines += [f"- {markdown_cell(line)}" for line in told]
    drawn = tradeoff(result, columns=1)
    return {
        "title": "Mitigations: what helps against replaying?",
        "headline": said,
        "markdown": "\n".join(lines) + "\n",
        "tables": [_table(grid) for grid in grids(result)],
        "svg": [
            {
                "title": "Similarity against alignment and quality, up and to the left is better",
                "svg": drawn["svg"].decode("utf-8"),
            }
        ]
        if drawn
        else [],
    }


def _table(grid: Grid) -> dict[str, Any]:
    return {"caption": grid.title, "header": grid.header, "rows": grid.rows}
