"""The steps of an audit: open, fingerprint, find candidates, verify, grade."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from visleak.devices import torch_device
from visleak.errors import UsageError, VisleakError
from visleak.formats.files import root_hint
from visleak.grading import Grader, load_grader
from visleak.grouping import Found, Sets
from visleak.pipeline import overlaps, recordings, segments
from visleak.pipeline.candidates import BEST, find_pairs, reference_similarities, side, views_for
from visleak.pipeline.comparison import Comparison, thresholds_of
from visleak.pipeline.context import RunContext
from visleak.pipeline.embeddings import read_embeddings
from visleak.pipeline.encoded_set import EncodedSet, ImagesLost, Side, reasons_of
from visleak.pipeline.fingerprints import fingerprint
from visleak.pipeline.local_features import depth_for, with_votes
from visleak.pipeline.rates import chance_of
from visleak.pipeline.recordings import recording_leak
from visleak.pipeline.remote import search_for
from visleak.pipeline.selection import dense
from visleak.pipeline.streaming import stream_pairs
from visleak.pipeline.verification import connect, verify_in_rounds
from visleak.pipeline.windows import with_windows
from visleak.records import AnySet, EmbeddingSet, Encoder, ImageSet, Int64, Pairs
from visleak.search import load_partition_search, load_search
from visleak.search.exact import ExactSearch
from visleak.search.hits import Account, Wanted
from visleak.settings import Settings
from visleak.storage.audit_folder import GroupingSummary, Thresholds

ATTEMPTS: Final = 4  # of a run that loses images
SAMPLE_SEED: Final = 0  # of the draw behind ``sample``


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run, from which the audit folder is written."""

    queries: tuple[Side, ...]  # in the order of the call
    references: tuple[Side, ...]
    comparisons: tuple[Comparison, ...]  # those within a query set last
    thresholds: Thresholds  # of degrees
    grader: Grader | None  # None if no pair was verified
    # of inexact searches, by the names of the sets compared
    accounts: Mapping[tuple[str, str], Sequence[Account]] = field(default_factory=dict)
    # groups that were inferred, by dataset; and their entry in audit.json
    found: Sequence[tuple[Sets, Sequence[Found]]] = ()
    grouping: GroupingSummary | None = None

    @property
    def sides(self) -> dict[str, Side]:
        """All sides by the name of their set, each once."""
        return {each.name: each for each in (*self.queries, *self.references)}


def run(
    queries: Sequence[AnySet],
    references: Sequence[AnySet],
    encoder: Encoder,
    settings: Settings,
    context: RunContext,
    thresholds: Thresholds | None = None,
) -> Outcome:
    """Compare every query set with every reference set, if there are any, and with itself.

    ``thresholds`` are those of degrees, by default as settings and encoder define them.

    Raises:
        UsageError: two sets of one name, or nothing to compare.
        VisleakError: a set without a readable image, or one whose images keep changing.
    """
    _check_sets(queries, references, settings)
    _check_search(settings, context)
    thresholds = thresholds or thresholds_of(encoder, settings)
    comparer = Comparer(encoder, views_for(encoder, settings.views), settings, context)
    tested = {images.name for images in queries}
    for images in (*queries, *references):
        streams = isinstance(images, EmbeddingSet) and images.name not in tested
        if images.name not in comparer.sides and not streams:
            comparer.add(images, tested=images.name in tested)
            _refuse_unreadable(comparer.sides[images.name])
    for _ in range(ATTEMPTS - 1):
        try:
            return _compared(queries, references, comparer, thresholds)
        except ImagesLost as lost:
            comparer.exclude(lost)
            _refuse_unreadable(comparer.sides[lost.name])
    return _compared(queries, references, comparer, thresholds)


