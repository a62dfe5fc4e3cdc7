"""The cost of an audit before it starts: images, bytes, time by step, disk."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from visleak.encoders.builtin import flat
from visleak.encoders.local import MOST
from visleak.formats.files import chosen
from visleak.images import content_digest, decode
from visleak.pipeline.batches import forwarded
from visleak.pipeline.candidates import (
    BEST,
    COHORT_BEST,
    find_pairs,
    reference_similarities,
    views_for,
)
from visleak.pipeline.comparison import thresholds_of
from visleak.pipeline.context import RunContext
from visleak.pipeline.encoded_set import Side, files_of, maker
from visleak.pipeline.local_features import add_votes, applies, depth_for, extract
from visleak.pipeline.run import Comparer, couples, wanted, wanted_of_stream
from visleak.pipeline.selection import STEP, sizes_for
from visleak.pipeline.verification import verify
from visleak.quantities import counted, duration, size
from visleak.records import (
    AnySet,
    Bool,
    Bytes8,
    DecodedImage,
    Encoder,
    ImageSet,
    Int64,
    Pairs,
    Unreadable,
)
from visleak.search.exact import ExactSearch
from visleak.search.hits import Sides, Wanted
from visleak.settings import Settings
from visleak.storage.audit_folder import Thresholds
from visleak.storage.cache import Cache
from visleak.vectors import unit_rows

TIMED: Final = 256  # images of a set that are read and encoded for timing
PATIENCE: Final = 2.0  # seconds after which no more are
MEASURED: Final = 2_000  # files of a set whose size is read; of more, a sample is extrapolated
FEATURE_BYTES: Final = 128 + 16  # of one local feature: descriptor and keypoint
STEPS: Final = ("search", "local", "screening", "verification")  # after the fingerprints
ENTRY_BYTES: Final = 100  # of a cache entry beside its value: keys, facts, pages not full
#: Rows of the two matrices for timing the search.
QUERIES: Final = 256
REFERENCES: Final = 2048
#: Candidate pairs drawn of all comparisons together: few if local features are extracted, which
#: takes longest.
PAIRS: Final = 24
TINY_PAIRS: Final = 600
PAIR_PATIENCE: Final = 4.0  # seconds after which no more pairs are verified, in all comparisons
#: Share of the best references of a set's images that remains when each pair is listed once.
UNORDERED: Final = 0.7
#: First words of the steps of a verification; seconds of others, as of decoding for the checks,
#: count as checks.
STEP_WORDS: Final = ("decoding", "screening", "checking", "comparing")
SEED: Final = 0  # of the draw of pairs


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of an audit. All times and numbers of pairs are estimates from a sample."""

    images: int  # to read
    embeddings: int  # vectors made elsewhere, to read
    bytes: int | None  # of the images' files; None where they are not known, as in a stream
    seconds: float | None  # of all steps together. None if no tried image could be read
    # seconds by step: fingerprint (to read, decode and encode the images, less what the cache
    # holds), search, local, screening, verification
    steps: Mapping[str, float]
    candidates: int  # pairs to screen
    verified: int  # pairs to verify: the best that pass the screen
    timed: int  # images that were timed
    timed_pairs: int  # pairs that were timed
    processes: int  # of the run
    scratch: int  # bytes in the output folder during the run, at least
    cache: int  # bytes added to the cache, at most

    def as_dict(self) -> dict[str, object]:
        """Return plain values."""
        return asdict(self)


