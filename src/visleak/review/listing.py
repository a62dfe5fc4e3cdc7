"""The list of pairs to judge: one row two images, in columns, closest first.

A verdict is about two contents. So pairs of equal contents stand once in the list, however many
images have these contents; the others are counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError, VisleakError
from visleak.groups import image_rows, is_word, scale_codes
from visleak.quantities import counted
from visleak.records import GRADES, Bool, Float64, ImageRow, Int8, Int64, PairRow, between
from visleak.storage import IMAGES, PAIRS, AuditSummary, read_table
from visleak.verdicts import judged_pairs, pair_key
from visleak.verdicts.overlay import UNLISTED

#: Filter of the machine's grade: the grade alone, it or stronger, or pairs without one.
GRADE_CHOICES: Final = {
    "exact": "exact",
    "near+": "near or exact",
    "similar+": "similar or closer",
    "near": "near only",
    "similar": "similar only",
    "different": "different",
    "none": "no grade",
}
COVERAGES: Final = {"leaks": "between sets", "within": "within a set"}
STATES: Final = {
    "unjudged": "not judged by me",
    "open": "open: without a verdict, or shared",
    "judged": "judged by me",
    "disputed": "disputed",
    "settle": "disputed, without a verdict of mine",
}
SORTS: Final = {
    "likely": "probability, likely first",
    "active": "what a verdict changes most",
    "sample": "random sample of the unlikely",
    "distance": "distance, closest first",
    "uncertain": "most uncertain first",
    "grade": "automatic grade, strongest first",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """Filters and order. Empty text filters nothing."""

    grade: str = ""
    label: str = ""
    sets: str = ""
    coverage: str = ""
    state: str = ""
    sort: str = ""  # one of ``SORTS``; empty for that of the list
    stop: str = ""  # ``off`` if the reviewer continues after the stop rule

    def __post_init__(self) -> None:
        for name, allowed in (
            ("grade", GRADE_CHOICES),
            ("coverage", COVERAGES),
            ("state", STATES),
            ("sort", SORTS),
            ("stop", ("off",)),
        ):
            value = getattr(self, name)
            if value and value not in allowed:
                raise UsageError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")

    @classmethod
    def of(cls, values: Mapping[str, str]) -> Choice:
        """Return the choice in the query of an address; other parameters are ignored.

        >>> Choice.of({"grade": "near+", "page": "2"}).query
        'grade=near%2B'
        """
        names = [each.name for each in fields(cls)]
        return cls(**{name: values[name] for name in names if values.get(name)})

    @property
    def query(self) -> str:
        """What stands behind the question mark; empty for all pairs by distance."""
        return urlencode({name: value for name, value in asdict(self).items() if value})

    @property
    def filtered(self) -> int:
        """How many filters are set."""
        return sum(map(bool, (self.grade, self.label, self.sets, self.coverage, self.state)))


def _set_pairs(listing: Listing) -> Iterator[tuple[str, str]]:
    pairs = listing.pairs.group_by(["query_set", "reference_set"], use_threads=False).aggregate([])
    yield from zip(*(pairs[name].to_pylist() for name in pairs.column_names), strict=True)


def couples(listing: Listing) -> list[str]:
    """Return the pairs of sets that the list has."""
    return [between(*names) for names in _set_pairs(listing)]


def labels(listing: Listing) -> list[str]:
    """Return the classes that the list has."""
    found: set[str] = set()
    for side in ("query_label", "reference_label"):
        found.update(pc.unique(listing.pairs[side].cast(pa.string())).drop_null().to_pylist())
    return sorted(found)


def fixed(listing: Listing, choice: Choice) -> Bool:
    """Return which rows the filters let through that no verdict changes."""
    keep = np.ones(len(listing), bool)
    if choice.grade == "none":
        keep &= listing.grade < 0
    elif choice.grade.endswith("+"):
        keep &= (listing.grade >= 0) & (listing.grade <= GRADES.index(choice.grade[:-1]))
    elif choice.grade:
        keep &= listing.grade == GRADES.index(choice.grade)
    if choice.coverage:
        keep &= listing.within == (choice.coverage == "within")
    if choice.label:
        sides = (listing.pairs[f"{side}_label"] for side in ("query", "reference"))
        keep &= np.logical_or(*(is_word(column, choice.label) for column in sides))
    if choice.sets:
        named = np.zeros(len(listing), bool)
        for query_set, reference_set in _set_pairs(listing):
            if between(query_set, reference_set) == choice.sets:
                own = is_word(listing.pairs["query_set"], query_set)
                named |= own & is_word(listing.pairs["reference_set"], reference_set)
        keep &= named
    return keep


def order(listing: Listing, sort: str) -> Int64:
    """Return all rows of the list in an order that no verdict changes; among equals by distance."""
    if sort == "uncertain":
        by = np.nan_to_num(np.abs(listing.probability - 0.5), nan=np.inf)
    elif sort == "grade":
        by = np.where(listing.grade < 0, len(GRADES), listing.grade).astype(np.float64)
    else:
        by = np.zeros(len(listing))
    return np.argsort(by, kind="stable")


#: Which pairs are shown: all that the audit listed, or the nearest of each image.
LISTS: Final = ("listed", "nearest")

#: Columns of few values, kept as numbers into a list of them.
_FEW: Final = (
    *("query_set", "reference_set", "view", "degree", "grade", "reason", "transform"),
    *("query_label", "reference_label", "label_relation", "coverage"),
)
_COLUMNS: Final = [*_FEW, "query", "reference", "similarity", "probability", "matrix"]
_IMAGE_COLUMNS: Final = ["set", "id", "digest", "label", "caption", "locator", "width", "height"]


@dataclass(frozen=True)
class Listing:
    """The pairs that can be judged."""

    kind: str
    # one row a pair of contents, in order of increasing distance, then as in the audit
    pairs: pa.Table
    images: pa.Table
    # (n,): rows of ``images``
    query: Int64
    reference: Int64
    # (n,): numbers of the two contents
    left: Int64
    right: Int64
    contents: Int64  # (images,): number of the content of each image
    repeats: Int64  # (n,): further pairs of images with the same two contents
    distance: Float64  # (n,): ``sqrt(2 - 2 * similarity)``; NaN if it was not measured
    probability: Float64  # (n,): the machine's; NaN if there is none
    grade: Int8  # (n,): the machine's, as its place in ``GRADES``; -1 where there is none
    within: Bool  # (n,): two images of one set
    digests: pa.Array
    left_out: int

    def __len__(self) -> int:
        return len(self.query)

    def key(self, row: int) -> tuple[str, str]:
        """Return the unordered pair of digests that a verdict on a row is kept under."""
        return pair_key(*(self.digests[int(end[row])].as_py() for end in (self.left, self.right)))

    def name(self, row: int) -> str:
        """Return the name of a pair in addresses: both digests, so that it outlives an audit."""
        return "-".join(self.key(row))

    def find(self, name: str) -> int | None:
        """Return the row that a name means, or ``None``."""
        parts = name.split("-")
        if len(parts) != 2:
            return None
        one, other = (int(pc.index(self.digests, part).as_py()) for part in parts)
        if min(one, other) < 0:
            return None
        straight = (self.left == one) & (self.right == other)
        found = np.flatnonzero(straight | ((self.left == other) & (self.right == one)))
        return int(found[0]) if len(found) else None

    def rows_of(self, keys: list[tuple[str, str]]) -> Int64:
        """Return the row of each key of verdicts, -1 where the list does not have it."""
        if not keys or not len(self):
            return np.full(len(keys), -1, np.int64)
        numbers = [
            pc.fill_null(pc.index_in(pa.array(side, pa.string()), self.digests), -1).to_numpy()
            for side in zip(*keys, strict=True)
        ]
        known = (numbers[0] >= 0) & (numbers[1] >= 0)
        wanted = _code(numbers[0], numbers[1], len(self.digests))
        codes = _code(self.left, self.right, len(self.digests))
        order = np.argsort(codes)
        place = np.searchsorted(codes[order], wanted).clip(max=len(codes) - 1)
        rows = order[place]
        return np.where(known & (codes[rows] == wanted), rows, -1)

    def others(self, row: int) -> tuple[Int64, Int64]:
        """Return the other rows with the query's content, and those with the reference's."""
        left, right = (
            np.flatnonzero((self.left == content) | (self.right == content))
            for content in (self.left[row], self.right[row])
        )
        return left[left != row], right[right != row]

    def row(self, row: int) -> PairRow:
        """Return the columns of a row."""
        values: PairRow = self.pairs.slice(row, 1).to_pylist()[0]
        return values

    def ends(self, row: int) -> tuple[ImageRow, ImageRow]:
        """Return the columns of the two images of a row."""
        return self.image(int(self.query[row])), self.image(int(self.reference[row]))

    def image(self, number: int) -> ImageRow:
        """Return the columns of an image."""
        values: ImageRow = self.images.slice(number, 1).to_pylist()[0]
        return values


def read_listing(folder: Path, kind: str = "listed", without: Collection[str] = ()) -> Listing:
    """Return the pairs of an audit folder that can be judged.

    ``kind``: ``listed`` for every pair of the audit; ``nearest`` for each query image's nearest
    reference, and its nearest other image of its own set. Sets ``without`` images are left out.
    """
    if kind not in LISTS:
        raise UsageError(f"candidates must be one of {', '.join(LISTS)}; got {kind!r}")
    images = read_table(folder, IMAGES, _IMAGE_COLUMNS).combine_chunks()
    blind = pc.is_in(images["set"], pa.array(list(without), pa.string()))
    images = images.filter(pc.and_not(pc.is_valid(images["digest"]), blind))
    pairs = _all_pairs(folder)
    query, reference = (image_rows(pairs, side, images) for side in ("query", "reference"))
    seen = (query >= 0) & (reference >= 0)
    left_out = int((~seen).sum())
    if left_out and not seen.any():
        raise VisleakError(
            f"{folder} compares embeddings: there are no images to review; audit the images"
            " themselves to review them"
        )
    keep = np.flatnonzero(seen)
    if kind == "nearest":
        keep = keep[_nearest(pairs, query, reference, keep)]
    encoded = images["digest"].combine_chunks().dictionary_encode()
    content = encoded.indices.to_numpy().astype(np.int64)
    keep, repeats = _distinct(pairs, content[query[keep]], content[reference[keep]], keep)
    chosen = pairs.take(pa.array(keep)).combine_chunks()
    similarity = chosen["similarity"].to_numpy().astype(np.float64)
    return Listing(
        kind=kind,
        pairs=chosen,
        images=images,
        query=query[keep],
        reference=reference[keep],
        left=content[query[keep]],
        right=content[reference[keep]],
        contents=content,
        repeats=repeats,
        distance=np.sqrt(np.maximum(0.0, 2.0 - 2.0 * similarity)),
        probability=chosen["probability"].to_numpy().astype(np.float64),
        grade=scale_codes(chosen["grade"], GRADES, -1),
        within=is_word(chosen["coverage"], "within"),
        digests=encoded.dictionary,
        left_out=left_out,
    )


def _all_pairs(folder: Path) -> pa.Table:
    """Return the machine's pairs, and after them those that only people have named."""
    pairs = read_table(folder, PAIRS, _COLUMNS)
    judged = judged_pairs(folder, _COLUMNS)
    if judged.num_rows > pairs.num_rows:
        own = judged.filter(pc.equal(judged["reason"], UNLISTED))
        for name in ("grade", "probability"):
            # whose verdict it is must not be seen before one's own
            own = _with(own, name, pa.nulls(own.num_rows, own.schema.field(name).type))
        pairs = pa.concat_tables([pairs, own])
    for name in _FEW:
        encoded = pairs[name].combine_chunks().dictionary_encode()
        pairs = _with(pairs, name, pa.chunked_array([encoded]))
    return pairs


