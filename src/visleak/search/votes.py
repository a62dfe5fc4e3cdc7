"""Candidates by voting: which references share patches with a query, in a consistent place.

Every patch of the query looks for alike patches of the references and votes for their pictures
(Sivic & Zisserman, "Video Google", ICCV 2003). Patches are compared by binary codes, as in Hamming
embedding, and votes that do not agree in turn and scale are void, which is weak geometric
consistency (both Jegou, Douze & Schmid, ECCV 2008). The few pictures left are checked for a common
place too: the score is the largest weight of matches that one turn, scale and shift explains, so
that unrelated pictures get next to no votes.

All weights are integers and sums of them exact: no block size, number of threads or order of the
references changes a score. Only references of equal score are told apart by their position.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from visleak.records import Bytes8, Float32, Int8, Int64
from visleak.search.codes import CodeIndex

#: A candidate's least score. Among 500 photographs a query has 0.02 wrong ones above it, and 0.2
#: above 3 (benchmarks/local_features.py); more references bring more.
LEAST_SCORE: Final = 4.0

#: Text that changes whenever any score could change.
DIGEST: Final = "votes-2"

_CHECKED: Final = 64  # pictures a query (and ties) whose matches are checked for a common place
_COMMON: Final = 20  # a patch found in more pictures than this weighs less
_UNIT: Final = 64  # integer weight of a patch that is not common

Float64 = npt.NDArray[np.float64]
Complex = npt.NDArray[np.complex128]


@dataclass(frozen=True)
class FeatureRows:
    """The local features of many pictures, one after another; may be memory-mapped.

    Attributes:
        descriptors: ``uint8`` (n, 128).
        keypoints: ``float32`` (n, 4): x, y, scale (pixels), angle (degrees clockwise from x).
        starts: ``int64`` (pictures + 1,): picture ``p`` has the rows ``starts[p]:starts[p + 1]``.
    """

    descriptors: Bytes8
    keypoints: Float32
    starts: Int64

    def __post_init__(self) -> None:
        n = len(self.descriptors)
        if self.descriptors.shape != (n, 128) or self.descriptors.dtype != np.uint8:
            raise ValueError(f"descriptors must be uint8 (n, 128), got {self.descriptors.shape}")
        if self.keypoints.shape != (n, 4):
            raise ValueError(f"keypoints must be ({n}, 4), got {self.keypoints.shape}")
        ends = (self.starts[0], self.starts[-1]) if len(self.starts) else (None, None)
        if ends != (0, n) or (np.diff(self.starts) < 0).any():
            raise ValueError(f"starts must ascend from 0 to {n}")

    def __len__(self) -> int:
        """Return the number of pictures."""
        return len(self.starts) - 1


@dataclass(frozen=True)
class Votes:
    """Candidates, ordered by query, then by score (highest first), then by reference.

    Attributes:
        query, reference: ``int64`` (n,): positions of the pictures in their :class:`FeatureRows`.
        score: ``float32`` (n,): about the number of patches the two pictures share in one place.
        view: ``int8`` (n,): index into :data:`visleak.records.VIEWS`: the view of the query that
            scored best.
    """

    query: Int64
    reference: Int64
    score: Float32
    view: Int8

    def __len__(self) -> int:
        return len(self.query)


class LocalIndex:
    """Finds the references that share patches with a query.

    Holds 44 bytes a feature (11 kB for a picture of 250) and 50 MB besides. Descriptors are read
    once, in blocks, keypoints only where a patch matched, so that both may be memory-mapped.

    Args:
        references: features of the references, in the caller's order.
        block: features whose codes are computed at once; never changes a result.
    """

    def __init__(self, references: FeatureRows, *, block: int = 1 << 16) -> None:
        self._codes = CodeIndex(references.descriptors, block=block)
        self._keypoints = references.keypoints
        positions = np.arange(len(references), dtype=np.int32)
        self._owner = np.repeat(positions, np.diff(references.starts))

    @property
    def nbytes(self) -> int:
        """Bytes held in memory."""
        return self._codes.nbytes + self._owner.nbytes

    def search(
        self,
        views: Mapping[int, FeatureRows],
        *,
        best: int = 20,
        least: float = LEAST_SCORE,
        workers: int = 1,
    ) -> Votes:
        """Return each query's best references.

        Where queries and references are one set, each query also finds itself.

        Args:
            views: features of the same queries, seen in several views: an index into
                :data:`visleak.records.VIEWS` to the features. Turns need no view.
            best: the most candidates a query.
            least: the least score of a candidate.
            workers: threads; never changes the result.
        """
        lengths = {len(queries) for queries in views.values()}
        if len(lengths) != 1:
            raise ValueError(f"views must be of the same queries, got {sorted(lengths)} pictures")

        def one(query: int) -> Votes:
            return _merged(
                query,
                {view: self._scores(queries, query) for view, queries in sorted(views.items())},
                best=best,
                least=least,
            )

        # Threads of the linear algebra library would only wait for those of the pool.
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(workers) as pool:
            found = list(pool.map(one, range(lengths.pop())))
        columns = [
            np.concatenate([getattr(votes, name) for votes in [_NOTHING, *found]])
            for name in ("query", "reference", "score", "view")
        ]
        return Votes(*columns)

    def _scores(self, queries: FeatureRows, query: int) -> tuple[Int64, Int64]:
        """Return references, ascending, and integer scores of one query in one view."""
        rows = slice(queries.starts[query], queries.starts[query + 1])
        patches, matched, pictures = self._matches(queries.descriptors[rows])
        weights = _rarity(patches)
        mine = np.asarray(queries.keypoints[rows], np.float64)[patches]
        theirs = self._keypoints[matched].astype(np.float64)
        turn = np.deg2rad(theirs[:, 3] - mine[:, 3])
        zoom = np.log2(theirs[:, 2] / mine[:, 2])
        chosen = _consistent(pictures, turn, zoom, weights)
        here, there = (points[:, 0] + 1j * points[:, 1] for points in (mine, theirs))
        move = np.exp2(zoom) * np.exp(1j * turn)
        lows, highs = (np.searchsorted(pictures, chosen, side) for side in ("left", "right"))
        scores = [
            _placed(here[low:high], there[low:high], move[low:high], weights[low:high])
            for low, high in zip(lows, highs, strict=True)
        ]
        return chosen, np.array(scores, np.int64)

    def _matches(self, descriptors: Bytes8) -> tuple[Int64, Int64, Int64]:
        """Return pairs of alike patches, ordered by picture.

        A patch of the query has at most one match in a picture, and a patch of a reference at
        most one in the query: the nearest, then the first. Repeated texture would vote often.

        Returns:
            Rows of the query, rows of the references, and positions of the latter's pictures.
        """
        mine, theirs, bits = self._codes.alike(descriptors)
        first = _first(theirs, bits, mine)
        mine, theirs, bits = mine[first], theirs[first], bits[first]
        owner = self._owner[theirs].astype(np.int64)
        first = _first(owner * len(descriptors) + mine, bits, theirs)
        return mine[first], theirs[first], owner[first]


_NOTHING: Final = Votes(
    np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.int8)
)


def _first(group: Int64, *keys: Int64) -> Int64:
    """Return the position of each group's smallest entry, by the keys in order; groups ascend."""
    order = np.lexsort((*reversed(keys), group))
    changes = np.diff(group[order], prepend=-1) != 0
    return np.asarray(order[changes])


