"""The five steps in order: open, fingerprint, find pairs, verify, grade."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from visleak.errors import UsageError, VisleakError
from visleak.grading import Grader, grade, load_grader
from visleak.pipeline.candidates import BEST, Side, find_pairs, side, views_for
from visleak.pipeline.fingerprinting import fingerprint
from visleak.pipeline.labels import coverage, modality
from visleak.pipeline.local import with_votes
from visleak.pipeline.parted import search_for
from visleak.pipeline.passing import pass_by
from visleak.pipeline.stored import Taken, take_in
from visleak.pipeline.tables import Compared, degree_of
from visleak.pipeline.thresholds import Thresholds, thresholds_of
from visleak.pipeline.verification import Material, equal_bytes, verify
from visleak.pipeline.workplace import Workplace
from visleak.pipeline.yardstick import measured
from visleak.records import AnySet, EmbeddingSet, Encoder, Evidence, ImageSet, Int64, Pairs
from visleak.search import load_partition_search, load_search
from visleak.search.account import Account
from visleak.search.exact import ExactSearch
from visleak.search.hits import Wanted
from visleak.settings import Settings

#: Seed of the draw behind ``sample``.
SAMPLE_SEED = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run found; everything the audit folder is written from.

    Attributes:
        queries, references: the sets, in the order of the call; of embeddings that passed by,
            the images that are in a pair.
        sides: fingerprints and backgrounds by set name.
        compared: one record a comparison; those within a query set last.
        thresholds: that were used.
        grader: that was used, or ``None``.
        embeddings: sets of which there are only embeddings, by name.
        accounts: what the search engine says of itself, by the names of the sets compared.
    """

    queries: tuple[ImageSet, ...]
    references: tuple[ImageSet, ...]
    sides: Mapping[str, Side]
    compared: tuple[Compared, ...]
    thresholds: Thresholds
    grader: Grader | None
    embeddings: Mapping[str, Taken] = field(default_factory=dict)
    accounts: Mapping[tuple[str, str], Sequence[Account]] = field(default_factory=dict)

    @property
    def sets(self) -> tuple[ImageSet, ...]:
        """All sets, each once."""
        return tuple({s.name: s for s in (*self.queries, *self.references)}.values())