def _with(table: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


def _falling(pairs: pa.Table, rows: Int64) -> Float64:
    """Return what sorts rows by falling similarity; unknown ones come last."""
    similarity = pairs["similarity"].to_numpy()[rows].astype(np.float64)
    return np.where(np.isnan(similarity), np.inf, -similarity)


def _nearest(pairs: pa.Table, query: Int64, reference: Int64, rows: Int64) -> Int64:
    """Return which of some rows are the nearest of a query image, in their order.

    Among images of other sets one, and among the other images of its own set one: there the
    nearest of either end counts, and a pair that is both stands once.
    """
    within = is_word(pairs["coverage"], "within")[rows]
    rank = _falling(pairs, rows)
    measured = np.isfinite(rank)
    found = []
    for part, ends in ((~within, (query,)), (within, (query, reference))):
        own = np.flatnonzero(part & measured)
        image = np.concatenate([end[rows[own]] for end in ends])
        place = np.tile(own, len(ends))
        order = np.lexsort((place, rank[place], image))
        _, first = np.unique(image[order], return_index=True)
        found.append(place[order[first]])
    return np.unique(np.concatenate(found))


def _code(one: Int64, other: Int64, contents: int) -> Int64:
    """Return one number an unordered pair of contents."""
    return np.asarray(np.minimum(one, other) * contents + np.maximum(one, other))


def _distinct(pairs: pa.Table, left: Int64, right: Int64, rows: Int64) -> tuple[Int64, Int64]:
    """Return the rows to list, closest first, and how many others each stands for.

    Of pairs of the same two contents one between two sets comes before one within a set.
    """
    if not len(rows):
        return rows, rows
    code = _code(left, right, int(max(left.max(), right.max())) + 1)
    rank = _falling(pairs, rows)
    order = np.lexsort((rows, rank, is_word(pairs["coverage"], "within")[rows]))
    _, first, count = np.unique(code[order], return_index=True, return_counts=True)
    kept = order[first]
    back = np.lexsort((rows[kept], rank[kept]))
    return rows[kept[back]], (count[back] - 1).astype(np.int64)


def describe(listing: Listing, summary: AuditSummary) -> tuple[str, ...]:
    """Return sentences that say which pairs a list holds, and which it does not."""
    rule = summary.settings.candidates
    lines = [
        _nearest_in_words(listing, rule) if listing.kind == "nearest" else _listed(listing, summary)
    ]
    repeats = int(listing.repeats.sum())
    if repeats:
        lines.append(
            f"{counted(repeats, 'more pair', 'has', 'have')} the same two contents as one of these;"
            " a verdict counts for all of them."
        )
    if listing.left_out:
        lines.append(
            f"Left out: {counted(listing.left_out, 'pair')} with embeddings, which have no images."
        )
    return tuple(lines)


def _listed(listing: Listing, summary: AuditSummary) -> str:
    settings, soft = summary.settings, summary.thresholds.soft
    rule = settings.candidates
    inside = ", between the sets and within the test side" if listing.within.any() else ""
    if rule == "nearest":
        return (
            f"All {len(listing):,} pairs of the audit{inside}: each image's one nearest, without a"
            " threshold. No other pair was compared."
        )
    above = "" if soft is None else f"every pair of similarity {soft:g} or more, and "
    local = ", and what shares local features" if settings.local else ""
    return (
        f"All {len(listing):,} pairs of the audit{inside}: {above}the best twenty of each query"
        f"{local}. Pairs below that were not compared."
    )


def _nearest_in_words(listing: Listing, rule: str) -> str:
    within = int(np.count_nonzero(listing.within))
    inside = (
        f" and {within:,} pairs of an image and the nearest other one of its own set"
        if within
        else ""
    )
    text = (
        f"{len(listing) - within:,} pairs of a query image and its one nearest reference{inside},"
        " without a threshold: the list of Barz & Denzler (2020)."
    )
    if rule == "nearest":
        return text
    return (
        f"{text} The audit was made with --candidates {rule}, so this is the nearest among the"
        " pairs that it lists; audit with --candidates nearest for the nearest of all."
    )
