"""The second candidate channel: pictures that share patches (crops, turns, collages)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.encoders.local import BOUND, DIGEST, SMALLEST, local_features, view_features
from visleak.images import DECODING, decode
from visleak.pipeline.candidates import INVERSE_VIEW, Side
from visleak.pipeline.chunks import Refused
from visleak.pipeline.context import CacheHandle, GrowingColumn, Handle, RunContext, shared
from visleak.pipeline.encoded_set import EncodedSet, ImagesLost
from visleak.pipeline.selection import Spanning
from visleak.records import (
    VIEWS,
    Bool,
    Bytes8,
    Encoder,
    Fingerprints,
    Float32,
    Int8,
    Int64,
    Pairs,
    Unreadable,
)
from visleak.search.votes import FeatureRows, LocalIndex, Votes

#: More references than this are too many to vote on.
MOST_REFERENCES: Final = 50_000

#: Short side from which a query has features; references need SMALLEST. A query may be what is
#: left of a picture after a hard crop.
SMALLEST_QUERY: Final = 32

#: Candidates a query; asked for with some to spare, so that ties go by id.
BEST: Final = 20
ASKED: Final = 64

#: Pictures a task.
CHUNK: Final = 64

#: Pairs whose vectors are compared at a time; only bounds memory.
PAIRS: Final = 4096

#: Views that features do not see by themselves.
SEEN: Final = tuple(VIEWS.index(name) for name in ("original", "mirror", "inverted"))


@dataclass(frozen=True, slots=True)
class Patches:
    """The local features of some rows of a set's fingerprints.

    Attributes:
        rows: ``int64`` (k,): rows of the fingerprints, ascending; one per content.
        features: their features.
        widths: ``int32`` (k,): width of each bounded picture, pixels.
    """

    rows: Int64
    features: FeatureRows
    widths: npt.NDArray[np.int32]

    def seen(self, view: int) -> FeatureRows:
        """Return the features of a view of the pictures."""
        counts = np.diff(self.features.starts)
        descriptors, keypoints = view_features(
            self.features.descriptors, self.features.keypoints, np.repeat(self.widths, counts), view
        )
        return FeatureRows(descriptors, keypoints, self.features.starts)

    def only(self, keep: Bool) -> Patches:
        """Return the features of some of the pictures."""
        if keep.all():
            return self
        counts = np.diff(self.features.starts)
        chosen = np.repeat(keep, counts)
        starts = np.concatenate([[0], np.cumsum(counts[keep])]).astype(np.int64)
        features = FeatureRows(
            self.features.descriptors[chosen], self.features.keypoints[chosen], starts
        )
        return Patches(self.rows[keep], features, self.widths[keep])


def applies(query: Side, reference: Side) -> bool:
    """Whether the channel has anything to work on, and not too much."""
    return 0 < len(_large(reference.fingerprints, SMALLEST)) <= MOST_REFERENCES and bool(
        len(_large(query.fingerprints, SMALLEST_QUERY))
    )


def too_many(reference: Side) -> bool:
    """Whether the channel is left out because there are too many references."""
    return len(_large(reference.fingerprints, SMALLEST)) > MOST_REFERENCES


def _large(fingerprints: Fingerprints, smallest: int) -> Int64:
    """Return the first row of each content that is large enough and not blank, ascending."""
    rows = np.flatnonzero(
        (fingerprints.sizes.min(axis=1, initial=2**30) >= smallest) & ~fingerprints.flat
    )
    first = np.unique(content_keys(fingerprints)[rows], return_index=True)[1]
    return np.asarray(rows[np.sort(first)])


def content_keys(fingerprints: Fingerprints) -> npt.NDArray[np.void]:
    """Return the digests of the contents of a set, 16 bytes each."""
    return np.ascontiguousarray(fingerprints.digests).view("V16").ravel()


@dataclass(frozen=True, slots=True)
class _Contents:
    """The contents of both sides of a comparison, numbered over both.

    Attributes:
        query, reference: ``int64``: number of the content of each fingerprint.
        leads: ``int64``: row of the reference with the lowest id of each content, -1 where the
            reference has none.
        copies: rows of the query, grouped by content.
        edges: where the rows of each content begin and end in ``copies``.
        same: the two sides are one set.
    """

    query: Int64
    reference: Int64
    leads: Int64
    copies: Int64
    edges: Int64
    same: bool

    @classmethod
    def of(cls, query: Side, reference: Side) -> _Contents:
        """Number the contents of two sides."""
        keys = [content_keys(side.fingerprints) for side in (query, reference)]
        number = np.unique(np.concatenate(keys), return_inverse=True)[1].astype(np.int64)
        own, others = np.split(number, [len(query.fingerprints)])
        count = int(number.max(initial=-1)) + 1
        leads = np.full(count, -1, np.int64)
        last_first = np.argsort(-reference.order)
        leads[others[last_first]] = last_first
        edges = np.concatenate([[0], np.cumsum(np.bincount(own, minlength=count))])
        copies = np.lexsort((query.order, own))
        return cls(own, others, leads, copies, edges.astype(np.int64), query is reference)

    def keys(self, left: Int64, right: Int64) -> Int64:
        """Return a number for each pair of contents; within a set, of unordered pairs."""
        low, high = (
            (np.minimum(left, right), np.maximum(left, right)) if self.same else (left, right)
        )
        return low * len(self.leads) + high

    def with_copies(self, left: Int64, right: Int64) -> tuple[Int64, Int64, Int64]:
        """Return the rows of all copies of query contents, each with one row of the reference's.

        Copies of the reference are candidates of each other. Within a set the copies of the
        other content are paired as well.

        Returns:
            Rows of the query and of the reference, and the position of the pair of contents.
        """
        pair, row = self._copies_of(left)
        other = self.leads[right[pair]]
        if not self.same:
            return row, other, pair
        back, second = self._copies_of(right)
        first = self.leads[left[back]]
        one = np.concatenate([row, first])
        two, pair = np.concatenate([other, second]), np.concatenate([pair, back])
        # the two leads were paired from either end
        new = np.unique(np.stack([one, two]), axis=1, return_index=True)[1]
        return one[new], two[new], pair[new]

    def _copies_of(self, content: Int64) -> tuple[Int64, Int64]:
        """Return positions of contents and the rows of the query that have them."""
        count = self.edges[content + 1] - self.edges[content]
        position = np.repeat(np.arange(len(content)), count)
        place = np.arange(len(position)) - np.repeat(np.cumsum(count) - count, count)
        return position, self.copies[self.edges[content][position] + place]


@dataclass(frozen=True, slots=True)
class _Task:
    opener: Handle
    cache: CacheHandle | None
    positions: Int64
    digests: Bytes8


@dataclass(frozen=True, slots=True)
class _Found:
    """Features of a chunk, packed as in the cache: one entry a picture that could be read."""

    packed: list[bytes]
    fresh: dict[bytes, bytes]
    refused: list[Refused]


def extract(own: EncodedSet, place: RunContext, wanted: Bool | None = None) -> Patches:
    """Return the features of a set's contents; each is decoded at most once, ever.

    Args:
        own: the set and its fingerprints.
        place: where to work.
        wanted: ``bool`` (n,): fingerprints whose images are wanted; by default all.

    Raises:
        ImagesLost: some cannot be read again.
    """
    rows = _large(own.fingerprints, SMALLEST_QUERY)
    rows = rows if wanted is None else rows[wanted[rows]]
    positions, digests = own.fingerprints.rows[rows], own.fingerprints.digests[rows]
    opener, cache = place.share(own.opener), place.reach()
    parts = [slice(start, start + CHUNK) for start in range(0, len(rows), CHUNK)]
    tasks = (_Task(opener, cache, positions[part], digests[part]) for part in parts)
    counts: list[int] = []
    widths: list[int] = []
    refused: list[Refused] = []
    names = place.file(".descriptors"), place.file(".keypoints")
    with (
        GrowingColumn(names[0], np.uint8, (128,)) as descriptors,
        GrowingColumn(names[1], np.float32, (4,)) as keypoints,
    ):
        for found in place.each(_work, tasks, f"local features of {own.images.name}"):
            for packed in found.packed:
                width, words, points = _unpack(packed)
                descriptors.append(words)
                keypoints.append(points)
                counts.append(len(words))
                widths.append(width)
            refused += found.refused
            if place.cache is not None:
                place.cache.put(_maker(), found.fresh.items())
            done = len(counts) + len(refused)
            place.progress(f"local features of {own.images.name}", done, len(positions))
        if refused:
            raise ImagesLost(own.images.name, refused)
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        features = FeatureRows(descriptors.mapped(), keypoints.mapped(), starts)
    return Patches(rows, features, np.array(widths, np.int32))


def _maker() -> bytes:
    recipe = f"{DIGEST} from {SMALLEST_QUERY} of {DECODING}"
    return hashlib.blake2b(recipe.encode(), digest_size=16).digest()


def _unpack(packed: bytes) -> tuple[int, npt.NDArray[np.uint8], Float32]:
    """Return width, descriptors and keypoints: 4 bytes, then 16 and 128 a feature."""
    width = int(np.frombuffer(packed, "<i4", 1)[0])
    count = (len(packed) - 4) // 144
    points = np.frombuffer(packed, "<f4", 4 * count, offset=4).reshape(-1, 4)
    words = np.frombuffer(packed, np.uint8, offset=4 + 16 * count).reshape(-1, 128)
    return width, words, points


def _work(task: _Task) -> _Found:
    """Return the features of some pictures; what the cache knows need not be read."""
    found = _Found([], {}, [])
    digests = [digest.tobytes() for digest in task.digests]
    known: Mapping[bytes, bytes] = {}
    if task.cache is not None:
        with task.cache.open() as cache:
            known = cache.get(_maker(), digests)
    asked = dict(zip(task.positions.tolist(), digests, strict=True))
    unknown = [position for position, digest in asked.items() if digest not in known]
    stored = iter(shared(task.opener).read(unknown))
    for position, digest in asked.items():
        if digest in known:
            found.packed.append(known[digest])
            continue
        packed = _packed(next(stored))
        if isinstance(packed, Unreadable):
            found.refused.append((position, packed))
        else:
            found.packed.append(packed)
            found.fresh[digest] = packed
    return found


def _packed(data: bytes | Bytes8 | Unreadable) -> bytes | Unreadable:
    """Return the features of a picture as they are kept."""
    picture = data if isinstance(data, Unreadable) else decode(data, enough=BOUND)
    if isinstance(picture, Unreadable):
        return picture
    features = local_features(np.asarray(picture.pixels), smallest=SMALLEST_QUERY)
    width = np.array(features.width, "<i4").tobytes()
    return width + features.keypoints.astype("<f4").tobytes() + features.descriptors.tobytes()


def add_votes(
    pairs: Pairs,
    sides: tuple[Side, Side],
    patches: tuple[Patches, Patches],
    encoder: Encoder,
    workers: int,
) -> Pairs:
    """Return the pairs with those added that share patches, and with everyone's votes.

    Args:
        pairs: candidates by fingerprint, in their order.
        sides: query and reference side of the pairs; one object twice within a set.
        patches: the features of either side.
        encoder: that made the fingerprints.
        workers: threads.
    """
    query, reference = sides
    same = query is reference
    large = reference.fingerprints.sizes[patches[1].rows].min(axis=1) >= SMALLEST
    targets = patches[1].only(large)
    index = LocalIndex(targets.features)
    votes = index.search(
        {view: patches[0].seen(view) for view in SEEN}, best=ASKED, workers=workers
    )
    votes = _as_rows(votes, patches[0].rows, targets.rows)
    votes = _best(votes, query.order, reference.order, same)
    return _merged(pairs, votes, sides, encoder)


def _as_rows(votes: Votes, query: Int64, reference: Int64) -> Votes:
    """Return votes with rows of fingerprints instead of positions among the features."""
    return replace(votes, query=query[votes.query], reference=reference[votes.reference])


def _best(votes: Votes, query: Int64, reference: Int64, same: bool) -> Votes:
    """Return each query's best; within a set without itself, the lower id as the query."""
    order = np.lexsort((reference[votes.reference], -votes.score, votes.query))
    if same:
        order = order[votes.query[order] != votes.reference[order]]
    owner = votes.query[order]
    order = order[np.arange(len(order)) - np.searchsorted(owner, owner) < BEST]
    chosen = Votes(
        votes.query[order], votes.reference[order], votes.score[order], votes.view[order]
    )
    if not same:
        return chosen
    backwards = query[chosen.query] > query[chosen.reference]
    left = np.where(backwards, chosen.reference, chosen.query)
    right = np.where(backwards, chosen.query, chosen.reference)
    view = np.where(backwards, INVERSE_VIEW[chosen.view], chosen.view).astype(np.int8)
    rank = np.lexsort((-chosen.score, right, left))
    first = rank[np.flatnonzero(np.diff(left[rank] * (len(query) + 1) + right[rank], prepend=-1))]
    return Votes(left[first], right[first], chosen.score[first], view[first])


