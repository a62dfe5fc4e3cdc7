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
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from visleak.errors import VisleakError
from visleak.images.folder import labels_of
from visleak.images.listing import Listing, is_hidden
from visleak.images.request import Request
from visleak.records import ImageSet, Opener, Problem

#: Endings of tar archives.
TARS: Final = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")

#: An archive with more members is refused.
MAX_MEMBERS: Final = 5_000_000

#: A member that unpacks to more is not unpacked.
MAX_MEMBER_BYTES: Final = 1 << 30

#: What unpacks to more than this many times its packed size is a bomb ...
MAX_RATIO: Final = 200

#: ... if it is larger than this; a small blank bitmap packs very well.
RATIO_FROM: Final = 64 << 20

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
    """Whether a member is listed: an image, no part of whose path is hidden.

    Args:
        listing: counts the others.
        name: of the member.
        head: returns its first bytes.
    """
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    return bool(parts) and not any(map(is_hidden, parts[:-1])) and listing.takes(parts[-1], head)


def is_bomb(size: int, packed: int) -> bool:
    """Whether so few packed bytes that make so many plain ones are meant to do harm."""
    return size > RATIO_FROM and size > MAX_RATIO * packed


def too_many(shown: str) -> VisleakError:
    """Return the error for an archive beyond :data:`MAX_MEMBERS`."""
    return VisleakError(f"archive {shown} has more than {MAX_MEMBERS:,} members")


def damaged(shown: str, error: Exception) -> VisleakError:
    """Return the error for an archive that cannot be listed."""
    return VisleakError(f"archive {shown} cannot be read: {said(error)}")


def said(error: Exception) -> str:
    """Return what an error says, in one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def member_set(
    request: Request,
    names: Sequence[str],
    opener: Opener,
    listing: Listing,
    problems: Sequence[Problem] = (),
) -> ImageSet:
    """Return the set of the listed members, in that order; their first folders are labels."""
    if not names:
        request.no_pictures(listing.why_empty("no member"))
    texts = [name.encode("utf-8", "backslashreplace").decode() for name in names]
    return request.image_set(
        pa.array(texts, pa.string()),
        pa.array((f"{request.shown}!{name}" for name in texts), pa.string()),
        opener,
        labels=labels_of(texts),
        problems=problems,
        skipped=listing.skipped,
    )
