"""What is read off a ROC: rates at thresholds, and the curve itself in few points."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from visleak.robustness.roc import Roc
from visleak.stats import Rate

#: Points of a stored curve.
POINTS: Final = 400


@dataclass(frozen=True)
class AtThreshold:
    """What a threshold lets through.

    Attributes:
        name: ``hard``, ``soft`` or the threshold as text.
        threshold: similarity.
        true: true pairs at or above it, of all.
        false, pairs: wrong pairs at or above it, and of how many.
    """

    name: str
    threshold: float
    true: Rate
    false: int
    pairs: int

    @property
    def fpr(self) -> float:
        """False-positive rate; NaN where there are no wrong pairs."""
        return self.false / self.pairs if self.pairs else math.nan

    def as_dict(self) -> dict[str, Any]:
        """Return what is stored."""
        return {
            "threshold": self.threshold,
            "tpr": self.true.as_dict(),
            "fpr": plain(self.fpr),
            "false_positives": self.false,
            "pairs": self.pairs,
        }


@dataclass(frozen=True)
class Curve:
    """A ROC with the figures read off it.

    Attributes:
        roc: the curve.
        at: at the thresholds asked for.
    """

    roc: Roc
    at: tuple[AtThreshold, ...]

    @classmethod
    def of(cls, roc: Roc, thresholds: dict[str, float]) -> Curve:
        """Read a curve at thresholds."""
        found = tuple(
            AtThreshold(
                name,
                value,
                Rate.of(roc.true(value), len(roc.positives)),
                roc.false(value),
                roc.total,
            )
            for name, value in thresholds.items()
        )
        return cls(roc, found)

    def as_dict(self, *, points: bool = False) -> dict[str, Any]:
        """Return what is stored; ``points`` adds the curve, thinned."""
        result: dict[str, Any] = {
            "auc": plain(self.roc.auc),
            "positives": len(self.roc.positives),
            "negatives": self.roc.total,
            "at": {each.name: each.as_dict() for each in self.at},
        }
        if points:
            fpr, tpr, threshold = thinned(self.roc)
            result["points"] = [
                [plain(x), plain(y), round(float(t), 6)]
                for x, y, t in zip(fpr, tpr, threshold, strict=True)
            ]
        return result


def plain(value: float) -> float | None:
    """Return a number for JSON, which has no NaN."""
    return None if math.isnan(value) else float(value)


def thinned(roc: Roc) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return at most :data:`POINTS` corners of a curve, denser where few are wrong."""
    fpr, tpr, threshold = roc.points()
    moves = np.flatnonzero((np.diff(fpr, prepend=-1) != 0) | (np.diff(tpr, prepend=-1) != 0))
    fpr, tpr, threshold = fpr[moves], tpr[moves], threshold[moves]
    if len(fpr) <= POINTS:
        return fpr, tpr, threshold
    # even steps of the logarithm of the rate and of the rate of true pairs, half each
    least = 0.5 / max(1, roc.total)
    far = np.log(fpr + least) - math.log(least)
    way = far / far[-1] + (tpr - tpr[0]) / max(1e-12, float(tpr[-1] - tpr[0]))
    chosen = np.unique(np.searchsorted(way, np.linspace(0, way[-1], POINTS)).clip(0, len(way) - 1))
    return fpr[chosen], tpr[chosen], threshold[chosen]


def auc_text(value: float) -> str:
    """Return an AUC with as many digits as tell it from 1; a dash where it is unknown.

    >>> auc_text(0.98), auc_text(0.9999999370713), auc_text(1.0)
    ('0.980', '0.999999937', '1')
    """
    if math.isnan(value):
        return "-"
    if value == 1.0:
        return "1"
    digits = max(3, min(12, math.ceil(-math.log10(1.0 - value)) + 1)) if value < 1.0 else 3
    return f"{value:.{digits}f}"
