"""What ``visleak memorization detect`` prints: sentences, the largest scores, notes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from visleak.cli.edges import plain

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from visleak.memorization.detection import Attribution, Detection

#: Prompts that a screen has room for; files have all.
ROWS: Final = 10
LONGEST: Final = 70

#: From how much of the largest value on a token stands out.
STRONG: Final = 0.5


def shown(result: Detection) -> Iterator[RenderableType]:
    """Yield the parts of the summary."""
    from rich.text import Text

    from visleak.cli.terminal import plain_table
    from visleak.drawing import cut
    from visleak.memorization.detection.headline import headlines, name_of_d, number
    from visleak.memorization.detection.markup import about

    first, *apart = headlines(result)
    # nobody says that an unlabelled list is memorized: how far it lies from the ordinary prompts
    # is no result of its own, and stands with the note that says so
    aside = apart if result.separation is not None and result.separation.by == "lists" else []
    for line in (first, *(line for line in apart if line not in aside)):
        yield Text(plain(line), "bold")
    for line in about(result):
        yield Text(plain(line), "dim")
    yield Text()
    words = {True: "memorized", False: "not memorized", None: ""}
    labelled = any(each.label is not None for each in result.top)
    table = plain_table(*("prompt", "label")[: 1 + labelled], name_of_d(result.settings), numbers=1)
    for each in result.top[:ROWS]:
        label = [words[each.label]] if labelled else []
        table.add_row(cut(plain(each.prompt), LONGEST), *label, number(each.d))
    yield table
    if result.tokens:
        yield Text()
        by = result.tokens[0].method
        yield Text(f"tokens by {by}, those of at least half the largest value with it", "bold")
        yield from map(_tokens, result.tokens[:ROWS])
    yield Text()
    for line in (*aside, *result.notes):
        yield Text(plain(line), "dim")


def _tokens(each: Attribution) -> Text:
    """Return a prompt with its strong tokens in bold and with their value."""
    from rich.text import Text

    largest = max((abs(value) for value in each.values), default=0.0)
    line = Text()
    for token, value in zip(each.tokens, each.values, strict=True):
        strong = largest > 0 and abs(value) >= STRONG * largest
        text = plain(token)
        line.append(f"{text} ({value:.3g}) " if strong else f"{text} ", "bold" if strong else "")
    return line
