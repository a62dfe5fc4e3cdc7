"""The pool of replacements in the order of a keyed digest."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError
from visleak.pipeline.comparison import normalised
from visleak.records import GRADES, Fingerprints, ImageSet, Int64
from visleak.remedy.settings import GRADE
from visleak.verdicts import disputed
from visleak.verdicts.level import Level


@dataclass(frozen=True)
class Pool:
    """The images that may replace test images."""

    images: ImageSet
    fingerprints: Fingerprints
    # normalised class to rows of ``fingerprints`` in the order in which they are tried; ``None`` to
    # all of them
    queues: Mapping[str | None, Int64]
    known: int
    repeated: int
    blank: int
    unreadable: int
    seed: int  # of the order

    @property
    def usable(self) -> int:
        """Number of usable images."""
        return len(self.queues[None])


def make_pool(images: ImageSet, prints: Fingerprints, existing: Set[bytes], seed: int) -> Pool:
    """Return a pool without images that are in the audit, repeated or blank.

    Candidates are tried in random order and not by similarity, so that the test set remains
    representative. The order is that of BLAKE2b of the content with the seed as key.
    """
    digests = [bytes(digest) for digest in prints.digests]
    order = sorted(range(len(digests)), key=lambda row: (_rank(digests[row], seed), row))
    known = [row for row in order if digests[row] in existing]
    blank = [row for row in order if prints.flat[row] and digests[row] not in existing]
    out = {*known, *blank}
    # of equal contents the first in the set is tried
    first = {digests[row]: row for row in reversed(order)}
    usable = [row for row in order if row not in out and first[digests[row]] == row]
    queues: dict[str | None, list[int]] = {None: usable}
    for row, label in zip(usable, _labels(images, prints, usable), strict=True):
        if label is not None:
            queues.setdefault(label, []).append(row)
    return Pool(
        images=images,
        fingerprints=prints,
        queues={label: np.array(rows, np.int64) for label, rows in queues.items()},
        known=len(known),
        repeated=len(order) - len(out) - len(usable),
        blank=len(blank),
        unreadable=len(images.problems) + len(prints.problems),
        seed=seed,
    )


def class_of(label: str | None) -> str | None:
    """Return a normalised label, ``None`` for none."""
    compared: str | None = normalised(pa.array([label], pa.string()))[0].as_py()
    return compared


def _labels(images: ImageSet, prints: Fingerprints, rows: list[int]) -> list[str | None]:
    if images.labels is None:
        return [None] * len(rows)
    positions = pa.array(prints.rows[rows], pa.int64())
    labels: list[str | None] = normalised(images.labels.take(positions)).to_pylist()
    return labels


def _rank(digest: bytes, seed: int) -> bytes:
    return hashlib.blake2b(digest, digest_size=16, key=str(seed).encode()).digest()


# -- test images that need a replacement (Barz & Denzler 2020, section 4) -------------------------


#: Columns of ``judged_pairs`` that are read.
COLUMNS: Final = (
    *("query_set", "query", "reference_set", "reference"),
    *("similarity", "grade", "coverage", "judged"),
)


@dataclass(frozen=True, slots=True)
class Leak:
    """An image that a test image duplicates."""

    set: str
    id: str
    grade: str
    similarity: float | None  # of the pair; ``None`` if a person added it without a measurement
    within: bool


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A test image that needs a replacement."""

    position: int
    id: str
    digest: str
    copy: int
    label: str | None  # its class as stored, or ``None``
    # images that it duplicates, strongest grade and largest similarity first
    leaks: tuple[Leak, ...]


@dataclass(frozen=True, slots=True)
class Duplicates:
    """The test images that need a replacement, and those left out."""

    grade: str
    images: tuple[Duplicate, ...]  # the duplicates, in the order of the set
    blank: int
    disputed: int


def find_duplicates(
    pairs: pa.Table,
    images: ImageSet,
    prints: Fingerprints,
    grade: str = GRADE,
    *,
    include_disputed: bool = False,
) -> Duplicates:
    """Return the images of a test set that duplicate a training image or another test image.

    Every query of a pair with another set counts, and of a pair within the test set only the image
    in the column ``query``: the other one stays.
    """
    allowed = GRADES[:3]
    if grade not in allowed:
        raise UsageError(f"grade must be one of {', '.join(allowed)}; got {grade!r}")
    strong = pc.is_in(pairs["grade"], pa.array(Level(grade).names))
    own = pairs.filter(pc.and_(strong, pc.equal(pairs["query_set"], images.name)))
    consensus = own.filter(pc.invert(disputed(own)))
    taken = own if include_disputed else consensus
    doubtful = set(own["query"].to_pylist()) - set(taken["query"].to_pylist())
    blank = set(prints.ids.filter(pa.array(prints.flat)).to_pylist())
    leaking = set(taken["query"].to_pylist())
    kept = taken.filter(pc.invert(pc.is_in(taken["query"], pa.array(sorted(blank), pa.string()))))
    return Duplicates(
        grade=grade,
        images=_described(kept, images, prints),
        blank=len(leaking & blank),
        disputed=len(doubtful - blank),
    )


def _described(pairs: pa.Table, images: ImageSet, prints: Fingerprints) -> tuple[Duplicate, ...]:
    leaks: dict[str, list[Leak]] = {}
    for row in pairs.select([name for name in COLUMNS if name != "judged"]).to_pylist():
        leaks.setdefault(row["query"], []).append(
            Leak(
                row["reference_set"],
                row["reference"],
                row["grade"],
                row["similarity"],
                row["coverage"] == "within",
            )
        )
    seen: Counter[str] = Counter()
    found = []
    digests = [bytes(digest).hex() for digest in prints.digests]
    for position, id_, digest in zip(
        prints.rows.tolist(), prints.ids.to_pylist(), digests, strict=True
    ):
        copy = seen[digest]
        seen[digest] += 1
        if id_ in leaks:
            label = images.labels[position].as_py() if images.labels is not None else None
            found.append(Duplicate(position, id_, digest, copy, label, _sorted(leaks[id_])))
    return tuple(found)


def _sorted(leaks: Sequence[Leak]) -> tuple[Leak, ...]:
    """Return leaks, those into training and strong ones first."""
    return tuple(
        sorted(
            leaks,
            key=lambda leak: (
                leak.within,
                GRADES.index(leak.grade),
                -(leak.similarity if leak.similarity is not None else -1.0),
                leak.set,
                leak.id,
            ),
        )
    )
