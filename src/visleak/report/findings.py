"""What the tables of the audit folder show: pairs for the gallery, conflicts, classes, nearest."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from visleak.groups import components, is_word, scale_codes
from visleak.rates import Rate
from visleak.records import DEGREES, GRADES, Bool, Bytes8, Int64, PairRow, between, ends_of
from visleak.reporting.gallery import (
    SMALL,
    Card,
    Detail,
    ImageLoader,
    Marks,
    Thumb,
    decoded,
    drawn,
    kind_of,
    marks,
    relation,
    thumb,
)
from visleak.storage import IMAGES, PAIRS, read_summary, read_table
from visleak.storage.audit_folder import PAIRS_SCHEMA, table_batches
from visleak.verdicts import (
    Verdict,
    as_unjudged,
    consensus_of,
    digests_of,
    judged_pairs,
    pair_key,
)

#: Most cards the gallery shows.
CAP: Final = 300
#: So many cards each kind of pair gets before the most certain fill the rest.
FLOOR: Final = 6

#: Columns of the pairs, verdicts applied, that the choice, the counts and the table need.
COLUMNS: Final = [
    "query_set",
    "query",
    "reference_set",
    "reference",
    "similarity",
    "degree",
    "grade",
    "probability",
    "query_label",
    "reference_label",
    "label_relation",
    "coverage",
    "machine_grade",
]


@dataclass(frozen=True)
class Ledger:
    """The pairs of an audit as plain arrays, one row per pair."""

    key: Int64  # ``int64``, one number per duplicate group of query images
    stratum: Int64  # ``int64``, one number per kind of pair: sets, grade or degree, conflict or not
    order: Int64  # rows, most certain first
    leak: Bool
    within: Bool
    conflict: Bool
    shown: Bool
    verified: bool
    group: Int64  # ``int64`` (images,), the number of each image's group, in the order of ``first``
    # ``int64`` (images,), where an image occurs first: row, or rows + row as reference
    first: Int64

    def __len__(self) -> int:
        return len(self.key)

    def members(self, keys: Int64) -> dict[int, Int64]:
        """Return where the images of some groups occur first."""
        order = np.argsort(self.group, kind="stable")
        sorted_ = self.group[order]
        starts, ends = (np.searchsorted(sorted_, keys, side) for side in ("left", "right"))
        return {
            int(key): np.sort(self.first[order[start:end]])
            for key, start, end in zip(keys, starts, ends, strict=True)
        }


@dataclass(frozen=True)
class Choice:
    """The rows of the gallery, most certain first, and for each how many more its group has."""

    rows: Int64
    more: Int64


def ledger(pairs: pa.Table) -> Ledger:
    """Turn the columns :data:`COLUMNS` into arrays."""
    query_set, reference_set = codes(pairs["query_set"]), codes(pairs["reference_set"])
    grade, degree = (
        scale_codes(pairs["grade"], GRADES, len(GRADES)),
        scale_codes(pairs["degree"], DEGREES, len(DEGREES)),
    )
    within = is_word(pairs["coverage"], "within")
    graded = grade < len(GRADES)
    # people judge some pairs, verification covers all of a comparison
    machine = scale_codes(pairs["machine_grade"], GRADES, len(GRADES)) < len(GRADES)
    couple = combine(query_set, reference_set)
    looked = graded | np.isin(couple, couple[machine])
    of_degree = ~looked & (degree < len(DEGREES))
    near = grade <= GRADES.index("near")
    leak = near | of_degree
    conflict = leak & is_word(pairs["label_relation"], "different")
    probability = pairs["probability"].to_numpy().astype(np.float64)
    similarity = pairs["similarity"].to_numpy().astype(np.float64)
    certain = np.where(np.isnan(probability), -1.0, probability)
    # the same template is more than another image, however small the probability of near
    different = grade == GRADES.index("different")
    kind = np.where(looked, grade, len(GRADES) + 1 + degree)
    ends, first = _images(pairs)
    # similarity alone connects strangers: only grades make groups
    group = components(len(first), [(ends[0][near], ends[1][near])])
    return Ledger(
        key=group[ends[0]],
        stratum=combine(query_set, reference_set, within, kind, conflict),
        order=np.lexsort((-similarity, degree, grade, -certain, different)).astype(np.int64),
        leak=leak,
        within=within,
        conflict=conflict,
        shown=(grade <= GRADES.index("similar")) | of_degree,
        verified=bool(graded.any()),
        group=group,
        first=first,
    )


def _images(pairs: pa.Table) -> tuple[Int64, Int64]:
    """Return the number of the image at both ends of each pair, and where each occurs first."""
    names, sets = (
        codes(pa.chunked_array([*pairs[left].chunks, *pairs[right].chunks], pa.string()))
        for left, right in (("query", "reference"), ("query_set", "reference_set"))
    )
    images = combine(sets, names)
    _, first = np.unique(images, return_index=True)
    return images.reshape(2, -1), first.astype(np.int64)


def choose(pairs: Ledger, cap: int = CAP) -> Choice:
    """Choose at most ``cap`` pairs, at most one per group, every kind of pair represented.

    A group is shown by its best pair. Only a kind of leak that no best pair is of, such as a
    second reference set that always comes second, takes one card from a group of its own. Rare
    kinds choose first; the rest goes to the most certain pairs. The answer depends on the rows
    alone.
    """
    _, first = np.unique(pairs.key[pairs.order], return_index=True)
    best = pairs.order[np.sort(first)]
    picked = _floors(pairs, best, cap)
    taken = {int(pairs.key[row]) for row in picked}
    for row in best[pairs.shown[best]]:
        if len(picked) >= cap:
            break
        if int(pairs.key[row]) not in taken:
            picked.append(int(row))
    place = np.empty(len(pairs), dtype=np.int64)
    place[pairs.order] = np.arange(len(pairs))
    rows = np.array(sorted(picked, key=lambda row: place[row]), dtype=np.int64)
    return Choice(rows, _more(pairs, rows))


def _floors(pairs: Ledger, best: Int64, cap: int) -> list[int]:
    """Give every kind of pair its first cards, rare kinds first."""
    strata, sizes = np.unique(pairs.stratum, return_counts=True)
    floor = max(1, min(FLOOR, cap // (2 * max(1, len(strata)))))
    behind = set(strata.tolist()) - set(pairs.stratum[best].tolist())
    orphans = pairs.order[
        np.isin(pairs.stratum[pairs.order], sorted(behind)) & pairs.leak[pairs.order]
    ]
    rows = np.concatenate([orphans, best])
    rows = rows[np.argsort(pairs.stratum[rows], kind="stable")]
    starts = np.searchsorted(pairs.stratum[rows], [*strata, strata.max(initial=0) + 1])
    picked: list[int] = []
    taken: set[int] = set()
    for stratum in np.argsort(sizes, kind="stable"):
        left = 1 if strata[stratum] in behind else floor
        for row in rows[starts[stratum] : starts[stratum + 1]]:
            if left == 0 or len(picked) >= cap:
                break
            if int(pairs.key[row]) not in taken:
                taken.add(int(pairs.key[row]))
                picked.append(int(row))
                left -= 1
    return picked


def _more(pairs: Ledger, rows: Int64) -> Int64:
    kind = combine(pairs.key, pairs.within)
    counted = np.bincount(kind[pairs.leak], minlength=int(kind.max(initial=0)) + 1)
    return np.asarray(counted[kind[rows]] - pairs.leak[rows], dtype=np.int64)


def codes(column: pa.ChunkedArray) -> Int64:
    """Number the texts of a column; null is 0.

    >>> codes(pa.chunked_array([["b", None, "a", "b"]])).tolist()
    [1, 0, 2, 1]
    """
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    indices = pc.fill_null(pc.cast(encoded.indices, pa.int64()), -1)
    return np.asarray(indices.to_numpy(zero_copy_only=False), dtype=np.int64) + 1


def combine(*columns: npt.NDArray[np.generic]) -> Int64:
    """Number the distinct rows of several columns.

    >>> combine(np.array([5, 5, 7]), np.array([0, 1, 0])).tolist()
    [0, 1, 2]
    """
    total = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values = column.astype(np.int64)
        span = int(values.max(initial=0)) + 1
        total = np.unique(total * span + values, return_inverse=True)[1].astype(np.int64)
    return total


# -- findings --------------------------------------------------------------------------------------


#: Most rows of the table of label conflicts.
MOST_CONFLICTS: Final = 100
#: Most classes of the chart.
MOST_CLASSES: Final = 12
#: Cards at the top of the page.
MOST_STRONGEST: Final = 6
#: Most further images of a duplicate group that are shown, of one card and of all.
MOST_MEMBERS: Final = 8
MOST_MEMBERS_OF_ALL: Final = 240
#: Grades and degrees of leaks, strongest first.
LEAKS: Final = ("exact", "near", "hard", "soft")
#: How the strongest leaks are stored: large enough to be judged on the page.
LARGE: Final = Detail(480, 16_000)


@dataclass(frozen=True, slots=True)
class Member:
    """A further image of the duplicate group of a card."""

    set: str
    id: str
    thumb: Thumb | None = None


@dataclass(frozen=True, slots=True)
class PairCard:
    """A pair of the gallery, or without images of the table of conflicts."""

    row: PairRow  # of the judged pairs, with what each reviewer ``said`` of it
    anchor: str  # of its card; empty without one
    conflict: bool = True  # a leak or duplicate whose labels differ: one of them may be wrong
    more: int = 0  # other leaks of its group; of a repeat, other repeats
    card: Card | None = None  # ``None`` if an image is not available
    marks: Marks = field(default_factory=Marks)  # where the content of the two images differs
    # further images of its duplicate group, the first ones; ``left_out`` are not named
    members: tuple[Member, ...] = ()
    left_out: int = 0
    # addresses of the query and of the reference, relative to the page; may be empty
    files: tuple[str, str] = ("", "")

    @property
    def kind(self) -> str:
        """Text of the chip: the grade, or the degree if the pair was not verified."""
        return self.row["grade"] or self.row["degree"] or "ungraded"

    @property
    def within(self) -> bool:
        """Whether both images are of one set."""
        return self.row["coverage"] == "within"

    @property
    def between(self) -> str:
        """The two sets, as the filter names them."""
        return between(self.row["query_set"], self.row["reference_set"])

    @property
    def searched(self) -> str:
        """The text that the search box looks through."""
        row = self.row
        labels = (row["query_label"], row["reference_label"])
        judged = "judged" if row.get("judged") else ""
        ids = (row["query"], row["reference"], *(each.id for each in self.members))
        return " ".join(filter(None, (*ids, *labels, judged))).lower()

    @property
    def matrix(self) -> str:
        """How the query lies on the reference, as nine numbers."""
        found = relation(self.row)
        return " ".join(f"{value:.5g}" for value in found) if found else ""

    @property
    def group_size(self) -> int:
        """How many images the duplicate group has; 2 for a pair alone."""
        return 2 + len(self.members) + self.left_out


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything the page shows from the tables."""

    pairs: int  # number of pairs in ``pairs.parquet``
    verified: bool
    cards: tuple[PairCard, ...]
    strongest: tuple[PairCard, ...]  # the cards at the top of the page, drawn larger
    repeats: tuple[PairCard, ...]  # the strongest pairs of one set, none of different images
    listing: Listing  # every pair above ``different``, for the table and the filters
    conflicts: tuple[PairCard, ...]
    conflict_total: int
    nearest: tuple[tuple[str, npt.NDArray[np.float64]], ...]
    # share of each class's images that leak, worst first; name and rate
    classes: tuple[tuple[str, Rate], ...]
    class_total: tuple[int, int]

    @property
    def marked(self) -> bool:
        """Whether differing content is marked on any card."""
        return any(card.marks for card in self.cards)


