"""Rates of each comparison, their union over references, duplicate groups, and the headline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from visleak.groups import components
from visleak.pipeline.comparison import Comparison
from visleak.pipeline.encoded_set import numbered_contents
from visleak.pipeline.selection import LARGE
from visleak.quantities import listed
from visleak.rates import Rate, percent
from visleak.records import DEGREES, GRADES, Bool, Encoder, Fingerprints, Int64
from visleak.search.exact import ExactSearch
from visleak.search.hits import Sides, Wanted
from visleak.storage.audit_folder import ChanceSummary, ComparisonSummary, DuplicateGroups
from visleak.vectors import gathered, parts_of


@dataclass(frozen=True, slots=True)
class ContentPairs:
    """The contents of listed pairs.

    Of contents with many copies only a few pairs are listed (:mod:`visleak.pipeline.candidates`).
    All pairs of copies of the same two contents have one grade, so their number is known.
    """

    left: Int64  # int64 (n,): numbers of the two contents; within a set in ascending order
    right: Int64
    many: Int64  # int64 (n,): pairs of images that have these two contents
    copies: Int64  # int64 (2, n): images of either content in its set

    @classmethod
    def of_comparison(cls, comparison: Comparison, rows: Int64) -> ContentPairs:
        """Return the contents of some pairs of a comparison."""
        query, reference, pairs = comparison.query, comparison.reference, comparison.pairs
        own, others = numbered_contents(query, reference)
        size = int(max(own.max(initial=-1), others.max(initial=-1))) + 1
        copies = [np.bincount(side, minlength=size) for side in (own, others)]
        left, right = own[pairs.query[rows]], others[pairs.reference[rows]]
        return cls._of(left, right, copies[0][left], copies[1][right], query is reference)

    @classmethod
    def of_tables(cls, pairs: pa.Table, images: pa.Table) -> ContentPairs:
        """Return the contents of the rows of a table of pairs of any sets."""
        names = _joined(images["set"], images["id"])
        digests = pc.coalesce(images["digest"].cast(pa.string()), names)
        # a content of two sets counts as two: pairs within a set and across sets are separate
        _, number, copies = np.unique(
            np.stack([_numbers(images["set"]), _numbers(digests)]),
            axis=1,
            return_inverse=True,
            return_counts=True,
        )
        number = number.ravel()
        ends = []
        for end in ("query", "reference"):
            listed = _joined(pairs[f"{end}_set"], pairs[end])
            row = pc.fill_null(pc.index_in(listed, names.combine_chunks()), -1).to_numpy()
            alone = -1 - _numbers(listed)
            known = row >= 0
            content = np.where(known, number[row], alone) if len(number) else alone
            size = np.where(known, copies[number][row], 1) if len(number) else alone * 0 + 1
            ends.append((content.astype(np.int64), size.astype(np.int64)))
        same = pc.equal(pairs["query_set"], pairs["reference_set"]).to_numpy()
        (left, wide), (right, tall) = ends
        return cls._of(left, right, wide, tall, np.asarray(same, np.bool_))

    @classmethod
    def _of(
        cls, left: Int64, right: Int64, wide: Int64, tall: Int64, same: bool | Bool
    ) -> ContentPairs:
        backwards = np.asarray(same) & (left > right)
        equal = np.asarray(same) & (left == right)
        many = np.where(equal, wide * (wide - 1) // 2, wide * tall)
        low, high = np.where(backwards, right, left), np.where(backwards, left, right)
        copies = np.stack([np.where(backwards, tall, wide), np.where(backwards, wide, tall)])
        return cls(low, high, many.astype(np.int64), copies)

    def groups(self, near: npt.NDArray[np.bool_], *, within: bool) -> Int64:
        """Return how many images each group that near pairs form has, largest first.

        Images of equal content are of one group, listed pairs or not.
        """
        ends = np.stack([self.left, self.right])[:, near]
        # equal contents of two sets are two nodes
        if not within:
            ends = 2 * ends + np.array([[0], [1]])
        nodes, number = np.unique(ends, return_inverse=True)
        left, right = number.reshape(2, -1)
        images = np.zeros(len(nodes), np.int64)
        images[left], images[right] = self.copies[:, near]
        sizes = np.bincount(components(len(nodes), [(left, right)]), images)
        return np.sort(sizes.astype(np.int64))[::-1]

    def stand_for(self, code: npt.NDArray[np.integer]) -> Int64:
        """Return how many pairs of images each listed pair represents, (n,).

        Of the listed pairs of the same two contents the one of the lowest code represents all.
        """
        order = np.lexsort((code, self.right, self.left))
        ends = (self.left, self.right)
        left, right = (np.diff(end[order], prepend=-(2**62)) != 0 for end in ends)
        new = left | right
        result = np.zeros(len(order), np.int64)
        result[order[new]] = self.many[order[new]]
        return result


def _joined(sets: pa.ChunkedArray, ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a name for each image, unique over all sets."""
    return pc.binary_join_element_wise(sets.cast(pa.string()), ids.cast(pa.string()), "\0")


