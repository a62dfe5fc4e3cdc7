"""Test images that need a replacement (Barz & Denzler 2020, section 4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError
from visleak.records import GRADES, Fingerprints, ImageSet
from visleak.remedy.settings import GRADE
from visleak.verdicts import disputed
from visleak.verdicts.level import Level

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
