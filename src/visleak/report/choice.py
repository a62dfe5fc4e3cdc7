"""Which pairs the page shows with images: one of each duplicate group, and every kind of pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from visleak.groups import components, is_word, scale_codes
from visleak.records import DEGREES, GRADES, Bool, Int64

#: Most cards the gallery shows.
CAP: Final = 300
#: So many cards each kind of pair gets before the most certain fill the rest.
FLOOR: Final = 6

#: Columns of the pairs, verdicts applied, that the choice, the counts and the table need.
COLUMNS: Final = [
    "query_set",
    "query",
    "reference_set",
    "reference",
    "similarity",
    "degree",
    "grade",
    "probability",
    "query_label",
    "reference_label",
    "label_relation",
    "coverage",
    "machine_grade",
]


@dataclass(frozen=True)
class Ledger:
    """The pairs of an audit as plain arrays, one row per pair."""

    key: Int64  # ``int64``, one number per duplicate group of query images
    stratum: Int64  # ``int64``, one number per kind of pair: sets, grade or degree, conflict or not
    order: Int64  # rows, most certain first
    leak: Bool
    within: Bool
    conflict: Bool
    shown: Bool
    verified: bool
    group: Int64  # ``int64`` (images,), the number of each image's group, in the order of ``first``
    # ``int64`` (images,), where an image occurs first: row, or rows + row as reference
    first: Int64

    def __len__(self) -> int:
        return len(self.key)

    def members(self, keys: Int64) -> dict[int, Int64]:
        """Return where the images of some groups occur first."""
        order = np.argsort(self.group, kind="stable")
        sorted_ = self.group[order]
        starts, ends = (np.searchsorted(sorted_, keys, side) for side in ("left", "right"))
        return {
            int(key): np.sort(self.first[order[start:end]])
            for key, start, end in zip(keys, starts, ends, strict=True)
        }


@dataclass(frozen=True)
class Choice:
    """The rows of the gallery, most certain first, and for each how many more its group has."""

    rows: Int64
    more: Int64


def ledger(pairs: pa.Table) -> Ledger:
    """Turn the columns :data:`COLUMNS` into arrays."""
    query_set, reference_set = codes(pairs["query_set"]), codes(pairs["reference_set"])
    grade, degree = (
        scale_codes(pairs["grade"], GRADES, len(GRADES)),
        scale_codes(pairs["degree"], DEGREES, len(DEGREES)),
    )
    within = is_word(pairs["coverage"], "within")
    graded = grade < len(GRADES)
    # people judge some pairs, verification covers all of a comparison
    machine = scale_codes(pairs["machine_grade"], GRADES, len(GRADES)) < len(GRADES)
    looked = graded | _looked(combine(query_set, reference_set), machine)
    of_degree = ~looked & (degree < len(DEGREES))
    near = grade <= GRADES.index("near")
    leak = near | of_degree
    conflict = leak & is_word(pairs["label_relation"], "different")
    probability = pairs["probability"].to_numpy().astype(np.float64)
    similarity = pairs["similarity"].to_numpy().astype(np.float64)
    certain = np.where(np.isnan(probability), -1.0, probability)
    # the same template is more than another image, however small the probability of near
    different = grade == GRADES.index("different")
    kind = np.where(looked, grade, len(GRADES) + 1 + degree)
    ends, first = _images(pairs)
    # similarity alone connects strangers: only grades make groups
    group = components(len(first), [(ends[0][near], ends[1][near])])
    return Ledger(
        key=group[ends[0]],
        stratum=combine(query_set, reference_set, within, kind, conflict),
        order=np.lexsort((-similarity, degree, grade, -certain, different)).astype(np.int64),
        leak=leak,
        within=within,
        conflict=conflict,
        shown=(grade <= GRADES.index("similar")) | of_degree,
        verified=bool(graded.any()),
        group=group,
        first=first,
    )


def _looked(couple: Int64, graded: Bool) -> Bool:
    return np.asarray(np.isin(couple, couple[graded]))


def _images(pairs: pa.Table) -> tuple[Int64, Int64]:
    """Return the number of the image at both ends of each pair, and where each occurs first."""
    names, sets = (
        codes(pa.chunked_array([*pairs[left].chunks, *pairs[right].chunks], pa.string()))
        for left, right in (("query", "reference"), ("query_set", "reference_set"))
    )
    images = combine(sets, names)
    _, first = np.unique(images, return_index=True)
    return images.reshape(2, -1), first.astype(np.int64)


def choose(pairs: Ledger, cap: int = CAP) -> Choice:
    """Choose at most ``cap`` pairs, at most one per group, every kind of pair represented.

    A group is shown by its best pair. Only a kind of leak that no best pair is of, such as a
    second reference set that always comes second, takes one card from a group of its own. Rare
    kinds choose first; the rest goes to the most certain pairs. The answer depends on the rows
    alone.
    """
    _, first = np.unique(pairs.key[pairs.order], return_index=True)
    best = pairs.order[np.sort(first)]
    picked = _floors(pairs, best, cap)
    taken = {int(pairs.key[row]) for row in picked}
    for row in best[pairs.shown[best]]:
        if len(picked) >= cap:
            break
        if int(pairs.key[row]) not in taken:
            picked.append(int(row))
    place = np.empty(len(pairs), dtype=np.int64)
    place[pairs.order] = np.arange(len(pairs))
    rows = np.array(sorted(picked, key=lambda row: place[row]), dtype=np.int64)
    return Choice(rows, _more(pairs, rows))


def _floors(pairs: Ledger, best: Int64, cap: int) -> list[int]:
    """Give every kind of pair its first cards, rare kinds first."""
    strata, sizes = np.unique(pairs.stratum, return_counts=True)
    floor = max(1, min(FLOOR, cap // (2 * max(1, len(strata)))))
    behind = set(strata.tolist()) - set(pairs.stratum[best].tolist())
    orphans = pairs.order[
        np.isin(pairs.stratum[pairs.order], sorted(behind)) & pairs.leak[pairs.order]
    ]
    rows = np.concatenate([orphans, best])
    rows = rows[np.argsort(pairs.stratum[rows], kind="stable")]
    starts = np.searchsorted(pairs.stratum[rows], [*strata, strata.max(initial=0) + 1])
    picked: list[int] = []
    taken: set[int] = set()
    for stratum in np.argsort(sizes, kind="stable"):
        left = 1 if strata[stratum] in behind else floor
        for row in rows[starts[stratum] : starts[stratum + 1]]:
            if left == 0 or len(picked) >= cap:
                break
            if int(pairs.key[row]) not in taken:
                taken.add(int(pairs.key[row]))
                picked.append(int(row))
                left -= 1
    return picked


def _more(pairs: Ledger, rows: Int64) -> Int64:
    kind = combine(pairs.key, pairs.within)
    counted = np.bincount(kind[pairs.leak], minlength=int(kind.max(initial=0)) + 1)
    return np.asarray(counted[kind[rows]] - pairs.leak[rows], dtype=np.int64)


def codes(column: pa.ChunkedArray) -> Int64:
    """Number the texts of a column; null is 0.

    >>> codes(pa.chunked_array([["b", None, "a", "b"]])).tolist()
    [1, 0, 2, 1]
    """
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    indices = pc.fill_null(pc.cast(encoded.indices, pa.int64()), -1)
    return np.asarray(indices.to_numpy(zero_copy_only=False), dtype=np.int64) + 1


def combine(*columns: npt.NDArray[np.generic]) -> Int64:
    """Number the distinct rows of several columns.

    >>> combine(np.array([5, 5, 7]), np.array([0, 1, 0])).tolist()
    [0, 1, 2]
    """
    total = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values = column.astype(np.int64)
        span = int(values.max(initial=0)) + 1
        total = np.unique(total * span + values, return_inverse=True)[1].astype(np.int64)
    return total