def read(
    folder: Path,
    query_sets: Sequence[str],
    loader: ImageLoader | None,
    cap: int,
    said: Sequence[Verdict] = (),
    beside: Path | None = None,
) -> Findings:
    """Read the two tables, lay verdicts over them, and choose what to show.

    ``beside`` is the folder of the page, from which it links to files; ``None`` for no links.
    """
    columns, place, total_pairs = _columns(folder, said)
    pairs = ledger(columns)
    chosen = choose(pairs, cap)
    conflicting = _conflicting(pairs)
    rows = place[np.concatenate([chosen.rows, conflicting])]
    details = _judged_rows(folder, rows, said) if said else _rows(folder, rows)
    own = details[: len(chosen.rows)]
    members = _members(columns, pairs, chosen, own)
    pixels = _pixels(own, members, loader)
    files = _files(folder, own, beside) if loader is not None and beside is not None else {}
    cards = _cards(own, pairs, chosen, pixels, members, files)
    anchors = {int(row): item.anchor for row, item in zip(chosen.rows, cards, strict=True)}
    images = read_table(folder, IMAGES, ["set", "id", "label", "flat", "nearest_similarity"])
    classes, total = _classes(columns, pairs, images, query_sets)
    return Findings(
        pairs=total_pairs,
        verified=pairs.verified,
        cards=cards,
        strongest=_redrawn(_strongest(cards), pixels, LARGE),
        repeats=_redrawn(
            [card for card in cards if card.within and card.kind != "different"],
            pixels,
            Detail.of(CAP),
        ),
        listing=listed(columns, pairs, anchors),
        conflicts=tuple(
            PairCard(_known(detail), anchors.get(int(row), ""))
            for row, detail in zip(conflicting, details[len(chosen.rows) :], strict=True)
        ),
        conflict_total=int(pairs.conflict.sum()),
        nearest=tuple(_nearest(images, name) for name in query_sets),
        classes=classes,
        class_total=total,
    )


