"""What ``search``, ``augment`` and ``diversify`` of ``visleak memorization`` print."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from visleak.cli import edges
from visleak.cli.edges import plain

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Rows of a table on the screen; the files hold all.
_MOST: Final = 20


def say_result(
    shown: Callable[[Mapping[str, Any]], Iterable[RenderableType]],
    made: Mapping[str, Any],
    file: Path,
    *,
    json: bool,
) -> None:
    """Print a result: the bytes of its file, or what a person reads, and the folder."""
    from visleak.cli.terminal import rendered

    if json:
        edges.say_bytes(file.read_bytes())
        return
    edges.say(rendered(shown(made)))
    edges.say(f"{plain(str(file.parent))}\n")


def search_shown(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield the summary of a search and the best prompt of each chain, highest D first."""
    from rich.text import Text

    yield Text(plain(found["headline"]), "bold")
    best = sorted(found["best"], key=lambda each: -each["d"])
    rows = [
        (f"{each['d']:.4g}", str(each["chain"]), str(each["step"]), each["prompt"]) for each in best
    ]
    yield from _table(("D", "chain", "step", "prompt"), rows, numbers=3)


def augment_shown(made: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield the summary of an augmentation, and a row for each trigger."""
    from rich.text import Text

    yield Text(plain(made["headline"]), "bold")
    rows = [
        (
            *(f"{each['scored']:,}", f"{each['above_kappa']:,}", f"{each['kept']:,}"),
            each["trigger"],
        )
        for each in made["triggers"]
    ]
    yield from _table(("scored", "above kappa", "kept", "trigger"), rows, numbers=3)
    unknown = sum(each["unknown"] > 0 for each in made["triggers"])
    if unknown:
        yield Text(
            f"{unknown:,} triggers have pieces that the language model does not know, and were"
            " begun without them"
        )


def diversify_shown(made: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield the summary of what was picked."""
    from rich.text import Text

    yield Text(plain(made["headline"]), "bold")
    if made["short"]:
        yield Text(
            f"{made['short']:,} of {max(1, len(made['sources'])):,} banks had fewer than"
            f" {made['count']:,} prompts, and were picked whole"
        )


def _table(
    header: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, numbers: int
) -> Iterator[RenderableType]:
    """Yield a table of the first rows, and how many more there are."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for index, name in enumerate(header):
        table.add_column(name, justify="right" if index < numbers else "left")
    for row in rows[:_MOST]:
        table.add_row(*(Text(plain(cell)) for cell in row))
    yield table
    if len(rows) > _MOST:
        yield Text(f"and {len(rows) - _MOST:,} more")