def stages(
    queries: Sequence[AnySet], references: Sequence[AnySet], settings: Settings
) -> list[tuple[str, ...]]:
    """Return the stages of a run in their order: how the names of their steps begin."""
    names = dict.fromkeys(each.name for each in (*queries, *references))
    found: list[tuple[str, ...]] = [(f"reading {name}", f"streaming {name}") for name in names]
    found += [(f"comparing {a} with {b}",) for a, b in couples(queries, references, settings)]
    if settings.local and settings.candidates != "nearest":
        found.append(("local features of ", "windows of "))
    if settings.verify:
        checks = ("screening pairs", "checking pairs", "comparing fine detail")
        found.append(("decoding images of ", *checks))
    if settings.overlap is not None:
        found.append((overlaps.STEP,))
    if any(isinstance(each, ImageSet) and each.timed for each in (*queries, *references)):
        found.append((segments.STEP,))
    return found


def _compared(
    queries: Sequence[AnySet],
    references: Sequence[AnySet],
    comparer: Comparer,
    thresholds: Thresholds,
) -> Outcome:
    """Find candidates, add those of local features, verify, grade, and relate them to origins."""
    comparisons = comparer.candidates(queries, references, thresholds)
    verified = comparer.settings.verify and any(each.has_pixels for each in comparisons)
    grader = load_grader(near_at=comparer.settings.near_at) if verified else None
    comparer.add_local_candidates(comparisons, grader)
    comparer.grade(comparisons, grader)
    comparer.measure(comparisons)
    sides, groups, grouping = comparer.relate(comparisons)
    return Outcome(
        tuple(sides[images.name] for images in queries),
        tuple(sides[images.name] for images in references),
        tuple(comparisons),
        thresholds,
        grader,
        comparer.accounts,
        groups,
        grouping,
    )


