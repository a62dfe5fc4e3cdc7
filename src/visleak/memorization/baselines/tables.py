"""A comparison as tables, Markdown, LaTeX and rows of CSV."""

from __future__ import annotations

import math
from typing import Final

from visleak.drawing import cut
from visleak.markup import Grid, latex_cell, latex_table, markdown_cell, markdown_table, paged
from visleak.memorization.baselines.headline import headline, name_of
from visleak.memorization.baselines.numbers import Mean, Row, rows_of
from visleak.memorization.baselines.paper import SOURCE, TABLE_2
from visleak.memorization.baselines.records import Comparison
from visleak.memorization.search.task import GRADIENT_CALLS
from visleak.store import csv_value

#: Rows that a page of LaTeX has room for, and characters of a prompt.
PAGE: Final = 48
LONGEST: Final = 60

METHODS: Final = (
    *("method", "seeds", "found", "found_low", "found_high", "candidates", "clustered"),
    *("search_calls", "image_calls", "seconds", "calls_an_image", "seconds_an_image"),
    *("best_d", "median_d", "complete"),
    *("paper_hours", "paper_images", "paper_hours_an_image"),
)
CANDIDATES: Final = (
    *("prompt", "method", "seed", "chain", "step", "d_found", "d_fresh", "clustered"),
    *("memorized", "reference"),
)


def main_grid(result: Comparison) -> Grid:
    """Return the table of methods, with the paper's beside; the most images found in bold."""
    rows = rows_of(result)
    most = max((row.found.value for row in rows), default=0.0)
    bold = {(at, 1) for at, row in enumerate(rows) if row.found.value == most > 0}
    header = ["method", "memorized images", "candidates with a cluster", "passes of the search"]
    header += ["passes of the images", "passes an image", "seconds an image"]
    header += ["best D", "median D", "paper: images", "paper: A100 hours an image"]
    return Grid(
        "Searches for trigger prompts at one budget",
        header,
        [_cells(row) for row in rows],
        bold=frozenset(bold),
    )


def _cells(row: Row) -> list[str]:
    printed = TABLE_2.get(row.method)
    images = None if printed is None else printed.images
    hours = None if printed is None else printed.hours_an_image
    return [
        name_of(row.method),
        mean(row.found),
        f"{mean(row.clustered)} of {row.candidates:.3g}",
        f"{row.search_calls:,.0f}",
        f"{row.image_calls:,.0f}",
        count(row.calls_an_image),
        count(row.seconds_an_image),
        mean(row.best_d),
        mean(row.median_d),
        "-" if images is None else str(images),
        "-" if hours is None else f"{hours:g}",
    ]


def mean(found: Mean) -> str:
    """Return a mean with its interval, where there is one.

    >>> mean(Mean(2.0, math.nan, math.nan)), mean(Mean(2.0, 0.7, 3.3))
    ('2', '2 (0.7 to 3.3)')
    """
    if math.isnan(found.value):
        return "-"
    if math.isnan(found.low):
        return f"{found.value:.3g}"
    return f"{found.value:.3g} ({found.low:.3g} to {found.high:.3g})"


def count(value: float) -> str:
    """Return a cost; a dash where nothing was found."""
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def found_grid(result: Comparison) -> Grid:
    """Return every memorized image that was found, with its first candidate."""
    rows = []
    for each in result.attempts:
        seen: set[int] = set()
        for found in each.verified.replayed:
            if found.number not in seen:
                seen.add(found.number)
                place = [name_of(each.method), str(each.seed)]
                rows.append([*place, cut(found.reference, LONGEST), cut(found.prompt, LONGEST)])
    header = ["method", "seed", "memorized image", "prompt"]
    return Grid("Memorized images found", header, rows, texts=4)


def reading(result: Comparison) -> list[str]:
    """Return how to read the tables, a line each."""
    lines = [
        "only verified images count: a candidate's images gave a cluster, and its middle image is a"
        " near-duplicate, or of the layout, of an image of the source; high D alone is not"
        " memorization",
        "a pass is one row through the network; a pass with its gradient counts as"
        f" {GRADIENT_CALLS}; a guided step of an image is two",
        "D of candidates is under noises that no search has met, so it is below what the search"
        " itself saw; candidates are ordered by it, and making it counts in no cost",
        "costs an image are all passes and seconds of all seeds, by all memorized images found",
        f"the paper's columns: {SOURCE}",
    ]
    if len(result.seeds) > 1:
        lines.append(
            f"intervals are Student's 95 % over {len(result.seeds)} seeds: other draws of the same"
            " searches on the same model"
        )
    ended = [name_of(row.method) for row in rows_of(result) if not row.complete]
    if ended:
        lines.append(f"the budget ended before the search itself did: {', '.join(ended)}")
    return lines


def markdown(result: Comparison) -> str:
    """Return ``compare.md``."""
    lines = ["# Searches for trigger prompts, compared", "", f"{markdown_cell(headline(result))}."]
    for grid in (main_grid(result), found_grid(result)):
        if grid.rows:
            lines += ["", f"## {markdown_cell(grid.title)}", "", *markdown_table(grid)]
    lines += ["", "## How to read it", ""]
    lines += [f"- {markdown_cell(line)}" for line in reading(result)]
    return "\n".join(lines) + "\n"


def latex(result: Comparison) -> str:
    """Return ``compare.tex``: the tables, to be included in a document."""
    lines = ["% needs \\usepackage{booktabs}", f"% {latex_cell(headline(result))}"]
    for grid in (main_grid(result), found_grid(result)):
        for part in paged(grid, PAGE):
            lines += ["", *latex_table(part)] if part.rows else []
    return "\n".join(lines) + "\n"


def method_rows(result: Comparison) -> list[list[str]]:
    """Return the rows of ``compare.csv``."""
    made = []
    for row in rows_of(result):
        printed = TABLE_2.get(row.method)
        paper: list[float | int | None] = [None, None, None]
        if printed is not None:
            paper = [printed.hours, printed.images, printed.hours_an_image]
        values = [
            *(row.method, row.seeds, row.found.value, row.found.low, row.found.high),
            *(row.candidates, row.clustered.value, row.search_calls, row.image_calls),
            *(row.seconds, row.calls_an_image, row.seconds_an_image),
            *(row.best_d.value, row.median_d.value, row.complete),
            *(math.nan if value is None else value for value in paper),
        ]
        made.append([csv_value(value) for value in values])
    return made


def candidate_rows(result: Comparison) -> list[list[str]]:
    """Return the rows of ``candidates.csv``, whose column ``prompt`` other verbs read."""
    made = []
    for each in result.attempts:
        clustered = set(each.verified.clustered)
        replayed = {found.prompt: found for found in reversed(each.verified.replayed)}
        for candidate, fresh in zip(each.candidates, each.checked, strict=True):
            found = replayed.get(candidate.prompt)
            values: list[str | int | float] = [
                *(candidate.prompt, each.method, each.seed, candidate.chain, candidate.step),
                *(candidate.score, fresh, candidate.prompt in clustered, found is not None),
                "" if found is None else found.reference,
            ]
            made.append([csv_value(value) for value in values])
    return made
