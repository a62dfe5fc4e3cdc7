"""The images of a split as they were when they were first read.

A result speaks of one split: what the audit compared, what was hashed and what every model was
trained and evaluated on must be the same images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.auditing import Audit
from visleak.dlede.draw import Split, split_digest
from visleak.errors import VisleakError
from visleak.images import content_digest
from visleak.pipeline.encoded_set import CHANGED, GONE, UnchangedOpener
from visleak.progress import Progress
from visleak.quantities import counted
from visleak.records import Bytes8, ImageSet, Unreadable

#: Images read between two reports of progress.
CHUNK: Final = 256


@dataclass(frozen=True)
class PinnedOpener:
    """Reads the images of a set; one that is not what it was ends the command."""

    name: str  # of the set
    ids: pa.StringArray  # of its images
    unchanged: UnchangedOpener  # compares them

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield what is stored at some of the positions, see :class:`visleak.records.Opener`."""
        for position, stored in zip(positions, self.unchanged.read(positions), strict=True):
            if isinstance(stored, Unreadable) and stored.reason in (GONE, CHANGED):
                raise VisleakError(
                    f"{self.ids[int(position)].as_py()!r} of set {self.name!r} is not what it was"
                    f" when the command began ({stored.reason}: {stored.detail}); run the command"
                    " again when the set is whole and nothing writes to it"
                )
            yield stored


def pinned(split: Split, progress: Progress) -> Split:
    """Read all images of a split, and return it with images that must not change."""
    return replace(split, train=_pinned(split.train, progress), test=_pinned(split.test, progress))


def _pinned(images: ImageSet, progress: Progress) -> ImageSet:
    rows, digests = [], []
    for start in range(0, len(images), CHUNK):
        progress(f"reading {images.name}", start, len(images))
        part = range(start, min(start + CHUNK, len(images)))
        for row, stored in zip(part, images.opener.read(part), strict=True):
            if not isinstance(stored, Unreadable):
                rows.append(row)
                digests.append(content_digest(stored))
    progress(f"reading {images.name}", len(images), len(images))
    known = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16)
    unchanged = UnchangedOpener(images.opener, np.array(rows, np.int64), known)
    return replace(images, opener=PinnedOpener(images.name, images.ids, unchanged))


def check_unchanged(split: Split, digest: str) -> None:
    """Refuse a pinned split whose files are other ones than when their digest was taken.

    Programs that train read the files themselves.
    """
    if split_digest(split) != digest:
        for images in (split.train, split.test):
            for _ in images.opener.read(range(len(images))):
                pass


def check_audited(audit: Audit, split: Split) -> None:
    """Refuse an audit that compared other contents than those of a pinned split."""
    compared = audit.summary.comparisons
    sides = (
        (split.test, [each.query_set for each in compared]),
        (split.train, [each.reference_set for each in compared]),
    )
    for images, names in sides:
        if not isinstance(images.opener, PinnedOpener):
            continue
        unchanged = images.opener.unchanged
        wanted = _audited(audit, images, names)
        ids = images.ids.take(pa.array(unchanged.positions)).to_pylist()
        found = (digest.tobytes().hex() for digest in unchanged.digests)
        pairs = zip(ids, found, strict=True)
        other = [id_ for id_, digest in pairs if wanted.get(id_, digest) != digest]
        if other:
            raise VisleakError(
                f"{counted(len(other), 'image')} of set {images.name!r} changed since the audit"
                f" {audit.folder}, such as {other[0]!r}; run the audit again, or restore them"
            )


def _audited(audit: Audit, images: ImageSet, names: Sequence[str]) -> dict[str, str]:
    """Return the digests of the set of an audit that has these images; it may have another name."""
    table, ids = audit.images(), set(images.ids.to_pylist())
    for name in sorted(set(names), key=lambda name: (name != images.name, name)):
        own = table.filter(pc.equal(table["set"], name))
        digests = dict(zip(own["id"].to_pylist(), own["digest"].to_pylist(), strict=True))
        if digests and digests.keys() <= ids:
            return digests
    return {}
