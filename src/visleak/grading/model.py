"""The grader: a small readable logistic model over what was measured on a pair."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
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


#: Side up to which pictures count as tiny: the two sizes have weights of their own.
TINY: Final = 48


def features(similarity: Float32, background: Float32, evidence: Evidence) -> dict[str, Float64]:
    """Return what the grader looks at, one ``float64`` column (n,) a feature.

    Correlations come as Fisher's z (atanh), differences in grey levels as logarithms: both make
    the step from good to perfect agreement as visible as it is to a person.
    """
    checks = {name: np.asarray(column, np.float64) for name, column in evidence.checks.items()}
    corrected = similarity.astype(np.float64) - background
    # the same agreement says more where there were more pixels to agree
    large = (checks["side"] > TINY).astype(np.float64)

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
        "large": large,
        "corrected_tiny": (1 - large) * corrected,
        "gradient_tiny": (1 - large) * stretched("gradient"),
        "core_large": large * stretched("core"),
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
class Grader:
    """The shipped model: scales for checked pairs and for those the screen let go.

    Attributes:
        near: P(near or exact) of pairs that were checked in full.
        similar: P(similar or closer) of the same.
        screened: P(near or exact) of pairs the screen let go.
        near_at: probability from which a pair is ``near``.
        digest: of all numbers.
        provenance: what it was fitted on.
    """

    near: Scale
    similar: Scale
    screened: Scale
    near_at: float
    digest: str
    provenance: str


def load_grader(text: str | None = None) -> Grader:
    """Return the grader that ships, or the one of a JSON text.

    Raises:
        VisleakError: the text is not a grader.
    """
    if text is None:
        text = resources.files("visleak.grading").joinpath("grader.json").read_text("utf-8")
    try:
        stored: dict[str, Any] = json.loads(text)
        near, similar, screened = (
            Scale(float(stored[name]["intercept"]), _weights(stored[name]["weights"]))
            for name in ("near", "similar", "screened")
        )
        near_at, provenance = float(stored["near_at"]), str(stored["provenance"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise VisleakError(f"the grader file is not one of visleak's graders: {error!r}") from error
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return Grader(near, similar, screened, near_at, digest, provenance)


def _weights(stored: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(weight) for name, weight in stored.items()}


def as_text(
    scales: Mapping[str, tuple[float, Sequence[str], Sequence[float]]],
    *,
    near_at: float,
    provenance: str,
) -> str:
    """Return a grader as JSON text: name to (intercept, features, weights), six digits."""
    stored: dict[str, Any] = {"provenance": provenance, "near_at": near_at}
    for name, (intercept, names, weights) in scales.items():
        rounded = {key: round(float(w), 6) for key, w in zip(names, weights, strict=True)}
        stored[name] = {"intercept": round(float(intercept), 6), "weights": rounded}
    return json.dumps(stored, indent=1) + "\n"
