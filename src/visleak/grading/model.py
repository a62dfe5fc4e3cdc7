"""The grader: a small readable logistic model over what was measured on a pair."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from visleak.errors import VisleakError
from visleak.records import Evidence, Float32

Float64 = npt.NDArray[np.float64]

#: Correlations are stretched by Fisher's z, bounded here: 0.999 is as good as it gets.
_MOST: Final = 0.999


#: Displacement (pixels compared) that is as good as none.
_STILL: Final = 0.05

#: Side up to which pictures count as tiny: the two sizes have models of their own, because the
#: same agreement says more where there were more pixels to agree.
TINY: Final = 48


def features(similarity: Float32, background: Float32, evidence: Evidence) -> dict[str, Float64]:
    """Return what the grader looks at, one ``float64`` column (n,) a feature.

    Correlations come as Fisher's z (atanh), differences in grey levels as logarithms: both make
    the step from good to perfect agreement as visible as it is to a person.
    """
    checks = {name: np.asarray(column, np.float64) for name, column in evidence.checks.items()}
    corrected = similarity.astype(np.float64) - background

    def stretched(name: str) -> Float64:
        return np.asarray(np.arctanh(np.clip(checks[name], -_MOST, _MOST)))

    return {
        "similarity": similarity.astype(np.float64),
        "corrected": corrected,
        "screen": checks["screen"],
        "grey": stretched("grey"),
        "gradient": stretched("gradient"),
        "colour": stretched("colour"),
        "residual": np.log1p(checks["residual"]),
        "within": checks["within"],
        "patch": np.log1p(checks["patch"]),
        "tint": np.log1p(checks["tint"]),
        "covered": checks["covered"],
        "used": checks["used"],
        "features": checks["features"],
        "core": stretched("core"),
        "structure": stretched("structure"),
        "drift": np.log(checks["drift"] + _STILL),
        **{name: checks[name] for name in ("agreement", "directions", "detail", "palette")},
    }


@dataclass(frozen=True, slots=True)
class Scale:
    """One logistic scale: log-odds = intercept + sum of weight times feature.

    Attributes:
        intercept: log-odds where all features are zero.
        weights: weight a feature, by name.
    """

    intercept: float
    weights: Mapping[str, float]

    def probability(self, columns: Mapping[str, Float64]) -> Float64:
        """Return the probability of each row, NaN where a feature is."""
        odds = self.intercept + sum(weight * columns[name] for name, weight in self.weights.items())
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(odds, -50, 50))))


@dataclass(frozen=True, slots=True)
class Scales:
    """What is asked about a checked pair.

    Attributes:
        near: P(near or exact).
        similar: P(similar or closer).
    """

    near: Scale
    similar: Scale


@dataclass(frozen=True, slots=True)
class Grader:
    """The shipped model: scales for checked pairs by size, and for pairs the screen let go.

    Attributes:
        tiny: for pairs of pictures up to 48 pixels.
        large: for all other pairs.
        screened: P(near or exact) of pairs the screen let go.
        near_at: probability from which a pair is ``near``.
        digest: of all numbers.
        provenance: what it was fitted on.
    """

    tiny: Scales
    large: Scales
    screened: Scale
    near_at: float
    digest: str
    provenance: str

    def probabilities(
        self, columns: Mapping[str, Float64], side: Float32
    ) -> tuple[Float64, Float64]:
        """Return P(near or exact) and P(similar or closer) of checked pairs, (n,) each.

        Args:
            columns: of :func:`features`.
            side: side of the squares that were compared, NaN where the screen let a pair go;
                those get the screened probability, and 0 for similar.
        """
        checked, tiny = ~np.isnan(side), side <= TINY
        near, similar = (
            np.where(tiny, getattr(self.tiny, name).probability(columns), other)
            for name, other in (
                ("near", self.large.near.probability(columns)),
                ("similar", self.large.similar.probability(columns)),
            )
        )
        near = np.where(checked, near, self.screened.probability(columns))
        # who is near is also similar or closer, whatever the two models say
        return near, np.where(checked, np.maximum(near, similar), 0.0)


def load_grader(text: str | None = None) -> Grader:
    """Return the grader that ships, or the one of a JSON text.

    Raises:
        VisleakError: the text is not a grader.
    """
    if text is None:
        text = resources.files("visleak.grading").joinpath("grader.json").read_text("utf-8")
    try:
        stored: dict[str, Any] = json.loads(text)
        tiny, large = (
            Scales(_scale(stored[size]["near"]), _scale(stored[size]["similar"]))
            for size in ("tiny", "large")
        )
        screened = _scale(stored["screened"])
        near_at, provenance = float(stored["near_at"]), str(stored["provenance"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise VisleakError(f"the grader file is not one of visleak's graders: {error!r}") from error
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return Grader(tiny, large, screened, near_at, digest, provenance)


def _scale(stored: Mapping[str, Any]) -> Scale:
    weights = {name: float(weight) for name, weight in stored["weights"].items()}
    return Scale(float(stored["intercept"]), weights)


def as_text(grader: Grader) -> str:
    """Return a grader as JSON text, six digits; its digest is that of the text."""

    def written(scale: Scale) -> dict[str, Any]:
        weights = {name: round(float(weight), 6) for name, weight in scale.weights.items()}
        return {"intercept": round(float(scale.intercept), 6), "weights": weights}

    stored = {
        "provenance": grader.provenance,
        "near_at": grader.near_at,
        **{
            size: {"near": written(scales.near), "similar": written(scales.similar)}
            for size, scales in (("tiny", grader.tiny), ("large", grader.large))
        },
        "screened": written(grader.screened),
    }
    return json.dumps(stored, indent=1) + "\n"