def cost_of(
    queries: Sequence[AnySet],
    references: Sequence[AnySet],
    encoder: Encoder,
    settings: Settings,
    processes: int,
    cache: Cache | None,
    thresholds: Thresholds | None = None,
) -> Cost:
    """Return the cost of an audit, estimated from a sample of its images and of their pairs."""
    sets = {images.name: images for images in (*references, *queries)}
    tested = {images.name for images in queries}
    counts = {name: len(images) for name, images in sets.items()}
    counts |= {n: min(settings.sample, counts[n]) for n in tested if settings.sample}
    read = [images for images in sets.values() if isinstance(images, ImageSet)]
    count = sum(counts[images.name] for images in read)
    stored = [_bytes_of(images, counts[images.name]) for images in read]
    seconds, timed = 0.0, 0
    samples = {name: _Sampled(None, n, streamed=name not in tested) for name, n in counts.items()}
    for images in read:
        sample = _timed(images, encoder, cache)
        timed += sample.images
        seconds += counts[images.name] * sample.each(processes)
        samples[images.name] = _Sampled(sample.as_set(images), counts[images.name])
    limits = thresholds or thresholds_of(encoder, settings)
    names = couples(queries, references, settings)
    pairs = _pair_cost(samples, names, encoder, replace(settings, sample=0), limits)
    steps = {"fingerprint": seconds, **{name: getattr(pairs, name) / processes for name in STEPS}}
    features = 0
    if settings.local and settings.candidates != "nearest":
        most = depth_for(settings).references
        features = sum(n for n in counts.values() if n <= most) * MOST * FEATURE_BYTES
    vectors = count * encoder.width * 4
    return Cost(
        images=count,
        embeddings=sum(counts.values()) - count,
        bytes=None if None in stored else sum(each or 0 for each in stored),
        seconds=sum(steps.values()) if timed else None,
        steps=steps,
        candidates=round(pairs.candidates),
        verified=round(pairs.verified),
        timed=timed,
        timed_pairs=pairs.timed,
        processes=processes,
        scratch=vectors + features,
        cache=0 if cache is None else vectors + features + 2 * count * ENTRY_BYTES,
    )


@dataclass(frozen=True, slots=True)
class _ReadOpener:
    stored: Mapping[int, bytes | Bytes8]  # what was read already

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        yield from (self.stored[int(position)] for position in positions)


@dataclass(slots=True)
class _Timing:
    """Some images and their seconds: to read, to prepare, to encode in one process."""

    images: int = 0
    stored: dict[int, bytes | Bytes8] = field(default_factory=dict)
    read: float = 0.0
    prepare: float = 0.0
    network: float = 0.0

    def as_set(self, images: ImageSet) -> ImageSet:
        """Return images from all over the set, as many as can be encoded in a few seconds."""
        most = max(8, int(PATIENCE / max(self.each(1), 1e-6)))
        positions = np.array(sorted(self.stored), np.int64)
        if len(positions) > most:
            positions = positions[np.linspace(0, len(positions) - 1, most).astype(np.int64)]
        return chosen(replace(images, opener=_ReadOpener(self.stored)), positions, images.name)

    def each(self, processes: int) -> float:
        """Return the seconds per image with a number of processes."""
        spread, alone = (self.read + self.prepare) / processes, self.network
        # a network computes one batch while the next ones are prepared
        whole = max(spread, alone) if processes > 1 else spread + alone
        return whole / max(1, self.images)


def _timed(images: ImageSet, encoder: Encoder, cache: Cache | None) -> _Timing:
    """Time some images; those in the cache are only read."""
    found = _Timing()
    fresh: list[DecodedImage] = []
    began = last = time.perf_counter()
    positions = _chosen(images)
    for position, data in zip(positions, images.opener.read(positions), strict=False):
        if not isinstance(data, Unreadable):
            digest = content_digest(data)
            known = cache is not None and digest in cache.get(maker(encoder), [digest])
            now = time.perf_counter()
            found.images += 1
            found.stored[position] = data
            found.read += now - last
            image = None if known else decode(data, enough=encoder.enough)
            found.prepare += time.perf_counter() - now
            if isinstance(image, DecodedImage):
                fresh.append(image)
        last = time.perf_counter()
        if last - began > PATIENCE:
            break
    if fresh:
        _encode(encoder, fresh, found)
    return found