def _columns(folder: Path, said: Sequence[Verdict]) -> tuple[pa.Table, Int64, int]:
    """Return :data:`COLUMNS` of the pairs that a page may show, their rows, and the number of all.

    Most pairs of a large audit are of different images: without verdicts, only the strongest of
    each image are read into memory.
    """
    if said:
        columns = judged_pairs(folder, [*COLUMNS, "judged"], said)
        return columns, np.arange(columns.num_rows), columns.num_rows
    kept, place, total = [], [], 0
    for batch in table_batches(folder, PAIRS, COLUMNS[:-1]):
        rows = _strongest_rows(pa.table(batch))
        kept.append(batch.take(pa.array(rows)))
        place.append(total + rows)
        total += len(batch)
    schema = pa.schema([PAIRS_SCHEMA.field(name) for name in COLUMNS[:-1]])
    columns = as_unjudged(pa.Table.from_batches(kept, schema))
    return columns, np.concatenate([np.empty(0, np.int64), *place]), total


def _strongest_rows(pairs: pa.Table) -> Int64:
    """Return the rows that a page may show: without the weaker ones of different images.

    Of these the best one of an image and a set is kept, and the best one without a grade.
    """
    grade, degree = (
        scale_codes(pairs["grade"], GRADES, len(GRADES)),
        scale_codes(pairs["degree"], DEGREES, len(DEGREES)),
    )
    listed = (grade <= GRADES.index("similar")) | (degree < len(DEGREES))
    probability = pairs["probability"].fill_null(-1.0).to_numpy()
    ends = [codes(pairs[name]) for name in ("query_set", "query", "reference_set")]
    own = combine(*ends, grade < len(GRADES))
    order = np.lexsort((-pairs["similarity"].to_numpy(), -probability, own))
    first = order[np.flatnonzero(np.diff(own[order], prepend=-1))]
    return np.union1d(np.flatnonzero(listed), first)


