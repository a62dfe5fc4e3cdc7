"""The grader: small readable logistic models over what was measured on a pair."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from visleak.errors import VisleakError
from visleak.records import Bool, Evidence, Float32

Float64 = npt.NDArray[np.float64]
#: Correlations are stretched by Fisher's z, bounded here: 0.999 is as good as it gets.
_MOST: Final = 0.999


#: Displacement (pixels compared) that is as good as none.
_STILL: Final = 0.05
#: Feature (-1 in a leaf), threshold, nodes to the left and right, log-odds.
Node = tuple[int, float, int, int] | tuple[float]
#: Contrast changes count up to this factor.
_MOST_GAIN: Final = 20.0
#: Share of rewritten content that is as good as none.
_LEAST_SHARE: Final = 1e-3
#: Trees times rows that are evaluated at a time.
ROUTED: Final = 2_000_000
#: Side up to which images count as tiny: the two sizes have models of their own, because the
#: same agreement says more where there were more pixels to agree.
TINY: Final = 48


def features(similarity: Float32, background: Float32, evidence: Evidence) -> dict[str, Float64]:
    """Return the features of the grader, one ``float64`` column (n,) a feature.

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
        **{name: stretched(name) for name in ("fine", "middle", "coarse", "shapes")},
        "unlike": np.log(checks["unlike"] + _LEAST_SHARE),
        "contrast": np.log1p(checks["contrast"]),
        "gain": np.log(np.clip(np.abs(checks["gain"]), 1 / _MOST_GAIN, _MOST_GAIN)),
        "moved": np.log1p(100 * checks["moved"]),
        **{name: checks[name] for name in ("viewed", "enlarged", "stretched", "turned")},
        **_texture_features(checks),
        **_close_features(checks),
    }


def _texture_features(checks: Mapping[str, Float64]) -> dict[str, Float64]:
    columns = {}
    for kind in ("texture", "form"):
        columns[f"{kind}_amount"] = np.log1p(np.maximum(checks[f"{kind}_amount"], 0.0))
        for name in ("mean", "typical"):
            bounded = np.clip(checks[f"{kind}_{name}"], -_MOST, _MOST)
            columns[f"{kind}_{name}"] = np.arctanh(bounded)
        for name in ("tiles", "opposed"):
            columns[f"{kind}_{name}"] = checks[f"{kind}_{name}"]
    return columns


def _close_features(checks: Mapping[str, Float64]) -> dict[str, Float64]:
    """Return the features of the fine comparison; where there was none, nothing is shared."""
    return {
        "amount": np.log1p(np.maximum(checks["amount"], 0.0)),
        "matched": np.arctanh(np.clip(checks["matched"], -_MOST, _MOST)),
        "windows": np.log1p(checks["windows"]),
        "rewritten": np.log(checks["rewritten"] + _LEAST_SHARE),
        "places": np.log1p(checks["places"]),
        "altered_cells": np.log1p(checks["altered_cells"]),
        # what is laid over one image alone, and content that differs beside all that is
        "laid_apart": checks["laid_less"] - checks["laid_more"],
        "laid_beside": checks["laid_content"] - checks["laid_more"],
        **{
            name: checks[name]
            for name in (
                *("opposed", "replaced", "added", "hidden", "exchanged", "typical"),
                *("usual", "outlier", "alone_more", "alone_less", "alone_places", "swapped"),
                *("altered", "altered_rest", "altered_untinted", "altered_covered"),
                *("laid_content", "laid_more", "laid_less"),
                *("tinted_more", "tinted_less", "plain", "textured"),
            )
        },
    }


@dataclass(frozen=True, slots=True)
class Scale:
    """One logistic scale: log-odds = intercept + sum of weight times feature."""

    intercept: float  # log-odds where all features are zero
    weights: Mapping[str, float]  # weight a feature, by name

    def probability(self, columns: Mapping[str, Float64]) -> Float64:
        """Return the probability of each row, NaN where a feature is."""
        odds = self.intercept + sum(weight * columns[name] for name, weight in self.weights.items())
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(odds, -50, 50))))


