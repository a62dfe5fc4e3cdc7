"""A trace as Markdown and as tables of texts."""

from __future__ import annotations

import math
from typing import Any, Final

from visleak.drawing import cut
from visleak.markup import Grid, markdown_cell, markdown_table
from visleak.memorization.tracing.headline import cautions, headlines
from visleak.memorization.tracing.records import Match, Original, Trace
from visleak.stats import chance, percent

#: Texts are cut to this many characters in tables for people, and tables to as many rows.
LONGEST: Final = 80
ROWS: Final = 200


def markdown(result: Trace) -> str:
    """Return ``trace.md``."""
    first, *more = headlines(result)
    lines = ["# Sources of generated images", "", f"**{markdown_cell(first)}.**", ""]
    lines += [f"- {markdown_cell(line)}" for line in (*more, *about(result), *result.notes)]
    for grid in grids(result):
        lines += ["", f"## {markdown_cell(grid.title)}", "", *markdown_table(grid)]
    lines += ["", "## How to read this", ""]
    lines += [f"- {markdown_cell(line)}" for line in reading(result)]
    return "\n".join(lines) + "\n"


def about(result: Trace) -> list[str]:
    """Return what was asked, a line each."""
    said = result.about
    sets: Any = said.get("sets") or []
    lines = [
        f"{each['name']}: {each['images']:,} {'images' if each['pictures'] else 'fingerprints'}"
        f" ({cut(str(each['source']) or 'given in memory', LONGEST)})"
        for each in sets
    ]
    services: Any = said.get("services") or []
    lines += [f"{each['name']}: {each.get('sends', '')}" for each in services]
    model: Any = (said.get("origin") or {}).get("model", {})  # type: ignore[attr-defined]
    if isinstance(model, dict) and model.get("name"):
        lines.append(f"images of the model {cut(str(model['name']), LONGEST)}")
    if said.get("verdicts"):
        lines.append(f"{said['verdicts']:,} verdicts of people are counted")
    return [*lines, *cautions(result)]


def grids(result: Trace) -> list[Grid]:
    """Return the tables, the most important first."""
    found = []
    if result.originals:
        found.append(_originals(result))
    if result.prompts:
        found.append(_prompts(result))
    if result.matches:
        found.append(_matches(result))
    return found


def _originals(result: Trace) -> Grid:
    told = any(each.category for each in result.originals)
    header = ["memorized image", "source", "variants", "matches", "prompts", "how"]
    rows = [_original(each, told=told) for each in result.originals[:ROWS]]
    title = _titled("Memorized images", len(rows), len(result.originals))
    header = [*header, "category"] if told else header
    return Grid(title, header, rows, texts=2)


def _original(each: Original, *, told: bool) -> list[str]:
    more = len(each.references) - 1
    name = cut(each.references[0], LONGEST) + (f" and {more:,} more" if more else "")
    counts = [f"{each.variants:,}", f"{each.matches:,}", f"{each.prompts:,}"]
    how = "layout in other colours" if each.layout else "copied"
    return [name, each.source, *counts, how, *([each.category] if told else [])]


def _prompts(result: Trace) -> Grid:
    rows = [
        [
            cut(each.prompt, LONGEST),
            f"{each.replicated:,} of {each.images:,}",
            f"{percent(each.share)} %",
            f"{percent(each.low)}-{percent(each.high)}",
            "yes" if each.trigger else "no",
        ]
        for each in result.prompts[:ROWS]
    ]
    title = _titled("Prompts by replicated share", len(rows), len(result.prompts))
    return Grid(title, ["prompt", "M_tau = 1", "share", "95 % CI", "in D_mem"], rows)


def _matches(result: Trace) -> Grid:
    order = sorted(result.matches, key=lambda each: (not each.verified, each.memorized or 0))
    rows = [_match(each) for each in order[:ROWS]]
    header = ["image", "prompt", "size", "closest", "similarity", "grade", "prob.", "counts"]
    return Grid(_titled("Generated images", len(rows), len(order)), header, rows, texts=2)


def _match(each: Match) -> list[str]:
    source = f"{each.source}/{each.reference}" if each.reference is not None else ""
    judged = f" ({each.judged})" if each.judged else ""
    return [
        cut(each.image, LONGEST),
        cut(each.prompt, LONGEST),
        f"{each.size:,}",
        cut(source, LONGEST),
        "" if math.isnan(each.similarity) else f"{each.similarity:.3f}",
        f"{each.grade or 'unverified'}{judged}" if source else "",
        "" if each.probability is None else chance(each.probability),
        "" if each.memorized is None else f"memorized {each.memorized}",
    ]


def _titled(title: str, shown: int, total: int) -> str:
    return title if shown == total else f"{title} ({shown:,} of {total:,}; trace.csv has all)"


def reading(result: Trace) -> list[str]:
    """Return how to read the result, a line each."""
    lines = []
    if result.asked:
        lines += [
            "near-duplicate: verification, or a person, calls the closest training image the same"
            " shot; visleak review audit opens the pairs, and trace run again counts the verdicts",
            f"M_tau looks at similarity alone (definition 1 of MemBench): tau = {result.tau:g}"
            f" belongs to {result.about['similarity']} and to no other similarity",
        ]
    if result.about.get("layouts") and result.asked:
        lines.append(
            "images of one layout count as one memorized image; variants are the source's images"
            " that are the same or of that layout"
        )
        lines.append(
            "a layout is told of 89 to 100 % of planted recolourings, and of none of 31,125 pairs"
            " of different photographs (below 0.013 % with 95 % confidence); never of pictures of"
            " up to 48 pixels"
        )
    if result.about.get("services"):
        lines.append("what a search service found is an address only, and verifies nothing")
    return lines
