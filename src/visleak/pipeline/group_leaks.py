"""Groups on both sides: a leak of recordings, videos or patients, even if no pixel agrees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.pipeline.candidates import Side
from visleak.pipeline.comparison import Comparison
from visleak.records import Bool, ImageSet
from visleak.stats import Rate
from visleak.storage.summary import GroupSummary

#: Most groups that are named.
NAMED: Final = 20


@dataclass(frozen=True)
class GroupLeak:
    """The groups that two sets of one data set share.

    Attributes:
        names: of the shared groups, sorted.
        queries: ``bool`` (n,): which readable query images are of one of them.
    """

    names: tuple[str, ...]
    queries: Bool

    def summary(self) -> GroupSummary:
        """Return the entry of ``audit.json``."""
        return GroupSummary(len(self.names), int(self.queries.sum()), self.names[:NAMED])


def group_leak(
    compared: Comparison, sides: Mapping[str, Side], passing: Iterable[str]
) -> GroupLeak | None:
    """Return the groups on both sides of a comparison; ``None`` where that has no meaning.

    It has where two sets of one data set both have groups: names of groups mean nothing across
    data sets, and within a set a group is on one side. Only images that could be read count.

    Args:
        compared: the comparison.
        sides: the sides by set name.
        passing: names of sets whose embeddings pass by; few of their images are listed.
    """
    if compared.coverage != "intra" or compared.reference.name in set(passing):
        return None
    query, reference = (
        _groups(images, sides[images.name]) for images in (compared.query, compared.reference)
    )
    if query is None or reference is None:
        return None
    shared = pc.unique(reference).drop_null()
    hit = pc.is_in(query, shared, skip_nulls=True)
    names = pc.unique(query.filter(hit)).to_pylist()
    return GroupLeak(tuple(sorted(names)), np.asarray(hit.to_numpy(zero_copy_only=False), np.bool_))


def _groups(images: ImageSet, side: Side) -> pa.StringArray | None:
    """Return the groups of the readable images, ``None`` where not one has any."""
    if images.groups is None:
        return None
    found = images.groups.take(pa.array(side.fingerprints.rows))
    return None if found.null_count == len(found) else found


def union(leaks: Sequence[GroupLeak]) -> GroupLeak | None:
    """Return the leaks of one query set over several references, ``None`` if there are none."""
    if not leaks:
        return None
    names = sorted({name for each in leaks for name in each.names})
    return GroupLeak(tuple(names), np.logical_or.reduce([each.queries for each in leaks]))


def rate_of(leak: GroupLeak, population: int | None) -> Rate:
    """Return the share of the query images that are of a shared group, for ``audit.json``.

    Args:
        leak: of a comparison, or a union.
        population: of how many images these were drawn, where they are a sample.
    """
    queries = leak.queries
    return Rate.of(int(queries.sum()), len(queries), population=population)


def sentence(leak: GroupLeak | None, name: str) -> str:
    """Return what the headline adds, nothing where no group is shared.

    >>> sentence(GroupLeak(("p7",), np.array([True, False])), "test")
    '; 1 group is on both sides (1 of 2 test images)'
    """
    if leak is None or not leak.names:
        return ""
    count = len(leak.names)
    return (
        f"; {count:,} {'group is' if count == 1 else 'groups are'} on both sides"
        f" ({int(leak.queries.sum()):,} of {len(leak.queries):,} {name} images)"
    )


def ungrouped(sets: Iterable[ImageSet]) -> list[str]:
    """Return a line on each set with groups some images of which have none.

    >>> from visleak.images import open_images
    >>> import numpy as np
    >>> pictures = [np.zeros((8, 8, 3), np.uint8)] * 2
    >>> ungrouped([open_images(pictures, name="test", group="/(1)/")])
    ['groups of test: 1 of 2 images have none']
    """
    return [
        f"groups of {images.name}: {images.groups.null_count:,} of {len(images):,} images have none"
        for images in sets
        if images.groups is not None and images.groups.null_count
    ]
