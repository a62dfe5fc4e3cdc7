"""Images by group and by name: connected components, ranks, rows of tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from visleak.records import AnySet, Bool, Int8, Int64

UInt64 = npt.NDArray[np.uint64]


def components(count: int, ties: Sequence[tuple[Int64, Int64]]) -> Int64:
    """Return the connected component of each image, numbered in the order of their first images.

    ``ties`` are pairs of equally long arrays of positions, whose direction does not matter.

    >>> components(5, [(np.array([3, 1]), np.array([1, 4]))]).tolist()
    [0, 1, 2, 1, 1]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    first = np.concatenate([np.asarray(tie[0], np.int64) for tie in ties] or [np.empty(0, int)])
    second = np.concatenate([np.asarray(tie[1], np.int64) for tie in ties] or [np.empty(0, int)])
    if len(first) and not 0 <= min(first.min(), second.min()) <= max(first.max(), second.max()) < (
        count
    ):
        raise ValueError(f"a tie names an image that is none of the {count}")
    if not count:
        return np.empty(0, np.int64)
    graph = coo_array((np.ones(len(first)), (first, second)), shape=(count, count))
    _, labels = connected_components(graph, directed=False)
    return numbered(labels)


def joined(count: int, schemes: Sequence[tuple[Int64, Sequence[str]]]) -> list[str | None]:
    """Return the name of the group of each image, where images of several schemes are connected.

    A group is called as the first scheme that names any of its images calls it; of several names
    the least, so that the order of images does not matter.

    Args:
        count: number of images.
        schemes: places of images in [0, count), and what the group of each is called.

    >>> joined(4, [(np.array([0, 1, 2]), ["b", "b", "a"]), (np.array([1, 2]), ["c", "c"])])
    ['a', 'a', 'a', None]
    """
    ties, named = [], np.zeros(count, np.bool_)
    for places, names in schemes:
        codes = np.full(count, -1, np.int64)
        codes[places] = numbered(np.array(names, np.str_))
        named[places] = True
        ties.append(chained(codes))
    component = components(count, ties)
    found: dict[int, str] = {}
    for places, names in schemes:
        own: dict[int, str] = {}
        for part, name in zip(component[places].tolist(), names, strict=True):
            own[part] = min(name, own.get(part, name))
        found = own | found
    parts = zip(component.tolist(), named.tolist(), strict=True)
    return [found[part] if known else None for part, known in parts]


def numbered(values: npt.NDArray[np.generic]) -> Int64:
    """Return a number for each value: 0 for the first that occurs, 1 for the next other one.

    >>> numbered(np.array(["b", "a", "b"])).tolist()
    [0, 1, 0]
    """
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.asarray(rank[inverse.ravel()])


def chained(codes: Int64) -> tuple[Int64, Int64]:
    """Return ties that connect all images of each code, one fewer than its images; -1 is none.

    >>> [end.tolist() for end in chained(np.array([7, -1, 5, 7, -1, 7]))]
    [[0, 3], [3, 5]]
    """
    rows = np.flatnonzero(codes >= 0)
    rows = rows[np.argsort(codes[rows], kind="stable")]
    same = np.flatnonzero(codes[rows[1:]] == codes[rows[:-1]])
    return rows[same], rows[same + 1]


def rank_within(group: npt.NDArray[np.generic], *keys: npt.NDArray[np.generic]) -> Int64:
    """Return the rank of each entry in its group, from 0, by keys as of :func:`numpy.lexsort`.

    Ties go to the entry that comes first.

    >>> rank_within(np.array([5, 7, 5]), np.array([2, 0, 1]))
    array([1, 0, 0])
    """
    order = np.lexsort((*keys, group))
    rank = np.empty(len(order), np.int64)
    rank[order] = places(group[order])
    return rank


def places(ascending: npt.NDArray[np.generic]) -> Int64:
    """Return the place of each entry among the entries that equal it, from 0.

    >>> places(np.array([2, 2, 5, 7, 7]))
    array([0, 1, 0, 0, 1])
    """
    return np.arange(len(ascending)) - np.searchsorted(ascending, ascending)