def _numbers(texts: pa.ChunkedArray) -> Int64:
    """Return a number for each text, equal for equal texts."""
    encoded = pc.dictionary_encode(texts.combine_chunks())
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64)


#: Rates that count a code and everything stronger: name to scale and code.
CUMULATIVE: Final = {
    "hard_or_soft": ("degree", DEGREES.index("soft")),
    "near_or_exact": ("grade", GRADES.index("near")),
    "similar_or_closer": ("grade", GRADES.index("similar")),
}
#: Rates that count one code alone.
EXCLUSIVE: Final = {
    **{name: ("degree", code) for code, name in enumerate(DEGREES)},
    **{name: ("grade", code) for code, name in enumerate(GRADES[:3])},
}
PART: Final = 65_536  # pairs that are counted at a time; only bounds memory
LARGEST: Final = 5  # sizes of groups that are reported
NOTHING: Final = 99  # code of an image without degree or grade; weaker than every other

Strongest = Mapping[str, npt.NDArray[np.int64]]


def strongest(comparison: Comparison) -> Strongest:
    """Return the strongest degree and grade of each image of the query set, by scale.

    Blank images have none: they are counted separately.
    """
    pairs, fingerprints = comparison.pairs, comparison.query.fingerprints
    codes = {
        "degree": comparison.degree,
        "grade": comparison.grades.grade if comparison.grades is not None else None,
    }
    ends = [pairs.query, pairs.reference] if comparison.coverage == "within" else [pairs.query]
    result = {}
    for scale, code in codes.items():
        best = np.full(len(fingerprints), NOTHING, np.int64)
        if code is not None:
            known = np.flatnonzero(code >= 0)
            for rows in (known[part] for part in parts_of(len(known), PART)):
                for end in ends:
                    np.minimum.at(best, end[rows], code[rows])
        best[fingerprints.flat] = NOTHING
        result[scale] = best
    return result


def union(parts: Sequence[Strongest]) -> Strongest:
    """Return the strongest over several comparisons with one query set."""
    return {
        scale: np.minimum.reduce([part[scale] for part in parts]) for scale in ("degree", "grade")
    }


def rates(
    best: Strongest,
    graded: bool,
    measured: bool,
    population: int | None = None,
    *,
    hard: bool = True,
) -> dict[str, Rate | None]:
    """Return exclusive and cumulative rates over the images; ``None`` where not measured."""
    there = {"degree": measured, "grade": graded}
    unknown = () if hard else ("hard", "soft")
    result: dict[str, Rate | None] = {}
    for name, (scale, code) in {**EXCLUSIVE, **CUMULATIVE}.items():
        codes = best[scale]
        hit = codes <= code if name in CUMULATIVE else codes == code
        rate = Rate.of(int(hit.sum()), len(codes), population=population)
        result[name] = rate if there[scale] and name not in unknown else None
    return result