def run(
    queries: Sequence[AnySet],
    references: Sequence[AnySet],
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
    _check_search(settings, place)
    thresholds = thresholds or thresholds_of(encoder, settings)
    desk = _Desk(encoder, views_for(encoder, settings.views), settings, place)
    tested = {images.name for images in queries}
    for images in (*queries, *references):
        if images.name not in desk.sides and not _passes(images, tested):
            desk.take(images, images.name in tested)
    couples = [(q.name, r.name) for q in queries for r in references if q.name != r.name]
    if settings.within and not settings.sample:
        couples += [(q.name, q.name) for q in queries]
    with timed(place, "search"):
        passed = desk.pass_by([q.name for q in queries], references, thresholds)
        rule = wanted(thresholds, settings)
        found = [passed.get(couple) or desk.find(couple, rule) for couple in couples]
    seen = [i for i, couple in enumerate(couples) if desk.has_pictures(couple)]
    if settings.candidates != "nearest" and settings.local:
        with timed(place, "local"):
            by_name = {name: own.images for name, own in desk.material.items()}
            voted = with_votes([found[i] for i in seen], desk.sides, by_name, encoder, place)
            for i, pairs in zip(seen, voted, strict=True):
                found[i] = pairs
    evidence: list[Evidence | None] = [None] * len(found)
    gauge = list(found)
    grader = load_grader() if settings.verify and seen else None
    if grader is not None:
        with timed(place, "verify"):
            gauged = measured(
                [found[i] for i in seen], desk.material, encoder, settings.views, place
            )
            looked = verify(gauged, desk.material, place)
            for i, pairs, own in zip(seen, gauged, looked, strict=True):
                gauge[i], evidence[i] = pairs, own
    with timed(place, "grade"):
        compared = tuple(
            _compared(pairs, by, own, desk.material, thresholds, grader, settings)
            for pairs, by, own in zip(found, gauge, evidence, strict=True)
        )
    listed = {name: own.images for name, own in desk.material.items()}
    return Outcome(
        tuple(listed[images.name] for images in queries),
        tuple(listed[images.name] for images in references),
        desk.sides,
        compared,
        thresholds,
        grader,
        desk.embeddings,
        desk.accounts,
    )


def _passes(images: AnySet, tested: Set[str]) -> bool:
    """Whether a set passes by instead of being taken in."""
    return isinstance(images, EmbeddingSet) and images.name not in tested


@dataclass
class _Desk:
    """What a run has at hand: the sets taken in so far, and how they are compared."""

    encoder: Encoder
    views: tuple[int, ...]
    settings: Settings
    place: Workplace
    sides: dict[str, Side] = field(default_factory=dict)
    material: dict[str, Material] = field(default_factory=dict)
    embeddings: dict[str, Taken] = field(default_factory=dict)
    accounts: dict[tuple[str, str], Sequence[Account]] = field(default_factory=dict)

    def take(self, images: AnySet, tested: bool) -> None:
        """Make fingerprints of a set, or take in those that are there."""
        drawn = _drawn(images, self.settings) if tested else None
        with timed(self.place, "fingerprint"):
            if isinstance(images, EmbeddingSet):
                taken = take_in(images, self.encoder.digest, self.place, drawn)
                self.embeddings[images.name] = taken
                own = Material(taken.images, taken.prints)
            else:
                own = Material(images, fingerprint(images, self.encoder, self.place, drawn))
        with timed(self.place, "background"):
            self.sides[images.name] = side(
                own.prints, self.encoder, self.views, ExactSearch(), self.place.workers
            )
        self.material[images.name] = own

    def pass_by(
        self, queries: Sequence[str], references: Sequence[AnySet], thresholds: Thresholds
    ) -> dict[tuple[str, str], Pairs]:
        """Let the embeddings of the training side pass by; return the pairs by names."""
        found: dict[tuple[str, str], Pairs] = {}
        for images in references:
            if not isinstance(images, EmbeddingSet) or images.name in self.sides:
                continue
            through = load_partition_search(
                self.settings.search, self.place.indexes, self.place.workers
            )
            passed = pass_by(
                [self.sides[name] for name in queries],
                images,
                encoder=self.encoder,
                views=self.views,
                wanted=wanted_in_passing(thresholds, self.settings),
                engine=ExactSearch(),
                place=self.place,
                through=through,
            )
            if through is not None:
                self.accounts[", ".join(queries), images.name] = (through.account,)
            self.embeddings[images.name] = passed.taken
            self.material[images.name] = Material(passed.taken.images, passed.taken.prints)
            self.sides[images.name] = passed.side
            found |= {(pairs.query_set, pairs.reference_set): pairs for pairs in passed.pairs}
        return found

    def find(self, couple: tuple[str, str], rule: Wanted) -> Pairs:
        """Return the candidates of two sets; within a set, best ones need no threshold either."""
        query, reference = couple
        step, total = f"comparing {query} with {reference}", len(self.sides[reference].prints)
        self.place.progress(step, 0, total)
        engine = search_for(
            self.settings.search, self.place, lambda done: self.place.progress(step, done, total)
        )
        pairs = find_pairs(
            self.sides[query],
            self.sides[reference],
            encoder=self.encoder,
            views=self.views,
            wanted=rule,
            engine=engine,
            workers=self.place.workers,
        )
        self.accounts[couple] = tuple(engine.accounts)
        # equal pictures were searched for once
        self.place.progress(step, total, total)
        return pairs

    def has_pictures(self, couple: tuple[str, str]) -> bool:
        """Whether there are pictures of both sets to look at."""
        return all(self.material[name].images.pictures for name in couple)


def wanted(thresholds: Thresholds, settings: Settings) -> Wanted:
    """Return what the search is asked for."""
    if settings.candidates == "nearest":
        return Wanted(None, best=1, cap=settings.per_query)
    return Wanted(thresholds.soft, best=BEST, cap=settings.per_query)


def wanted_in_passing(thresholds: Thresholds, settings: Settings) -> Wanted:
    """Return what is asked of embeddings that pass by: by threshold alone, where there is one.

    A search by threshold passes over nearly everything unread in detail; the best of each query
    are not bounded from below, so that every vector must be looked at.
    """
    if settings.candidates == "auto" and thresholds.soft is not None:
        return Wanted(thresholds.soft, best=0, cap=settings.per_query)
    return wanted(thresholds, settings)


@contextmanager
def timed(place: Workplace, step: str) -> Iterator[None]:
    """Add the wall time of a step to the record."""
    start = time.perf_counter()
    try:
        yield
    finally:
        place.seconds[step] = place.seconds.get(step, 0.0) + time.perf_counter() - start


def _check_names(
    queries: Sequence[AnySet], references: Sequence[AnySet], settings: Settings
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


def _check_search(settings: Settings, place: Workplace) -> None:
    """Refuse before the work what could not be done after it.

    Raises:
        UsageError: the engine of the search does not work where the run does.
        MissingExtra: its package is not installed.
    """
    load_search(settings.search)
    if settings.search != ExactSearch.name and not place.crew.here:
        raise UsageError(
            f"search {settings.search} works on this machine only: leave out --engine, or take"
            " --search exact"
        )


def _drawn(images: AnySet, settings: Settings) -> Int64 | None:
    """Return the rows of a random sample of a query set, or ``None`` for all."""
    if not 0 < settings.sample < len(images):
        return None
    rng = np.random.default_rng(SAMPLE_SEED)
    return np.sort(rng.choice(len(images), settings.sample, replace=False)).astype(np.int64)


def _compared(
    pairs: Pairs,
    gauge: Pairs,
    evidence: Evidence | None,
    material: Mapping[str, Material],
    thresholds: Thresholds,
    grader: Grader | None,
    settings: Settings,
) -> Compared:
    """Return a comparison with its degrees and verdicts.

    Degrees are by the pairs' own similarities, verdicts by those of ``gauge``, the same pairs as
    the built-in fingerprint sees them.
    """
    query, reference = (material[name].images for name in (pairs.query_set, pairs.reference_set))
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
        gauge.similarity,
        gauge.background,
        evidence,
        equal_bytes=equal_bytes(pairs, material),
        flat=material[query.name].prints.flat[pairs.query],
        grader=grader,
    )
    return replace(verdict, grades=grades, matrix=evidence.matrix)
