"""Fit the grader that ships: src/visleak/grading/grader.json.

usage: VISLEAK_DATA=FOLDER python benchmarks/fit_grader.py [tiny | marks]

Two models, for tiny and for large images; see :mod:`samples` for the pairs. The tiny one is made of
boosted trees, fitted on judged pairs of CIFAR-10, on photographs made tiny, and on the fitting half
of the sets of :mod:`tiny_sets`, one of which is the Debian package oxygen-icon-theme. With ``tiny``
it is fitted alone, and the large one is kept.

The large one is the product of three conditions. ``shared``: the images share fine detail, a
logistic scale fitted on the sets of natural images, where wrong pairs share none. ``unchanged``:
nothing in them was replaced and they are one shot, boosted trees fitted on all sets, rendered
documents and hard negatives. ``unmoved``: no mark is in another place, a logistic scale fitted on
the copies of all sets, and on pairs that the other two conditions leave: documents whose marks
moved or with another portrait or picture, and flags that were aligned by a common canton.
It is fitted on the fitting half of each set; the sets of ``LEFT_OUT_SETS`` have no part in it. With
``marks``, ``unmoved`` is fitted alone.
"""

from __future__ import annotations

import dataclasses
import datetime
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import documents
import numpy as np
import numpy.typing as npt
from domain_sets import DOCUMENTS_OF_NETWORK, FITTING, OF_NETWORK, DomainSet
from families import ensigns
from record import data_folder
from samples import (
    LEFT_OUT,
    PHOTOGRAPHS,
    UNJUDGED,
    Found,
    Sample,
    changed_sample,
    cifar,
    cifar_sample,
    document_sample,
    domain_sample,
    hard_sample,
    joined,
    judgements,
    photographs,
)
from scipy.optimize import minimize
from sklearn.ensemble import HistGradientBoostingClassifier
from tiny_sets import DESKTOP, DRAWN, FITTED_SIDES, Drawn, Reduced, large_drawn, tiny_set

from visleak.grading.model import (
    Grader,
    Logistic,
    Model,
    Node,
    PairModels,
    Product,
    Trees,
    as_text,
    load_grader,
)
from visleak.pipeline import RunContext
from visleak.storage.cache import Cache, default_folder

TARGET = Path(__file__).parents[1] / "src" / "visleak" / "grading" / "grader.json"

TINY_NEAR = (
    *("agreement", "corrected", "directions", "detail", "core", "grey", "residual", "patch"),
    *("palette", "unlike", "contrast", "fine", "middle", "coarse", "shapes", "covered"),
    *("viewed", "moved", "enlarged", "stretched", "turned", "flat", "tint", "colour", "gain"),
    *("texture_amount", "texture_mean", "texture_typical", "texture_tiles", "texture_opposed"),
    *("form_amount", "form_mean", "form_typical", "form_tiles", "form_opposed"),
    *("level_usual", "level_beside", "level_centre", "tone_usual", "tone_beside", "tone_centre"),
    *("recoded_mean", "recoded_typical", "recoded_largest"),
)
TINY_SIMILAR = ("corrected", "agreement", "directions", "grey")
SHARED = ("amount", "drift")
UNCHANGED = (
    *("amount", "matched", "opposed", "replaced", "added", "hidden", "exchanged", "rewritten"),
    *("usual", "outlier", "alone_more", "alone_less", "alone_places", "swapped"),
    *("typical", "places", "altered", "altered_rest", "altered_untinted", "altered_cells"),
    *("altered_covered", "laid_content", "laid_more", "laid_less", "laid_apart", "laid_beside"),
    *("tinted_more", "tinted_less"),
    *("plain", "textured", "windows", "drift", "structure", "colour", "tint"),
    *("covered", "used", "grey", "gain", "core", "residual", "within", "patch"),
)
UNMOVED = ("laid_moved", "tinted_moved", "recoloured", "apart")

#: Features with which the probability that nothing changed may only rise, or only fall.
MONOTONE = {
    "amount": 1,
    "matched": 1,
    "opposed": -1,
    "typical": -1,
    "outlier": -1,
    "alone_less": -1,
    "swapped": -1,
    "drift": -1,
    "altered": -1,
    "altered_untinted": -1,
    "laid_content": -1,
    "tinted_less": -1,
    "colour": 1,
}

