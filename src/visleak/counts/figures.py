"""The counts as drawings: duplicates per type (figure 4 of the paper) and per class (table 1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from visleak.counts.counting import Counts, SetCounts, State
from visleak.reporting.charts import Bar, bar_chart

MOST_CLASSES: Final = 12  # most classes of a drawing; the table has all

#: What the kinds of duplicates are called.
KINDS: Final = {"train-test": "train-test", "within": "within the set"}


def types_figure(counts: Counts) -> bytes:
    """Draw the pairs of each kind by type, automatic grades above those after review."""
    bars = [_bar(*row) for own in counts.sets for row in _rows(own, counts)]
    return bar_chart(bars, "types", label="pairs", legend=counts.grades)["svg"]


def _bar(name: str, counted: Mapping[str, int]) -> Bar:
    note = " + ".join(f"{count:,}" for count in counted.values())
    note += f" = {sum(counted.values()):,}" if len(counted) > 1 else ""
    return Bar(name, note, tuple(counted.items()))


def _rows(own: SetCounts, counts: Counts) -> Iterator[tuple[str, dict[str, int]]]:
    before = f"{own.query_set}: " if len(counts.sets) > 1 else ""
    states: list[tuple[str, State]] = [("", own.after)]
    if counts.review is not None:
        states = [(", machine alone", own.before), (", after review", own.after)]
    for kind in own.after.kinds:
        for words, state in states:
            yield f"{before}{KINDS[kind]}{words}", dict(state.kinds[kind].pairs)


def classes_figure(own: SetCounts) -> bytes | None:
    """Draw a test set's images with a duplicate by class; ``None`` where no class has any."""
    rows = [(c.name or "(no label)", {"total": c.images}) for c in own.classes if c.images]
    if not rows:
        return None
    bars = [_bar(*row) for row in rows[:MOST_CLASSES]]
    return bar_chart(bars, f"classes {own.query_set}", label="images with a duplicate")["svg"]
