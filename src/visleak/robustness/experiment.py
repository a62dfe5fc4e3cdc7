"""``robustness(S)``: how well an encoder finds changed copies among all images of a set."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import visleak
from visleak import pipeline
from visleak.auditing import open_cache, workers_for
from visleak.encoders import load_encoder
from visleak.errors import UsageError
from visleak.formats import open_image_set
from visleak.pipeline import RunContext
from visleak.pipeline.candidates import views_for
from visleak.pipeline.encoded_set import refuse_lost
from visleak.pipeline.fingerprints import fingerprint
from visleak.progress import Progress
from visleak.rates import Rate
from visleak.records import (
    GRADES,
    Bool,
    Bytes8,
    Encoder,
    Fingerprints,
    Float32,
    Grade,
    Grades,
    ImageSet,
    Int8,
    Int64,
    Pairs,
    Unreadable,
)
from visleak.robustness.conditions import named
from visleak.robustness.curves import (
    IMAGES,
    Curve,
    EncoderResult,
    PipelineResult,
    Robustness,
    Roc,
    SearchResult,
    WrongPair,
)
from visleak.robustness.queries import (
    NOT_APPLICABLE,
    ChangedSet,
    Collection,
    DirectHits,
    Twins,
    changed_set,
    draw,
    search,
)
from visleak.settings import Settings

QUERIES: Final = 200  # default number of queries
SHEET_TRIES: Final = 10  # queries of the contact sheet
Source = str | os.PathLike[str] | ImageSet | Sequence[object]


def robustness(
    source: Source,
    encoders: Sequence[str | Encoder] = ("builtin",),
    *,
    conditions: Sequence[str] = ("all",),
    queries: int | Sequence[str] = QUERIES,
    seed: int = 0,
    verify: bool = True,
    thresholds: Sequence[float] = (),
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = "default",
    progress: Progress = pipeline.silent,
) -> Robustness:
    """Change images of a set under many conditions and search for them in the whole set.

    The experiment of Ramos et al. 2025, section 6. An image is bounded to a long side of 500
    pixels and changed at that resolution before it is encoded.

    Args:
        source: the collection; its images are the references.
        encoders: names or objects; the built-in one is also tested with the whole pipeline.
        conditions: names, or ``paper``, ``beyond``, ``all``.
        queries: how many images are changed, drawn at random, 0 for all; or their ids.
        seed: of that draw.
        verify: verify pairs, to exclude duplicates within the set, and for the row of the pipeline.
        thresholds: similarities at which to read the curves, in addition to each encoder's own.
        workers, cache, progress: as in :func:`visleak.audit`.

    Raises:
        UsageError: an unknown encoder or condition, or an invalid number.
        VisleakError: fewer than two readable images.
    """
    if (isinstance(queries, int) and queries < 0) or not encoders:
        raise UsageError("queries must be 0 (all) or more, and encoders at least one")
    chosen = named(conditions)
    makers = [load_encoder(encoder) for encoder in encoders]
    name, count = Counter(maker.name for maker in makers).most_common(1)[0]
    if count > 1:
        raise UsageError(f"encoder {name!r} is given twice")
    images = open_image_set(source)
    source_text = images.source
    wanted = queries if isinstance(queries, int) else len(queries)
    changes = min(wanted or len(images), len(images)) * len(chosen)
    processes = workers_for(len(images) + changes, workers)
    with (
        open_cache(cache, [images]) as store,
        RunContext.at(None, processes, store, progress) as place,
    ):
        own = Collection.read(images, makers[0], place, verify=verify)
        images, first = own.images, own.prints
        prints = {makers[0].name: first}
        prints |= {maker.name: fingerprint(images, maker, place) for maker in makers[1:]}
        for made in prints.values():
            refuse_lost(images.name, made.problems)
        # encoders decode in different ways, which may fail on different images
        readable = reduce(np.intersect1d, [made.rows for made in prints.values()])
        taken = _taken(images, readable, queries, seed)
        changed = changed_set(images, readable, taken, chosen)
        found = tuple(
            evaluate(each, images, changed, prints[each.name], own.twins, thresholds, verify, place)
            for each in makers
        )
    return Robustness(
        collection=images.name,
        source=source_text,
        references=len(first),
        queries=len(changed.queries),
        seed=seed,
        twins=len(own.twins),
        graded=own.twins.graded,
        unreadable=own.unreadable,
        conditions=chosen,
        encoders=found,
        version=visleak.__version__,
        sheet=_sheet(changed),
    )


def _sheet(changed: ChangedSet) -> tuple[tuple[str, Bytes8 | None], ...]:
    """Return the first query to which all conditions apply, else the first, under each of them."""
    count = len(changed.conditions)
    best: Sequence[object] = []
    for query in range(min(SHEET_TRIES, len(changed.queries))):
        found = list(changed.images.opener.read(range(query * count, (query + 1) * count)))
        refuse_lost(changed.images.name, found)
        whole = not any(isinstance(each, Unreadable) for each in found)
        best = found if whole or not best else best
        if whole:
            break
    return tuple(
        (condition.name, made if isinstance(made, np.ndarray) else None)
        for condition, made in zip(changed.conditions, best, strict=True)
    )


def _taken(images: ImageSet, readable: Int64, queries: int | Sequence[str], seed: int) -> Int64:
    """Return the positions of the queries, ascending."""
    if isinstance(queries, int):
        return draw(readable, queries, seed)
    wanted = pa.array(dict.fromkeys(queries), pa.string())
    at = pc.index_in(wanted, images.ids.take(pa.array(readable)))
    if at.null_count or not len(wanted):
        unknown = wanted.filter(pc.is_null(at))
        which = f"{unknown[0].as_py()!r} is not one" if len(unknown) else "got none"
        raise UsageError(f"queries must be ids of readable images of {images.name!r}; {which}")
    return np.sort(readable[at.to_numpy()])


def _thresholds_for(encoder: Encoder, more: Sequence[float]) -> dict[str, float]:
    """Return the thresholds at which curves are read, by name: the encoder's own and others."""
    own = encoder.thresholds or {}
    found = {name: float(own[name]) for name in ("hard", "soft") if own.get(name) is not None}
    for value in more:
        if not -1.0 <= value <= 1.0:
            raise UsageError(f"thresholds must be similarities between -1 and 1; got {value}")
        found[f"{value:g}"] = float(value)
    return found