@dataclass
class Comparer:
    """Encodes sets and compares them; the steps replace the comparisons of a list in place."""

    encoder: Encoder
    views: tuple[int, ...]  # that are compared
    settings: Settings
    context: RunContext
    sides: dict[str, Side] = field(default_factory=dict)  # the sets that were added, by name
    # of the searches, by the names of the sets compared
    accounts: dict[tuple[str, str], Sequence[Account]] = field(default_factory=dict)

    def add(self, images: AnySet, tested: bool) -> None:
        """Encode a set, or read its embeddings; of a tested one a random sample, if one is set."""
        drawn: Int64 | None = None
        if tested and 0 < self.settings.sample < len(images):
            rng = np.random.default_rng(SAMPLE_SEED)
            drawn = np.sort(rng.choice(len(images), self.settings.sample, replace=False))
        with self.context.timed("fingerprint"):
            if isinstance(images, EmbeddingSet):
                encoded = read_embeddings(images, self.encoder.digest, self.context, drawn)
            else:
                made = fingerprint(images, self.encoder, self.context, drawn)
                encoded = EncodedSet(images, made)
        self._add(encoded)

    def exclude(self, lost: ImagesLost) -> None:
        """Exclude images that cannot be read again, as unreadable ones."""
        self._add(self.sides[lost.name].without(lost.refused, self.context))
        # streamed embeddings were compared with the images that are excluded now
        for name in [name for name, each in self.sides.items() if each.streamed]:
            del self.sides[name]

    def _add(self, encoded: EncodedSet) -> None:
        with self.context.timed("background"):
            self.sides[encoded.name] = side(
                encoded, self.encoder, self.views, ExactSearch(), self.context.workers
            )

    def candidates(
        self, queries: Sequence[AnySet], references: Sequence[AnySet], thresholds: Thresholds
    ) -> list[Comparison]:
        """Return all comparisons with their candidates."""
        with self.context.timed("search"):
            found = self._streamed([each.name for each in queries], references, thresholds)
            rule, annotations = wanted(thresholds, self.settings), self.settings.annotations
            comparisons = []
            for names in couples(queries, references, self.settings):
                pairs = found[names] if names in found else self._found(names, rule)
                sides = self.sides[names[0]], self.sides[names[1]]
                comparisons.append(Comparison.of(*sides, pairs, thresholds, annotations))
            for images in references:
                _refuse_unreadable(self.sides[images.name])
        return comparisons

    def _streamed(
        self, queries: Sequence[str], references: Sequence[AnySet], thresholds: Thresholds
    ) -> dict[tuple[str, str], Pairs]:
        """Stream the embeddings of the training side; return the pairs by names."""
        found: dict[tuple[str, str], Pairs] = {}
        for images in references:
            if not isinstance(images, EmbeddingSet) or images.name in self.sides:
                continue
            engine = load_partition_search(
                self.settings.search, self.context.indexes, self.context.workers
            )
            self.sides[images.name], pairs = stream_pairs(
                [self.sides[name] for name in queries],
                images,
                self.encoder,
                self.views,
                wanted_of_stream(thresholds, self.settings),
                self.context,
                engine,
            )
            if engine is not None:
                self.accounts[", ".join(queries), images.name] = (engine.account,)
            found |= {(each.query_set, each.reference_set): each for each in pairs}
        return found

    def _found(self, names: tuple[str, str], rule: Wanted) -> Pairs:
        query, reference = (self.sides[name] for name in names)
        step, total = f"comparing {names[0]} with {names[1]}", len(reference.fingerprints)
        progress = self.context.progress
        progress(step, 0, total)
        search, workers = self.settings.search, self.context.workers
        engine = search_for(search, self.context, lambda done: progress(step, done, total))
        pairs = find_pairs(query, reference, self.encoder, self.views, rule, engine, workers)
        self.accounts[names] = tuple(engine.accounts)
        # copies were searched once, so fewer references than all may have been reported
        progress(step, total, total)
        return pairs

    def add_local_candidates(self, comparisons: list[Comparison], grader: Grader | None) -> None:
        """Add the pairs that share local features, or windows of small images."""
        verifiable = [each for each in comparisons if each.has_pixels]
        if grader is not None:
            verifiable = self._with_clusters(verifiable, grader)
        if self.settings.local and self.settings.candidates != "nearest":
            with self.context.timed("local"):
                voted = with_votes(verifiable, self.encoder, self.context, depth_for(self.settings))
                workers, progress = self.context.workers, self.context.progress
                verifiable = [with_windows(each, self.encoder, workers, progress) for each in voted]
        _put(comparisons, verifiable)

    def _with_clusters(self, verifiable: list[Comparison], grader: Grader) -> list[Comparison]:
        """Verify the pairs that connect dense clusters of similar images."""
        pairs = [each.pairs.only(dense(each.pairs)) for each in verifiable]
        if not any(map(len, pairs)):
            return verifiable
        with self.context.timed("crowds"):
            clusters = connect(self._measured(pairs), self.sides, self.context, grader)
        return [replace(c, clusters=own) for c, own in zip(verifiable, clusters, strict=True)]

    def grade(self, comparisons: list[Comparison], grader: Grader | None) -> None:
        """Verify and grade the pairs of images."""
        if grader is not None:
            with self.context.timed("verify"):
                self._verify(comparisons, grader)
        if self.settings.overlap is None:
            # the workers have no more tasks
            self.context.executor.release()
        with self.context.timed("grade"):
            # one after the other, which frees the evidence on each
            for place in range(len(comparisons)):
                comparisons[place] = comparisons[place].graded(grader)

    def _verify(self, comparisons: list[Comparison], grader: Grader) -> None:
        verifiable = [each for each in comparisons if each.has_pixels]
        measured = self._measured([each.pairs for each in verifiable])
        clusters = [each.clusters for each in verifiable]
        evidence = verify_in_rounds(measured, self.sides, self.context, grader, clusters)
        columns = zip(verifiable, measured, evidence, strict=True)
        _put(comparisons, [replace(c, measured=pairs, evidence=own) for c, pairs, own in columns])

    def _measured(self, pairs: Sequence[Pairs]) -> list[Pairs]:
        """Return pairs with the similarities of the built-in fingerprint."""
        views = self.settings.views
        return reference_similarities(pairs, self.sides, self.encoder, views, self.context)

    def measure(self, comparisons: list[Comparison]) -> None:
        """Measure overlaps, and how many pairs reach the thresholds by chance."""
        if self.settings.overlap is not None:
            with self.context.timed("overlap"):
                comparisons[:] = overlaps.with_overlaps(comparisons, self.context)
        with self.context.timed("chance"):
            about = self.encoder, self.views, self.context.workers
            comparisons[:] = [replace(each, chance=chance_of(each, *about)) for each in comparisons]

    def relate(
        self, comparisons: list[Comparison]
    ) -> tuple[dict[str, Side], list[tuple[Sets, list[Found]]], GroupingSummary | None]:
        """Relate pairs to groups and times; return the sides, and the groups that were inferred."""
        sides, used = self.sides, recordings.wanted(self.sides)
        with self.context.timed("groups"):
            groups = recordings.groups_of(sides, [each.names for each in comparisons], self.encoder)
        grouping = recordings.summary_of(groups, used=used)
        if used:
            sides = recordings.with_groups(sides, groups)
        settings = recordings.bounded(self.settings, grouping)
        with self.context.timed("segments"):
            for place, each in enumerate(comparisons):
                query, reference = (sides[name] for name in each.names)
                made = replace(each, query=query, reference=reference)
                comparisons[place] = replace(
                    made,
                    recordings=recording_leak(made, settings),
                    segments=segments.segments_of(made, self.encoder, self.context.progress),
                )
        return sides, groups, grouping


