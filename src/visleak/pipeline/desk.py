"""What a run has at hand: the sets it took in, and how two of them are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from visleak.pipeline.candidates import BEST, Side, find_pairs, side
from visleak.pipeline.context import RunContext, timed
from visleak.pipeline.embeddings import Taken, take_in
from visleak.pipeline.encoded_set import EncodedSet, ImagesLost
from visleak.pipeline.fingerprints import fingerprint
from visleak.pipeline.remote import search_for
from visleak.pipeline.streaming import pass_by
from visleak.pipeline.thresholds import Thresholds
from visleak.records import AnySet, EmbeddingSet, Encoder, Int64, Pairs
from visleak.search import load_partition_search
from visleak.search.account import Account
from visleak.search.exact import ExactSearch
from visleak.search.hits import Wanted
from visleak.settings import Settings

#: Seed of the draw behind ``sample``.
SAMPLE_SEED: Final = 0


@dataclass
class Desk:
    """What a run has at hand: the sets taken in so far, and how they are compared."""

    encoder: Encoder
    views: tuple[int, ...]
    settings: Settings
    place: RunContext
    sides: dict[str, Side] = field(default_factory=dict)
    material: dict[str, EncodedSet] = field(default_factory=dict)
    embeddings: dict[str, Taken] = field(default_factory=dict)
    accounts: dict[tuple[str, str], Sequence[Account]] = field(default_factory=dict)

    def take(self, images: AnySet, tested: bool) -> None:
        """Make fingerprints of a set, or take in those that are there."""
        drawn = _drawn(images, self.settings) if tested else None
        with timed(self.place, "fingerprint"):
            if isinstance(images, EmbeddingSet):
                taken = take_in(images, self.encoder.digest, self.place, drawn)
                self.embeddings[images.name] = taken
                own = EncodedSet(taken.images, taken.fingerprints)
            else:
                own = EncodedSet(images, fingerprint(images, self.encoder, self.place, drawn))
        self._lay_out(own)

    def leave_out(self, lost: ImagesLost) -> None:
        """Take images that cannot be read again for unreadable ones."""
        self._lay_out(self.material[lost.name].without(lost.refused, self.place))
        # what passed by was compared with the images that are left out now
        for name in [name for name, taken in self.embeddings.items() if taken.streamed]:
            for known in (self.sides, self.material, self.embeddings):
                del known[name]

    def _lay_out(self, own: EncodedSet) -> None:
        name = own.images.name
        with timed(self.place, "background"):
            self.sides[name] = side(
                own.fingerprints, self.encoder, self.views, ExactSearch(), self.place.workers
            )
        self.material[name] = own

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
            self.material[images.name] = EncodedSet(passed.taken.images, passed.taken.fingerprints)
            self.sides[images.name] = passed.side
            found |= {(pairs.query_set, pairs.reference_set): pairs for pairs in passed.pairs}
        return found

    def find(self, couple: tuple[str, str], rule: Wanted) -> Pairs:
        """Return the candidates of two sets; within a set, best ones need no threshold either."""
        query, reference = couple
        step, total = f"comparing {query} with {reference}", len(self.sides[reference].fingerprints)
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


def _drawn(images: AnySet, settings: Settings) -> Int64 | None:
    """Return the rows of a random sample of a query set, or ``None`` for all."""
    if not 0 < settings.sample < len(images):
        return None
    rng = np.random.default_rng(SAMPLE_SEED)
    return np.sort(rng.choice(len(images), settings.sample, replace=False)).astype(np.int64)
