"""Fit the grader that ships: src/visleak/grading/grader.json.

usage: VISLEAK_DATA=FOLDER python benchmarks/fit_grader.py

Two models of one kind, for tiny and for large pictures, each a logistic scale over a handful of
measures; see :mod:`samples` for the pairs. The tiny one is fitted on judged pairs of CIFAR-10 and
on photographs made tiny, the large one on photographs and hard negatives made of them.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image
from record import data_folder
from samples import (
    LEFT_OUT,
    SEEN,
    UNJUDGED,
    Found,
    Sample,
    changed_sample,
    cifar,
    cifar_sample,
    hard_sample,
    joined,
    judgements,
    photographs,
)
from scipy.optimize import minimize

from visleak.cache import Cache, default_folder
from visleak.grading.model import Grader, Scale, Scales, as_text
from visleak.pipeline import Workplace

TARGET = Path(__file__).parents[1] / "src" / "visleak" / "grading" / "grader.json"

TINY_NEAR = ("agreement", "corrected", "directions", "palette", "detail")
TINY_SIMILAR = ("corrected", "agreement", "directions", "grey")
LARGE = ("structure", "drift")

#: Ridge on standardised weights, beside a loss summed over weighted pairs.
RIDGE = 1.0

#: Weight of all photographs together, and share of the true ones in it.
TOTAL, TRUE_SHARE = 3000.0, 0.65

#: Weight of all true pairs of photographs made tiny, as a share of CIFAR-10's.
PLANTED = 0.25

FOLDS = 5

Float64 = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Part:
    """Rows to fit on: features, whether each is true, and its weight."""

    columns: dict[str, Float64]
    true: npt.NDArray[np.bool_]
    weight: Float64


def fit(names: Sequence[str], parts: Sequence[Part]) -> Scale:
    """Return the logistic scale that fits parts best."""
    table = np.concatenate([np.column_stack([part.columns[n] for n in names]) for part in parts])
    true = np.concatenate([part.true for part in parts]).astype(float)
    weight = np.concatenate([part.weight for part in parts])
    centre, spread = table.mean(axis=0), table.std(axis=0) + 1e-9
    scaled = (table - centre) / spread

    def loss(beta: Float64) -> tuple[float, Float64]:
        odds = beta[0] + scaled @ beta[1:]
        value = (weight * (np.logaddexp(0, odds) - true * odds)).sum()
        error = weight * (1 / (1 + np.exp(-odds)) - true)
        gradient = np.concatenate([[error.sum()], scaled.T @ error + RIDGE * beta[1:]])
        return float(value + RIDGE / 2 * (beta[1:] ** 2).sum()), gradient

    beta = minimize(loss, np.zeros(len(names) + 1), jac=True, method="L-BFGS-B").x
    weights = beta[1:] / spread
    return Scale(float(beta[0] - weights @ centre), dict(zip(names, weights, strict=True)))


def judged_part(sample: Sample, most: int) -> Part:
    """Return CIFAR-10's pairs: true where a person's verdict is at most ``most``."""
    kept = sample.only(sample.verdict != LEFT_OUT)
    true = (kept.verdict != UNJUDGED) & (kept.verdict <= most)
    return Part(kept.columns, true, np.ones(len(kept)))


def planted_part(planted: Sample, true_weight: float, most: int = 1) -> Part:
    """Return pairs of photographs; the true ones weigh ``true_weight`` together, others 1 each.

    Next to all candidates of a changed photograph are its original: left alone they would teach
    that a candidate is near unless proven otherwise.
    """
    true = planted.verdict <= most
    return Part(planted.columns, true, np.where(true, true_weight / true.sum(), 1.0))


def tiny_near(sample: Sample, planted: Sample) -> Scale:
    """Return P(near) of tiny pictures, fitted on judged pairs and on photographs made tiny."""
    judged = judged_part(sample, 1)
    return fit(TINY_NEAR, [judged, planted_part(planted, PLANTED * judged.true.sum())])


def large_part(sample: Sample, most: int) -> Part:
    """Return pairs of photographs: every kind of true pair weighs alike, and of wrong pair."""
    true = sample.verdict <= most
    weight = np.zeros(len(sample))
    for side, share in ((true, TRUE_SHARE), (~true, 1 - TRUE_SHARE)):
        kinds = sorted(set(sample.kind[side].tolist()))
        for kind in kinds:
            rows = side & (sample.kind == kind)
            weight[rows] = TOTAL * share / len(kinds) / rows.sum()
    return Part(sample.columns, true, weight)


def cross_validated(sample: Sample, planted: Sample) -> Float64:
    """Return P(near) of the pairs of a sample, each by a model that saw nothing of its query.

    Args:
        sample: CIFAR-10's.
        planted: photographs made tiny; they are other pictures, so all folds see them.
    """
    fold = sample.query // 2 % FOLDS
    probability = np.empty(len(sample))
    for number in range(FOLDS):
        scale = tiny_near(sample.only(fold != number), planted)
        probability[fold == number] = scale.probability(sample.only(fold == number).columns)
    return probability


def screened(found: Found, judged: dict[tuple[str, str], int]) -> Scale:
    """Return P(near) of the pairs that the screen let go: how many of them people call near."""
    pairs = zip(found.query.tolist(), found.reference.tolist(), strict=True)
    near = np.array([judged.get(pair, UNJUDGED) in (0, 1) for pair in pairs])
    let_go = ~found.checked & (found.query.astype(np.int64) % 2 == 0)
    return Scale(float(np.log(((near & let_go).sum() + 0.5) / let_go.sum())), {})


def large_sample(data: Path, place: Workplace) -> Sample:
    """Return changed photographs of the fitting half and hard negatives made of them."""
    originals = photographs(data, "fitting")
    others = [Image.open(p).convert("RGB") for p in sorted((data / "coco128").rglob("*.jpg"))]
    return joined(changed_sample(originals, place, others=others), hard_sample(originals, place))


def main() -> None:
    """Fit and write the grader."""
    data = data_folder("cifar10", "photos", "coco128")
    with Workplace.at(None, 2, Cache(default_folder())) as place:
        found, judged = cifar(data, place), judgements(data)
        sample = cifar_sample(found, judged)
        small = changed_sample(photographs(data, "fitting"), place, small=True)
        large = large_sample(data, place)
    grader = Grader(
        tiny=Scales(tiny_near(sample, small), fit(TINY_SIMILAR, [judged_part(sample, 2)])),
        large=Scales(fit(LARGE, [large_part(large, 1)]), fit(LARGE, [large_part(large, 2)])),
        screened=screened(found, judged),
        near_at=0.5,
        digest="",
        provenance=(
            f"benchmarks/fit_grader.py, {datetime.date.today().isoformat()}: tiny pictures on"
            f" {len(sample):,} checked pairs of CIFAR-10 (even test index) and {len(small):,} of"
            f" photographs made tiny; large ones on {len(large):,} pairs of photographs and hard"
            f" negatives, changed by {', '.join(SEEN)}"
        ),
    )
    TARGET.write_text(as_text(grader), "utf-8")
    print(TARGET.read_text("utf-8"))
    for verdict, name in ((1, "near"), (2, "similar"), (3, "different")):
        for kind in sorted(set(large.kind[large.verdict == verdict].tolist())):
            rows = (large.verdict == verdict) & (large.kind == kind)
            chance = grader.large.near.probability(large.only(rows).columns)
            print(f"{name:<10}{kind:<10}{rows.sum():>8,} pairs, near {(chance >= 0.5).mean():.3f}")


if __name__ == "__main__":
    main()
