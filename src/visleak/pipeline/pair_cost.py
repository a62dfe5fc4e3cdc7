"""The cost of comparing and verifying pairs, timed on a sample of the actual images and pairs.

Search is timed on vectors of the encoder's width. Candidates are counted in a sample of the
images and scaled to all; local features, screening and verification are timed on a few of these
candidates. Processor time is counted instead of wall time, so that other programs on the machine do
not change the estimate.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from visleak.pipeline.candidates import BEST, COHORT_BEST, find_pairs, views_for
from visleak.pipeline.context import RunContext
from visleak.pipeline.encoded_set import Side
from visleak.pipeline.local_features import add_votes, applies, extract
from visleak.pipeline.reference_similarity import reference_similarities
from visleak.pipeline.run import Comparer, wanted, wanted_of_stream
from visleak.pipeline.thresholds import Thresholds
from visleak.pipeline.verification import verify
from visleak.records import Bool, Encoder, ImageSet, Int64, Pairs
from visleak.search.exact import ExactSearch
from visleak.search.hits import Sides, Wanted
from visleak.settings import Settings
from visleak.vectors import unit_rows

#: Rows of the two matrices for timing the search.
QUERIES: Final = 256
REFERENCES: Final = 2048
#: Candidate pairs drawn of all comparisons together: few if local features are extracted, which
#: takes longest.
PAIRS: Final = 24
TINY_PAIRS: Final = 600
#: Seconds after which no more pairs are verified, for all comparisons together.
PATIENCE: Final = 4.0
#: Share of the best references of a set's images that remains when each pair is listed once.
UNORDERED: Final = 0.7
#: Seed of the draw of pairs.
SEED: Final = 0


@dataclass(frozen=True, slots=True)
class Sampled:
    """Some images of a set that were read already."""

    images: ImageSet | None  # the sample, of the set's name; None of embeddings
    count: int  # images of the set in the audit
    streamed: bool = False  # embeddings of the training side


@dataclass(slots=True)
class PairCost:
    """Seconds of the steps after fingerprinting in one process, and the pairs they work on."""

    search: float = 0.0  # to compare fingerprints, with those of the cohort too
    local: float = 0.0  # to extract and compare local features
    screening: float = 0.0  # of all candidates
    verification: float = 0.0  # of the candidates that the screening keeps, decoding included
    candidates: float = 0.0  # expected number of pairs to screen
    verified: float = 0.0  # expected number of pairs to verify in full
    timed: int = 0  # pairs on which screening and verification were timed


def pair_cost(
    sets: Mapping[str, Sampled],
    couples: Sequence[tuple[str, str]],
    encoder: Encoder,
    settings: Settings,
    thresholds: Thresholds,
) -> PairCost:
    """Return the cost of the comparisons of some sets in one process."""
    found = PairCost()
    clock = _Clock()
    with RunContext.at(None, 1, None, clock) as context:
        comparer = Comparer(encoder, views_for(encoder, settings.views), settings, context)
        for each in sets.values():
            if each.images is not None and len(each.images):
                comparer.add(each.images, tested=False)
        if encoder.cohort is not None:
            pace = _pace(comparer, Wanted(None, best=COHORT_BEST))
            found.search += pace * len(encoder.cohort) * sum(s.count for s in sets.values())
        for query, reference in couples:
            rule = (wanted_of_stream if sets[reference].streamed else wanted)(thresholds, settings)
            found.search += _pace(comparer, rule) * sets[query].count * sets[reference].count
        seen = [
            c
            for c in couples
            if all(n in comparer.sides and len(comparer.sides[n].fingerprints) for n in c)
        ]
        per_image: dict[str, tuple[float, float]] = {}
        for couple in seen:
            trial = _Trial.of(comparer, couple, sets, thresholds, clock, len(seen))
            trial.add_to(found, per_image)
        found.local += sum(seconds * sets[n].count for n, (seconds, _) in per_image.items())
        found.verification += sum(seconds * sets[n].count for n, (_, seconds) in per_image.items())
    return found


def _pace(comparer: Comparer, rule: Wanted) -> float:
    """Return the seconds in which the search compares a query with a reference."""
    rng = np.random.default_rng(SEED)
    width, encoder = comparer.encoder.width, comparer.encoder
    query, reference = (
        unit_rows(rng.standard_normal((rows, width))).matrix for rows in (QUERIES, REFERENCES)
    )
    make = encoder.view if len(comparer.views) > 1 else None
    zeros, order = np.zeros(REFERENCES, np.float32), np.arange(REFERENCES)
    start = time.process_time()
    ExactSearch().find(Sides(query, reference, zeros, order, views=comparer.views, make=make), rule)
    return (time.process_time() - start) / (QUERIES * REFERENCES)


@dataclass
class _Clock:
    """Seconds by step, from what is reported while the steps run."""

    seconds: dict[str, float] = field(default_factory=dict)
    last: float = 0.0

    def __call__(self, step: str, done: int, total: int) -> None:
        now = time.process_time()
        self.seconds[step] = self.seconds.get(step, 0.0) + now - self.last
        self.last = now

    def start(self) -> None:
        self.seconds.clear()
        self.last = time.process_time()


@dataclass(frozen=True, slots=True)
class _Part:
    """Some images of a sample, and their rows in the sample."""

    rows: Int64
    side: Side

    @classmethod
    def of(cls, whole: Side, rows: Int64) -> _Part:
        made = whole.fingerprints
        some = replace(
            made,
            **{name: getattr(made, name)[rows] for name in ("rows", "matrix", "digests")},
            **{name: getattr(made, name)[rows] for name in ("sizes", "flat")},
            ids=made.ids.take(pa.array(rows)),
        )
        order = np.argsort(np.argsort(whole.order[rows]))
        return cls(rows, Side(whole.images, some, whole.background[rows], order))


@dataclass
class _Trial:
    """A comparison of two samples: its candidates, and a few of them for timing."""

    comparer: Comparer  # of the samples
    sets: tuple[Sampled, Sampled]  # the samples of the query and the reference set
    candidates: float  # expected pairs by similarity in the whole comparison
    listed: Int64  # all candidates by similarity of the samples, as numbers
    drawn: Pairs  # some of these pairs, as rows of parts
    parts: tuple[_Part, _Part]  # the images of these pairs; one object twice within a set
    clock: _Clock  # of the comparer's context
    patience: float  # seconds to spend on verification

    @classmethod
    def of(
        cls,
        comparer: Comparer,
        couple: tuple[str, str],
        sets: Mapping[str, Sampled],
        thresholds: Thresholds,
        clock: _Clock,
        comparisons: int,
    ) -> _Trial:
        sides = comparer.sides[couple[0]], comparer.sides[couple[1]]
        own = sets[couple[0]], sets[couple[1]]
        rule = wanted(thresholds, comparer.settings)
        share = min(1.0, len(sides[1].fingerprints) / own[1].count)
        pairs = find_pairs(
            *sides,
            encoder=comparer.encoder,
            views=comparer.views,
            wanted=replace(rule, best=max(1, round(rule.best * share))),
            engine=ExactSearch(),
        )
        # the best references of a large set are more similar than those of a sample: the pairs of
        # the same quantile stand in for them
        ranked = np.argsort(pairs.background - pairs.similarity, kind="stable")
        if rule.best * share < 1.0:
            ranked = ranked[: max(8, round(len(sides[0].fingerprints) * rule.best * share))]
        most = PAIRS if _local_applies(comparer, sides) else TINY_PAIRS
        count = min(len(ranked), max(4, most // comparisons))
        rows = np.sort(np.random.default_rng(SEED).choice(ranked, count, replace=False))
        return cls(
            comparer,
            own,
            _expected(pairs, own, rule, same=couple[0] == couple[1], share=share),
            pairs.query * len(sides[1].fingerprints) + pairs.reference,
            *_taken(pairs, rows, sides),
            clock,
            PATIENCE / comparisons,
        )

    def add_to(self, found: PairCost, per_image: dict[str, tuple[float, float]]) -> None:
        """Add what the comparison costs; ``per_image`` is for local features and for decoding."""
        settings, names = self.comparer.settings, (self.drawn.query_set, self.drawn.reference_set)
        voted = self.drawn
        if _local_applies(self.comparer, (self.parts[0].side, self.parts[1].side)):
            voted, seconds = self._voted(per_image)
            found.local += seconds * self.sets[0].count
        drawn = np.isin(self._numbers(voted), self._numbers(self.drawn))
        new = ~np.isin(self._numbers(voted), self.listed)
        alone = self._expected_votes(int(new.sum()))
        if not settings.verify:
            return
        for chosen, expected in ((drawn, self.candidates), (new, alone)):
            done = self._verified(voted, np.flatnonzero(chosen))
            if not done.pairs:
                continue
            found.timed += done.pairs
            found.candidates += expected
            found.verified += expected * done.kept / done.pairs
            found.screening += expected * done.screening / done.pairs
            found.verification += expected * done.checking / done.pairs
            for name in names:
                local = per_image.get(name, (0.0, 0.0))[0]
                per_image[name] = (local, done.decoding / max(1, done.images))

    def _voted(self, per_image: dict[str, tuple[float, float]]) -> tuple[Pairs, float]:
        """Return the drawn pairs with those that share features, and the seconds per query."""
        context, patches = self.comparer.context, {}
        names = self.drawn.query_set, self.drawn.reference_set
        for name, part in dict(zip(names, self.parts, strict=True)).items():
            start = time.process_time()
            patches[name] = extract(part.side, context)
            spent = (time.process_time() - start) / len(part.rows)
            per_image[name] = (spent, per_image.get(name, (0.0, 0.0))[1])
        start = time.process_time()
        sides = self.parts[0].side, self.parts[1].side
        both = patches[names[0]], patches[names[1]]
        voted = add_votes(self.drawn, sides, both, self.comparer.encoder, 1)
        return voted, (time.process_time() - start) / len(self.parts[0].rows)

    def _expected_votes(self, found: int) -> float:
        """Return how many pairs only local features will find in the whole comparison.

        A patch that many references share weighs less, so the pairs of a query grow with the
        square root of the references only (X-rays: 3.6 with 32 images, 7.2 with 128).
        """
        queries, references = (len(part.rows) for part in self.parts)
        most = BEST * (UNORDERED if self.parts[0] is self.parts[1] else 1.0)
        growth = math.sqrt(self.sets[1].count / max(1, references))
        return min(found / max(1, queries) * growth, most) * self.sets[0].count

    def _numbers(self, pairs: Pairs) -> Int64:
        """Return pairs of the parts as numbers, each of its own among the pairs of the samples."""
        query, reference = self.parts[0].rows[pairs.query], self.parts[1].rows[pairs.reference]
        return np.asarray(
            query * len(self.comparer.sides[pairs.reference_set].fingerprints) + reference
        )

    def _verified(self, pairs: Pairs, rows: Int64) -> _Timing:
        """Verify some pairs, in blocks that grow while there is time."""
        names = pairs.query_set, pairs.reference_set
        sides = {name: part.side for name, part in zip(names, self.parts, strict=True)}
        comparer, timing, begin, block = self.comparer, _Timing(), time.process_time(), 8
        while timing.pairs < len(rows) and time.process_time() - begin < self.patience / 2:
            part = rows[timing.pairs : timing.pairs + block]
            some = _some(pairs, part)
            images = sum(len(np.unique(side)) for side in (some.query, some.reference))
            start = time.process_time()
            measured = reference_similarities(
                [some], sides, comparer.encoder, comparer.settings.views, comparer.context
            )
            spent = time.process_time() - start
            self.clock.start()
            (evidence,) = verify(measured, sides, comparer.context)
            timing.add(self.clock.seconds, images, ~np.isnan(evidence.checks["side"]), spent)
            block *= 4
        return timing


@dataclass
class _Timing:
    """What screening and verification of some pairs took: pairs, images, seconds by step."""

    pairs: int = 0
    kept: int = 0
    images: int = 0
    decoding: float = 0.0
    screening: float = 0.0
    checking: float = 0.0

    def add(self, seconds: Mapping[str, float], images: int, kept: Bool, measuring: float) -> None:
        self.pairs += len(kept)
        self.kept += int(kept.sum())
        self.images += images
        self.decoding += measuring
        for step, spent in seconds.items():
            if step.startswith("decoding"):
                self.decoding += spent
            elif step.startswith("screening"):
                self.screening += spent
            else:
                self.checking += spent


def _local_applies(comparer: Comparer, sides: tuple[Side, Side]) -> bool:
    return comparer.settings.local and comparer.settings.candidates != "nearest" and applies(*sides)


def _expected(
    pairs: Pairs, sets: tuple[Sampled, Sampled], rule: Wanted, *, same: bool, share: float
) -> float:
    """Return how many candidates by similarity a whole comparison has."""
    if share == 1.0 and len(pairs.total) == sets[0].count:
        return float(len(pairs))
    reached = np.minimum(pairs.total / share, rule.cap) * (0.5 if same else 1.0)
    best = min(rule.best, sets[1].count) * (UNORDERED if same else 1.0)
    return float(np.maximum(reached, best).mean()) * sets[0].count


def _taken(
    pairs: Pairs, rows: Int64, sides: tuple[Side, Side]
) -> tuple[Pairs, tuple[_Part, _Part]]:
    """Return some pairs with the images that are in them, and only these."""
    query, reference = pairs.query[rows], pairs.reference[rows]
    if sides[0] is sides[1]:
        both = _Part.of(sides[0], np.unique([query, reference]))
        parts = both, both
    else:
        parts = _Part.of(sides[0], np.unique(query)), _Part.of(sides[1], np.unique(reference))
    left = np.searchsorted(parts[0].rows, query)
    right = np.searchsorted(parts[1].rows, reference)
    some = replace(
        _some(pairs, rows),
        query=left,
        reference=right,
        total=np.zeros(len(parts[0].rows), np.int64),
    )
    return some, parts


def _some(pairs: Pairs, rows: Int64) -> Pairs:
    names = ("query", "reference", "similarity", "background", "view")
    votes = None if pairs.votes is None else pairs.votes[rows]
    return replace(pairs, **{name: getattr(pairs, name)[rows] for name in names}, votes=votes)