def _encode(encoder: Any, images: Sequence[DecodedImage], found: _Timing) -> None:
    start = time.perf_counter()
    if not hasattr(encoder, "forward"):
        encoder.encode(images)
        found.prepare += time.perf_counter() - start
        return
    prepared = [encoder.preparation(image) for image in images]
    flat(images)
    found.prepare += time.perf_counter() - start
    # the first call of a network is slower than all others
    forwarded(encoder, prepared[:1])
    start, done = time.perf_counter(), 0
    while done < len(prepared) and time.perf_counter() - start <= PATIENCE:
        batch = prepared[done : done + encoder.batch]
        forwarded(encoder, batch)
        done += len(batch)
    found.network += (time.perf_counter() - start) * len(prepared) / done


def _chosen(images: ImageSet) -> list[int]:
    """Return the positions to time: spread over a set of files, otherwise the first ones.

    Reading an image in a stream includes reading all images before it.
    """
    count = min(TIMED, len(images))
    if len(files_of(images)) < len(images):
        return list(range(count))
    return sorted({int(at) for at in np.linspace(0, len(images) - 1, count)})


def _bytes_of(images: ImageSet, count: int) -> int | None:
    """Return the bytes of some images, by a sample of files; ``None`` unless they are local."""
    files = files_of(images)
    sizes = []
    for file in files[:: max(1, len(files) // MEASURED)].to_pylist():
        with contextlib.suppress(OSError, ValueError):
            sizes.append(os.stat(file).st_size)
    if not sizes:
        return None
    return round(round(sum(sizes) * len(files) / len(sizes)) * count / max(1, len(images)))


#: Steps of an audit in words.
STEP_NAMES: Final = {
    "fingerprint": "reading and encoding",
    "search": "search",
    "local": "local features",
    "screening": "screening of {candidates:,} pairs",
    "verification": "verification of {verified:,} pairs",
}


def describe(cost: Cost) -> str:
    """Return a cost as one line."""
    parts = [f"{cost.images:,} images"]
    if cost.bytes is not None:
        parts[0] += f" ({size(cost.bytes)})"
    if cost.embeddings:
        parts.append(f"{cost.embeddings:,} embeddings")
    if cost.seconds is not None and cost.images:
        processes = counted(cost.processes, "process")
        steps = ", ".join(
            f"{duration(seconds)} {STEP_NAMES[name].format(**cost.as_dict())}"
            for name, seconds in cost.steps.items()
        )
        parts.append(
            f"about {duration(max(1.0, cost.seconds))} with {processes}: {steps} (estimated from"
            f" {cost.timed:,} images and {cost.timed_pairs:,} pairs)"
        )
    disk = f"at least {size(cost.scratch)} of scratch"
    if cost.cache:
        disk += f", up to {size(cost.cache)} of cache"
    return "; ".join([*parts, disk])


# -- search and verification of a sample of pairs -------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sampled:
    """Some images of a set that were read already."""

    images: ImageSet | None  # the sample, of the set's name; None of embeddings
    count: int  # images of the set in the audit
    streamed: bool = False  # embeddings of the training side


@dataclass(slots=True)
class _PairCost:
    """Seconds of the steps after fingerprinting in one process, and the pairs they work on."""

    search: float = 0.0  # to compare fingerprints, with those of the cohort too
    local: float = 0.0  # to extract and compare local features
    screening: float = 0.0  # of all candidates
    verification: float = 0.0  # of the best that the screening keeps, decoding included
    candidates: float = 0.0  # expected number of pairs to screen
    verified: float = 0.0  # expected number of pairs to verify
    timed: int = 0  # pairs on which screening and verification were timed
    # by set, seconds per image to extract local features, and to decode it for verification
    extraction: dict[str, float] = field(default_factory=dict)
    decoding: dict[str, float] = field(default_factory=dict)


def _pair_cost(
    sets: Mapping[str, _Sampled],
    couples: Sequence[tuple[str, str]],
    encoder: Encoder,
    settings: Settings,
    thresholds: Thresholds,
) -> _PairCost:
    found, clock = _PairCost(), _Clock()
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
        for couple in seen:
            _Trial.of(comparer, couple, sets, thresholds, clock, len(seen)).add_to(found)
        found.local += sum(each * sets[name].count for name, each in found.extraction.items())
        found.verification += sum(each * sets[name].count for name, each in found.decoding.items())
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


@dataclass
class _Trial:
    """A comparison of two samples: its candidates, and a few of them for timing."""

    comparer: Comparer  # of the samples
    sides: tuple[Side, Side]  # the samples; one object twice within a set
    sets: tuple[_Sampled, _Sampled]
    candidates: float  # expected pairs by similarity in the whole comparison
    listed: Pairs  # all candidates by similarity of the samples
    drawn: Pairs  # some of these
    clock: _Clock  # of the comparer's context
    patience: float  # seconds to spend on verification

    @classmethod
    def of(
        cls,
        comparer: Comparer,
        couple: tuple[str, str],
        sets: Mapping[str, _Sampled],
        thresholds: Thresholds,
        clock: _Clock,
        comparisons: int,
    ) -> _Trial:
        sides = comparer.sides[couple[0]], comparer.sides[couple[1]]
        own = sets[couple[0]], sets[couple[1]]
        rule = wanted(thresholds, comparer.settings)
        share = min(1.0, len(sides[1].fingerprints) / own[1].count)
        some = replace(rule, best=max(1, round(rule.best * share)))
        pairs = find_pairs(*sides, comparer.encoder, comparer.views, some, ExactSearch())
        # the best references of a large set are more similar than those of a sample: the pairs of
        # the same quantile represent them
        ranked = np.argsort(pairs.background - pairs.similarity, kind="stable")
        if rule.best * share < 1.0:
            ranked = ranked[: max(8, round(len(sides[0].fingerprints) * rule.best * share))]
        most = PAIRS if _has_local(comparer, sides) else TINY_PAIRS
        count = min(len(ranked), max(4, most // comparisons))
        rows = np.sort(np.random.default_rng(SEED).choice(ranked, count, replace=False))
        expected = float(len(pairs))
        if share < 1.0 or len(pairs.total) < own[0].count:
            once, unordered = (0.5, UNORDERED) if couple[0] == couple[1] else (1.0, 1.0)
            reached = np.minimum(pairs.total / share, rule.cap) * once
            best = min(rule.best, own[1].count) * unordered
            expected = float(np.maximum(reached, best).mean()) * own[0].count
        patience = PAIR_PATIENCE / comparisons
        return cls(comparer, sides, own, expected, pairs, pairs.only(rows), clock, patience)

    def add_to(self, found: _PairCost) -> None:
        """Add what the comparison costs."""
        comparer, pairs = self.comparer, self.drawn
        if _has_local(comparer, self.sides):
            pairs, seconds = self._voted(found.extraction)
            found.local += seconds * self.sets[0].count
        if not comparer.settings.verify:
            return
        numbers, chosen, listed = (
            each.query * len(self.sides[1].fingerprints) + each.reference
            for each in (pairs, self.drawn, self.listed)
        )
        drawn, new = np.isin(numbers, chosen), ~np.isin(numbers, listed)
        alone, total = self._expected_votes(int(new.sum())), defaultdict[str, float](float)
        for kept, expected in ((drawn, self.candidates), (new, alone)):
            done = self._verified(pairs, np.flatnonzero(kept))
            if not done["pairs"]:
                continue
            each = expected / done["pairs"]
            found.timed += int(done["pairs"])
            found.candidates += expected
            found.screening += each * done["screening"]
            for name in ("checked", "checking", "compared", "comparing"):
                total[name] += each * done[name]
            image = done["decoding"] / max(1, done["images"])
            found.decoding |= dict.fromkeys((side.name for side in self.sides), image)
        # the best candidates of an image are checked, and the best of these compared: the first
        # round, which is the last one of an image without near pairs
        checked = min(total["checked"], self._best(sizes_for(self.listed)[0]))
        share = checked / (total["checked"] or 1.0)
        compared = min(share * total["compared"], self._best(sum(STEP)))
        found.verified += checked
        found.verification += share * total["checking"]
        found.verification += compared / (total["compared"] or 1.0) * total["comparing"]

    def _best(self, candidates: int) -> float:
        """Return the number of pairs that are among so many best ones of their images."""
        once = UNORDERED if self.sides[0] is self.sides[1] else 1.0
        return candidates * once * self.sets[0].count

    @cached_property
    def _images(self) -> tuple[Bool, Bool]:
        """Which images of either sample are in a drawn pair."""
        query, reference = (np.zeros(len(side.fingerprints), np.bool_) for side in self.sides)
        query[self.drawn.query] = reference[self.drawn.reference] = True
        if self.sides[0] is self.sides[1]:
            query = reference = query | reference
        return query, reference

    def _voted(self, extraction: dict[str, float]) -> tuple[Pairs, float]:
        """Return the drawn pairs with those that share features, and the seconds per query."""
        comparer, patches = self.comparer, {}
        depth = depth_for(comparer.settings)
        for side, own in zip(self.sides, self._images, strict=True):
            if side.name not in patches:
                start = time.process_time()
                patches[side.name] = extract(side, comparer.context, own, depth)
                extraction[side.name] = (time.process_time() - start) / max(1, int(own.sum()))
        both = patches[self.sides[0].name], patches[self.sides[1].name]
        sizes = self.sides[1].fingerprints.sizes[both[1].rows].min(axis=1)
        if not len(both[0].rows) or not (sizes >= depth.smallest).any():
            return self.drawn, 0.0
        start = time.process_time()
        pairs = add_votes(self.drawn, self.sides, both, comparer.encoder, 1, depth)
        return pairs, (time.process_time() - start) / int(self._images[0].sum())

    def _expected_votes(self, found: int) -> float:
        """Return how many pairs only local features will find in the whole comparison.

        A patch that many references share weighs less, so the pairs of a query grow with the
        square root of the references only (X-rays: 3.6 with 32 images, 7.2 with 128).
        """
        queries, references = (int(own.sum()) for own in self._images)
        growth = math.sqrt(self.sets[1].count / max(1, references))
        return min(found / max(1, queries) * growth * self.sets[0].count, self._best(BEST))

    def _verified(self, pairs: Pairs, rows: Int64) -> Mapping[str, float]:
        """Verify some pairs, in blocks that grow while there is time.

        Returns the numbers of pairs, of those checked and compared, and of images; and the seconds
        of each of ``STEP_WORDS``.
        """
        comparer, sides = self.comparer, {side.name: side for side in self.sides}
        found, done, block, begin = defaultdict[str, float](float), 0, 8, time.process_time()
        while done < len(rows) and time.process_time() - begin < self.patience / 2:
            some = pairs.only(rows[done : done + block])
            self.clock.start()
            measured = reference_similarities(
                [some], sides, comparer.encoder, comparer.settings.views, comparer.context
            )
            self.clock("decoding", 0, 0)
            (evidence,) = verify(measured, sides, comparer.context)
            done += len(some)
            found["pairs"] = done
            found["checked"] += int((~np.isnan(evidence.checks["side"])).sum())
            found["compared"] += int((evidence.checks["close_side"] > 0).sum())
            found["images"] += len(np.unique(some.query)) + len(np.unique(some.reference))
            for step, spent in self.clock.seconds.items():
                word = step.partition(" ")[0]
                found[word if word in STEP_WORDS else "checking"] += spent
            block *= 4
        return found


def _has_local(comparer: Comparer, sides: tuple[Side, Side]) -> bool:
    settings = comparer.settings
    compared = settings.local and settings.candidates != "nearest"
    return compared and applies(*sides, depth_for(settings))