def _rarity(patches: Int64) -> Int64:
    """Return an integer weight a match: a patch that is found in many pictures says less.

    ``patches`` holds each patch of the query once for every picture it was found in. The weight is
    ``_UNIT`` up to ``_COMMON`` pictures, then falling with the square root of their number
    (Jegou, Douze & Schmid, "On the burstiness of visual elements", CVPR 2009).
    """
    spread = np.bincount(patches)[patches]
    weights = np.rint(_UNIT * np.sqrt(_COMMON / np.maximum(spread, _COMMON)))
    return np.asarray(weights, np.int64)


def _consistent(pictures: Int64, turn: Float64, zoom: Float64, weights: Int64) -> Int64:
    """Return the pictures, ascending, with the most weight in one window of turn and scale.

    Windows are 45 degrees by one octave, and overlap by half, so that no group is cut in two.
    """
    turns = 16
    a = np.floor(turn / (2 * np.pi) * turns).astype(np.int64) % turns
    s = np.clip(np.floor(zoom / 0.5), -15, 15).astype(np.int64) + 16
    keys = np.concatenate(
        [(pictures * turns + (a + da) % turns) * 64 + s + ds for da in (0, 1) for ds in (0, 1)]
    )
    windows, where = np.unique(keys, return_inverse=True)
    totals = np.bincount(where, np.tile(weights, 4)).astype(np.int64)
    owners = windows // (64 * turns)
    top = _first(owners, -totals)
    owners, totals = owners[top], totals[top]
    enough = totals > 2 * _UNIT
    owners, totals = owners[enough], totals[enough]
    if len(owners) > _CHECKED:
        # Ties with the last one stay, or the order of the references would matter.
        owners = owners[totals >= np.partition(totals, -_CHECKED)[-_CHECKED]]
    return owners


def _placed(here: Complex, there: Complex, move: Complex, weights: Int64) -> int:
    """Return the largest weight of matches that agree with one of them on turn, scale and shift.

    Points are complex numbers, ``move`` is scale and turn as one. Turns may differ by 30 degrees
    and scales by 1.6, as under a change of aspect; a point may lie off by 6 pixels and a fifth of
    the way from the match that foretells it.
    """
    way = there[None, :] - there[:, None]
    error = np.abs(way - move[:, None] * (here[None, :] - here[:, None]))
    ratio = move[None, :] / move[:, None]
    agree = error <= 6 + 0.2 * np.abs(way)
    agree &= np.abs(np.angle(ratio)) <= np.deg2rad(30)
    agree &= np.abs(np.log(np.abs(ratio))) <= np.log(1.6)
    return int((agree @ weights).max())


def _merged(
    query: int, scores: Mapping[int, tuple[Int64, Int64]], *, best: int, least: float
) -> Votes:
    """Return the candidates of one query: of each reference the view that scored best."""
    reference = np.concatenate([chosen for chosen, _ in scores.values()])
    score = np.concatenate([score for _, score in scores.values()])
    view = np.repeat(list(scores), [len(chosen) for chosen, _ in scores.values()])
    enough = score >= least * _UNIT
    reference, score, view = reference[enough], score[enough], view[enough]
    top = _first(reference, -score, view)
    top = top[np.lexsort((reference[top], -score[top]))[:best]]
    return Votes(
        np.full(len(top), query, np.int64),
        reference[top],
        (score[top] / _UNIT).astype(np.float32),
        view[top].astype(np.int8),
    )