def evaluate(
    encoder: Encoder,
    images: ImageSet,
    changed: ChangedSet,
    prints: Fingerprints,
    twins: Twins,
    more: Sequence[float],
    verify: bool,
    place: RunContext,
) -> EncoderResult:
    """Return all results of one encoder."""
    thresholds = _thresholds_for(encoder, more)
    queries = fingerprint(changed.images, encoder, place)
    refuse_lost(images.name, queries.problems)
    found = search(
        encoder, changed, queries, prints, twins,
        views=views_for(encoder, "all"),
        thresholds=tuple(thresholds.values()),
        progress=lambda done, total: place.progress(f"comparing by {encoder.name}", done, total),
    )  # fmt: skip
    verdicts = None
    if verify and encoder.name == "builtin":
        verdicts = judge(images, changed, twins, place)
    # curves of the untransformed images, and of the paper's transformed ones
    pooled: dict[bool, list[Roc]] = {True: [], False: []}
    for condition, curve in zip(changed.conditions, found.curves, strict=True):
        if condition.group == "paper":
            pooled[condition.name == "original"].append(curve)
    original, trans = (
        Curve.of(Roc.pooled(pooled[kind]), thresholds) if pooled[kind] else None
        for kind in (True, False)
    )
    return EncoderResult(
        encoder.name,
        encoder.digest,
        thresholds,
        tuple(_direct(changed, queries, found, thresholds)),
        original=original,
        trans=trans,
        pipeline=verdicts.conditions if verdicts else (),
        wrong=verdicts.wrong if verdicts else (),
        left_out=found.left_out,
        images=_image_table(encoder.name, changed, queries, found, verdicts),
    )


def _image_table(
    name: str,
    changed: ChangedSet,
    queries: Fingerprints,
    found: DirectHits,
    verdicts: Verdicts | None,
) -> pa.Table:
    count = len(queries)
    names = np.array([condition.name for condition in changed.conditions], dtype=object)
    columns: dict[str, object] = {
        "encoder": pa.array([name] * count, pa.string()),
        "condition": pa.array(names[found.condition], pa.string()),
        "query": pa.array(changed.names, pa.string()).take(pa.array(found.query)),
        "width": queries.sizes[:, 0],
        "height": queries.sizes[:, 1],
        "similarity": found.own,
        "best_wrong": found.best_wrong,
        "first": found.right,
        "pipeline_first": pa.nulls(count, pa.bool_()),
        "grade": pa.nulls(count, pa.string()),
        "probability": pa.nulls(count, pa.float32()),
    }
    if verdicts is not None:
        grades = np.array([*GRADES, None], dtype=object)
        columns["pipeline_first"] = verdicts.first
        columns["grade"] = pa.array(grades[verdicts.grade], pa.string())
        columns["probability"] = pa.array(verdicts.probability, from_pandas=True)
    return pa.table(columns, schema=IMAGES)


