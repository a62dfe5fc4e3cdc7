"""An impact as Markdown and as LaTeX: ``impact.md`` and ``impact.tex``."""

from __future__ import annotations

from typing import Final

from visleak.impact.contrasts import comparisons, fair, flips, gaps, steady, twinned
from visleak.impact.headline import headlines
from visleak.impact.results import ENOUGH_DRAWS, Impact
from visleak.impact.tables import absent, details, is_drawn, layouts
from visleak.markup import Grid, latex_cell, latex_table, markdown_cell, markdown_table, paged

#: Rows that a page of LaTeX has room for.
PAGE: Final = 48


def reading(result: Impact) -> list[str]:
    """Return how to read the tables, and what they leave out, one line each."""
    draws = "rows that are drawn" if is_drawn(result.effects) else "random and class-matched rows"
    each = result.settings.get("draws")
    times = f"{each:,} draws" if isinstance(each, int) else "draws"
    told = f"intervals of {draws} hold 95 % of {times}, the others are confidence intervals"
    if isinstance(each, int) and each < ENOUGH_DRAWS:
        told = f"{draws} have no interval, for {times} are too few; the others are of confidence"
    lines = [
        "gains are over the whole benchmark, in points where scores are percentages",
        told,
        "rows that are drawn share their draws: the same images for every model and metric, and"
        " those of fewer images are among those of more, so such rows rise and fall together",
        "p is that of a permutation test; Holm's correction is over models, metrics and leaks",
    ]
    if any(effect.comparisons for effect in result.effects):
        lines.append(
            "fair is the score on the images that do not leak, their classes weighted as in the"
            " whole benchmark; inflation is the score of the whole minus that of the images that do"
            " not leak"
        )
    if result.settings.get("difficulty"):
        lines.append(
            "twins (difficulty-matched) are images that do not leak, of the class and difficulty of"
            " leaked ones, each used once; harder than: share of the images that are easier, on"
            " average"
        )
    if result.gaps:
        lines.append(
            "gap is the error on the fair test set minus that on the original, in points; relative"
            " is the gap in percent of the original error"
        )
    if any(flip.flipped for flip in result.flips) or steady(result):
        lines.append(
            "chance is how often two models change places in resamples of the images, behind how"
            " often the first is behind on the images that do not leak"
        )
    return [*lines, *(line for line in (absent(result), steady(result)) if line)]


def about(result: Impact) -> str:
    """Return what was compared, in words."""
    judged = ", with the verdicts of people" if result.judged else ""
    return (
        f"{result.images:,} images of {result.test_set} against"
        f" {' and '.join(result.references)}{judged}"
    )


def main_grids(result: Impact) -> list[Grid]:
    """Return the tables of a page, in its order."""
    against = (comparisons(result), twinned(result), fair(result), flips(result), gaps(result))
    return [*layouts(result), *(grid for each in against for grid in each)]


def markdown(result: Impact) -> str:
    """Return ``impact.md``."""
    lines = ["# Impact of leaked images", "", f"{markdown_cell(about(result))}.", ""]
    lines += [f"- {markdown_cell(line)}" for line in (*headlines(result), *result.notes)]
    for grid in (*main_grids(result), *details(result)):
        lines += ["", f"## {markdown_cell(grid.title)}", "", *markdown_table(grid)]
    lines += ["", "## How to read the tables", ""]
    lines += [f"- {markdown_cell(line)}" for line in reading(result)]
    return "\n".join(lines) + "\n"


def latex(result: Impact) -> str:
    """Return ``impact.tex``: every table, to be included in a document."""
    lines = ["% needs \\usepackage{booktabs}"]
    lines += [f"% {latex_cell(line)}" for line in headlines(result)]
    for grid in (*main_grids(result), *details(result)):
        for part in paged(grid, PAGE):
            lines += ["", *latex_table(part)]
    return "\n".join(lines) + "\n"
