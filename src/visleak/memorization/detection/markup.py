"""A detection as Markdown: ``detect.md``."""

from __future__ import annotations

from typing import Final

from visleak.drawing import cut
from visleak.markup import Grid, markdown_cell, markdown_table
from visleak.memorization.detection.headline import (
    alarms,
    estimate,
    headlines,
    name_of_d,
    number,
    threshold_text,
)
from visleak.memorization.detection.results import Attribution, Detection, Separation, Threshold

#: Prompts are cut to this many characters in tables for people.
LONGEST: Final = 100

_WORDS: Final = {True: "memorized", False: "not memorized", None: ""}

_RULES: Final = {
    "given": "given",
    "observed": "the share of ordinary prompts is at most",
    "bounded": "the 95 % upper bound is at most",
}


def markdown(result: Detection) -> str:
    """Return ``detect.md``."""
    first, *more = headlines(result)
    lines = ["# Trigger scores of prompts", "", f"**{markdown_cell(first)}.**", ""]
    lines += [f"- {markdown_cell(line)}" for line in (*more, *about(result), *result.notes)]
    for grid in grids(result):
        lines += ["", f"## {markdown_cell(grid.title)}", "", *markdown_table(grid)]
    for rank, each in enumerate(result.tokens, 1):
        grid = token_grid(each, rank)
        lines += ["", f"## {markdown_cell(grid.title)}", "", *markdown_table(grid)]
    lines += ["", "## How to read this", ""]
    lines += [f"- {markdown_cell(line)}" for line in reading(result)]
    return "\n".join(lines) + "\n"


def about(result: Detection) -> list[str]:
    """Return what was measured and what it cost, a line each."""
    settings, cost = result.settings, result.throughput
    noises = settings["noises"]
    made = (
        f"{cost.passes:,} passes in {cost.seconds:.1f} s ({cost.prompts_per_second:,.1f} prompts/s,"
        f" {cost.passes_per_second:,.1f} passes/s)"
    )
    reused = f"; {cost.reused:,} scores were there already" if cost.reused else ""
    return [
        f"model {result.model.get('name', '')}, {result.model.get('device', '')}"
        f" {result.model.get('precision', '')}; D by {settings['norm']}, {settings['output']}"
        f" output, timestep {result.timestep:g}, {noises} noise{'s' * (noises != 1)}, seed"
        f" {settings['seed']}",
        f"{made}{reused}",
    ]


def grids(result: Detection) -> list[Grid]:
    """Return the tables, the most important first."""
    d = name_of_d(result.settings)
    ranks = [
        [str(place), cut(each.prompt, LONGEST), _WORDS[each.label], number(each.d)]
        for place, each in enumerate(result.top, 1)
    ]
    spreads = [
        [each.kind, f"{each.count:,}", *map(number, (each.least, each.median, each.p95, each.most))]
        for each in result.spreads
    ]
    return [
        Grid(f"Largest {d}", ["rank", "prompt", "label", d], ranks, texts=3),
        *([_threshold(result.threshold)] if result.threshold else []),
        *([_separation(result.separation)] if result.separation else []),
        Grid(
            f"Distribution of {d}",
            ["prompts", "count", "least", "median", "95th percentile", "most"],
            spreads,
        ),
    ]


def _threshold(found: Threshold) -> Grid:
    rule = _RULES[found.rule]
    asked = "" if found.rate is None else f" {100 * found.rate:g} %"
    rows = [
        ["threshold", threshold_text(found)],
        ["rule", f"{rule}{asked}"],
        ["false alarms", alarms(found).removeprefix("false alarms: ")],
    ]
    return Grid("Threshold", ["what", "value"], rows, texts=2)


def _separation(found: Separation) -> Grid:
    rate = f"{100 * found.rate:g} %"
    rows = [
        ["AUC", estimate(found.auc)],
        [
            f"true-positive rate at the last false-positive rate <= {rate}",
            estimate(found.tpr_within),
        ],
        [
            f"true-positive rate at the last false-positive rate < {rate} (Wen et al.'s code)",
            estimate(found.tpr_below),
        ],
        [
            f"best mean accuracy (Wen et al.'s ACC), at D >= {number(found.accuracy_at)}",
            estimate(found.accuracy),
        ],
        ["positives", f"{found.positives:,} in {found.positive_groups:,} groups"],
        ["negatives", f"{found.negatives:,} in {found.negative_groups:,} groups"],
    ]
    name = "Memorized prompts against others" if found.by == "labels" else "List against general"
    return Grid(name, ["figure", "value"], rows, texts=2)


def token_grid(each: Attribution, rank: int) -> Grid:
    """Return the tokens of a prompt in their order, the largest value in bold."""
    values = [f"{value:.4g}" for value in each.values]
    largest = max(range(len(values)), key=lambda at: each.values[at], default=-1)
    rows = [[cut(token, LONGEST), value] for token, value in zip(each.tokens, values, strict=True)]
    if each.rest is not None:
        rows.append(["(end, padding, other text encoders)", f"{each.rest:.4g}"])
    name = "gradient" if each.method == "gradient" else "D lost without it"
    return Grid(
        f"Tokens of prompt {rank}: {cut(each.prompt, LONGEST)}",
        ["token", name],
        rows,
        bold=frozenset({(largest, 1)}),
    )


def reading(result: Detection) -> list[str]:
    """Return how to read the result, a line each."""
    lines = [
        "D is how far a prompt moves the first step of denoising away from the empty prompt's;"
        " larger is more likely memorized, but images decide: high D alone is no memorization",
    ]
    if result.threshold is not None:
        lines.append(
            "a threshold belongs to this model and these settings; its bound holds for prompts"
            " drawn independently like the ordinary ones"
        )
    if result.separation is not None:
        lines.append(
            "intervals hold 95 %: whole groups of prompts that share an image are drawn again, and"
            " they are never narrower than those of as many independent prompts as there are groups"
        )
    return lines
