"""The five steps in order: open, fingerprint, find pairs, verify, grade."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from visleak.errors import UsageError, VisleakError
from visleak.grading import Grader, grade, load_grader
from visleak.pipeline.candidates import Side, views_for
from visleak.pipeline.chance import chance_of
from visleak.pipeline.comparison import Comparison, degree_of
from visleak.pipeline.context import RunContext, timed
from visleak.pipeline.desk import Desk, wanted
from visleak.pipeline.embeddings import Taken
from visleak.pipeline.encoded_set import EncodedSet, ImagesLost, none_readable
from visleak.pipeline.frame_distances import recording_leak
from visleak.pipeline.labels import coverage, modality
from visleak.pipeline.local_features import with_votes
from visleak.pipeline.recordings import RecordingLeak
from visleak.pipeline.reference_similarity import measured
from visleak.pipeline.selection import Spanning, crowded
from visleak.pipeline.thresholds import Thresholds, thresholds_of
from visleak.pipeline.verification import connect, equal_bytes, verify
from visleak.pipeline.windows import with_windows
from visleak.records import AnySet, EmbeddingSet, Encoder, Evidence, ImageSet, Pairs
from visleak.search import load_search
from visleak.search.account import Account
from visleak.search.exact import ExactSearch
from visleak.search.streaming_device import torch_device
from visleak.settings import Settings
from visleak.storage.summary import ChanceSummary

#: How often images may be lost on the way before a run gives up.
ATTEMPTS: Final = 4


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
        recordings: how near in time frames of both sides lie, where that is known; by the same.
        chance: how many pairs reach the thresholds by chance, where that is known; by the same.
    """

    queries: tuple[ImageSet, ...]
    references: tuple[ImageSet, ...]
    sides: Mapping[str, Side]
    compared: tuple[Comparison, ...]
    thresholds: Thresholds
    grader: Grader | None
    embeddings: Mapping[str, Taken] = field(default_factory=dict)
    accounts: Mapping[tuple[str, str], Sequence[Account]] = field(default_factory=dict)
    recordings: Mapping[tuple[str, str], RecordingLeak] = field(default_factory=dict)
    chance: Mapping[tuple[str, str], ChanceSummary] = field(default_factory=dict)

    @property
    def sets(self) -> tuple[ImageSet, ...]:
        """All sets, each once."""
        return tuple({s.name: s for s in (*self.queries, *self.references)}.values())


