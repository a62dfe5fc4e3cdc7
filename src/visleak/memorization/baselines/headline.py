"""A comparison in one line that a person can repeat."""

from __future__ import annotations

from typing import Final

from visleak.memorization.baselines.numbers import Row, rows_of
from visleak.memorization.baselines.records import Comparison

#: How methods are called in sentences, tables and figures.
NAMES: Final = {
    "gibbs": "Gibbs (Algorithm 1)",
    "random": "random words",
    "greedy": "greedy",
    "conzic": "ConZIC",
    "zerocap": "ZeroCap",
    "pez": "PEZ",
}


def name_of(method: str) -> str:
    """Return how a method is called; one that nobody knows by its own name."""
    return NAMES.get(method, method)


def headline(result: Comparison) -> str:
    """Return what was found: who found most memorized images, at what cost."""
    rows = sorted(rows_of(result), key=lambda row: -row.found.value)
    told = "; ".join(_told(row) for row in rows)
    return f"{told}: {budget_of(result)}"


def _told(row: Row) -> str:
    many = f"{row.found.value:.3g}"
    noun = "memorized image" if row.found.value == 1 else "memorized images"
    each = f" ({row.calls_an_image:,.0f} passes each)" if row.found.value else ""
    return f"{name_of(row.method)} found {many} {noun}{each}"


def budget_of(result: Comparison) -> str:
    """Return what every search might spend, in words."""
    calls, seconds = result.budget.get("calls"), result.budget.get("seconds")
    parts = []
    if calls is not None:
        parts.append(f"{calls:,} passes")
    if seconds is not None:
        parts.append(f"{seconds:g} seconds")
    allowed = f"at most {' and '.join(parts)} a search" if parts else "without a budget"
    over = f", means over {len(result.seeds)} seeds" if len(result.seeds) > 1 else ""
    return f"{allowed}, {result.chains:,} candidate{'s' * (result.chains != 1)} at most{over}"
