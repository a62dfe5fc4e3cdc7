"""What zip and tar archives share: limits, which members are listed, how they become a set.

Archives are read in place: nothing is ever unpacked to disk. Member names are ids and nothing
else, so ``../`` in them leads nowhere.
"""

from __future__ import annotations

import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import pyarrow as pa

from visleak.errors import VisleakError
from visleak.formats.listing import Listing, is_hidden, labels_of
from visleak.formats.request import Request
from visleak.formats.writing import Selection
from visleak.records import ImageSet, Opener, Problem

MAX_MEMBERS: Final = 5_000_000  # an archive with more members is refused
MAX_MEMBER_BYTES: Final = 1 << 30  # a member that unpacks to more is not unpacked
MAX_RATIO: Final = 200  # what unpacks to more than this many times its packed size is a bomb
RATIO_FROM: Final = 64 << 20  # ... if it is larger than this; a small blank bitmap packs very well
#: What the readers of archives raise on damaged ones.
DAMAGE: Final = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,
    struct.error,
    OverflowError,
)


def takes_member(listing: Listing, name: str, head: Callable[[], bytes]) -> bool:
    """Whether a member is listed: an image, no part of whose path is hidden."""
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    return bool(parts) and not any(map(is_hidden, parts[:-1])) and listing.takes(parts[-1], head)


def is_bomb(size: int, packed: int) -> bool:
    """Whether so few packed bytes that make so many plain ones are meant to do harm."""
    return size > RATIO_FROM and size > MAX_RATIO * packed


def too_many(shown: str) -> VisleakError:
    """Return the error for an archive beyond :data:`MAX_MEMBERS`."""
    return VisleakError(f"archive {shown} has more than {MAX_MEMBERS:,} members")


def member_set(
    request: Request,
    names: Sequence[str],
    opener: Opener,
    listing: Listing,
    problems: Sequence[Problem] = (),
) -> ImageSet:
    """Return the set of the listed members, in that order; their first folders are labels."""
    if not names:
        request.refuse_empty(listing.why_empty("no member"))
    texts = [name.encode("utf-8", "backslashreplace").decode() for name in names]
    return request.image_set(
        pa.array(texts, pa.string()),
        pa.array((f"{request.shown}!{name}" for name in texts), pa.string()),
        opener,
        labels=labels_of(texts),
        problems=problems,
        skipped=listing.skipped,
    )


@dataclass(frozen=True)
class Members:
    """The images of an archive."""

    all: frozenset[str]  # their names, as the set's ids
    kept: frozenset[str]  # names of those that stay
    kept_stems: frozenset[str]  # their names without endings
    removed_stems: frozenset[str]  # those of images that go

    @classmethod
    def of(cls, piece: Selection) -> Self:
        """Return those of a set whose ids are the names of its members."""
        kept = frozenset(str(id_) for id_ in piece.column("ids"))
        every = frozenset(piece.images.ids.to_pylist())
        return cls(every, kept, _stems(kept), _stems(every - kept))

    def is_image(self, name: str) -> bool:
        """Whether a member is an image: one of the set, or one that the set could not list."""
        return name in self.all or takes_member(Listing(), name, bytes)

    def is_side_file_of_removed(self, name: str) -> bool:
        """Whether a file belongs to images that go and to none that stays."""
        stem = _stem(name)
        return stem in self.removed_stems and stem not in self.kept_stems


def _stems(names: Iterable[str]) -> frozenset[str]:
    return frozenset(map(_stem, names))


def _stem(name: str) -> str:
    """Return a name without its ending.

    >>> _stem("a.b/1.png"), _stem("a.b/README")
    ('a.b/1', 'a.b/README')
    """
    folder, slash, last = name.rpartition("/")
    return folder + slash + (last.rpartition(".")[0] or last)