def _rows(folder: Path, wanted: Int64) -> list[PairRow]:
    """Read some rows whole, in the order wanted, a batch of the file in memory at a time."""
    found: dict[int, PairRow] = {}
    start = 0
    for batch in table_batches(folder, PAIRS):
        here = np.unique(wanted[(wanted >= start) & (wanted < start + len(batch))])
        details = batch.take(pa.array(here - start)).to_pylist()
        found.update(zip(here.tolist(), details, strict=True))
        start += len(batch)
    return [found[row] for row in wanted.tolist()]


def _judged_rows(
    folder: Path, wanted: npt.NDArray[np.int64], said: Sequence[Verdict]
) -> list[PairRow]:
    """Read some rows whole with verdicts applied, and with what each reviewer says of them."""
    table = judged_pairs(folder, verdicts=said).take(pa.array(wanted))
    consensus = consensus_of(said)
    left, right = (digests.to_pylist() for digests in digests_of(folder, table))
    rows: list[PairRow] = table.to_pylist()
    for row, first, second in zip(rows, left, right, strict=True):
        standing = consensus.get(pair_key(first, second)) if first and second else None
        verdicts = standing.verdicts if standing is not None else ()
        row["said"] = tuple((verdict.reviewer, verdict.judgment) for verdict in verdicts)
    return rows


