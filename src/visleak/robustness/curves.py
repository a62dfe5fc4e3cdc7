"""Exact ROC curves over more pairs than fit into memory, and the results of the experiment.

The similarities of the true pairs are known first. The others are streamed and counted between
those of the true pairs, which gives every corner of the curve and the area under it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Final

import numpy as np
import pyarrow as pa

from visleak.documents import as_plain
from visleak.rates import Rate, percent
from visleak.records import Bytes8, Float32, Float64, Int64
from visleak.robustness.conditions import CONSTANTS, Condition

POINTS: Final = 400  # points of a stored curve


@dataclass(frozen=True)
class ThresholdRates:
    """Rates at a threshold."""

    name: str  # `hard`, `soft` or the threshold as text
    threshold: float  # similarity
    true: Rate  # share of the true pairs at or above it
    false: int  # wrong pairs at or above it
    pairs: int  # wrong pairs

    @property
    def fpr(self) -> float:
        """False-positive rate; NaN if there are no wrong pairs."""
        return self.false / self.pairs if self.pairs else math.nan

    def as_dict(self) -> dict[str, object]:
        """Return what is stored."""
        return {
            "threshold": self.threshold,
            "tpr": self.true.as_dict(),
            "fpr": as_plain(self.fpr),
            "false_positives": self.false,
            "pairs": self.pairs,
        }


@dataclass(frozen=True)
class Curve:
    """A ROC curve with its rates at some thresholds."""

    roc: Roc
    at: tuple[ThresholdRates, ...]

    @classmethod
    def of(cls, roc: Roc, thresholds: dict[str, float]) -> Curve:
        """Return a curve with its rates at thresholds, by name."""
        total = len(roc.positives)
        found = (
            ThresholdRates(name, at, Rate.of(roc.true(at), total), roc.false(at), roc.total)
            for name, at in thresholds.items()
        )
        return cls(roc, tuple(found))

    def as_dict(self, *, points: bool = False) -> dict[str, object]:
        """Return what is stored; ``points`` adds the curve, thinned."""
        result: dict[str, object] = {
            "auc": as_plain(self.roc.auc),
            "positives": len(self.roc.positives),
            "negatives": self.roc.total,
            "at": {each.name: each.as_dict() for each in self.at},
        }
        if points:
            corners = zip(*thin(self.roc), strict=True)
            stored = ([float(x), float(y), round(float(t), 6)] for x, y, t in corners)
            result["points"] = list(map(as_plain, stored))
        return result


def thin(roc: Roc) -> tuple[Float64, Float64, Float32]:
    """Return at most :data:`POINTS` corners of a curve, denser at low false-positive rates."""
    fpr, tpr, threshold = roc.points()
    moves = np.flatnonzero((np.diff(fpr, prepend=-1) != 0) | (np.diff(tpr, prepend=-1) != 0))
    fpr, tpr, threshold = fpr[moves], tpr[moves], threshold[moves]
    if len(fpr) <= POINTS:
        return fpr, tpr, threshold
    # even steps along the curve, of log FPR and of TPR in equal parts
    least = 0.5 / max(1, roc.total)
    log_fpr = np.log(fpr + least) - math.log(least)
    length = log_fpr / log_fpr[-1] + (tpr - tpr[0]) / max(1e-12, float(tpr[-1] - tpr[0]))
    steps = np.searchsorted(length, np.linspace(0, length[-1], POINTS))
    chosen = np.unique(steps.clip(0, len(length) - 1))
    return fpr[chosen], tpr[chosen], threshold[chosen]


def auc_text(value: float) -> str:
    """Return an AUC with enough digits to differ from 1; a dash where it is unknown.

    >>> auc_text(0.98), auc_text(0.9999999370713), auc_text(1.0)
    ('0.980', '0.999999937', '1')
    """
    if math.isnan(value):
        return "-"
    if value == 1.0:
        return "1"
    digits = max(3, min(12, math.ceil(-math.log10(1.0 - value)) + 1)) if value < 1.0 else 3
    return f"{value:.{digits}f}"


#: Similarities at which others are always counted.
GRID: Final = np.round(np.linspace(-1.0, 1.0, 2001), 3).astype(np.float32)


@dataclass(frozen=True)
class Roc:
    """A ROC curve of true pairs and others by similarity."""

    positives: Float32  # (p,), rising: similarities of the true pairs
    edges: Float32  # (e,), rising, distinct: where others were counted; includes all positives
    reached: Int64  # (e,): others at or above each edge
    equal: Int64  # (e,): others equal to the edge
    total: int  # number of others

    @classmethod
    def pooled(cls, curves: Sequence[Roc]) -> Roc:
        """Return the curve of all pairs of several curves that were counted at the same edges."""
        first = curves[0]
        if any(each.edges is not first.edges for each in curves):
            raise ValueError("curves can be pooled only if they were counted at the same edges")
        return cls(
            np.sort(np.concatenate([each.positives for each in curves])),
            first.edges,
            np.sum([each.reached for each in curves], axis=0),
            np.sum([each.equal for each in curves], axis=0),
            sum(each.total for each in curves),
        )

    @property
    def auc(self) -> float:
        """Area under the curve, ties counting half; NaN without true pairs or others."""
        if not len(self.positives) or not self.total:
            return math.nan
        place = np.searchsorted(self.edges, self.positives)
        above = self.reached[place] - self.equal[place]
        wrong = 2 * int(above.sum()) + int(self.equal[place].sum())
        return 1.0 - wrong / (2 * len(self.positives) * self.total)

    def true(self, threshold: float) -> int:
        """Return how many true pairs reach a threshold."""
        left = np.searchsorted(self.positives, np.float32(threshold), side="left")
        return len(self.positives) - int(left)

    def false(self, threshold: float) -> int:
        """Return how many others reach a threshold.

        Exact at the edges; in between it is the count at the edge below, an upper bound.
        """
        place = int(np.searchsorted(self.edges, np.float32(threshold), side="right")) - 1
        return self.total if place < 0 else int(self.reached[place])

    def points(self) -> tuple[Float64, Float64, Float32]:
        """Return false- and true-positive rates and thresholds, the highest threshold first."""
        true = len(self.positives) - np.searchsorted(self.positives, self.edges, side="left")
        with np.errstate(invalid="ignore", divide="ignore"):
            tpr = true[::-1] / np.float64(len(self.positives))
            fpr = self.reached[::-1] / np.float64(self.total)
        return fpr, tpr, self.edges[::-1]


def edges_for(positives: Float32, thresholds: tuple[float, ...] = ()) -> Float32:
    """Return where to count others: at true pairs, at thresholds, and at multiples of 0.001."""
    return np.unique(np.concatenate([GRID, np.array(thresholds, np.float32), positives]))


class RocCounter:
    """Counts others at and between edges (e,), rising and distinct."""

    def __init__(self, edges: Float32) -> None:
        self._edges = edges
        self._bins = np.zeros(len(edges) + 1, np.int64)
        self._equal = np.zeros(len(edges), np.int64)

    def add(self, similarity: Float32) -> None:
        """Count some others, (n,)."""
        place = np.searchsorted(self._edges, similarity, side="right")
        self._bins += np.bincount(place, minlength=len(self._bins))
        inside = place > 0
        on = self._edges[place[inside] - 1] == similarity[inside]
        self._equal += np.bincount(place[inside][on] - 1, minlength=len(self._equal))

    def roc(self, positives: Float32) -> Roc:
        """Return the curve for true pairs, all of which are edges."""
        reached = self._bins[::-1].cumsum()[::-1][1:]
        return Roc(np.sort(positives), self._edges, reached, self._equal, int(self._bins.sum()))


@dataclass(frozen=True)
class LargestPairs:
    """The others with the largest similarities."""

    similarity: Float32  # (n,), falling
    query: Int64  # (n,): row of the changed image
    reference: Int64  # (n,): row of the reference


class TopPairs:
    """Keeps the largest similarities of a stream; of equal ones those of the lowest rows."""

    def __init__(self, count: int) -> None:
        self._count = count
        none: Int64 = np.empty(0, np.int64)
        self._parts: list[tuple[Float32, Int64, Int64]] = [(np.empty(0, np.float32), none, none)]
        self._held = 0
        #: No similarity below this is among the largest.
        self.floor = np.float32(-np.inf)

    def add(self, similarity: Float32, query: Int64, reference: Int64) -> None:
        """Add some others, (n,) each."""
        keep = similarity >= self.floor
        self._parts.append((similarity[keep], query[keep], reference[keep]))
        self._held += int(keep.sum())
        if self._held > 2 * self._count + 65_536:
            self._settle()

    def _settle(self) -> None:
        similarity, query, reference = (
            np.concatenate(column) for column in zip(*self._parts, strict=True)
        )
        order = np.lexsort((reference, query, -similarity))[: self._count]
        self._parts = [(similarity[order], query[order], reference[order])]
        self._held = len(order)
        if self._held == self._count and self._count:
            self.floor = similarity[order[-1]]

    def largest(self) -> LargestPairs:
        """Return the largest similarities so far."""
        self._settle()
        return LargestPairs(*self._parts[0])


SCHEMA: Final = 1

#: One row per changed image. ``width`` and ``height`` are those of the changed image, in pixels;
#: the last three columns are null without the pipeline, the last two also where the original was
#: not a candidate.
IMAGES: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("encoder", "condition", "query")),
        *(("width", pa.int32()), ("height", pa.int32())),
        *(("similarity", pa.float32()), ("best_wrong", pa.float32())),
        *(("first", pa.bool_()), ("pipeline_first", pa.bool_())),
        *(("grade", pa.string()), ("probability", pa.float32())),
    ]
)


@dataclass(frozen=True)
class SearchResult:
    """Direct search by one encoder under one condition."""

    condition: str  # name
    applies: int  # changed images
    not_applicable: int  # queries to which the condition does not apply
    unreadable: int  # queries that could not be read or changed
    r1: Rate  # share whose most similar reference is the original, or a twin of it
    curve: Curve  # true pairs against all others


@dataclass(frozen=True)
class PipelineResult:
    """The whole pipeline under one condition: candidates, verification, grade."""

    condition: str  # name
    r1: Rate  # share whose reference of highest probability is the original, or a twin of it
    near_or_exact: Rate  # share whose pair with the original is graded near or exact
    among_candidates: Rate  # share whose original is a candidate
    wrong_near: int
    wrong_exact: int
    wrong_candidates: int  # wrong pairs that were candidates


@dataclass(frozen=True)
class WrongPair:
    """A wrong pair graded near or exact, for inspection."""

    condition: str
    query: str
    reference: str
    grade: str
    probability: float
    reason: str


@dataclass(frozen=True)
class EncoderResult:
    """One encoder."""

    name: str
    digest: str
    thresholds: dict[str, float]  # at which curves are read, by name
    direct: tuple[SearchResult, ...]  # one per condition
    original: Curve | None  # of the untransformed images; `None` if they were not requested
    trans: Curve | None  # of the paper's 18 transformed conditions pooled
    pipeline: tuple[PipelineResult, ...] = ()  # one per condition, only for the built-in encoder
    wrong: tuple[WrongPair, ...] = ()  # wrong pairs that the pipeline grades near or exact
    left_out: int = 0  # pairs of the direct search that are neither true nor wrong
    images: pa.Table = field(default_factory=IMAGES.empty_table, repr=False)  # see IMAGES

    def as_dict(self) -> dict[str, object]:
        """Return what is stored."""
        return {
            "name": self.name,
            "digest": self.digest,
            "thresholds": self.thresholds,
            "pairs_left_out": self.left_out,
            "original": self.original.as_dict(points=True) if self.original else None,
            "trans": self.trans.as_dict(points=True) if self.trans else None,
            "conditions": {e.condition: _numbers(e) | e.curve.as_dict() for e in self.direct},
            "pipeline": {each.condition: _numbers(each) for each in self.pipeline} or None,
            "wrong": as_plain(self.wrong),
        }


@dataclass(frozen=True)
class Robustness:
    """The whole experiment."""

    collection: str  # name of the set
    source: str  # SOURCE text of the set, or empty
    references: int  # images of the collection that could be read
    queries: int  # how many of them were changed
    seed: int  # of the draw of the queries
    twins: int  # pairs within the collection that show the same image; excluded
    graded: bool  # whether twins were verified by pixels
    unreadable: int  # images of the collection that could not be read
    conditions: tuple[Condition, ...]
    encoders: tuple[EncoderResult, ...]
    version: str  # of visleak
    # one query under every condition, for the contact sheet; not part of the JSON
    sheet: tuple[tuple[str, Bytes8 | None], ...] = field(default=(), repr=False)

    @property
    def headline(self) -> str:
        """R@1 of each encoder in one line."""
        parts = []
        for each in self.encoders:
            direct = _r1(each.direct)
            shares = f"{percent(direct.share)} % by similarity alone"
            if each.pipeline:
                shares = f"{percent(_r1(each.pipeline).share)} % with verification and {shares}"
            parts.append(
                f"{each.name} ranks the original first for {shares} ({direct.total:,} changed)"
            )
        return "; ".join(parts)

    def as_dict(self) -> dict[str, object]:
        """Return what ``robustness.json`` holds."""
        same = ("version", "headline", "source", "references", "queries", "seed")
        return {
            "schema": SCHEMA,
            "kind": "robustness",
            **{name: getattr(self, name) for name in (*same, "unreadable")},
            "set": self.collection,
            "duplicates_excluded": self.twins,
            "duplicates_verified": self.graded,
            "constants": dict(CONSTANTS),
            "conditions": {
                c.name: {"group": c.group, "what": c.description} for c in self.conditions
            },
            "encoders": [each.as_dict() for each in self.encoders],
        }


def _r1(found: Sequence[SearchResult] | Sequence[PipelineResult]) -> Rate:
    """Return R@1 over all conditions except the unchanged one, if there are others."""
    changed = [each for each in found if each.condition != "original"] or found
    return Rate.of(sum(each.r1.count for each in changed), sum(each.r1.total for each in changed))


def _numbers(record: SearchResult | PipelineResult) -> dict[str, object]:
    """Return the stored numbers of a condition, without its name and curve."""
    names = (each.name for each in fields(record) if each.name not in ("condition", "curve"))
    return {name: as_plain(getattr(record, name)) for name in names}