def run(
    queries: Sequence[AnySet],
    references: Sequence[AnySet],
    encoder: Encoder,
    settings: Settings,
    place: RunContext,
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
        VisleakError: a set without a readable image, or one whose images keep changing.
    """
    _check_names(queries, references, settings)
    _check_search(settings, place)
    thresholds = thresholds or thresholds_of(encoder, settings)
    desk = Desk(encoder, views_for(encoder, settings.views), settings, place)
    tested = {images.name for images in queries}
    for images in (*queries, *references):
        if images.name not in desk.sides and not _passes(images, tested):
            desk.take(images, images.name in tested)
            _refuse_unreadable(images, desk)
    for _ in range(ATTEMPTS - 1):
        try:
            return _found(queries, references, desk, thresholds)
        except ImagesLost as lost:
            desk.leave_out(lost)
            _refuse_unreadable(desk.material[lost.name].images, desk)
    return _found(queries, references, desk, thresholds)


def _found(
    queries: Sequence[AnySet], references: Sequence[AnySet], desk: Desk, thresholds: Thresholds
) -> Outcome:
    """Find, verify and grade the pairs of the sets taken in.

    Raises:
        ImagesLost: images cannot be read again.
    """
    encoder, settings, place = desk.encoder, desk.settings, desk.place
    couples = [(q.name, r.name) for q in queries for r in references if q.name != r.name]
    if settings.within and not settings.sample:
        couples += [(q.name, q.name) for q in queries]
    with timed(place, "search"):
        passed = desk.pass_by([q.name for q in queries], references, thresholds)
        for images in references:
            _refuse_unreadable(images, desk)
        rule = wanted(thresholds, settings)
        found = [passed.get(couple) or desk.find(couple, rule) for couple in couples]
    seen = [i for i, couple in enumerate(couples) if desk.has_pictures(couple)]
    grader = load_grader(near_at=settings.near_at) if settings.verify and seen else None
    spanning: list[Spanning] = []
    crowds = [pairs.only(crowded(pairs)) for pairs in (found[i] for i in seen)]
    if grader is not None and any(len(pairs) for pairs in crowds):
        with timed(place, "crowds"):
            gauged = measured(crowds, desk.material, encoder, settings.views, place)
            spanning = connect(gauged, desk.material, place, grader)
    if settings.candidates != "nearest" and settings.local:
        with timed(place, "local"):
            voted = with_votes(
                [found[i] for i in seen], desk.sides, desk.material, encoder, place, spanning
            )
            for i, pairs in zip(seen, voted, strict=True):
                sides = desk.sides[pairs.query_set], desk.sides[pairs.reference_set]
                found[i] = with_windows(pairs, sides, encoder, place.workers)
    evidence: list[Evidence | None] = [None] * len(found)
    gauge = list(found)
    if grader is not None:
        with timed(place, "verify"):
            gauged = measured(
                [found[i] for i in seen], desk.material, encoder, settings.views, place
            )
            looked = verify(gauged, desk.material, place, grader, spanning)
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
        _recordings(compared, desk, settings),
        _chance(compared, desk, thresholds),
    )


def _recordings(
    compared: Sequence[Comparison], desk: Desk, settings: Settings
) -> dict[tuple[str, str], RecordingLeak]:
    """Return how near in time the frames of each comparison lie, where both sides tell."""
    passing = [name for name, taken in desk.embeddings.items() if taken.streamed]
    return {
        (each.query.name, each.reference.name): leak
        for each in compared
        if (leak := recording_leak(each, desk.sides, passing, settings)) is not None
    }


def _chance(
    compared: Sequence[Comparison], desk: Desk, thresholds: Thresholds
) -> dict[tuple[str, str], ChanceSummary]:
    """Return what reaches the thresholds by chance, but of embeddings that passed by."""
    passed = {name for name, taken in desk.embeddings.items() if taken.streamed}
    with timed(desk.place, "chance"):
        found = {
            (each.query.name, each.reference.name): chance_of(
                each, desk.sides, desk.encoder, desk.views, thresholds, desk.place.workers
            )
            for each in compared
            if each.reference.name not in passed
        }
    return {couple: chance for couple, chance in found.items() if chance is not None}


def _passes(images: AnySet, tested: Set[str]) -> bool:
    """Whether a set passes by instead of being taken in."""
    return isinstance(images, EmbeddingSet) and images.name not in tested


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


def _refuse_unreadable(images: AnySet, desk: Desk) -> None:
    """Refuse a set without a readable image: a rate of it would mean nothing.

    Raises:
        VisleakError: none could be read.
    """
    own, taken = desk.material[images.name], desk.embeddings.get(images.name)
    problems = (*own.images.problems, *own.fingerprints.problems)
    # of embeddings that passed by, only the images in a pair have fingerprints
    readable = len(own.fingerprints)
    if taken is not None and taken.streamed:
        readable = taken.vectors - len(problems)
    if readable or not problems:
        return
    where = f"set {images.name!r} ({images.source or 'in memory'})"
    raise VisleakError(f"{where}: {none_readable(problems)}; correct the source, or leave it out")


def _check_search(settings: Settings, place: RunContext) -> None:
    """Refuse before the work what could not be done after it.

    Raises:
        UsageError: the engine of the search does not work where the run does, or the device is
            not there.
        MissingExtra: its package is not installed.
    """
    load_search(settings.search)
    if place.executor.here:
        torch_device(place.device)
    if settings.search != ExactSearch.name and not place.executor.here:
        raise UsageError(
            f"search {settings.search} works on this machine only: leave out --engine, or take"
            " --search exact"
        )


def _compared(
    pairs: Pairs,
    gauge: Pairs,
    evidence: Evidence | None,
    material: Mapping[str, EncodedSet],
    thresholds: Thresholds,
    grader: Grader | None,
    settings: Settings,
) -> Comparison:
    """Return a comparison with its degrees and verdicts.

    Degrees are by the pairs' own similarities, verdicts by those of ``gauge``, the same pairs as
    the built-in fingerprint sees them.
    """
    query, reference = (material[name].images for name in (pairs.query_set, pairs.reference_set))
    verdict = Comparison(
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
        flat=material[query.name].fingerprints.flat[pairs.query],
        grader=grader,
    )
    # a copy, which lets go of the columns beside it
    matrix = np.ascontiguousarray(evidence.matrix)
    return replace(verdict, grades=grades, matrix=matrix, skipped=evidence.skipped)