#: The same of tiny images: agreement counts for a pair, and what a relation was free to do counts
#: against it.
TINY_MONOTONE = {
    **dict.fromkeys(
        ("agreement", "corrected", "directions", "detail", "core", "grey", "fine", "middle",
         "coarse", "shapes", "texture_amount", "texture_mean", "texture_typical", "form_amount",
         "form_mean", "form_typical", "colour"), 1,
    ),
    **dict.fromkeys(
        ("residual", "tint", "patch", "unlike", "viewed", "moved", "stretched", "texture_opposed",
         "form_opposed", "recoded_mean", "recoded_typical", "recoded_largest"), -1,
    ),
}  # fmt: skip

#: Sets that no rule has seen, and sets of natural images among the others.
LEFT_OUT_SETS = ("leaf", "screens")
NATURAL = ("blood", "clothing", "coco", "photos", "skin", "steel", "xray")
OTHERS = ("receipts", "camvid")

#: Long side, pixels, at which images of some sets are fitted on as well.
MIDDLE = {"photos": 64, "coco": 96, "clothing": 72, "xray": 96, "skin": 64, "steel": 112}

#: Photographs made tiny: see :func:`samples.changed_sample`.
REDUCED = "photographs"

#: Rendered documents that undergo the changes of photographs.
PAGES = "pages, drawn"

#: Documents of which a field changes that is a mark or a picture, numbers of them, and numbers of
#: the documents that are copied beside them.
MARKED = ("map", "menu", "plan", "questionnaire", "inbox", "directory", "catalogue")
MARKED_FIELDS = ("marker", "portrait", "picture")
MARKED_NUMBERS, COPIED_NUMBERS = range(300, 330), range(300, 306)

#: Most flags with a common canton that are copied, and wrong pairs of each copy.
ENSIGNS, WRONG_ENSIGNS = 40, 5

#: Images of each set that are copied; numbers of the documents of each kind, of those that are
#: copied as images and of those that are changed; sizes of the trees.
PLANTED_IMAGES, TINY_IMAGES = 20, 200
PAGE_NUMBERS = range(DOCUMENTS_OF_NETWORK + 10, DOCUMENTS_OF_NETWORK + 20)
DOCUMENT_NUMBERS = (
    *range(DOCUMENTS_OF_NETWORK, PAGE_NUMBERS.start),
    *range(PAGE_NUMBERS.stop, DOCUMENTS_OF_NETWORK + 46),
)
PLANTED_OF = {
    **dict.fromkeys((*PHOTOGRAPHS, "families, large"), 60),
    **{PAGES: 40, "slices, large": 30},
}
TINY_OF = {"families": 800, DESKTOP: 500}
LARGE_TREES = {"max_iter": 600, "max_depth": 6, "learning_rate": 0.06, "min_samples_leaf": 20}
TINY_TREES = {"max_iter": 500, "max_depth": 6, "learning_rate": 0.04, "min_samples_leaf": 20}
TREE_RIDGE = 5.0

#: Factor of the log-odds of ``unchanged``: the weights of wrong pairs bias the trees towards 0.5.
#: Of 1 to 2.5, on pairs of the fitting halves by trees that saw nothing of them, 2 has the least
#: calibration error of natural images (0.018 for photographs, 0.029 with 1) before that of rendered
#: documents rises (0.021, 0.016 with 1). The grades are the same.
SHARPNESS = 2.0

#: The same for tiny images, whose trees are overconfident without it: with 0.75 a recalibration of
#: the judged pairs of CIFAR-10 has a slope of 0.8, with 1 of 0.6.
TINY_SHARPNESS = 0.75

#: Ensembles of trees that the large model averages, share of the rows that each is fitted on, and
#: number of consecutive rows, mostly of one image, that are drawn together.
ENSEMBLES, ENSEMBLE_SHARE, ENSEMBLE_ROWS = 2, 0.7, 8

