"""What ``visleak memorization benchmark`` prints: sentences, then a table of the methods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from visleak.cli.edges import plain
from visleak.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from visleak.memorization.benchmark import Benchmark


def refuse_nothing_to_show(out: Path, *, asked: bool) -> None:
    """Refuse to show a finished benchmark where there is none, or where a run was meant.

    Raises:
        UsageError: there is none, or options were given that only a run has.
    """
    from visleak.memorization.benchmark.stored import RESULT

    if asked:
        raise UsageError("--model is missing: give --model M and --triggers FILE")
    if not (out / RESULT).is_file():
        raise UsageError(
            f"{out} holds no finished benchmark to show; give --model M and --triggers FILE to make"
            " one, or to go on with one that was stopped"
        )


def shown(result: Benchmark) -> Iterator[RenderableType]:
    """Yield the parts of the summary."""
    from rich.text import Text

    from visleak.cli.terminal import plain_table
    from visleak.memorization.benchmark.columns import SCORES
    from visleak.memorization.benchmark.headline import headline, label_of, number, verdicts
    from visleak.memorization.benchmark.markup import cautions
    from visleak.memorization.benchmark.tables import CHANGED, columns_of, heading, is_changed

    yield Text(plain(headline(result)), "bold")
    for line in verdicts(result):
        yield Text(plain(line))
    for line in (*cautions(result), *result.notes):
        yield Text(plain(line), "dim")
    yield Text()
    columns = columns_of(result)
    names = [heading(*each) for each in columns]
    table = plain_table("method", *names, numbers=len(names))
    for row in result.rows:
        cells = []
        for scenario, name in columns:
            score = row.score(scenario, name)
            value = number(row.value(scenario, name), SCORES[name].places)
            cells.append(value + (CHANGED if score is not None and is_changed(score) else ""))
        table.add_row(plain(label_of(row)), *cells)
    if result.floor is not None:
        own = [result.floor.score(*each) for each in columns]
        table.add_row("floor", *("" if each is None else number(each.value) for each in own))
    found = result.reference
    if found is not None:
        known = {("trigger", "top1"): found.similarity, ("trigger", "clip"): found.clip}
        held = [known.get(each) for each in columns]
        table.add_row("reference", *("" if each is None else number(each.value) for each in held))
    yield table
    yield Text()
    yield Text(f"{CHANGED} changed, by a paired test corrected for the number of settings", "dim")