def _conflicting(pairs: Ledger) -> npt.NDArray[np.int64]:
    """Return the rows of the table of conflicts: the most probable one of each query."""
    ranked = pairs.order[pairs.conflict[pairs.order]]
    _, first = np.unique(pairs.key[ranked], return_index=True)
    return ranked[np.sort(first)][:MOST_CONFLICTS]


#: Pixels of images by set and id.
Images = Mapping[tuple[str, str], Bytes8]


def _members(
    columns: pa.Table, pairs: Ledger, chosen: Choice, details: Sequence[PairRow]
) -> list[tuple[list[tuple[str, str]], int]]:
    """Return for each card further images of its group, and how many are not named."""
    places = pairs.members(np.unique(pairs.key[chosen.rows]))
    found = []
    for row, detail in zip(chosen.rows, details, strict=True):
        ends = ends_of(detail)
        # the two images of the card are in its own group, or the reference is in none
        first = places[int(pairs.key[row])][: MOST_MEMBERS + 2].tolist()
        names = [_image_at(columns, place) for place in first]
        others = [name for name in names if name not in ends]
        total = len(places[int(pairs.key[row])]) - 1
        total -= detail["grade"] in LEAKS[:2]
        found.append((others[: min(MOST_MEMBERS, total)], max(0, total - MOST_MEMBERS)))
    return found


def _image_at(columns: pa.Table, place: int) -> tuple[str, str]:
    side, row = divmod(place, columns.num_rows)
    name = ("query", "reference")[side]
    return columns[f"{name}_set"][row].as_py(), columns[name][row].as_py()


def _pixels(
    details: Sequence[PairRow],
    members: Sequence[tuple[list[tuple[str, str]], int]],
    loader: ImageLoader | None,
) -> Images:
    """Read the images of all cards, and of their groups as far as there is room."""
    if loader is None:
        return {}
    further = [name for own, _ in members for name in own][:MOST_MEMBERS_OF_ALL]
    return decoded(details, loader, further)


def _cards(
    details: Sequence[PairRow],
    pairs: Ledger,
    chosen: Choice,
    pixels: Images,
    members: Sequence[tuple[list[tuple[str, str]], int]],
    files: Mapping[tuple[str, str], str],
) -> tuple[PairCard, ...]:
    detail = Detail.of(len(details))
    return tuple(
        PairCard(
            _known(row),
            anchor(row),
            bool(pairs.conflict[at]),
            int(more),
            drawn(row, pixels, detail),
            _marks(row, pixels),
            tuple(
                Member(*name, thumb(pixels[name], SMALL) if name in pixels else None)
                for name in others
            ),
            left_out,
            (files.get(ends_of(row)[0], ""), files.get(ends_of(row)[1], "")),
        )
        for row, at, more, (others, left_out) in zip(
            details, chosen.rows, chosen.more, members, strict=True
        )
    )


