"""The same queries through the whole pipeline: candidates, local features, check and grade."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

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
class _Judgement:
    """Candidate pairs with what is true of them."""

    own: Bool  # pairs with the original
    twin: Bool  # pairs with the original or a twin of it
    wrong: Bool  # pairs with what is neither, nor shown in a collage


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
    about = _judgement(pairs, right.rows, query, condition, changed, twins)
    first = _first(pairs, grades, outcome.sides[images.name].order)
    hit = np.zeros(len(left), np.bool_)
    hit[pairs.query[first]] = about.twin[first]
    proposed = np.zeros(len(left), np.bool_)
    proposed[pairs.query[about.own]] = True
    own_grade = np.full(len(left), -1, np.int8)
    own_grade[pairs.query[about.own]] = grades.grade[about.own]
    probability = np.full(len(left), np.nan, np.float32)
    probability[pairs.query[about.own]] = grades.probability[about.own]
    judged = []
    for number, each in enumerate(changed.conditions):
        mine, total = condition == number, int((condition == number).sum())
        wrong = about.wrong & mine[pairs.query]
        judged.append(
            Judged(
                each.name,
                Rate.of(int(hit[mine].sum()), total),
                Rate.of(int(np.isin(own_grade[mine], (_EXACT, _NEAR)).sum()), total),
                Rate.of(int(proposed[mine].sum()), total),
                int((wrong & (grades.grade == _NEAR)).sum()),
                int((wrong & (grades.grade == _EXACT)).sum()),
                int(wrong.sum()),
            )
        )
    shown = np.flatnonzero(about.wrong & np.isin(grades.grade, (_EXACT, _NEAR)))
    shown = shown[np.lexsort((shown, -grades.probability[shown]))]
    wrong_pairs = tuple(
        _wrong(int(row), pairs, grades, changed, query, condition, right.ids) for row in shown
    )
    return Verdicts(tuple(judged), wrong_pairs, hit, own_grade, probability)


def _judgement(
    pairs: Pairs,
    rows: Int64,
    query: Int64,
    condition: Int64,
    changed: Changed,
    twins: Twins,
) -> _Judgement:
    """Tell true, twin and wrong pairs apart."""
    owner = changed.queries[query[pairs.query]]
    reference = rows[pairs.reference]
    own = reference == owner
    twin, allowed = own.copy(), own.copy()
    for start, stop in _runs(pairs.query):
        number = int(pairs.query[start])
        same = twins.of([int(owner[start])])
        twin[start:stop] = np.isin(reference[start:stop], list(same))
        company: list[int] = []
        if changed.conditions[int(condition[number])].others:
            company = changed.company[int(query[number])].tolist()
        shown = same | twins.of(company)
        allowed[start:stop] = np.isin(reference[start:stop], list(shown))
    return _Judgement(own, twin, ~allowed)


def _runs(query: Int64) -> list[tuple[int, int]]:
    """Return where each query's pairs begin and end."""
    starts = np.flatnonzero(np.diff(query, prepend=-1))
    stops = [*starts[1:], len(query)]
    return [(int(a), int(b)) for a, b in zip(starts, stops, strict=True)]


def _first(pairs: Pairs, grades: Grades, order: Int64) -> Int64:
    """Return each query's best pair: by probability, then similarity, then id."""
    probability: Float32 = np.nan_to_num(grades.probability, nan=-1.0)
    ranked = np.lexsort((order[pairs.reference], -pairs.similarity, -probability, pairs.query))
    return np.asarray(ranked[np.flatnonzero(np.diff(pairs.query[ranked], prepend=-1))])


def _wrong(
    row: int,
    pairs: Pairs,
    grades: Grades,
    changed: Changed,
    query: Int64,
    condition: Int64,
    ids: pa.StringArray,
) -> Wrong:
    number = int(pairs.query[row])
    return Wrong(
        changed.conditions[int(condition[number])].name,
        changed.names[int(query[number])],
        ids[int(pairs.reference[row])].as_py(),
        GRADES[int(grades.grade[row])],
        round(float(grades.probability[row]), 4),
        grades.reason[row],
    )