def within(comparison: Comparison) -> dict[str, dict[str, int]]:
    """Return the duplicates inside a set: unordered pairs of images, and distinct images.

    Pairs of copies that are not listed are counted too.
    """
    if comparison.grades is None:
        return {}
    # most pairs are of different images, which are not counted
    grades = comparison.grades.grade
    rows = np.flatnonzero((grades >= 0) & (grades <= GRADES.index("similar")))
    rows = rows[~comparison.query.fingerprints.flat[comparison.pairs.query[rows]]]
    code = grades[rows]
    many = ContentPairs.of_comparison(comparison, rows).stand_for(code)
    best = strongest(comparison)["grade"]
    counts = {name: int(many[code == number].sum()) for number, name in enumerate(GRADES[:3])}
    images = {name: int((best == code).sum()) for code, name in enumerate(GRADES[:3])}
    return {"duplicate_pairs": counts, "distinct_images": images}


def duplicate_groups(sizes: Int64) -> DuplicateGroups:
    """Return how many groups there are, the images in them and the largest sizes."""
    return DuplicateGroups(len(sizes), int(sizes.sum()), tuple(sizes[:LARGEST].tolist()))


def groups_of(comparison: Comparison) -> DuplicateGroups | None:
    """Return the duplicate groups of a comparison without blank images; none without grades."""
    if comparison.near is None:
        return None
    near = np.flatnonzero(comparison.near)
    near = near[~comparison.query.fingerprints.flat[comparison.pairs.query[near]]]
    contents = ContentPairs.of_comparison(comparison, near)
    every = np.ones(len(near), np.bool_)
    return duplicate_groups(contents.groups(every, within=comparison.coverage == "within"))


def group_sentence(found: Iterable[DuplicateGroups | None]) -> str:
    """Return the part of a headline on the largest duplicate group, if it is large."""
    largest = max((size for each in found if each for size in each.largest), default=0)
    if largest < LARGE:
        return ""
    return f"; the largest group of duplicates has {largest:,} images"


def headline(
    name: str, references: Sequence[str], total: Mapping[str, Rate | None], alone: bool
) -> str:
    """Return the result of a query set in one line."""
    graded = total.get("near_or_exact")
    by_degree = total.get("hard_or_soft")
    counted = graded or by_degree
    what = "a near-duplicate or exact copy" if graded else "an image at or above the soft threshold"
    others = listed(references, "or")
    where = "elsewhere in the same set" if alone else f"in {others}"
    if counted is None:
        return f"{name} was compared with {others}; no thresholds, so no rate"
    images = f"{counted.total:,} {name} images"
    if not counted.total:
        return f"none of the {name} images could be read"
    hard = total.get("hard")
    also = ""
    if hard and hard.count and not graded:
        also = f", {hard.count:,} of them ({percent(hard.share)} %) at or above the hard threshold"
    found = (
        f"({percent(counted.share)} %, {counted.interval})"
        f" {'has' if counted.count == 1 else 'have'} {what} {where}{also}"
    )
    if counted.population is None:
        return f"{counted.count:,} of {images} {found}"
    least, most = counted.expected
    return (
        f"estimate from a sample of {counted.total:,} of {counted.population:,} {name} images:"
        f" {counted.count:,} {found}, so {least:,} to {most:,} of all"
    )


# -- pairs expected by chance ---------------------------------------------------------------------

QUERIES: Final = 256  # contents of each side that are sampled; all of their pairs are compared
REFERENCES: Final = 4096
CHUNK: Final = 64  # queries compared at a time; only bounds memory
MANY: Final = 1.0  # expected chance pairs per image from which a threshold is reported as too low


