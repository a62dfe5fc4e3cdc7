"""Images with their fingerprints, to be read again: what is gone or changed is not compared.

A run reads an image first for its fingerprint, and later to look at it. Between the two a disk may
be unmounted, a server may fail, a file may be written anew. What was found of such an image is
nothing that may be counted, least of all as "no leak".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from visleak.errors import VisleakError
from visleak.images import content_digest
from visleak.images.choosing import chosen
from visleak.pipeline.chunks import Refused, problems_of
from visleak.pipeline.context import GrowingColumn, RunContext
from visleak.records import Bytes8, Fingerprints, ImageSet, Int64, Opener, Problem, Unreadable

#: Why an image cannot be read again, and what the same image may still answer another time.
GONE: Final = "gone"
CHANGED: Final = "changed"

#: Vectors copied at a time; only bounds memory.
CHUNK: Final = 4096


class ImagesLost(VisleakError):
    """Images that could be read at first could not be read again.

    Attributes:
        name: of their set.
        refused: their positions in the set, and why.
    """

    def __init__(self, name: str, refused: Sequence[Refused]) -> None:
        super().__init__(_not_again(name, len(refused), refused[0][1]))
        self.name = name
        self.refused = tuple(refused)

    def __reduce__(self) -> tuple[type[ImagesLost], tuple[str, tuple[Refused, ...]]]:
        # errors travel from workers by pickle, which would pass on the message alone
        return type(self), (self.name, self.refused)


def _not_again(name: str, count: int, why: Problem | Unreadable) -> str:
    detail = f": {why.detail}" if why.detail else ""
    return (
        f"images of set {name!r} could be read at first, and not again ({count:,};"
        f" {why.reason}{detail}); run the command again when the source is whole and nothing"
        " writes to it"
    )


def refuse_lost(name: str, found: Iterable[object]) -> None:
    """Refuse a result of which images could be read at first, and not again.

    Args:
        name: of the set.
        found: images or problems; what is neither lost nor a problem is passed over.

    Raises:
        VisleakError: some are lost.
    """
    away = [
        each
        for each in found
        if isinstance(each, Problem | Unreadable) and each.reason in (GONE, CHANGED)
    ]
    if away:
        raise VisleakError(_not_again(name, len(away), away[0]))


@dataclass(frozen=True)
class Unchanged:
    """Opener of images that were read before; all else than what was read then is unreadable.

    Attributes:
        opener: reads them.
        positions: ``int64`` (n,), ascending: of the images that could be read.
        digests: ``uint8`` (n, 16): of what was stored there.
    """

    opener: Opener
    positions: Int64
    digests: Bytes8

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield what is stored at some of the positions, see :class:`visleak.records.Opener`."""
        rows = np.searchsorted(self.positions, positions)
        for row, stored in zip(rows, self.opener.read(positions), strict=True):
            if isinstance(stored, Unreadable):
                detail = f"{stored.reason}, {stored.detail}" if stored.detail else stored.reason
                yield Unreadable(GONE, detail)
            elif content_digest(stored) != self.digests[row].tobytes():
                yield Unreadable(CHANGED, "it is another image than when it was read first")
            else:
                yield stored


@dataclass(frozen=True, slots=True)
class EncodedSet:
    """A set with its fingerprints."""

    images: ImageSet
    fingerprints: Fingerprints

    @property
    def opener(self) -> Opener:
        """An opener of the images as they were when the fingerprints were made."""
        if not self.fingerprints.of_bytes:
            return self.images.opener
        return Unchanged(self.images.opener, self.fingerprints.rows, self.fingerprints.digests)

    def readable(self) -> EncodedSet:
        """Return the readable images as a set of their own, of one content from then on."""
        rows = self.fingerprints.rows
        images = chosen(replace(self.images, opener=self.opener), rows, self.images.name)
        return EncodedSet(
            images, replace(self.fingerprints, rows=np.arange(len(rows)), problems=())
        )

    def without(self, refused: Sequence[Refused], place: RunContext) -> EncodedSet:
        """Return the set where some images are unreadable that were not."""
        prints = self.fingerprints
        keep = ~np.isin(prints.rows, [position for position, _ in refused])
        with GrowingColumn(place.file(".matrix"), np.float32, prints.matrix.shape[1:]) as matrix:
            for start in range(0, len(prints), CHUNK):
                part = slice(start, start + CHUNK)
                matrix.append(prints.matrix[part][keep[part]])
            left = replace(
                prints,
                rows=prints.rows[keep],
                ids=prints.ids.filter(pa.array(keep)),
                matrix=matrix.mapped(),
                digests=prints.digests[keep],
                sizes=prints.sizes[keep],
                flat=prints.flat[keep],
                problems=(
                    *prints.problems,
                    *problems_of(self.images, sorted(refused, key=lambda each: each[0])),
                ),
            )
        return replace(self, fingerprints=left)


def none_readable(problems: Sequence[Problem]) -> str:
    """Say of a set why none of its images could be read, with the first as an example."""
    reasons = Counter(problem.reason for problem in problems).most_common()
    counted = ", ".join(f"{count:,} {reason}" for reason, count in reasons)
    first = problems[0]
    detail = f" ({first.detail})" if first.detail else ""
    return (
        f"none of its {len(problems):,} images could be read ({counted}), such as"
        f" {first.id!r}{detail}"
    )


def lost(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return the problems of images that could be read at first, and not again."""
    return tuple(problem for problem in problems if problem.reason in (GONE, CHANGED))
