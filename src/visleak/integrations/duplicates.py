"""Which images of a set are duplicates of each other, as arrays in the order of the set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from visleak.auditing import Audit, audit
from visleak.errors import UsageError
from visleak.formats import open_image_set
from visleak.groups import chained, components, numbered
from visleak.records import GradeName, ImageSet, Int64, Source
from visleak.settings import Settings


def duplicate_groups(
    images: Source,
    *,
    grade: GradeName = "near",
    groups: Sequence[object] | npt.NDArray[np.generic] | None = None,
    settings: Settings | None = None,
    workers: int | None = None,
) -> Int64:
    """Return a group number for each image: duplicates, directly or in a chain, share one.

    Args:
        images: a source as of :func:`visleak.audit`.
        grade: the weakest grade that connects two images.
        groups: a group of each image that is known already, such as a patient; images of one group
            stay together too.
        settings: of the audit of the images with each other.
        workers: processes; never changes the result.

    Returns:
        ``int64`` (n,), in the order of the images. An image that cannot be read is a group of its
        own.

    Raises:
        UsageError: ``groups`` has another length, or the source is not known.
        VisleakError: no image can be read.
    """
    opened = open_image_set(images)
    if groups is not None and len(groups) != len(opened):
        raise UsageError(
            f"groups must have {len(opened):,} values, one per image; got {len(groups):,}"
        )
    pairs = audit(opened, settings=settings, workers=workers).pairs(grade=grade)
    ties = [(_places(pairs["query"], opened), _places(pairs["reference"], opened))]
    if groups is not None:
        ties.append(chained(numbered(np.asarray(groups))))
    return components(len(opened), ties)


def leaking_rows(found: Audit, images: ImageSet, *, grade: GradeName = "near") -> Int64:
    """Return the positions of the images of a set that leak, on whichever side it is, ascending.

    Args:
        found: an audit of the set.
        images: the set.
        grade: the weakest that counts.
    """
    table = found.leaks(grade)
    places = [
        _places(table.filter(pc.equal(table[f"{side}_set"], images.name))[side], images)
        for side in ("query", "reference")
    ]
    return np.unique(np.concatenate(places))


def divided(groups: Int64, shares: Sequence[float], *, seed: int = 0) -> list[Int64]:
    """Divide images into parts of about the given shares, and no group.

    Large groups are placed first, each into the part that lacks most images.

    Args:
        groups: group number of each image.
        shares: of the parts, positive; divided by their sum.
        seed: of the order of groups of one size.

    Returns:
        The positions of the images of each part, ascending.

    >>> [part.tolist() for part in divided(np.array([0, 0, 1, 2]), (0.5, 0.5))]
    [[0, 1], [2, 3]]
    """
    if not shares or min(shares) <= 0:
        raise UsageError(f"shares must be positive; got {tuple(shares)}")
    names, number, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(names))
    order = order[np.argsort(-sizes[order], kind="stable")]
    lacking = np.asarray(shares, np.float64) / sum(shares) * len(groups)
    part = np.empty(len(names), np.int64)
    for group in order:
        part[group] = np.argmax(lacking)
        lacking[part[group]] -= sizes[group]
    owner = part[number.ravel()]
    return [np.flatnonzero(owner == index).astype(np.int64) for index in range(len(shares))]


def _places(ids: pa.ChunkedArray, images: ImageSet) -> Int64:
    places = pc.index_in(ids, images.ids)
    return np.asarray(places.to_numpy(zero_copy_only=False), dtype=np.int64)