def _merged(pairs: Pairs, votes: Votes, sides: tuple[Side, Side], encoder: Encoder) -> Pairs:
    """Return the union of pairs and votes, in the order of pairs; votes are those of contents."""
    query, reference = sides
    contents = _Contents.of(query, reference)
    known = contents.keys(contents.query[pairs.query], contents.reference[pairs.reference])
    ends = contents.query[votes.query], contents.reference[votes.reference]
    voted = contents.keys(*ends)
    place = np.argsort(voted, kind="stable")
    at = np.minimum(np.searchsorted(voted[place], known), max(0, len(voted) - 1))
    there = voted[place[at]] == known if len(voted) else np.zeros(len(known), np.bool_)
    score = np.zeros(len(pairs), np.float32)
    score[there] = votes.score[place[at[there]]]
    new = np.flatnonzero(~np.isin(voted, known))
    left, right, pair = contents.with_copies(ends[0][new], ends[1][new])
    if contents.same:
        backwards = query.order[left] > query.order[right]
        left, right = np.where(backwards, right, left), np.where(backwards, left, right)
    votes_of_new = votes.score[new][pair]
    similarity, view = _similarity(query, reference, left, right, encoder)
    all_query = np.concatenate([pairs.query, left])
    all_reference = np.concatenate([pairs.reference, right])
    all_similarity = np.concatenate([pairs.similarity, similarity])
    order = np.lexsort((reference.order[all_reference], -all_similarity, query.order[all_query]))
    background = (query.background[left] + reference.background[right]) / 2
    return replace(
        pairs,
        query=all_query[order],
        reference=all_reference[order],
        similarity=all_similarity[order],
        background=np.concatenate([pairs.background, background.astype(np.float32)])[order],
        view=np.concatenate([pairs.view, view])[order],
        votes=np.concatenate([score, votes_of_new])[order],
    )