def _strongest(cards: Sequence[PairCard]) -> list[PairCard]:
    """Return the strongest leaks; at most half are copies where others are left.

    Copies come first, and would take the place of what has to be seen to be believed.
    """
    leaks = [card for card in cards if card.kind in LEAKS and not card.within]
    copies = [card for card in leaks if card.kind == "exact"]
    others = [card for card in leaks if card.kind != "exact"]
    most = max(MOST_STRONGEST // 2, MOST_STRONGEST - len(others))
    return [*copies[:most], *others]


def _redrawn(cards: Sequence[PairCard], pixels: Images, detail: Detail) -> tuple[PairCard, ...]:
    """Return the first few cards, their images stored at another size."""
    shown = cards[:MOST_STRONGEST]
    return tuple(replace(each, card=drawn(each.row, pixels, detail)) for each in shown)


def anchor(row: PairRow) -> str:
    """Return the address of a pair in the page: the same in every page of it.

    >>> anchor({"query_set": "a", "query": "1", "reference_set": "b", "reference": "2"})
    'pair-d3b1dc2e0ef6'
    """
    names = "\0".join(name for end in ends_of(row) for name in end)
    digest = hashlib.blake2b(names.encode("utf-8", "surrogatepass"), digest_size=6)
    return f"pair-{digest.hexdigest()}"


def _files(folder: Path, details: Sequence[PairRow], beside: Path) -> dict[tuple[str, str], str]:
    """Return the addresses of the images of some pairs that are files, from the page's folder."""
    ends = {end for row in details for end in ends_of(row)}
    ids = pa.array(sorted({name for _, name in ends}), pa.string())
    base = Path(read_summary(folder).opened_in)
    table = read_table(folder, IMAGES, ["set", "id", "locator"], pc.field("id").isin(ids))
    found = {}
    for row in table.to_pylist():
        path = base / (row["locator"] or "")
        if (row["set"], row["id"]) in ends and row["locator"] and path.is_file():
            found[row["set"], row["id"]] = quote(os.path.relpath(path, beside))
    return found


def _marks(row: PairRow, pixels: Images) -> Marks:
    """Return where the images of a row differ; nothing where there is nothing to compare."""
    query, reference = map(pixels.get, ends_of(row))
    kind, matrix = kind_of(row["reason"]), relation(row)
    if kind is None or matrix is None or query is None or reference is None:
        return Marks()
    return marks(query, reference, np.reshape(matrix, (3, 3)), kind)


def _known(row: PairRow) -> PairRow:
    """Return a row without numbers that are NaN, and with the columns of verdicts."""
    result: PairRow = {"machine_grade": None, "judged": None, "said": (), **row}
    for name in ("similarity", "probability"):
        value = row[name]
        if value is not None and np.isnan(value):
            result[name] = None
    return result


def _nearest(images: pa.Table, name: str) -> tuple[str, npt.NDArray[np.float64]]:
    """Return the nearest similarities of a query set's images; flat ones are counted apart."""
    mine = pc.and_(pc.equal(images["set"], name), pc.invert(pc.fill_null(images["flat"], False)))
    values = images.filter(mine)["nearest_similarity"].drop_null()
    return name, values.to_numpy().astype(np.float64)


def _classes(
    columns: pa.Table, pairs: Ledger, images: pa.Table, query_sets: Sequence[str]
) -> tuple[tuple[tuple[str, Rate], ...], tuple[int, int]]:
    """Count the leaking images of each class of the query sets.

    Worst first by the lower end of the interval, so that a class of one image that happens to
    leak does not stand above one in which hundreds do.
    """
    plain = pc.invert(pc.fill_null(images["flat"], False))
    mine = pc.and_(plain, pc.is_in(images["set"], pa.array(list(query_sets), pa.string())))
    members = images.filter(pc.and_(mine, pc.is_valid(images["label"])))
    sizes = _counted(members, ["set", "label"])
    if not sizes:
        return (), (0, 0)
    leaking = columns.filter(pa.array(pairs.leak & ~pairs.within))
    first = np.unique(pairs.key[pairs.leak & ~pairs.within], return_index=True)[1]
    leaking = leaking.take(pa.array(first)).select(["query_set", "query"])
    found = members.join(leaking, ["set", "id"], ["query_set", "query"], "left semi")
    leaks = _counted(found, ["set", "label"])
    several = len({name for name, _ in sizes}) > 1
    rates = [
        (f"{name}: {label}" if several else label, Rate.of(leaks.get((name, label), 0), size))
        for (name, label), size in sizes.items()
    ]
    rates.sort(key=lambda item: (-item[1].low, -item[1].count, item[0]))
    worst = tuple(item for item in rates if item[1].count)[:MOST_CLASSES]
    return worst, (len(rates), sum(rate.count == 0 for _, rate in rates))


def _counted(table: pa.Table, keys: list[str]) -> dict[tuple[str, str], int]:
    counts = table.group_by(keys).aggregate([([], "count_all")])
    texts = (counts[key].to_pylist() for key in keys)
    return dict(zip(zip(*texts, strict=True), counts["count_all"].to_pylist(), strict=True))


# -- every listed pair above ``different`` as data of the page, for its table and its filters -----


#: Most pairs of the table, and most bytes of them: the page has to open at once.
MOST: Final = 20_000
MOST_BYTES: Final = 1_500_000

#: Columns of a row of the data. The first six are places in the lists of names.
NAMED: Final = ("query_set", "reference_set", "kind", "query_label", "reference_label", "judged")
ROW: Final = (*NAMED, "query", "reference", "probability", "similarity", "conflict", "card")


@dataclass(frozen=True)
class Listing:
    """The pairs of the table."""

    data: Markup  # a JSON object that cannot end the element it stands in
    names: Mapping[str, Sequence[str]]  # the values of the columns of few values
    between: tuple[str, ...]  # the pairs of sets, as the filter names them
    pairs: int  # how many pairs are listed
    total: int  # how many the audit has above ``different``


def listed(columns: pa.Table, pairs: Ledger, anchors: Mapping[int, str]) -> Listing:
    """Return the strongest listed pairs, leaks and repeats first; ``anchors``: cards by row."""
    wanted = pairs.order[(pairs.leak | pairs.shown)[pairs.order]]
    # leaks before what is only similar, each most certain first
    wanted = wanted[np.argsort(~pairs.leak[wanted], kind="stable")]
    kept = wanted[:MOST]
    known: dict[str, dict[str, int]] = {name: {"": 0} for name in NAMED}
    cards = _cards_of(pairs, anchors)
    rows: list[str] = []
    size = 0
    for named, rest in _table_rows(columns, pairs, kept, cards):
        places = [
            known[name].setdefault(word, len(known[name]))
            for name, word in zip(NAMED, named, strict=True)
        ]
        values = [*places, *rest]
        text = json.dumps(values, separators=(",", ":"))
        size += len(text) + 1
        if size > MOST_BYTES:
            break
        rows.append(text)
    names = {name: list(values) for name, values in known.items()}
    head = json.dumps({"columns": ROW, "names": names}, separators=(",", ":"))
    data = f'{head[:-1]},"rows":[{",".join(rows)}]}}'
    # the only characters that mean anything to a parser of HTML inside a script
    safe = data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Listing(Markup(safe), names, _between(columns, kept), len(rows), len(wanted))


def _between(columns: pa.Table, rows: Int64) -> tuple[str, ...]:
    sets = columns.select(["query_set", "reference_set"]).take(pa.array(rows))
    found = sets.group_by(sets.column_names, use_threads=False).aggregate([]).to_pydict()
    return tuple(
        between(*pair) for pair in zip(found["query_set"], found["reference_set"], strict=True)
    )


def _cards_of(pairs: Ledger, anchors: Mapping[int, str]) -> dict[int, str]:
    """Return the card of each duplicate group: its most certain one."""
    found: dict[int, str] = {}
    for row, anchor in anchors.items():
        found.setdefault(int(pairs.key[row]), anchor)
    return found


def _table_rows(
    columns: pa.Table, pairs: Ledger, rows: Int64, cards: Mapping[int, str]
) -> Iterator[tuple[tuple[str, ...], tuple[str | float | None, ...]]]:
    """Yield the values of each row: those of few kinds, then the others."""
    part = columns.take(pa.array(rows)).to_pydict()
    degrees = zip(part["grade"], part["degree"], strict=True)
    part["kind"] = [grade or degree for grade, degree in degrees]
    named = zip(*([value or "" for value in part[name]] for name in NAMED), strict=True)
    numbers = ([_rounded(value) for value in part[name]] for name in ("probability", "similarity"))
    conflict = pairs.conflict[rows].astype(int).tolist()
    card = [cards.get(int(key), "") for key in pairs.key[rows]]
    rest = zip(part["query"], part["reference"], *numbers, conflict, card, strict=True)
    yield from zip(named, rest, strict=True)


def _rounded(value: float | None) -> float | None:
    """Return four digits; what is not certain does not become it."""
    if value is None or np.isnan(value):
        return None
    return min(max(round(value, 4), 0.0001), 0.9999) if 0.0 < value < 1.0 else round(value, 4)
