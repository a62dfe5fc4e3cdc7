"""Results of ``detection.py`` on photographs under 19 conditions (Ramos et al. 2025, 6.1).

The queries are the reported half of the photographs, changed; the references are all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from samples import SEEN

from visleak import pipeline
from visleak.encoders import load_encoder
from visleak.formats import open_images
from visleak.pipeline import Outcome, RunContext
from visleak.pipeline.fingerprints import fingerprint
from visleak.records import GRADES, Grade, ImageSet
from visleak.robustness.conditions import named
from visleak.robustness.experiment import evaluate
from visleak.robustness.queries import ChangedSet, changed_set, find_twins
from visleak.settings import Settings

EXACT, NEAR = GRADES.index(Grade.EXACT), GRADES.index(Grade.NEAR)

#: Number of the highest-ranked wrong references that count per query.
HARDEST = 20

#: Short side after a crop by 100 pixels from which an image is large.
SHORT = 96


@dataclass(frozen=True)
class Ranked:
    """Results of the pipeline for the changed images.

    Attributes:
        condition: ``int64`` (q,): of each changed image.
        short: ``int64`` (q,): its short side, pixels.
        first: whether its own original is ranked first, (q,).
        found: whether the pair with its original is near or exact, (q,).
        wrong: one row per wrong reference among the best ``HARDEST``: changed image, position
            of the reference, grade.
        names: of the conditions.
        rows: ``int64`` (q,): position of each changed image in its set.
    """

    condition: npt.NDArray[np.int64]
    short: npt.NDArray[np.int64]
    first: npt.NDArray[np.bool_]
    found: npt.NDArray[np.bool_]
    wrong: npt.NDArray[np.int64]
    names: tuple[str, ...]
    rows: npt.NDArray[np.int64]

    def of(self, name: str) -> npt.NDArray[np.bool_]:
        """Return which changed images are of a condition."""
        return self.condition == self.names.index(name)


def ranked(images: ImageSet, changed: ChangedSet, place: RunContext) -> Ranked:
    """Run the pipeline and rank each query's references by probability, then by similarity."""
    outcome = pipeline.run(
        [changed.images], [images], load_encoder(), Settings(within=False), place
    )
    compared = outcome.comparisons[0]
    pairs, grades = compared.pairs, compared.grades
    assert grades is not None
    left = outcome.sides[changed.images.name].fingerprints
    right = outcome.sides[images.name].fingerprints
    query, condition = changed.parts(left.rows)
    own = right.rows[pairs.reference] == changed.queries[query[pairs.query]]
    order = np.lexsort((-pairs.similarity, -grades.probability, pairs.query))
    rank = np.empty(len(order), np.int64)
    sorted_query = pairs.query[order]
    rank[order] = np.arange(len(order)) - np.searchsorted(sorted_query, sorted_query)
    first, found = np.zeros(len(left), bool), np.zeros(len(left), bool)
    first[pairs.query[own & (rank == 0)]] = True
    found[pairs.query[own & np.isin(grades.grade, (EXACT, NEAR))]] = True
    wrong = np.flatnonzero(~own & (rank < HARDEST + 1))
    table = np.stack([pairs.query[wrong], pairs.reference[wrong], grades.grade[wrong]], axis=1)
    names = tuple(condition.name for condition in changed.conditions)
    table[:, 1] = right.rows[table[:, 1]]
    short = left.sizes.min(axis=1)
    return Ranked(condition, short, first, found, table.astype(np.int64), names, left.rows)


def measure(folder: str, place: RunContext) -> tuple[dict[str, Any], Ranked, ChangedSet, ImageSet]:
    """Return all results, and the images of the wrong pairs."""
    images = open_images(folder, name="photos")
    names = images.ids.to_pylist()
    assert names == sorted(names)
    assert len(names) == 500
    encoder = load_encoder()
    prints = fingerprint(images, encoder, place)
    reported = np.array([row for row in range(len(names)) if row % 4 >= 2], np.int64)
    changed = changed_set(images, prints.rows, reported, named(("paper",)))
    result = ranked(images, changed, place)
    twins = find_twins(images, prints, place)
    direct = evaluate(encoder, images, changed, prints, twins, (), False, place)
    figures = {
        "pipeline": {name: _condition(result, name) for name in result.names},
        "pooled": {
            "seen when fitting": _pooled(result, True),
            "unseen": _pooled(result, False),
        },
        "wrong": _wrong(result),
        "originals": _among_originals(images, place),
        "direct": {
            "original_auc": direct.original.roc.auc,
            "trans_auc": direct.trans.roc.auc,
            "original": direct.original.as_dict(),
            "trans": direct.trans.as_dict(),
            "r1": {each.condition: each.r1.share for each in direct.direct},
        },
    }
    return figures, result, changed, images


def _condition(result: Ranked, name: str) -> dict[str, Any]:
    """Return the results of one condition."""
    mine = result.of(name)
    figures = {
        "queries": int(mine.sum()),
        "r1": float(result.first[mine].mean()),
        "near_or_exact": float(result.found[mine].mean()),
    }
    large = mine & (result.short >= SHORT)
    if large.sum() < mine.sum():
        figures["queries_large"] = int(large.sum())
        figures["r1_large"] = float(result.first[large].mean())
    return figures


def _pooled(result: Ranked, seen: bool) -> dict[str, Any]:
    """Return the results over all changes that the grader was fitted on, or over the others."""
    numbers = [
        number
        for number, name in enumerate(result.names)
        if (name in SEEN) == seen and name != "original"
    ]
    mine = np.isin(result.condition, numbers)
    return {
        "conditions": len(numbers),
        "queries": int(mine.sum()),
        "r1": float(result.first[mine].mean()),
        "near_or_exact": float(result.found[mine].mean()),
    }


def _wrong(result: Ranked) -> dict[str, int]:
    """Return the grades of the hardest wrong pairs."""
    grade = result.wrong[:, 2]
    return {
        "pairs": len(grade),
        "near": int((grade == NEAR).sum()),
        "exact": int((grade == EXACT).sum()),
    }


def _among_originals(images: ImageSet, place: RunContext) -> dict[str, int]:
    """Return the number of pairs of different original photographs that are near or exact."""
    outcome: Outcome = pipeline.run([images], [], load_encoder(), Settings(), place)
    grades = outcome.comparisons[0].grades
    assert grades is not None
    return {
        "pairs": len(images) * (len(images) - 1) // 2,
        "candidates": len(grades),
        "near": int((grades.grade == NEAR).sum()),
        "exact": int((grades.grade == EXACT).sum()),
    }
