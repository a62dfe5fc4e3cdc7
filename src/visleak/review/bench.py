"""What the pages of replacements work with: the choice of them, instructions and pictures."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from visleak.images.addresses import redacted
from visleak.pipeline.workplace import Progress
from visleak.records import ImageSet
from visleak.replacements import Asked, Selection, open_selection
from visleak.replacements.decisions import PLAIN
from visleak.replacements.pool import class_of
from visleak.review.desk import Desk
from visleak.review.instructions import Instructions, read_instructions
from visleak.review.pictures import Shelf
from visleak.verdicts.record import now

#: Gives what is told how far something is, for as long as it lasts.
Bars = Callable[[], AbstractContextManager[Progress]]


@dataclass(frozen=True)
class Bench:
    """What the pages are made of.

    Attributes:
        selection: duplicates, candidates, decisions.
        instructions: by class.
        shelf: pictures of the audit's sets and of the pool.
        reviewer: who decides.
        command: that writes the test set, to be shown.
        began: when the review began; what was decided before is not undone by a key.
    """

    selection: Selection
    instructions: Instructions
    shelf: Shelf
    reviewer: str
    command: str
    began: str = field(default_factory=now)


@contextmanager
def bench_of(
    folder: Path,
    asked: Asked,
    instructions: Path | None,
    desk: Desk,
    *,
    told: Callable[[str], None],
    bars: Bars,
) -> Iterator[Bench]:
    """Open the pool of an audit that is reviewed; let go of it in the end.

    Args:
        folder: the audit folder.
        asked: pool, and what counts as a duplicate.
        instructions: file of the labelling instructions, or ``None``.
        desk: the review.
        told: is given the lines to print.
        bars: gives what is told how far the opening is.

    Raises:
        UsageError, VisleakError: as :func:`visleak.replacements.open_selection` and
            :func:`visleak.review.instructions.read_instructions`.
    """
    words = read_instructions(instructions)
    with ExitStack() as stack:
        with bars() as progress:
            selection = stack.enter_context(open_selection(folder, asked, progress=progress))
            progress("searching for neighbours", 0, 0)
            selection.warm_up()
        for line in _notes(selection, words, folder):
            told(line)
        shelf = Shelf(_opener_of(selection), _digests_of(selection, desk))
        pool = redacted(str(asked.pool))
        command = ["visleak", "replace", str(folder), "--pool", pool, "-o", "fair"]
        try:
            yield Bench(selection, words, shelf, desk.reviewer, shlex.join([*command, "--apply"]))
        finally:
            shelf.close()
            told(_standing(selection))


def _notes(selection: Selection, words: Instructions, folder: Path) -> Iterator[str]:
    """Yield what is to be known before the first page."""
    yield f"{_standing(selection)}; decisions are kept in {folder / PLAIN}"
    known = {class_of(each.label) for each in selection.counts()}
    strange = sorted(set(words.classes) - known)
    if strange:
        yield f"instructions for classes that no duplicate is of: {', '.join(strange)}"


def _standing(selection: Selection) -> str:
    """Say how many duplicates have a replacement."""
    counts = selection.counts()
    needed, there = (sum(getattr(c, n) for c in counts) for n in ("duplicates", "approved"))
    return f"{there:,} of {needed:,} duplicates have a replacement"


def _opener_of(selection: Selection) -> Callable[[str], ImageSet]:
    """Return sets with openers of the page's own: one that streams serves one reader only."""

    @lru_cache
    def opened(name: str) -> ImageSet:
        images = selection.material[name].images
        return replace(images, opener=copy.deepcopy(images.opener))

    return opened


def _digests_of(selection: Selection, desk: Desk) -> Callable[[str, str], str | None]:
    prints = selection.pool.prints
    own = dict(
        zip(prints.ids.to_pylist(), (bytes(each).hex() for each in prints.digests), strict=True)
    )
    pool = prints.set
    return lambda name, image: own.get(image) if name == pool else desk.digest_of(name, image)