@dataclass(frozen=True, slots=True)
class Trees:
    """A boosted sum of small decision trees: log-odds = intercept + sum of the leaves reached."""

    intercept: float  # log-odds before any tree
    features: tuple[str, ...]  # names of the features, as the nodes number them
    feature: npt.NDArray[np.int16]  # int16 (trees, nodes): the feature of each node, -1 in a leaf
    threshold: Float64  # float64 (trees, nodes): up to it a row goes left
    # int16 (trees, nodes): the next node
    left: npt.NDArray[np.int16]
    right: npt.NDArray[np.int16]
    value: Float64  # float64 (trees, nodes): log-odds of a leaf

    @classmethod
    def of(
        cls, intercept: float, features: Sequence[str], trees: Sequence[Sequence[Node]]
    ) -> Trees:
        """Return trees from their nodes: feature, threshold, left and right, or a leaf's value."""
        most = max((len(tree) for tree in trees), default=1)
        table = np.zeros((len(trees), most, 5))
        table[:, :, 0] = -1
        for number, tree in enumerate(trees):
            table[number, : len(tree)] = [
                (-1, 0, 0, 0, *node) if len(node) == 1 else (*node, 0) for node in tree
            ]
        feature, left, right = (table[:, :, at].astype(np.int16) for at in (0, 2, 3))
        return cls(intercept, tuple(features), feature, table[:, :, 1], left, right, table[:, :, 4])

    def nodes(self) -> list[list[Node]]:
        """Return the nodes of every tree, as :meth:`of` takes them."""
        columns = (self.feature, self.threshold, self.left, self.right, self.value)
        trees = zip(*(column.tolist() for column in columns), strict=True)
        return [
            [(value,) if f < 0 else (f, threshold, left, right)
             for f, threshold, left, right, value in zip(*tree, strict=True)]
            for tree in trees
        ]  # fmt: skip

    def probability(self, columns: Mapping[str, Float64]) -> Float64:
        """Return the probability of each row, NaN where a feature is."""
        all_rows = np.stack([columns[name] for name in self.features], axis=1)
        known: Bool = np.asarray(~np.isnan(all_rows).any(axis=1))
        table = all_rows[known]
        step = max(1, ROUTED // max(1, len(self.feature)))
        parts = [self._leaves(table[at : at + step]) for at in range(0, len(table), step)]
        odds = np.concatenate([np.empty(0), *parts]) + self.intercept
        result = np.full(len(known), np.nan)
        result[known] = 1.0 / (1.0 + np.exp(-np.clip(odds, -50, 50)))
        return result

    def _leaves(self, table: Float64) -> Float64:
        """Return the sum of the leaves that each row reaches in all trees."""
        node = np.zeros((len(self.feature), len(table)), np.int64)
        rows = np.arange(len(table))

        def of(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return np.take_along_axis(values, node, axis=1)

        while (inner := (feature := of(self.feature)) >= 0).any():
            right = table[rows, feature] > of(self.threshold)
            node = np.where(inner, np.where(right, of(self.right), of(self.left)), node)
        # one tree after the other, so that a sum does not depend on how many rows there are
        return np.asarray(np.cumsum(of(self.value), axis=0)[-1], np.float64)


@dataclass(frozen=True, slots=True)
class Product:
    """Conditions that must all hold: the product of their probabilities."""

    scales: Mapping[str, Scale | Trees]  # probability of each condition, by name

    def probability(self, columns: Mapping[str, Float64]) -> Float64:
        """Return the probability of each row, NaN where a feature is."""
        each = [scale.probability(columns) for scale in self.scales.values()]
        return np.asarray(np.prod(each, axis=0))


@dataclass(frozen=True, slots=True)
class Scales:
    """The probabilities of a checked pair."""

    near: Scale | Product  # P(near or exact)
    similar: Scale  # P(similar or closer)


@dataclass(frozen=True, slots=True)
class Grader:
    """The shipped model: scales for checked pairs by size, and for pairs the screen rejected."""

    tiny: Scales  # for pairs of images up to 48 pixels
    large: Scales  # for all other pairs
    screened: Scale  # P(near or exact) of pairs the screen rejected
    near_at: float  # probability from which a pair is near
    digest: str  # of all numbers
    provenance: str  # what it was fitted on

    def probabilities(
        self, columns: Mapping[str, Float64], side: Float32
    ) -> tuple[Float64, Float64]:
        """Return P(near or exact) and P(similar or closer) of checked pairs, (n,) each."""
        checked, tiny = ~np.isnan(side), side <= TINY
        similar = np.zeros(len(side))
        near = similar + self.screened.probability(columns)
        for own, scales in ((tiny, self.tiny), (checked & ~tiny, self.large)):
            rows = {name: column[own] for name, column in columns.items()}
            near[own], similar[own] = (
                scale.probability(rows) for scale in (scales.near, scales.similar)
            )
        # a near pair is also similar or closer, whatever the two models say
        return near, np.where(checked, np.maximum(near, similar), 0.0)

    def conditions(self, columns: Mapping[str, Float64]) -> dict[str, Float64]:
        """Return the probability of each condition of the large model, by name."""
        near = self.large.near
        scales = near.scales if isinstance(near, Product) else {}
        return {name: scale.probability(columns) for name, scale in scales.items()}


def load_grader(text: str | None = None, near_at: float | None = None) -> Grader:
    """Return the grader that ships, or the one of a JSON text.

    Args:
        text: the JSON text.
        near_at: probability from which a pair is ``near``, in place of the grader's own.

    Raises:
        VisleakError: the text is not a grader.
    """
    grader = _shipped() if text is None else _read(text)
    return grader if near_at is None else replace(grader, near_at=near_at)


@cache
def _shipped() -> Grader:
    return _read(resources.files("visleak.grading").joinpath("grader.json").read_text("utf-8"))


def _read(text: str) -> Grader:
    try:
        stored: dict[str, Any] = json.loads(text)
        tiny, large = (
            Scales(_near(stored[size]["near"]), _scale(stored[size]["similar"]))
            for size in ("tiny", "large")
        )
        screened = _scale(stored["screened"])
        near_at, provenance = float(stored["near_at"]), str(stored["provenance"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise VisleakError(f"the grader file is not one of visleak's graders: {error!r}") from error
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return Grader(tiny, large, screened, near_at, digest, provenance)


def _near(stored: Mapping[str, Any]) -> Scale | Product:
    if "intercept" in stored:
        return _scale(stored)
    return Product({name: _condition(scale) for name, scale in stored.items()})


def _condition(stored: Mapping[str, Any]) -> Scale | Trees:
    if "trees" not in stored:
        return _scale(stored)
    return Trees.of(float(stored["intercept"]), stored["features"], stored["trees"])


def _scale(stored: Mapping[str, Any]) -> Scale:
    weights = {name: float(weight) for name, weight in stored["weights"].items()}
    return Scale(float(stored["intercept"]), weights)


def as_text(grader: Grader) -> str:
    """Return a grader as JSON text, six digits; its digest is that of the text."""

    def written(scale: Scale | Product | Trees) -> dict[str, object]:
        if isinstance(scale, Trees):
            return _as_stored(scale)
        if isinstance(scale, Product):
            return {name: written(each) for name, each in scale.scales.items()}
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
    return json.dumps(stored, separators=(",", ":")).replace("]],[[", "]],\n[[") + "\n"


def _as_stored(trees: Trees) -> dict[str, object]:
    return {
        "intercept": round(trees.intercept, 6),
        "features": list(trees.features),
        "trees": [
            [list(node) if len(node) > 1 else [round(node[0], 6)] for node in tree]
            for tree in trees.nodes()
        ],
    }
