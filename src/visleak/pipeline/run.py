"""The five steps in order: open, fingerprint, find pairs, verify, grade."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from visleak.errors import UsageError, VisleakError
from visleak.grading import Grader, grade, load_grader
from visleak.pipeline.candidates import BEST, Side, find_pairs, side, views_for
from visleak.pipeline.fingerprinting import fingerprint
from visleak.pipeline.labels import coverage, modality
from visleak.pipeline.local import with_votes
from visleak.pipeline.tables import Compared, degree_of
from visleak.pipeline.thresholds import Thresholds, thresholds_of
from visleak.pipeline.verification import Material, equal_bytes, verify
from visleak.pipeline.workplace import Workplace
from visleak.records import Encoder, Evidence, ImageSet, Int64, Pairs
from visleak.search.exact import ExactSearch
from visleak.search.hits import Wanted
from visleak.settings import Settings

#: Seed of the draw behind ``sample``.
SAMPLE_SEED = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run found; everything the audit folder is written from.

    Attributes:
        queries, references: the sets, in the order of the call.
        sides: fingerprints and backgrounds by set name.
        compared: one record a comparison; those within a query set last.
        thresholds: that were used.
        grader: that was used, or ``None``.
    """

    queries: tuple[ImageSet, ...]
    references: tuple[ImageSet, ...]
    sides: Mapping[str, Side]
    compared: tuple[Compared, ...]
    thresholds: Thresholds
    grader: Grader | None

    @property
    def sets(self) -> tuple[ImageSet, ...]:
        """All sets, each once."""
        return tuple({s.name: s for s in (*self.queries, *self.references)}.values())


def run(
    queries: Sequence[ImageSet],
    references: Sequence[ImageSet],
    encoder: Encoder,
    settings: Settings,
    place: Workplace,
    thresholds: Thresholds | None = None,
) -> Outcome:
    """Compare every query set with every reference set, and with itself.

    Args:
        queries: the test side.
        references: the training side; empty to look within the query sets only.
        encoder: makes the fingerprints.
        settings: what is asked for.
        place: where to work.
        thresholds: where degrees begin; by default as settings and encoder say.

    Raises:
        UsageError: two sets of one name, or nothing to compare.
    """
    _check_names(queries, references, settings)
    thresholds = thresholds or thresholds_of(encoder, settings)
    views = views_for(encoder, settings.views)
    engine = ExactSearch()
    sides: dict[str, Side] = {}
    material: dict[str, Material] = {}
    for images in (*queries, *references):
        if images.name in sides:
            continue
        drawn = _drawn(images, settings) if images in queries else None
        with timed(place, "fingerprint"):
            prints = fingerprint(images, encoder, place, drawn)
        with timed(place, "background"):
            sides[images.name] = side(prints, encoder, views, engine, place.workers)
        material[images.name] = Material(images, prints)
    couples = [(q, r) for q in queries for r in references if q.name != r.name]
    if settings.within and not settings.sample:
        couples += [(q, q) for q in queries]
    with timed(place, "search"):
        find = partial(_find, sides, encoder, views, wanted(thresholds, settings), place)
        found = [find(q, r) for q, r in couples]
    if settings.candidates == "auto" and settings.local:
        with timed(place, "local"):
            by_name = {name: own.images for name, own in material.items()}
            found = list(with_votes(found, sides, by_name, encoder, place))
    evidence: list[Evidence | None] = [None] * len(found)
    grader = load_grader() if settings.verify else None
    if grader is not None:
        with timed(place, "verify"):
            evidence = list(verify(found, material, place))
    with timed(place, "grade"):
        compared = tuple(
            _compared(couple, pairs, seen, material, thresholds, grader, settings)
            for couple, pairs, seen in zip(couples, found, evidence, strict=True)
        )
    return Outcome(tuple(queries), tuple(references), sides, compared, thresholds, grader)


def wanted(thresholds: Thresholds, settings: Settings) -> Wanted:
    """Return what the search is asked for."""
    if settings.candidates == "nearest":
        return Wanted(None, best=1, cap=settings.per_query)
    return Wanted(thresholds.soft, best=BEST, cap=settings.per_query)


@contextmanager
def timed(place: Workplace, step: str) -> Iterator[None]:
    """Add the wall time of a step to the record."""
    start = time.perf_counter()
    try:
        yield
    finally:
        place.seconds[step] = place.seconds.get(step, 0.0) + time.perf_counter() - start


def _check_names(
    queries: Sequence[ImageSet], references: Sequence[ImageSet], settings: Settings
) -> None:
    if not queries or not (references or settings.within):
        raise UsageError("nothing to compare: give --test and --train, or --set")
    if settings.sample and not references:
        raise UsageError(
            "sample draws test images to compare with a training set; a set alone is compared"
            " whole: leave --sample out"
        )
    for images in (*queries, *references):
        if not len(images):
            raise VisleakError(f"set {images.name!r} ({images.source}) holds no images")
    for group in (queries, references):
        names = [images.name for images in group]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"two sets are called {name!r}; name them: --test NAME=SOURCE")
    by_name = {images.name: images for images in queries}
    for images in references:
        twin = by_name.get(images.name)
        if twin is not None and twin.source != images.source:
            raise UsageError(f"two sets are called {images.name!r}; name them: --train NAME=SOURCE")


def _drawn(images: ImageSet, settings: Settings) -> Int64 | None:
    """Return the rows of a random sample of a query set, or ``None`` for all."""
    if not 0 < settings.sample < len(images):
        return None
    rng = np.random.default_rng(SAMPLE_SEED)
    return np.sort(rng.choice(len(images), settings.sample, replace=False)).astype(np.int64)


def _find(
    sides: Mapping[str, Side],
    encoder: Encoder,
    views: tuple[int, ...],
    rule: Wanted,
    place: Workplace,
    query: ImageSet,
    reference: ImageSet,
) -> Pairs:
    """Return the candidates of two sets; within a set, best ones need no threshold either."""
    step, total = f"comparing {query.name} with {reference.name}", len(sides[reference.name].prints)
    place.progress(step, 0, total)
    pairs = find_pairs(
        sides[query.name],
        sides[reference.name],
        encoder=encoder,
        views=views,
        wanted=rule,
        engine=ExactSearch(progress=lambda done: place.progress(step, done, total)),
        workers=place.workers,
    )
    # equal pictures were searched for once
    place.progress(step, total, total)
    return pairs


def _compared(
    couple: tuple[ImageSet, ImageSet],
    pairs: Pairs,
    evidence: Evidence | None,
    material: Mapping[str, Material],
    thresholds: Thresholds,
    grader: Grader | None,
    settings: Settings,
) -> Compared:
    """Return a comparison with its degrees and verdicts."""
    query, reference = couple
    verdict = Compared(
        query=query,
        reference=reference,
        pairs=pairs,
        degree=degree_of(pairs.similarity, thresholds.hard, thresholds.soft),
        grades=None,
        matrix=None,
        coverage=coverage(query, reference),
        modality=modality(reference, settings.annotations),
    )
    if evidence is None or grader is None:
        return verdict
    grades = grade(
        pairs.similarity,
        pairs.background,
        evidence,
        equal_bytes=equal_bytes(pairs, material),
        flat=material[query.name].prints.flat[pairs.query],
        grader=grader,
    )
    return replace(verdict, grades=grades, matrix=evidence.matrix)