def _put(comparisons: list[Comparison], changed: Sequence[Comparison]) -> None:
    """Put comparisons in the place of those of the same sets."""
    by_names = {each.names: each for each in changed}
    comparisons[:] = [by_names.get(each.names, each) for each in comparisons]


def couples(
    queries: Sequence[AnySet], references: Sequence[AnySet], settings: Settings
) -> list[tuple[str, str]]:
    """Return the names of the sets of each comparison."""
    across = [(q.name, r.name) for q in queries for r in references if q.name != r.name]
    within = settings.within and not settings.sample
    return across + [(q.name, q.name) for q in queries if within]


def wanted(thresholds: Thresholds, settings: Settings) -> Wanted:
    """Return which candidates are searched."""
    if settings.candidates == "nearest":
        return Wanted(None, best=1, cap=settings.per_query)
    return Wanted(thresholds.soft, best=BEST, cap=settings.per_query)


def wanted_of_stream(thresholds: Thresholds, settings: Settings) -> Wanted:
    """Return which candidates are searched in streamed embeddings: by threshold, if there is one.

    A threshold rejects nearly all vectors at once; for the best of each query, every vector would
    have to be compared in full.
    """
    if settings.candidates == "auto" and thresholds.soft is not None:
        return Wanted(thresholds.soft, best=0, cap=settings.per_query)
    return wanted(thresholds, settings)


# -- checks --------------------------------------------------------------------------------------


def _check_sets(
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


def _refuse_unreadable(encoded: EncodedSet) -> None:
    """Refuse a set without a readable image, because a rate of it has no meaning."""
    problems = (*encoded.images.problems, *encoded.fingerprints.problems)
    if problems and not encoded.readable_count:
        source = encoded.images.source or "in memory"
        advice = "correct the source, or leave it out"
        if all(problem.reason == "missing" for problem in problems):
            hint = root_hint(encoded.images) if isinstance(encoded.images, ImageSet) else ""
            advice = f"did you mean {hint}?" if hint else advice
        raise VisleakError(
            f"set {encoded.name!r} ({source}): none of its {len(problems):,} images could be read"
            f" {reasons_of(problems)}; {advice}"
        )


def _check_search(settings: Settings, context: RunContext) -> None:
    """Refuse a search that is not available before any work is done."""
    load_search(settings.search)
    if context.executor.local:
        torch_device(context.device)
    elif settings.search != ExactSearch.name:
        raise UsageError(
            f"search {settings.search} works on this machine only: leave out --engine, or take"
            " --search exact"
        )