def _direct(
    changed: ChangedSet, queries: Fingerprints, found: DirectHits, thresholds: dict[str, float]
) -> Iterator[SearchResult]:
    not_applicable, unreadable = Counter[str](), Counter[str]()
    for problem in queries.problems:
        counts = not_applicable if problem.detail == NOT_APPLICABLE else unreadable
        counts[problem.id.partition("/")[0]] += 1
    for number, name in enumerate(condition.name for condition in changed.conditions):
        mine = found.condition == number
        rate = Rate.of(int(found.right[mine].sum()), int(mine.sum()))
        curve = Curve.of(found.curves[number], thresholds)
        yield SearchResult(name, rate.total, not_applicable[name], unreadable[name], rate, curve)


_EXACT, _NEAR = GRADES.index(Grade.EXACT), GRADES.index(Grade.NEAR)


@dataclass(frozen=True)
class Verdicts:
    """Results of the pipeline for all changed images."""

    conditions: tuple[PipelineResult, ...]  # one per condition
    wrong: tuple[WrongPair, ...]  # wrong pairs graded near or exact, most probable first
    first: Bool  # (n,): the most probable reference is the original or a twin of it
    grade: Int8  # (n,): of the pair with the original, an index into `GRADES`; -1 for no candidate
    probability: Float32  # (n,): of that pair; NaN if it was no candidate


def judge(
    images: ImageSet, changed: ChangedSet, twins: Twins, place: RunContext
) -> Verdicts | None:
    """Compare all changed images with the collection by the pipeline; ``None`` without grades."""
    encoder = load_encoder()
    outcome = pipeline.run([changed.images], [images], encoder, Settings(within=False), place)
    for side in outcome.sides.values():
        refuse_lost(images.name, side.fingerprints.problems)
    compared = outcome.comparisons[0]
    pairs, grades = compared.pairs, compared.grades
    if grades is None:
        return None
    left = outcome.sides[changed.images.name].fingerprints
    right = outcome.sides[images.name].fingerprints
    query, condition = changed.parts(left.rows)
    own, twin, wrong = _truth_of(pairs, right.rows, query, condition, changed, twins)
    first = _first(pairs, grades, outcome.sides[images.name].order)
    hit, proposed = (np.zeros(len(left), np.bool_) for _ in range(2))
    hit[pairs.query[first]] = twin[first]
    proposed[pairs.query[own]] = True
    own_grade = np.full(len(left), -1, np.int8)
    own_grade[pairs.query[own]] = grades.grade[own]
    probability = np.full(len(left), np.nan, np.float32)
    probability[pairs.query[own]] = grades.probability[own]
    near = np.isin(own_grade, (_EXACT, _NEAR))
    judged = []
    for number, each in enumerate(changed.conditions):
        mine = condition == number
        there = wrong & mine[pairs.query]
        r1, graded, candidates = (
            Rate.of(int(found[mine].sum()), int(mine.sum())) for found in (hit, near, proposed)
        )
        counts = (there & (grades.grade == _NEAR), there & (grades.grade == _EXACT), there)
        numbers = [int(count.sum()) for count in counts]
        judged.append(PipelineResult(each.name, r1, graded, candidates, *numbers))
    shown = np.flatnonzero(wrong & np.isin(grades.grade, (_EXACT, _NEAR)))
    shown = shown[np.lexsort((shown, -grades.probability[shown]))]
    wrong_pairs = tuple(
        WrongPair(
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


def _truth_of(
    pairs: Pairs, rows: Int64, query: Int64, condition: Int64, changed: ChangedSet, twins: Twins
) -> tuple[Bool, Bool, Bool]:
    """Return which pairs are with the original, with it or a twin of it, and which are wrong.

    A pair with another image of a collage is none of these.
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
