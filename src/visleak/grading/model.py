"""The grader: small logistic models and boosted trees over the measures of a pair."""

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
from visleak.records import Bool, Evidence, Float32, Float64

#: Feature (-1 in a leaf), threshold, nodes to the left and right; or the log-odds of a leaf.
Node = tuple[int, float, int, int] | tuple[float]
#: Largest product of trees and rows that is evaluated at a time: what the processor's cache holds.
ROUTED: Final = 250_000
#: Largest side of tiny images. Both sizes have models of their own, because the same agreement of
#: more pixels is stronger evidence.
TINY: Final = 48

#: Measures that are features without a transformation.
_UNCHANGED: Final = (
    *("screen", "within", "covered", "used", "features", "agreement", "directions", "detail"),
    *("palette", "viewed", "enlarged", "stretched", "turned", "texture_tiles", "texture_opposed"),
    *("form_tiles", "form_opposed", "opposed", "replaced", "added", "hidden", "exchanged"),
    *("typical", "usual", "outlier", "alone_more", "alone_less", "alone_places", "swapped"),
    *("altered", "altered_rest", "altered_untinted", "altered_covered", "laid_content"),
    *("laid_more", "laid_less", "tinted_more", "tinted_less", "plain", "textured", "flat"),
    *("level_usual", "level_beside", "level_centre", "tone_usual", "tone_beside", "tone_centre"),
)
#: Correlations, of which features are Fisher's z (atanh), up to that of the largest correlation.
_CORRELATIONS: Final = (
    *("grey", "gradient", "colour", "core", "structure", "fine", "middle", "coarse", "shapes"),
    *("texture_mean", "texture_typical", "form_mean", "form_typical", "matched"),
)
_LARGEST_CORRELATION: Final = 0.999
#: Numbers and grey levels from 0, of which features are log(1 + x); negative amounts are 0.
_LOGARITHMS: Final = (
    *("residual", "patch", "tint", "contrast", "windows", "places", "altered_cells"),
    *("texture_amount", "form_amount", "amount"),
    *("recoded_mean", "recoded_typical", "recoded_largest"),
)
#: Drift (pixels) and share of content that are added before the logarithm.
_STILL: Final = 0.05
_LEAST_SHARE: Final = 1e-3
#: Log-odds of a mark below which there is none.
_NO_MARK: Final = -3.0
#: Share of plain area from which an image is a rendering.
_PLAIN: Final = 0.2
#: Share of an image that is most of it.
_MOST: Final = 0.5
#: Largest change of contrast, as a factor.
_MOST_GAIN: Final = 20.0


def features(similarity: Float32, background: Float32, evidence: Evidence) -> dict[str, Float64]:
    """Return the features of the grader, one ``float64`` column (n,) per feature.

    Fisher's z of correlations and logarithms of differences resolve the step from good to perfect
    agreement. Without a fine comparison, nothing is shared.
    """
    checks = {name: np.asarray(column, np.float64) for name, column in evidence.checks.items()}
    bound, gain = _LARGEST_CORRELATION, np.abs(checks["gain"])
    rendered = np.minimum(checks["plain"] / _PLAIN, 1.0)
    shown = np.maximum(checks["covered"], checks["used"])
    return {
        "similarity": similarity.astype(np.float64),
        "corrected": similarity.astype(np.float64) - background,
        **{name: checks[name] for name in _UNCHANGED},
        **{name: np.arctanh(np.clip(checks[name], -bound, bound)) for name in _CORRELATIONS},
        **{name: np.log1p(np.maximum(checks[name], 0.0)) for name in _LOGARITHMS},
        "drift": np.log(checks["drift"] + _STILL),
        "unlike": np.log(checks["unlike"] + _LEAST_SHARE),
        "rewritten": np.log(checks["rewritten"] + _LEAST_SHARE),
        "gain": np.log(np.clip(gain, 1 / _MOST_GAIN, _MOST_GAIN)),
        "moved": np.log1p(100 * checks["moved"]),
        # a marking on one image only, and content that differs without a marking
        "laid_apart": checks["laid_less"] - checks["laid_more"],
        "laid_beside": checks["laid_content"] - checks["laid_more"],
        # a mark that moved is on both images, and about as large on one as on the other
        "laid_moved": np.maximum(2 * checks["laid_less"] - checks["laid_more"], _NO_MARK),
        "tinted_moved": np.maximum(2 * checks["tinted_less"] - checks["tinted_more"], 0.0),
        # in photographs, captions and stickers have other colours on edges that happen to agree
        "recoloured": checks["recoloured"] * rendered,
        # two photographs that share a part are parts of one; two graphics may share a canton
        "apart": np.maximum(_MOST - shown, 0.0) * np.clip(2 * rendered - 1, 0.0, 1.0),
    }


