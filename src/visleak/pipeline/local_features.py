"""Candidates by local features: images that share patches (crops, turns, collages)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.encoders.local import (
    BOUND,
    CONTRAST,
    DIGEST,
    MOST,
    SMALLEST,
    local_features,
    view_features,
)
from visleak.groups import places, places_within
from visleak.images import DECODING, decode
from visleak.pipeline.candidates import INVERSE_VIEW, similarities, with_added
from visleak.pipeline.comparison import Comparison
from visleak.pipeline.context import CacheHandle, Handle, RunContext, known_entries
from visleak.pipeline.encoded_set import EncodedSet, ImagesLost, Refused, Side, numbered_contents
from visleak.pipeline.selection import find
from visleak.records import VIEWS, Bool, Bytes8, Encoder, Float32, Int64, Opener, Pairs, Unreadable
from visleak.search.hits import Scored
from visleak.search.votes import LEAST_SCORE, FeatureRows, LocalIndex, Votes
from visleak.settings import Settings
from visleak.vectors import forget, parts_of

#: Unless overlaps are measured, local features are not compared with more references than this.
MOST_REFERENCES: Final = 50_000
#: Short side from which a query, which may be a small crop of a reference, has features.
SMALLEST_QUERY: Final = 32
#: Features of references that one index holds (44 bytes each), and of queries that are compared
#: with it at a time.
INDEXED: Final = 4_000_000
QUERIED: Final = 1_000_000
CHUNK: Final = 64  # images per task
#: Views that the features do not cover by themselves.
SEEN: Final = tuple(VIEWS.index(name) for name in ("original", "mirror", "inverted"))


@dataclass(frozen=True, slots=True)
class Depth:
    """How closely local features are compared."""

    # long sides to which an image is bounded, and the most features of each; the first one is that
    # of the coordinates. An image that fits into several has the features of the last of these
    layers: tuple[tuple[int, int], ...]
    contrast: float  # least contrast of a feature, in OpenCV's scale
    smallest: int  # short side from which a reference has features, pixels
    references: float  # beyond so many nothing is compared
    best: int  # candidates per query
    searched: int  # more than these, so that ties can be decided by id
    least: float  # least score of the first few candidates; others need that of ``search.votes``
    few: int
    clusters: bool  # of a cluster of near images only representatives are compared

    @property
    def maker(self) -> bytes:
        """The digest of what makes the features."""
        layers = "".join(f" and {most} at {bound}" for bound, most in self.layers[1:])
        if self.contrast != CONTRAST:
            layers += f" of contrast {self.contrast}"
        recipe = f"{DIGEST}{layers} from {SMALLEST_QUERY} of {DECODING}"
        return hashlib.blake2b(recipe.encode(), digest_size=16).digest()


#: Enough to find copies, crops and collages.
USUAL: Final = Depth(
    ((BOUND, MOST),),
    CONTRAST,
    SMALLEST,
    MOST_REFERENCES,
    best=20,
    searched=64,
    least=LEAST_SCORE,
    few=0,
    clusters=True,
)
#: For overlaps, which have many partners. A small image may be a small part of a large one; and a
#: narrow strip of a faint texture that was compressed shares three features or four.
DEEP: Final = Depth(
    ((BOUND, MOST), (768, 500)),
    CONTRAST / 3,
    64,
    np.inf,
    best=64,
    searched=128,
    least=2.0,
    few=8,
    clusters=False,
)


def depth_for(settings: Settings) -> Depth:
    """Return how closely an audit compares local features."""
    return USUAL if settings.overlap is None else DEEP


@dataclass(frozen=True, slots=True)
class Patches:
    """The local features of some rows of a set's fingerprints."""

    rows: Int64  # int64 (k,): rows of the fingerprints, ascending; one per content
    features: FeatureRows  # their features
    widths: npt.NDArray[np.int32]  # int32 (k,): width of each bounded image, pixels

    def seen(self, view: int) -> FeatureRows:
        """Return the features of a view of the images."""
        counts = np.diff(self.features.starts)
        descriptors, keypoints = view_features(
            self.features.descriptors, self.features.keypoints, np.repeat(self.widths, counts), view
        )
        return FeatureRows(descriptors, keypoints, self.features.starts)

    def only(self, keep: Bool) -> Patches:
        """Return the features of some of the images."""
        return self if keep.all() else self.taken(np.flatnonzero(keep))

    def taken(self, images: Int64) -> Patches:
        """Return the features of the images at some positions, in that order."""
        counts = np.diff(self.features.starts)[images]
        owner, place = places_within(counts)
        rows = self.features.starts[images][owner] + place
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        features = FeatureRows(
            self.features.descriptors[rows], self.features.keypoints[rows], starts
        )
        return Patches(self.rows[images], features, self.widths[images])

    def parts(self, order: Int64, most: int) -> Iterator[Patches]:
        """Yield some of the images in an order, in parts of about ``most`` features."""
        ends = np.cumsum(np.diff(self.features.starts)[order])
        if len(order) == len(self.rows) and ends[-1:].sum() <= most:
            yield self
            return
        for part in np.split(order, np.flatnonzero(np.diff(ends // most)) + 1):
            taken = self.taken(part)
            forget(self.features.descriptors)
            yield taken
            # before the next one is made
            del taken


def applies(query: EncodedSet, reference: EncodedSet, depth: Depth = USUAL) -> bool:
    """Whether both sets have large enough images, and not too many references."""
    return 0 < len(_large(reference, depth.smallest)) <= depth.references and bool(
        len(_large(query, SMALLEST_QUERY))
    )


def _large(encoded: EncodedSet, smallest: int) -> Int64:
    """Return the first row of each content that is large enough and not blank, ascending."""
    fingerprints = encoded.fingerprints
    large = fingerprints.sizes.min(axis=1, initial=2**30) >= smallest
    rows = np.flatnonzero(large & ~fingerprints.flat)
    first = np.unique(encoded.contents[rows], return_index=True)[1]
    return np.asarray(rows[np.sort(first)])


# -- extraction ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Task:
    opener: Handle[Opener]
    cache: CacheHandle | None
    positions: Int64
    digests: Bytes8
    depth: Depth


def extract(
    encoded: EncodedSet, context: RunContext, wanted: Bool | None = None, depth: Depth = USUAL
) -> Patches:
    """Return the features of a set's contents; cached ones are not computed again."""
    rows = _large(encoded, SMALLEST_QUERY)
    rows = rows if wanted is None else rows[wanted[rows]]
    positions, digests = encoded.fingerprints.rows[rows], encoded.fingerprints.digests[rows]
    opener, cache = context.share(encoded.opener), context.cache_handle()
    parts = parts_of(len(rows), CHUNK)
    tasks = (_Task(opener, cache, positions[part], digests[part], depth) for part in parts)
    step = f"local features of {encoded.name}"
    counts, widths = list[int](), list[int]()
    refused: list[Refused] = []
    with (
        context.column(".descriptors", np.uint8, (128,)) as descriptors,
        context.column(".keypoints", np.float32, (4,)) as keypoints,
    ):
        for found, fresh, lost in context.each(_extract, tasks, step):
            for packed in found:
                width, words, points = _unpack(packed)
                descriptors.append(words)
                keypoints.append(points)
                counts.append(len(words))
                widths.append(width)
            refused += lost
            if context.cache is not None:
                context.cache.put(depth.maker, fresh.items())
            context.progress(step, len(counts) + len(refused), len(positions))
        if refused:
            raise ImagesLost(encoded.name, refused)
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        features = FeatureRows(descriptors.mapped(), keypoints.mapped(), starts)
    return Patches(rows, features, np.array(widths, np.int32))


def _extract(task: _Task) -> tuple[list[bytes], dict[bytes, bytes], list[Refused]]:
    """Return the features of some images, packed as in the cache, which of them are new, and lost
    images; those in the cache are not read.
    """
    found, fresh, refused = list[bytes](), dict[bytes, bytes](), list[Refused]()
    digests = [digest.tobytes() for digest in task.digests]
    known = known_entries(task.cache, task.depth.maker, digests)
    images = dict(zip(task.positions.tolist(), digests, strict=True))
    unknown = [position for position, digest in images.items() if digest not in known]
    stored = iter(task.opener.load().read(unknown))
    for position, digest in images.items():
        packed = known.get(digest) or _packed(next(stored), task.depth)
        if isinstance(packed, Unreadable):
            refused.append((position, packed))
            continue
        found.append(packed)
        if digest not in known:
            fresh[digest] = packed
    return found, fresh, refused


def _packed(data: bytes | Bytes8 | Unreadable, depth: Depth) -> bytes | Unreadable:
    """Return the features of an image as a cache entry: width, keypoints, descriptors."""
    image = data if isinstance(data, Unreadable) else decode(data, enough=depth.layers[-1][0])
    if isinstance(image, Unreadable):
        return image
    pixels = np.asarray(image.pixels)
    width, words, points = layered(pixels, depth)
    return np.array(width, "<i4").tobytes() + points.astype("<f4").tobytes() + words.tobytes()


def layered(pixels: Bytes8, depth: Depth) -> tuple[int, Bytes8, Float32]:
    """Return the width of the bounded image, and descriptors and keypoints of all its layers."""
    found = [
        local_features(
            pixels, smallest=SMALLEST_QUERY, bound=bound, most=most, contrast=depth.contrast
        )
        for number, (bound, most) in enumerate(depth.layers, 1)
        # the next layer has the same pixels, and more features
        if number == len(depth.layers) or max(pixels.shape[:2]) > bound
    ]
    first = found[0]
    points = [
        each.keypoints * np.array([first.width / each.width] * 3 + [1], np.float32)
        for each in found
    ]
    return first.width, np.concatenate([e.descriptors for e in found]), np.concatenate(points)


def _unpack(packed: bytes) -> tuple[int, npt.NDArray[np.uint8], Float32]:
    """Return width, descriptors and keypoints: 4 bytes, then 16 and 128 per feature."""
    width = int(np.frombuffer(packed, "<i4", 1)[0])
    count = (len(packed) - 4) // 144
    points = np.frombuffer(packed, "<f4", 4 * count, offset=4).reshape(-1, 4)
    words = np.frombuffer(packed, np.uint8, offset=4 + 16 * count).reshape(-1, 128)
    return width, words, points


# -- candidates ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Contents:
    """The contents of both sides of a comparison, numbered over both."""

    query: Int64  # number of the content of each fingerprint
    reference: Int64
    leads: Int64  # row of the reference with the lowest id of each content, -1 where it has none
    copies: Int64  # rows of the query, grouped by content
    edges: Int64  # where the rows of each content begin and end in copies
    same: bool  # the two sides are one set

    @classmethod
    def of(cls, query: Side, reference: Side) -> _Contents:
        own, others = numbered_contents(query, reference)
        count = int(max(own.max(initial=-1), others.max(initial=-1))) + 1
        leads = np.full(count, -1, np.int64)
        last_first = np.argsort(-reference.order)
        leads[others[last_first]] = last_first
        edges = np.concatenate([[0], np.cumsum(np.bincount(own, minlength=count))])
        copies = np.lexsort((query.order, own))
        return cls(own, others, leads, copies, edges.astype(np.int64), query is reference)

    def keys(self, left: Int64, right: Int64) -> Int64:
        """Return a number for each pair of contents; within a set, of unordered pairs."""
        if self.same:
            left, right = np.minimum(left, right), np.maximum(left, right)
        return left * len(self.leads) + right

    def with_copies(self, left: Int64, right: Int64) -> tuple[Int64, Int64, Int64]:
        """Return the rows of all copies of query contents, each with one row of the reference's.

        Copies of the reference are candidates of each other. Within a set the copies of the
        other content are paired as well.
        """
        pair, row = self._copies_of(left)
        other = self.leads[right[pair]]
        if not self.same:
            return row, other, pair
        back, second = self._copies_of(right)
        one = np.concatenate([row, self.leads[left[back]]])
        two, pair = np.concatenate([other, second]), np.concatenate([pair, back])
        # the two leads were paired from either end
        new = np.unique(np.stack([one, two]), axis=1, return_index=True)[1]
        return one[new], two[new], pair[new]

    def _copies_of(self, content: Int64) -> tuple[Int64, Int64]:
        """Return positions of contents and the rows of the query that have them."""
        position, place = places_within(self.edges[content + 1] - self.edges[content])
        return position, self.copies[self.edges[content][position] + place]


def with_votes(
    comparisons: Sequence[Comparison], encoder: Encoder, context: RunContext, depth: Depth = USUAL
) -> Iterator[Comparison]:
    """Yield each comparison with the candidates that share local features, where there are any.

    Of a cluster of similar images only representatives are compared.
    """
    kept = [
        {side.name: _kept(each, side, depth) for side in (each.query, each.reference)}
        for each in comparisons
    ]
    wanted: dict[str, Bool] = {}
    for masks in kept:
        for name, mask in masks.items():
            wanted[name] = wanted.get(name, False) | mask
    extracted: dict[str, Patches] = {}

    def patches(side: Side, mask: Bool) -> Patches:
        if side.name not in extracted:
            extracted[side.name] = extract(side, context, wanted[side.name], depth)
        return extracted[side.name].only(mask[extracted[side.name].rows])

    for each, masks in zip(comparisons, kept, strict=True):
        sides = each.query, each.reference
        if not applies(*sides, depth):
            yield each
            continue
        both = patches(sides[0], masks[sides[0].name]), patches(sides[1], masks[sides[1].name])
        pairs = add_votes(each.pairs, sides, both, encoder, context.workers, depth)
        yield replace(each, pairs=pairs)


def _kept(comparison: Comparison, side: Side, depth: Depth) -> Bool:
    """Return which fingerprints of a side have their local features compared."""
    clusters = comparison.clusters
    if not depth.clusters or clusters is None or not len(clusters.contents):
        return np.ones(len(side.fingerprints), np.bool_)
    return clusters.is_representative(side.contents)


def add_votes(
    pairs: Pairs,
    sides: tuple[Side, Side],
    patches: tuple[Patches, Patches],
    encoder: Encoder,
    workers: int,
    depth: Depth = USUAL,
) -> Pairs:
    """Return pairs with those added that share patches, and the votes of all."""
    order, rows = sides[1].order, patches[1].rows
    large = sides[1].fingerprints.sizes[rows].min(axis=1) >= depth.smallest
    found = voted(patches, np.flatnonzero(large), order, workers, depth)
    return _merged(pairs, _directed(found, sides, depth), sides, encoder)


def voted(
    patches: tuple[Patches, Patches], targets: Int64, order: Int64, workers: int, depth: Depth
) -> Votes:
    """Return each query's best among some references, at ``targets``, as rows of fingerprints."""
    best: list[Votes] = []
    targets = targets[np.argsort(order[patches[1].rows[targets]])]
    for part in patches[1].parts(targets, INDEXED):
        index = LocalIndex(part.features)
        for some in patches[0].parts(np.arange(len(patches[0].rows)), QUERIED):
            views = {view: some.seen(view) for view in SEEN}
            votes = index.search(views, best=depth.searched, least=depth.least, workers=workers)
            # positions among the features become rows of the fingerprints
            query, reference = some.rows[votes.query], part.rows[votes.reference]
            best.append(replace(votes, query=query, reference=reference))
        best = [_best(Votes.joined(best), order, depth.searched)]
        # before the next ones are made
        del part, index
    return best[0]


def _best(votes: Votes, order: Int64, most: int) -> Votes:
    """Return each query's best; ties go by the order of the references."""
    rank = np.lexsort((order[votes.reference], -votes.score, votes.query))
    return votes.only(rank[places(votes.query[rank]) < most])


def candidates(votes: Votes, order: Int64, depth: Depth) -> Votes:
    """Return each query's candidates: the best, of which all but a few have a good score."""
    high = votes.only(np.flatnonzero(votes.score >= LEAST_SCORE))
    low = _best(votes, order, depth.few)
    low = low.only(np.flatnonzero(low.score < LEAST_SCORE))
    return _best(Votes.joined([high, low]), order, depth.best)


def _directed(votes: Votes, sides: tuple[Side, Side], depth: Depth) -> Votes:
    """Return each query's candidates; within a set without itself, the lower id as the query."""
    query, reference = (side.order for side in sides)
    if sides[0] is not sides[1]:
        return candidates(votes, reference, depth)
    chosen = candidates(
        votes.only(np.flatnonzero(votes.query != votes.reference)), reference, depth
    )
    backwards = query[chosen.query] > query[chosen.reference]
    left = np.where(backwards, chosen.reference, chosen.query)
    right = np.where(backwards, chosen.query, chosen.reference)
    view = np.where(backwards, INVERSE_VIEW[chosen.view], chosen.view).astype(np.int8)
    rank = np.lexsort((-chosen.score, right, left))
    first = rank[np.flatnonzero(np.diff(left[rank] * (len(query) + 1) + right[rank], prepend=-1))]
    return Votes(left[first], right[first], chosen.score[first], view[first])


def _merged(pairs: Pairs, votes: Votes, sides: tuple[Side, Side], encoder: Encoder) -> Pairs:
    """Return the union of pairs and votes; votes are those of contents."""
    query, reference = sides
    contents = _Contents.of(query, reference)
    known = contents.keys(contents.query[pairs.query], contents.reference[pairs.reference])
    ends = contents.query[votes.query], contents.reference[votes.reference]
    voted = contents.keys(*ends)
    rank = np.argsort(voted, kind="stable")
    at, there = find(voted[rank], known)
    score = np.zeros(len(pairs), np.float32)
    score[there] = votes.score[rank[at[there]]]
    new = np.flatnonzero(~np.isin(voted, known))
    left, right, pair = contents.with_copies(ends[0][new], ends[1][new])
    if contents.same:
        backwards = query.order[left] > query.order[right]
        left, right = np.where(backwards, right, left), np.where(backwards, left, right)
    both = query.fingerprints, reference.fingerprints
    similarity, view = similarities(both, left, right, encoder, range(max(1, encoder.views)))
    added = Scored(left, right, similarity, view)
    return with_added(replace(pairs, votes=score), sides, added, votes.score[new][pair])