#: Total weight of the true, and of the wrong, pairs of a set; of the true pairs of sets with many
#: occlusions and of families; of documents, which stand for many sets and whose changed fields must
#: be found.
SET_WEIGHT = 1000.0
COVERED_WEIGHTS = {
    **dict.fromkeys(PHOTOGRAPHS, 30000.0),
    **{"receipts": 20000.0, "pages": 20000.0, "steel": 10000.0, "families": 4000.0},
}
DOCUMENT_WEIGHT, CHANGED_WEIGHT = 40000.0, 4800000.0
#: Total weight of wrong pairs that share a layout: receipts of a shop and streets of a drive;
#: flags, icons and slices; members of a family; mosaics, of which an audit compares all of one
#: grid.
LAYOUT_WEIGHT, DRAWN_WEIGHT = 20000.0, 30000.0
TEMPLATE_WEIGHTS = {"families": 60000.0, "mosaics": 300000.0}
#: Total weight of the wrong pairs of natural images in ``shared``: two poles before one sky share
#: little detail, and must not count as sharing.
STRANGERS_WEIGHT = 4000.0
#: Total weight of hard negatives.
HARD_WEIGHT = 20000.0
#: Pairs with another mark or picture that ``shared`` and ``unchanged`` find less probable than this
#: have no part in the fit of ``unmoved``.
REJECTED = 0.02

#: A copy whose amount is below, and whose number of windows is above, these was not aligned: it is
#: left out.
LOST_AMOUNT, LOST_WINDOWS = 0.3, 5.0

#: Ridge on standardised weights, beside a loss summed over weighted pairs.
RIDGE = 1.0

#: Weight of a judged pair of CIFAR-10, where a true pair of another tiny set weighs 1: it has one
#: near pair in a hundred of all, and they are what people call near.
JUDGED = 200.0

#: Wrong pairs of each copy in a tiny set, and the weight of each by set: an audit compares many
#: more wrong pairs than copies. Chosen by cross-validation over the queries of the fitting halves.
WRONG_PAIRS = 5
WRONG_WEIGHTS = {
    **dict.fromkeys(FITTED_SIDES, 8.0),
    **{"fashion": 80.0, "xray": 24.0, "icons": 32.0, "flags": 32.0, "mosaics": 24.0},
    **{"families": 8.0, "slices": 16.0, DESKTOP: 8.0},
}

#: The same of receipts, and of larger mosaics: one shop's, and those of one grid, are the hardest
#: wrong pairs there are.
WRONG_RECEIPTS, WRONG_MOSAICS = 4, 20

#: Weight of a true pair of reduced images: a family's members and a copy under a bar of text are
#: hard to tell apart, and images are audited more often than icons.
REDUCED_WEIGHT = 3.0

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


def fit(names: Sequence[str], parts: Sequence[Part]) -> Logistic:
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
    return Logistic(float(beta[0] - weights @ centre), dict(zip(names, weights, strict=True)))


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


def tiny_near(sample: Sample, others: Mapping[str, Sample]) -> Product:
    """Return P(near) of tiny images.

    Args:
        sample: judged pairs of CIFAR-10.
        others: pairs of other tiny sets and of photographs made tiny, by name; see
            :func:`tiny_samples`.
    """
    judged = judged_part(sample, 1)
    parts = [dataclasses.replace(judged, weight=JUDGED * judged.weight)]
    for name, other in others.items():
        if name == REDUCED:
            parts.append(planted_part(other, PLANTED * JUDGED * judged.true.sum()))
        else:
            true = other.verdict <= 1
            right = REDUCED_WEIGHT if name in FITTED_SIDES else 1.0
            parts.append(Part(other.columns, true, np.where(true, right, WRONG_WEIGHTS[name])))
    trees = fit_trees(TINY_NEAR, parts, TINY_MONOTONE, TINY_TREES)
    return Product({"copy": scaled(trees, TINY_SHARPNESS)})


def tiny_samples(data: Path) -> dict[str, Sample]:
    """Return pairs of the fitting half of tiny sets and of photographs made tiny, by name."""
    originals = photographs(data, "fitting")
    return {
        REDUCED: in_place(lambda place: changed_sample(originals, place, small=True)),
        **{
            name: in_place(
                lambda place, name=name: domain_sample(
                    tiny_set(data, name),
                    FITTING,
                    TINY_OF.get(name, TINY_IMAGES),
                    place,
                    wrong=WRONG_PAIRS,
                )
            )
            for name in (*FITTED_SIDES, *DRAWN, DESKTOP)
        },
    }


def by_kind(sample: Sample, right: float, wrong: float) -> Part:
    """Return pairs of large images: every kind of true pair weighs alike, and of wrong pair.

    Args:
        sample: the pairs.
        right, wrong: weight of all true, and of all wrong, pairs.
    """
    true = sample.verdict <= 1
    weight = np.zeros(len(sample))
    for side, total in ((true, right), (~true, wrong)):
        kinds = sorted(set(sample.kind[side].tolist()))
        for kind in kinds:
            rows = side & (sample.kind == kind)
            weight[rows] = total / len(kinds) / rows.sum()
    return Part(sample.columns, true, weight)


