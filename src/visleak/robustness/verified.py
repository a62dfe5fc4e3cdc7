"""The same queries through the whole pipeline: candidates, local features, check and grade."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from visleak import pipeline
from visleak.encoders import load_encoder
from visleak.pipeline import RunContext
from visleak.pipeline.encoded_set import refuse_lost
from visleak.records import GRADES, Bool, Float32, Grade, Grades, ImageSet, Int8, Int64, Pairs
from visleak.robustness.queries import Changed, Twins
from visleak.robustness.results import Judged, Wrong
from visleak.settings import Settings
from visleak.stats import Rate

_EXACT, _NEAR = GRADES.index(Grade.EXACT), GRADES.index(Grade.NEAR)


@dataclass(frozen=True)
class Verdicts:
    """What the pipeline makes of all changed images."""

    conditions: tuple[Judged, ...]  # figures, one a condition
    wrong: tuple[Wrong, ...]  # wrong pairs graded near or exact, most probable first
    # (n,): whether a changed image's most probable reference is its original or a twin of it
    first: Bool
    # (n,): grade of the pair with the original, an index into `GRADES`; -1 where it was no
    # candidate
    grade: Int8
    probability: Float32  # (n,): of that pair; NaN if it was no candidate


def judge(images: ImageSet, changed: Changed, twins: Twins, place: RunContext) -> Verdicts | None:
    """Return what the pipeline makes of every changed image."""
    encoder = load_encoder()
    outcome = pipeline.run([changed.images], [images], encoder, Settings(within=False), place)
    for side in outcome.sides.values():
        refuse_lost(images.name, side.fingerprints.problems)
    compared = outcome.comparisons[0]
    pairs, grades = compared.pairs, compared.grades
    if grades is None:
        return None
    left, right = (
        outcome.sides[changed.images.name].fingerprints,
        outcome.sides[images.name].fingerprints,
    )
    query, condition = changed.parts(left.rows)
    own, twin, wrong = _told_apart(pairs, right.rows, query, condition, changed, twins)
    first = _first(pairs, grades, outcome.sides[images.name].order)
    hit, proposed = (np.zeros(len(left), np.bool_) for _ in range(2))
    hit[pairs.query[first]] = twin[first]
    proposed[pairs.query[own]] = True
    own_grade = np.full(len(left), -1, np.int8)
    own_grade[pairs.query[own]] = grades.grade[own]
    probability = np.full(len(left), np.nan, np.float32)
    probability[pairs.query[own]] = grades.probability[own]
    judged = []
    for number, each in enumerate(changed.conditions):
        mine = condition == number
        there = wrong & mine[pairs.query]
        near = np.isin(own_grade, (_EXACT, _NEAR))
        r1, graded, candidates = (
            Rate.of(int(found[mine].sum()), int(mine.sum())) for found in (hit, near, proposed)
        )
        wrong_near, wrong_exact = (
            int((there & (grades.grade == grade)).sum()) for grade in (_NEAR, _EXACT)
        )
        all_wrong = int(there.sum())
        judged.append(Judged(each.name, r1, graded, candidates, wrong_near, wrong_exact, all_wrong))
    shown = np.flatnonzero(wrong & np.isin(grades.grade, (_EXACT, _NEAR)))
    shown = shown[np.lexsort((shown, -grades.probability[shown]))]
    wrong_pairs = tuple(
        Wrong(
            changed.conditions[condition[at]].name,
            changed.names[query[at]],
            right.ids[int(pairs.reference[row])].as_py(),
            GRADES[grades.grade[row]],
            round(float(grades.probability[row]), 4),
            grades.reason[row],
        )
        for row, at in zip(shown, pairs.query[shown], strict=True)
    )
    return Verdicts(tuple(judged), wrong_pairs, hit, own_grade, probability)


def _told_apart(
    pairs: Pairs, rows: Int64, query: Int64, condition: Int64, changed: Changed, twins: Twins
) -> tuple[Bool, Bool, Bool]:
    """Return which pairs are with the original, with it or a twin of it, and which are wrong.

    A pair with what is shown in a collage is neither.
    """
    owner = changed.queries[query[pairs.query]]
    reference = rows[pairs.reference]
    own = reference == owner
    twin, allowed = own.copy(), own.copy()
    starts = np.flatnonzero(np.diff(pairs.query, prepend=-1))
    for start, stop in pairwise([*starts, len(own)]):
        number = int(pairs.query[start])
        same = twins.of([int(owner[start])])
        twin[start:stop] = np.isin(reference[start:stop], list(same))
        company: list[int] = []
        if changed.conditions[int(condition[number])].others:
            company = changed.company[int(query[number])].tolist()
        allowed[start:stop] = np.isin(reference[start:stop], list(same | twins.of(company)))
    return own, twin, ~allowed


def _first(pairs: Pairs, grades: Grades, order: Int64) -> Int64:
    """Return each query's best pair: by probability, then similarity, then id."""
    probability: Float32 = np.nan_to_num(grades.probability, nan=-1.0)
    ranked = np.lexsort((order[pairs.reference], -pairs.similarity, -probability, pairs.query))
    return np.asarray(ranked[np.flatnonzero(np.diff(pairs.query[ranked], prepend=-1))])