def nearest_frames(
    group: Int64, frame: Int64, other_group: Int64, other_frame: Int64
) -> tuple[Int64, UInt64]:
    """Return the nearest other frame of each frame's group, and its distance.

    Exact for all of int64, in O((n + m) log (n + m)). Of two that are equally near, the earlier;
    where a group has none, -1 and the largest ``uint64``.

    >>> one = np.array([0, 0, 1])
    >>> place, distance = nearest_frames(one, np.array([5, 90, 7]), one, np.array([1, 100, 7]))
    >>> place.tolist(), distance.tolist()
    ([0, 1, 2], [4, 10, 0])
    """
    values = np.unique(np.concatenate([frame, other_frame]))
    width = max(len(values), 1)
    keys = other_group * width + np.searchsorted(values, other_frame)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    after = np.searchsorted(keys, group * width + np.searchsorted(values, frame))
    best, place = np.full(len(frame), np.iinfo(np.uint64).max), np.full(len(frame), -1, np.int64)
    # the first of equal frames before
    before = np.searchsorted(keys, keys[np.maximum(after - 1, 0)]) if len(keys) else after - 1
    for at in (np.where(after > 0, before, -1), after):
        there = np.flatnonzero((at >= 0) & (at < len(keys)))
        key = keys[at[there]]
        there = there[key // width == group[there]]
        key = keys[at[there]]
        apart = distance_of(frame[there], values[key % width])
        closer = apart < best[there]
        best[there[closer]] = apart[closer]
        place[there[closer]] = order[at[there[closer]]]
    return place, best


def distance_of(left: Int64, right: Int64) -> UInt64:
    """Return the absolute differences of whole numbers; none overflows."""
    high, low = np.maximum(left, right), np.minimum(left, right)
    return high.view(np.uint64) - low.view(np.uint64)


def places_within(sizes: Int64) -> tuple[Int64, Int64]:
    """Return, for groups of some sizes one after the other, group and place of each entry.

    >>> [column.tolist() for column in places_within(np.array([2, 0, 3]))]
    [[0, 0, 2, 2, 2], [0, 1, 0, 1, 2]]
    """
    group = np.repeat(np.arange(len(sizes)), sizes)
    return group, np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def scale_codes(column: pa.ChunkedArray, scale: Sequence[str], other: int) -> Int8:
    """Return the place of each text on a scale, ``other`` for one that is not on it.

    >>> scale_codes(pa.chunked_array([["soft", None, "hard"]]), ("hard", "soft"), -1).tolist()
    [1, -1, 0]
    """
    place = pc.index_in(column.cast(pa.string()), pa.array(scale))
    return np.asarray(pc.fill_null(place, other).to_numpy(), np.int8)


def is_word(column: pa.ChunkedArray, word: str) -> Bool:
    """Return which texts of a column are a word; null is not."""
    same = pc.equal(column.cast(pa.string()), word)
    return np.asarray(pc.fill_null(same, False).to_numpy(), np.bool_)


def image_rows(pairs: pa.Table, side: str, images: pa.Table) -> Int64:
    """Return the row of each pair's ``query`` or ``reference`` in a table of images, else -1."""
    found = np.full(pairs.num_rows, -1, np.int64)
    for name in pc.unique(images["set"]).to_pylist():
        own = np.flatnonzero(is_word(images["set"], name))
        rows = np.flatnonzero(is_word(pairs[f"{side}_set"], name))
        ids = images["id"].take(pa.array(own)).combine_chunks()
        place = pc.index_in(pairs[side].take(pa.array(rows)).combine_chunks(), ids)
        place = pc.fill_null(place, -1).to_numpy().astype(np.int64)
        found[rows] = np.where(place >= 0, own[place], -1)
    return found


def both_have(
    columns: Sequence[str], queries: Sequence[AnySet], references: Sequence[AnySet]
) -> bool:
    """Whether two sets of one data set, one a side, have all of some columns."""
    return any(
        query is not reference
        and query.dataset == reference.dataset
        and all(getattr(s, c, None) is not None for s in (query, reference) for c in columns)
        for query in queries
        for reference in references
    )