@dataclass(frozen=True, slots=True)
class Logistic:
    """A logistic model: log-odds = intercept + sum of weight times feature."""

    intercept: float  # log-odds if all features are zero
    weights: Mapping[str, float]  # weight of each feature, by name

    def probability(self, columns: Mapping[str, Float64]) -> Float64:
        """Return the probability of each row, NaN if a feature is NaN."""
        odds = self.intercept + sum(weight * columns[name] for name, weight in self.weights.items())
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(odds, -50, 50))))


@dataclass(frozen=True, slots=True)
class Trees:
    """Boosted decision trees: log-odds = intercept + sum of the leaves reached."""

    intercept: float  # log-odds before any tree
    features: tuple[str, ...]  # names of the features, in the order of their numbers
    # all (trees, nodes)
    feature: npt.NDArray[np.int16]  # number of the feature of each node, -1 in a leaf
    threshold: Float64  # largest value for which a row goes left
    # the next node
    left: npt.NDArray[np.int16]
    right: npt.NDArray[np.int16]
    value: Float64  # log-odds of a leaf

    @classmethod
    def of(
        cls, intercept: float, features: Sequence[str], trees: Sequence[Sequence[Node]]
    ) -> Trees:
        """Return trees from the nodes of each."""
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
        """Return the nodes of each tree, the argument of :meth:`of`."""
        columns = (self.feature, self.threshold, self.left, self.right, self.value)
        trees = zip(*(column.tolist() for column in columns), strict=True)
        return [
            [(value,) if f < 0 else (f, threshold, left, right)
             for f, threshold, left, right, value in zip(*tree, strict=True)]
            for tree in trees
        ]  # fmt: skip

    def probability(self, columns: Mapping[str, Float64]) -> Float64:
        """Return the probability of each row, NaN if a feature is NaN."""
        all_rows = np.stack([columns[name] for name in self.features], axis=1)
        valid: Bool = np.asarray(~np.isnan(all_rows).any(axis=1))
        odds = self._leaves(all_rows[valid]) + self.intercept
        result = np.full(len(valid), np.nan)
        result[valid] = 1.0 / (1.0 + np.exp(-np.clip(odds, -50, 50)))
        return result

    def _leaves(self, table: Float64) -> Float64:
        """Return the sum of the leaves that each row reaches in all trees."""
        trees, nodes = self.feature.shape
        leaf = self.feature.ravel() < 0
        # numbers among the nodes of all trees; a leaf leads to itself
        first = np.repeat(np.arange(trees, dtype=np.int32) * nodes, nodes)
        itself = np.arange(trees * nodes, dtype=np.int32)
        left, right = (
            np.where(leaf, itself, first + side.ravel()) for side in (self.left, self.right)
        )
        following = np.stack([left, right], axis=1).ravel()
        feature, threshold = np.where(leaf, 0, self.feature.ravel()), self.threshold.ravel()
        result, step = np.empty(len(table)), max(1, ROUTED // max(1, trees))
        for at in range(0, len(table), step):
            part = table[at : at + step]
            start = np.arange(len(part), dtype=np.int32) * table.shape[1]
            node = np.repeat(first[::nodes, None], len(part), axis=1)
            while not leaf.take(node).all():
                is_right = part.take(start + feature.take(node)) > threshold.take(node)
                node = following.take(2 * node + is_right)
            # tree by tree, so that a sum does not depend on the number of rows
            result[at : at + step] = np.cumsum(self.value.take(node), axis=0)[-1]
        return result


@dataclass(frozen=True, slots=True)
class Product:
    """Conditions that must all hold: the product of their probabilities."""

    conditions: Mapping[str, Model]  # by name

    def probability(self, columns: Mapping[str, Float64]) -> Float64:
        """Return the probability of each row, NaN if a feature is NaN."""
        each = [model.probability(columns) for model in self.conditions.values()]
        return np.asarray(np.prod(each, axis=0))


Model = Logistic | Trees | Product


@dataclass(frozen=True, slots=True)
class PairModels:
    """The models of checked pairs of one size."""

    near: Model  # P(near or exact)
    similar: Model  # P(similar or closer)


@dataclass(frozen=True, slots=True)
class Grader:
    """The models of all pairs."""

    tiny: PairModels  # for pairs of images up to 48 pixels
    large: PairModels  # for all other pairs
    screened: Model  # P(near or exact) of pairs that the screen rejected
    near_at: float  # smallest probability of near pairs
    digest: str  # of the JSON text
    provenance: str  # data of the fit

    def probabilities(
        self, columns: Mapping[str, Float64], side: Float32
    ) -> tuple[Float64, Float64]:
        """Return P(near or exact) and P(similar or closer) of checked pairs, (n,) each."""
        checked, tiny = ~np.isnan(side), side <= TINY
        similar = np.zeros(len(side))
        near = similar + self.screened.probability(columns)
        for own, models in ((tiny, self.tiny), (checked & ~tiny, self.large)):
            rows = {name: column[own] for name, column in columns.items()}
            # smaller probabilities than that of the rejected pairs cannot be measured: among
            # such pairs, the similarity decides
            near[own] = np.maximum(near[own], models.near.probability(rows))
            similar[own] = models.similar.probability(rows)
        # a near pair is also similar or closer, even if the other model disagrees
        return near, np.where(checked, np.maximum(near, similar), 0.0)

    def conditions(self, columns: Mapping[str, Float64]) -> dict[str, Float64]:
        """Return the probability of each condition for large images, by name."""
        near = self.large.near
        conditions = near.conditions if isinstance(near, Product) else {}
        return {name: model.probability(columns) for name, model in conditions.items()}


def load_grader(text: str | None = None, near_at: float | None = None) -> Grader:
    """Return the shipped grader, or the grader of a JSON text.

    Args:
        text: the JSON text.
        near_at: smallest probability of near pairs, in place of the grader's own.

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
            PairModels(_model(stored[size]["near"]), _model(stored[size]["similar"]))
            for size in ("tiny", "large")
        )
        screened = _model(stored["screened"])
        near_at, provenance = float(stored["near_at"]), str(stored["provenance"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise VisleakError(f"the grader file is not one of visleak's graders: {error!r}") from error
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return Grader(tiny, large, screened, near_at, digest, provenance)


def _model(stored: Mapping[str, Any]) -> Model:
    if "weights" in stored:
        weights = {name: float(weight) for name, weight in stored["weights"].items()}
        return Logistic(float(stored["intercept"]), weights)
    if "trees" in stored:
        return Trees.of(float(stored["intercept"]), stored["features"], stored["trees"])
    return Product({name: _model(each) for name, each in stored.items()})


def as_text(grader: Grader) -> str:
    """Return a grader as JSON text, with six digits; its digest is that of the text."""
    stored = {
        "provenance": grader.provenance,
        "near_at": grader.near_at,
        **{
            size: {"near": _stored(models.near), "similar": _stored(models.similar)}
            for size, models in (("tiny", grader.tiny), ("large", grader.large))
        },
        "screened": _stored(grader.screened),
    }
    return json.dumps(stored, separators=(",", ":")).replace("]],[[", "]],\n[[") + "\n"


def _stored(model: Model) -> dict[str, object]:
    if isinstance(model, Product):
        return {name: _stored(each) for name, each in model.conditions.items()}
    intercept = round(float(model.intercept), 6)
    if isinstance(model, Logistic):
        weights = {name: round(float(weight), 6) for name, weight in model.weights.items()}
        return {"intercept": intercept, "weights": weights}
    trees = [
        [list(node) if len(node) > 1 else [round(node[0], 6)] for node in tree]
        for tree in model.nodes()
    ]
    return {"intercept": intercept, "features": list(model.features), "trees": trees}