def aligned(sample: Sample) -> Sample:
    """Return a sample without the true copies that were not aligned."""
    amount, windows = np.expm1(sample.columns["amount"]), np.expm1(sample.columns["windows"])
    lost = (sample.verdict <= 1) & (amount < LOST_AMOUNT) & (windows > LOST_WINDOWS)
    return sample.only(~lost)


def fit_trees(
    names: Sequence[str],
    parts: Sequence[Part],
    monotone: Mapping[str, int] = MONOTONE,
    sizes: Mapping[str, float] = LARGE_TREES,
    ensembles: int = 1,
) -> Trees:
    """Return the boosted trees that fit parts best; an average of ensembles varies less."""
    table = np.concatenate([np.column_stack([part.columns[n] for n in names]) for part in parts])
    true = np.concatenate([part.true for part in parts])
    weight = np.concatenate([part.weight for part in parts])
    rng = np.random.default_rng(0)
    intercept, trees = 0.0, []
    for _ in range(ensembles):
        drawn = rng.random(len(table) // ENSEMBLE_ROWS + 1) < (
            ENSEMBLE_SHARE if ensembles > 1 else 1
        )
        rows = drawn[np.arange(len(table)) // ENSEMBLE_ROWS]
        model = HistGradientBoostingClassifier(
            **sizes, l2_regularization=TREE_RIDGE, early_stopping=False, random_state=0,
            monotonic_cst=[monotone.get(name, 0) for name in names],
        )  # fmt: skip
        model.fit(table[rows], true[rows], sample_weight=weight[rows])
        intercept += float(model._baseline_prediction.ravel()[0]) / ensembles
        trees += [_nodes(predictor.nodes, ensembles) for (predictor,) in model._predictors]
    return Trees.of(intercept, names, trees)


def scaled(trees: Trees, factor: float) -> Trees:
    """Return trees whose log-odds are multiplied by a factor."""
    return dataclasses.replace(
        trees, intercept=factor * trees.intercept, value=factor * trees.value
    )


def _nodes(nodes: npt.NDArray[np.void], ensembles: int) -> list[Node]:
    return [
        (float(node["value"]) / ensembles,) if node["is_leaf"] else
        (int(node["feature_idx"]), float(node["num_threshold"]), int(node["left"]),
         int(node["right"]))
        for node in nodes
    ]  # fmt: skip


def large_sets(data: Path) -> dict[str, tuple[DomainSet, int]]:
    """Return the sets that may be fitted on, and the wrong pairs of each copy, by name."""
    planted = {
        name: (DomainSet.of(data, name), WRONG_RECEIPTS if name == "receipts" else 1)
        for name in (*NATURAL, *OTHERS)
    }
    planted |= {
        f"{name} at {side}": (Reduced.at(data, name, side), 1) for name, side in MIDDLE.items()
    }
    return planted | {
        f"{name}, drawn": (large_drawn(name), WRONG_MOSAICS if name == "mosaics" else WRONG_PAIRS)
        for name in DRAWN
    }


def large_sample(images: DomainSet, most: int, wrong: int) -> Sample:
    """Return pairs of the fitting half of a set; see :func:`samples.domain_sample`."""
    skip = 0 if images.distinguished_by_colour else OF_NETWORK
    return in_place(
        lambda place: domain_sample(images, FITTING, most, place, skip=skip, wrong=wrong)
    )


def large_samples(data: Path) -> tuple[dict[str, Sample], Sample, Sample]:
    """Return pairs of each set, of rendered documents, and hard negatives."""
    planted = large_sets(data) | {PAGES: (pages(), 1)}
    domains = {
        name: large_sample(images, PLANTED_OF.get(images.name, PLANTED_IMAGES), wrong)
        for name, (images, wrong) in planted.items()
    }
    drawn = in_place(lambda place: document_sample(documents.FITTING, DOCUMENT_NUMBERS, place))
    return domains, drawn, in_place(lambda place: hard_sample(photographs(data, "fitting"), place))


def mark_samples(data: Path) -> tuple[dict[str, Sample], Sample]:
    """Return copies of each set and of documents, and pairs of which a mark or a part differs.

    The latter are documents with another mark or picture, and flags that were aligned by the canton
    that they share.
    """
    copies = {
        name: large_sample(images, PLANTED_IMAGES, 0)
        for name, (images, _) in large_sets(data).items()
    }
    copies["documents"] = in_place(lambda place: document_sample(
        documents.FITTING, COPIED_NUMBERS, place, lambda truth: truth.near
    ))  # fmt: skip
    moved = in_place(lambda place: document_sample(
        MARKED, MARKED_NUMBERS, place, lambda truth: truth.change in MARKED_FIELDS
    ))  # fmt: skip
    flags = large_sample(Drawn.of_images("ensigns", ensigns()), ENSIGNS, WRONG_ENSIGNS)
    return copies, joined(moved, flags.only((flags.verdict > 1) & (flags.columns["apart"] > 0)))


def pages() -> Drawn:
    """Return rendered documents beside those that are changed, some of each fitting kind."""
    return Drawn.of_images(PAGES, [
        (f"{kind} {number}", documents.document(kind, number).original)
        for number in PAGE_NUMBERS
        for kind in documents.FITTING
    ])  # fmt: skip


def large_scales(domains: dict[str, Sample], drawn: Sample, hard: Sample) -> PairModels:
    """Return the model of large images, without the condition ``unmoved``.

    Args:
        domains: pairs of each set that may be fitted on.
        drawn: pairs of rendered documents.
        hard: hard negatives made of photographs.
    """
    known = {name: aligned(sample) for name, sample in domains.items()}
    natural = [
        by_kind(sample, SET_WEIGHT, STRANGERS_WEIGHT)
        for name, sample in known.items()
        if _of(name) in NATURAL
    ]
    shared = fit(SHARED, natural)
    parts = [
        *(by_kind(sample, *_weights(name)) for name, sample in known.items()),
        by_kind(aligned(drawn), DOCUMENT_WEIGHT, CHANGED_WEIGHT),
        by_kind(hard, 0.0, HARD_WEIGHT),
    ]
    trees = fit_trees(UNCHANGED, parts, ensembles=ENSEMBLES)
    unchanged = scaled(trees, SHARPNESS)
    return PairModels(Product({"shared": shared, "unchanged": unchanged}), shared)


def unmoved(near: Model, copies: Sequence[Sample], moved: Sample) -> Product:
    """Return a model of large images with the condition that no mark, colour or part is elsewhere.

    Args:
        near: the model, with or without such a condition.
        copies: true pairs.
        moved: pairs of which a mark moved, with other portraits or pictures, or that share a part.
    """
    assert isinstance(near, Product)
    others = {name: near.conditions[name] for name in ("shared", "unchanged")}
    left = moved.only(Product(others).probability(moved.columns) >= REJECTED)
    parts = [
        Part(own.columns, np.full(len(own), true), np.ones(len(own)))
        for true, samples in ((True, copies), (False, [left]))
        for own in samples
    ]
    return Product({**others, "unmoved": fit(UNMOVED, parts)})


def _of(name: str) -> str:
    """Return the set that images of a size, or drawings, are of."""
    return name.split(" at ", maxsplit=1)[0].split(",", maxsplit=1)[0]


def _weights(name: str) -> tuple[float, float]:
    """Return the weights of all true, and of all wrong, pairs of a set."""
    own = _of(name)
    right = COVERED_WEIGHTS.get(own, SET_WEIGHT)
    wrong = SET_WEIGHT if own in NATURAL else DRAWN_WEIGHT if own in DRAWN else LAYOUT_WEIGHT
    return right, TEMPLATE_WEIGHTS.get(own, wrong)


def cross_validated(sample: Sample, others: Mapping[str, Sample]) -> Float64:
    """Return P(near) of the pairs of a sample, each by a model that saw nothing of its query.

    Args:
        sample: CIFAR-10's.
        others: other tiny sets; they are other images, so all folds see them.
    """
    fold = sample.query // 2 % FOLDS
    probability = np.empty(len(sample))
    for number in range(FOLDS):
        scale = tiny_near(sample.only(fold != number), others)
        probability[fold == number] = scale.probability(sample.only(fold == number).columns)
    return probability


def screened(found: Found, judged: dict[tuple[str, str], int]) -> Logistic:
    """Return P(near) of the pairs that the screen let go: how many of them people call near."""
    pairs = zip(found.query.tolist(), found.reference.tolist(), strict=True)
    near = np.array([judged.get(pair, UNJUDGED) in (0, 1) for pair in pairs])
    let_go = ~found.checked & (found.query.astype(np.int64) % 2 == 0)
    return Logistic(float(np.log(((near & let_go).sum() + 0.5) / let_go.sum())), {})


def in_place(measure: Callable[[RunContext], Sample]) -> Sample:
    """Measure a sample with new workers: workers keep the images that they were sent."""
    with RunContext.at(None, 2, Cache(default_folder())) as place:
        sample = measure(place)
    print(f"{len(sample):,} pairs measured", flush=True)
    return sample


def tiny_scales(data: Path) -> tuple[PairModels, Logistic, str]:
    """Return the model of tiny images, that of pairs the screen rejected, and what they are of."""
    judged = judgements(data)
    with RunContext.at(None, 2, Cache(default_folder())) as place:
        found = cifar(data, place)
    sample, others = cifar_sample(found, judged), tiny_samples(data)
    scales = PairModels(tiny_near(sample, others), fit(TINY_SIMILAR, [judged_part(sample, 2)]))
    for name, own in others.items():
        _print_fit(f"tiny {name}", own, scales.near)
    provenance = (
        f"tiny images {datetime.date.today().isoformat()} on {len(sample):,} checked pairs of"
        f" CIFAR-10 (even test index) and {sum(map(len, others.values())):,} of the fitting halves"
        f" of {', '.join(others)}, reduced or drawn"
    )
    return scales, screened(found, judged), provenance


def _print_fit(name: str, own: Sample, near: Logistic | Product) -> None:
    is_near, true = near.probability(own.columns) >= 0.5, own.verdict <= 1
    share = f"{is_near[true].mean():.3f}" if true.any() else "none"
    print(f"{name:<16}{len(own):>7,} pairs, near of the true {share}, wrong {is_near[~true].sum()}")


def fit_tiny(data: Path) -> None:
    """Fit the model of tiny images and write it beside the large one that is there."""
    grader = load_grader(TARGET.read_text("utf-8"))
    tiny, rejected, provenance = tiny_scales(data)
    large = grader.provenance[grader.provenance.index("large ones") :]
    provenance = f"benchmarks/fit_grader.py: {provenance}; {large}"
    grader = dataclasses.replace(grader, tiny=tiny, screened=rejected, provenance=provenance)
    TARGET.write_text(as_text(grader), "utf-8")


def fit_marks(data: Path) -> None:
    """Fit the condition ``unmoved`` and write it beside the models that are there."""
    grader = load_grader(TARGET.read_text("utf-8"))
    copies, moved = mark_samples(data)
    count = sum(map(len, copies.values()))
    near = unmoved(grader.large.near, list(copies.values()), moved)
    provenance = (
        f"{grader.provenance.split('; marks')[0]}; marks {datetime.date.today().isoformat()} on"
        f" {count:,} copies of the same sets and of documents, and {len(moved)} pairs of flags"
        f" with one canton and documents with other marks or pictures ({', '.join(MARKED)})"
    )
    large = dataclasses.replace(grader.large, near=near)
    TARGET.write_text(
        as_text(dataclasses.replace(grader, large=large, provenance=provenance)), "utf-8"
    )
    for name, own in {**copies, "other marks": moved}.items():
        _print_fit(name, own, near)


def main(part: str) -> None:
    """Fit and write the grader, or the part of it that is named."""
    data = data_folder("cifar10", "photos", "coco128", "domains")
    if part:
        {"tiny": fit_tiny, "marks": fit_marks}[part](data)
        return
    domains, drawn, hard = large_samples(data)
    large = large_scales(domains, drawn, hard)
    seen = sum(len(sample) for sample in domains.values())
    tiny, rejected, provenance = tiny_scales(data)
    grader = Grader(
        tiny=tiny,
        large=large,
        screened=rejected,
        near_at=0.5,
        digest="",
        provenance=(
            f"benchmarks/fit_grader.py: {provenance};"
            f" large ones {datetime.date.today().isoformat()} on {seen:,} pairs of the fitting"
            f" halves of {', '.join(domains)}, {len(drawn):,} of rendered documents"
            f" ({', '.join(documents.FITTING)}) and {len(hard):,} hard negatives;"
            f" {' and '.join(LEFT_OUT_SETS)} left out"
        ),
    )
    TARGET.write_text(as_text(grader), "utf-8")
    fit_marks(data)
    for name, own in {**domains, "documents": drawn, "hard": hard}.items():
        _print_fit(name, own, large.near)


if __name__ == "__main__":
    main("".join(sys.argv[1:]))