def chance_of(
    comparison: Comparison, encoder: Encoder, views: tuple[int, ...], workers: int = 1
) -> ChanceSummary | None:
    """Return how many pairs of a comparison reach its thresholds by chance.

    The sample is the contents with the lowest digests, which is random with regard to the images.
    Pairs that near or exact pairs connect are not counted. Without grades each query's most similar
    reference is excluded, because it may be a copy; the estimate is then a little too low.
    """
    thresholds = comparison.thresholds
    if thresholds.soft is None or comparison.reference.streamed:
        return None
    query, reference = comparison.query.fingerprints, comparison.reference.fingerprints
    same = comparison.query is comparison.reference
    left, right = _sample(query, QUERIES), _sample(reference, REFERENCES)
    sampled = len(left) * (len(right) - same)
    if sampled <= 0:
        return None
    limits = {name: getattr(thresholds, name) for name in DEGREES}
    counts = {name: 0 for name, threshold in limits.items() if threshold is not None}
    groups = _groups(comparison)
    queries, references = gathered(query.matrix, left), gathered(reference.matrix, right)
    rule = Wanted(thresholds.soft, best=0, cap=len(right))
    make = encoder.view if len(views) > 1 else None
    zeros, order = np.zeros(len(right), np.float32), np.arange(len(right))
    for own in parts_of(len(left), CHUNK):
        sides = Sides(queries[own], references, zeros, order, views=views, make=make)
        hits = ExactSearch().find(sides, rule, workers=workers)
        # in one set both samples begin with the same contents
        others = (own.start + hits.query != hits.reference) | (not same)
        if groups is not None:
            others &= groups[0][left[own]][hits.query] != groups[1][right][hits.reference]
        for degree in counts:
            reached = others & (hits.similarity >= np.float32(limits[degree]))
            counts[degree] += int(reached.sum())
            if groups is None:
                # without the most similar one of each query
                counts[degree] -= len(np.unique(hits.query[reached]))
    images = int((~query.flat).sum()), int((~reference.flat).sum()) - same
    per_image = {d: round(count / sampled * images[1], 6) for d, count in counts.items()}
    pairs = {
        d: round(count / sampled * images[0] * images[1] / (1 + same), 3)
        for d, count in counts.items()
    }
    return ChanceSummary(sampled, per_image, pairs)


def _sample(fingerprints: Fingerprints, count: int) -> Int64:
    """Return a row of each of the contents with the lowest digests, blank images left out."""
    rows = np.flatnonzero(~fingerprints.flat)
    keys = np.ascontiguousarray(fingerprints.digests[rows]).view("V16").ravel()
    return rows[np.unique(keys, return_index=True)[1][:count]]


def _groups(comparison: Comparison) -> tuple[Int64, Int64] | None:
    """Return the group that near pairs form of the images of either side, ``None`` without grades.

    Of a crowd only as many pairs are graded as connect its images.
    """
    if comparison.near is None:
        return None
    own, others = numbered_contents(comparison.query, comparison.reference)
    near = comparison.pairs.only(np.flatnonzero(comparison.near))
    count = 1 + int(max(own.max(initial=-1), others.max(initial=-1)))
    group = components(count, [(own[near.query], others[near.reference])])
    return group[own], group[others]


def chance_notes(comparisons: Sequence[ComparisonSummary]) -> Iterator[str]:
    """Yield a line for each comparison whose thresholds many pairs reach by chance."""
    for each in comparisons:
        found = each.chance
        if not found or found.per_image["soft"] < MANY:
            continue
        own = [other for other in comparisons if other.query_set == each.query_set]
        if each.coverage == "within" and len(own) > 1:
            continue
        where = "" if each.coverage == "within" else f" in {each.reference_set}"
        hard = found.pairs.get("hard")
        yield (
            f"about {found.pairs['soft']:,.0f} pairs are expected to reach soft by chance,"
            f" {_number(found.per_image['soft'])} per {each.query_set} image{where}"
            f"{'' if hard is None else f', {hard:,.0f} of them hard'} (estimated from"
            f" {found.sampled:,} random pairs): degrees do not separate copies from other"
            " images here; find thresholds for these images with `visleak calibrate`"
        )


def _number(value: float) -> str:
    """Return a number with at least two digits.

    >>> _number(1.26), _number(257.4)
    ('1.3', '257')
    """
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"