def _similarity(
    query: Side, reference: Side, left: Int64, right: Int64, encoder: Encoder
) -> tuple[Float32, Int8]:
    """Return similarity and view of pairs that the fingerprints did not bring up."""
    views = range(max(1, encoder.views))
    exact = np.empty((len(views), len(left)), np.float32)
    for start in range(0, len(left), PAIRS):
        part = slice(start, start + PAIRS)
        vectors = query.fingerprints.matrix[left[part]]
        others = reference.fingerprints.matrix[right[part]].astype(np.float64)
        for view in views:
            seen = seen_vectors(encoder, vectors, view)
            exact[view, part] = np.einsum("ij,ij->i", seen, others)
    best = exact.argmax(axis=0)
    return exact[best, np.arange(len(left))], best.astype(np.int8)


def seen_vectors(encoder: Encoder, vectors: Float32, view: int) -> npt.NDArray[np.float64]:
    """Return vectors as in a view, ``float64``: what similarities are computed from."""
    made = vectors if view == 0 else encoder.view(vectors, view)
    return np.asarray(made, np.float64)


def with_votes(
    found: Sequence[Pairs],
    sides: Mapping[str, Side],
    material: Mapping[str, EncodedSet],
    encoder: Encoder,
    place: RunContext,
    spanning: Sequence[Spanning] = (),
) -> Iterator[Pairs]:
    """Yield the pairs of each comparison, with the channel's candidates where it applies.

    Args:
        found: pairs by fingerprint, one record a comparison.
        sides, material: of the sets, by name.
        encoder: that made the fingerprints.
        place: where to work.
        spanning: of each comparison the crowds, whose images have few representatives here.
    """
    names = [(pairs.query_set, pairs.reference_set) for pairs in found]
    crowds: Sequence[Spanning | None] = spanning or [None] * len(names)
    kept = [
        [_kept(sides[name], own) for name in couple]
        for couple, own in zip(names, crowds, strict=True)
    ]
    wanted: dict[str, Bool] = {}
    for couple, masks in zip(names, kept, strict=True):
        for name, mask in zip(couple, masks, strict=True):
            wanted[name] = wanted.get(name, False) | mask
    extracted: dict[str, Patches] = {}

    def patches(name: str, mask: Bool) -> Patches:
        if name not in extracted:
            extracted[name] = extract(material[name], place, wanted[name])
        return extracted[name].only(mask[extracted[name].rows])

    for pairs, couple, masks in zip(found, names, kept, strict=True):
        own = (sides[pairs.query_set], sides[pairs.reference_set])
        if not applies(*own):
            yield pairs
            continue
        both = (patches(couple[0], masks[0]), patches(couple[1], masks[1]))
        yield add_votes(pairs, own, both, encoder, place.workers)


def _kept(side: Side, spanning: Spanning | None) -> Bool:
    """Return which fingerprints of a side take part in a comparison."""
    if spanning is None or not len(spanning.contents):
        return np.ones(len(side.fingerprints), np.bool_)
    return spanning.speaks(content_keys(side.fingerprints))
