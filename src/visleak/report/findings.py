"""What the tables of the audit folder show: pairs for the gallery, conflicts, classes, nearest."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from visleak import records
from visleak.groups import components, is_word, scale_codes
from visleak.rates import Rate
from visleak.records import DEGREES, GRADES, Bool, Bytes8, Float64, Int64, PairRow, ends_of
from visleak.reporting import gallery
from visleak.reporting.gallery import Card, Detail, ImageLoader, Marks, Thumb, drawn, relation
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
    *("query_set", "query", "reference_set", "reference", "similarity", "degree", "grade"),
    *("probability", "query_label", "reference_label", "label_relation", "coverage"),
    "machine_grade",
]


@dataclass(frozen=True)
class Ledger:
    """The pairs of an audit as plain arrays, one row per pair."""

    key: Int64  # one number per duplicate group of query images
    stratum: Int64  # one number per kind of pair: sets, grade or degree, conflict or not
    order: Int64  # rows, most certain first
    leak: Bool
    within: Bool
    conflict: Bool
    shown: Bool
    verified: bool
    group: Int64  # (images,), the number of each image's group, in the order of ``first``
    first: Int64  # (images,), where an image occurs first: row, or rows + row as reference

    def __len__(self) -> int:
        return len(self.key)

    def members(self, keys: Int64) -> dict[int, Int64]:
        """Return where the images of some groups occur first."""
        order = np.argsort(self.group, kind="stable")
        ascending = self.group[order]
        starts, ends = (np.searchsorted(ascending, keys, side) for side in ("left", "right"))
        return {
            int(key): np.sort(self.first[order[start:end]])
            for key, start, end in zip(keys, starts, ends, strict=True)
        }


class Choice(NamedTuple):
    """The rows of the gallery, most certain first, and for each how many more its group has."""

    rows: Int64
    more: Int64


def ledger(pairs: pa.Table) -> Ledger:
    """Turn the columns :data:`COLUMNS` into arrays."""
    grade, machine = (
        scale_codes(pairs[name], GRADES, len(GRADES)) for name in ("grade", "machine_grade")
    )
    degree = scale_codes(pairs["degree"], DEGREES, len(DEGREES))
    graded, near = grade < len(GRADES), grade <= GRADES.index("near")
    couple = combine(codes(pairs["query_set"]), codes(pairs["reference_set"]))
    # people judge some pairs, verification covers all of a comparison
    looked = graded | np.isin(couple, couple[machine < len(GRADES)])
    of_degree = ~looked & (degree < len(DEGREES))
    leak = near | of_degree
    conflict = leak & is_word(pairs["label_relation"], "different")
    within = is_word(pairs["coverage"], "within")
    probability, similarity = (
        pairs[name].to_numpy().astype(np.float64) for name in ("probability", "similarity")
    )
    certain = np.where(np.isnan(probability), -1.0, probability)
    # the same template is more than another image, however small the probability of near
    different = grade == GRADES.index("different")
    # the images at both ends of all pairs, queries first
    images = combine(
        *(
            codes(pa.chunked_array([*pairs[query].chunks, *pairs[reference].chunks], pa.string()))
            for query, reference in (("query_set", "reference_set"), ("query", "reference"))
        )
    )
    queries, references = images.reshape(2, -1)
    first = np.unique(images, return_index=True)[1].astype(np.int64)
    # similarity alone connects strangers: only grades make groups
    group = components(len(first), [(queries[near], references[near])])
    return Ledger(
        key=group[queries],
        stratum=combine(
            couple, within, np.where(looked, grade, len(GRADES) + 1 + degree), conflict
        ),
        order=np.lexsort((-similarity, degree, grade, -certain, different)).astype(np.int64),
        leak=leak,
        within=within,
        conflict=conflict,
        shown=(grade <= GRADES.index("similar")) | of_degree,
        verified=bool(graded.any()),
        group=group,
        first=first,
    )


def choose(pairs: Ledger, cap: int = CAP) -> Choice:
    """Choose at most ``cap`` pairs, at most one per group, every kind of pair represented.

    A group is shown by its best pair. Only a kind of leak that no best pair is of, such as a
    second reference set that always comes second, takes one card from a group of its own. Rare
    kinds choose first; the rest goes to the most certain pairs. The answer depends on the rows
    alone.
    """
    best = _first_of_each(pairs.key, pairs.order)
    strata, sizes = np.unique(pairs.stratum, return_counts=True)
    floor = max(1, min(FLOOR, cap // (2 * max(1, len(strata)))))
    behind = np.setdiff1d(strata, pairs.stratum[best])
    picked: dict[int, int] = {}  # group to row

    def pick(rows: Int64, most: int) -> None:
        for row in rows.tolist():
            if most == 0 or len(picked) >= cap:
                break
            if picked.setdefault(int(pairs.key[row]), row) == row:
                most -= 1

    orphans = pairs.order[np.isin(pairs.stratum, behind)[pairs.order] & pairs.leak[pairs.order]]
    rows = np.concatenate([orphans, best])
    rows = rows[np.argsort(pairs.stratum[rows], kind="stable")]
    starts, ends = (np.searchsorted(pairs.stratum[rows], strata, s) for s in ("left", "right"))
    for kind in np.argsort(sizes, kind="stable"):
        pick(rows[starts[kind] : ends[kind]], 1 if strata[kind] in behind else floor)
    pick(best[pairs.shown[best]], cap)
    chosen = pairs.order[np.isin(pairs.order, list(picked.values()))]
    side = combine(pairs.key, pairs.within)
    leaks = np.bincount(side[pairs.leak], minlength=int(side.max(initial=0)) + 1)
    return Choice(chosen, np.asarray(leaks[side[chosen]] - pairs.leak[chosen], np.int64))


def _first_of_each(values: Int64, rows: Int64) -> Int64:
    """Return of some rows the first one of each value."""
    return rows[np.sort(np.unique(values[rows], return_index=True)[1])]


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

#: Set and id of an image, and the pixels of images.
Key = tuple[str, str]
Images = Mapping[Key, Bytes8]


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
    files: tuple[str, ...] = ("", "")

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
        return records.between(self.row["query_set"], self.row["reference_set"])

    @property
    def searched(self) -> str:
        """The text that the search box looks through."""
        row = self.row
        ids = (row["query"], row["reference"], *(each.id for each in self.members))
        labels = (row["query_label"], row["reference_label"])
        return " ".join(filter(None, (*ids, *labels, row["judged"] and "judged"))).lower()

    @property
    def matrix(self) -> str:
        """How the query lies on the reference, as nine numbers."""
        return " ".join(f"{value:.5g}" for value in relation(self.row) or ())

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
    nearest: tuple[tuple[str, Float64], ...]
    classes: tuple[tuple[str, Rate], ...]  # share of each class's images that leak, worst first
    class_total: tuple[int, int]  # classes, and those without a leak

    @property
    def marked(self) -> bool:
        """Whether differing content is marked on any card."""
        return any(card.marks for card in self.cards)


def read(
    folder: Path,
    query_sets: Sequence[str],
    loader: ImageLoader | None,
    cap: int,
    verdicts: Sequence[Verdict] = (),
    beside: Path | None = None,
) -> Findings:
    """Read the two tables, lay verdicts over them, and choose what to show.

    ``beside`` is the folder of the page, from which it links to files; ``None`` for no links.
    """
    columns, place, total_pairs = _columns(folder, verdicts)
    pairs = ledger(columns)
    chosen = choose(pairs, cap)
    conflicts = _first_of_each(pairs.key, pairs.order[pairs.conflict[pairs.order]])[:MOST_CONFLICTS]
    details = _details(folder, place[np.concatenate([chosen.rows, conflicts])], verdicts)
    own, conflicting = details[: len(chosen.rows)], details[len(chosen.rows) :]
    members = _members(columns, pairs, chosen, own)
    pixels: Images = {}
    files: Mapping[Key, str] = {}
    if loader is not None:
        further = [key for others, _ in members for key in others]
        pixels = gallery.decoded(own, loader, further[:MOST_MEMBERS_OF_ALL])
        files = _files(folder, own, beside) if beside is not None else {}
    detail = Detail.of(len(own))
    cards = tuple(
        PairCard(
            row,
            anchor(row),
            bool(pairs.conflict[at]),
            int(more),
            drawn(row, pixels, detail),
            _marks(row, pixels),
            tuple(
                Member(*key, gallery.thumb(pixels[key], gallery.SMALL) if key in pixels else None)
                for key in others
            ),
            left_out,
            tuple(files.get(end, "") for end in ends_of(row)),
        )
        for row, at, more, (others, left_out) in zip(own, *chosen, members, strict=True)
    )
    anchors = {int(row): card.anchor for row, card in zip(chosen.rows, cards, strict=True)}
    repeats = [card for card in cards if card.within and card.kind != "different"]
    images = read_table(folder, IMAGES, ["set", "id", "label", "flat", "nearest_similarity"])
    # blank images are counted apart
    images = images.filter(pc.invert(pc.fill_null(images["flat"], False)))
    classes, class_total = _classes(columns, pairs, images, query_sets)
    return Findings(
        pairs=total_pairs,
        verified=pairs.verified,
        cards=cards,
        strongest=_redrawn(_strongest(cards), pixels, LARGE),
        repeats=_redrawn(repeats, pixels, Detail.of(CAP)),
        listing=listed(columns, pairs, anchors),
        conflicts=tuple(
            PairCard(row, anchors.get(int(at), ""))
            for at, row in zip(conflicts, conflicting, strict=True)
        ),
        conflict_total=int(pairs.conflict.sum()),
        nearest=tuple((name, _nearest(images, name)) for name in query_sets),
        classes=classes,
        class_total=class_total,
    )


def _columns(folder: Path, verdicts: Sequence[Verdict]) -> tuple[pa.Table, Int64, int]:
    """Return :data:`COLUMNS` of the pairs that a page may show, their rows, and the number of all.

    Most pairs of a large audit are of different images: without verdicts, only the strongest of
    each image are read into memory.
    """
    if verdicts:
        columns = judged_pairs(folder, [*COLUMNS, "judged"], verdicts)
        return columns, np.arange(columns.num_rows), columns.num_rows
    kept, place, total = [], [np.empty(0, np.int64)], 0
    for batch in table_batches(folder, PAIRS, COLUMNS[:-1]):
        rows = _strongest_rows(pa.table(batch))
        kept.append(batch.take(pa.array(rows)))
        place.append(total + rows)
        total += len(batch)
    schema = pa.schema([PAIRS_SCHEMA.field(name) for name in COLUMNS[:-1]])
    return as_unjudged(pa.Table.from_batches(kept, schema)), np.concatenate(place), total


def _strongest_rows(pairs: pa.Table) -> Int64:
    """Return the rows that a page may show: without the weaker ones of different images.

    Of these the best one of an image and a set is kept, and the best one without a grade.
    """
    grade = scale_codes(pairs["grade"], GRADES, len(GRADES))
    degree = scale_codes(pairs["degree"], DEGREES, len(DEGREES))
    listed = (grade <= GRADES.index("similar")) | (degree < len(DEGREES))
    probability = pairs["probability"].fill_null(-1.0).to_numpy()
    ends = [codes(pairs[name]) for name in ("query_set", "query", "reference_set")]
    own = combine(*ends, grade < len(GRADES))
    order = np.lexsort((-pairs["similarity"].to_numpy(), -probability, own))
    first = order[np.flatnonzero(np.diff(own[order], prepend=-1))]
    return np.union1d(np.flatnonzero(listed), first)


def _details(folder: Path, wanted: Int64, verdicts: Sequence[Verdict]) -> list[PairRow]:
    """Read some rows whole, with verdicts applied and what each reviewer says; NaN is ``None``."""
    rows: list[PairRow]
    if verdicts:
        table = judged_pairs(folder, verdicts=verdicts).take(pa.array(wanted))
        consensus = consensus_of(verdicts)
        rows = table.to_pylist()
        digests = zip(*(each.to_pylist() for each in digests_of(folder, table)), strict=True)
        for row, ends in zip(rows, digests, strict=True):
            standing = consensus.get(pair_key(*ends)) if all(ends) else None
            verdicts = standing.verdicts if standing else ()
            row["said"] = tuple((verdict.reviewer, verdict.judgment) for verdict in verdicts)
    else:
        rows = _unjudged_rows(folder, wanted)
    for row in rows:
        for name in ("similarity", "probability"):
            value = row[name]
            row[name] = None if value is None or np.isnan(value) else value
    return rows


def _unjudged_rows(folder: Path, wanted: Int64) -> list[PairRow]:
    """Read some rows whole, in the order wanted, a batch of the file in memory at a time."""
    found: dict[int, PairRow] = {}
    start = 0
    for batch in table_batches(folder, PAIRS):
        here = np.unique(wanted[(wanted >= start) & (wanted < start + len(batch))])
        details = batch.take(pa.array(here - start)).to_pylist()
        found.update(zip(here.tolist(), details, strict=True))
        start += len(batch)
    return [
        {"machine_grade": None, "judged": None, "said": (), **found[row]} for row in wanted.tolist()
    ]


def _members(
    columns: pa.Table, pairs: Ledger, chosen: Choice, details: Sequence[PairRow]
) -> list[tuple[list[Key], int]]:
    """Return for each card further images of its group, and how many are not named."""
    places = pairs.members(np.unique(pairs.key[chosen.rows]))
    found = []
    for key, detail in zip(pairs.key[chosen.rows].tolist(), details, strict=True):
        # the two images of the card are in its own group, or the reference is in none
        first = places[key][: MOST_MEMBERS + 2].tolist()
        names = [_image_at(columns, place) for place in first]
        others = [name for name in names if name not in ends_of(detail)]
        total = len(places[key]) - 1 - (detail["grade"] in LEAKS[:2])
        found.append((others[: min(MOST_MEMBERS, total)], max(0, total - MOST_MEMBERS)))
    return found


def _image_at(columns: pa.Table, place: int) -> Key:
    side, row = divmod(place, columns.num_rows)
    name = ("query", "reference")[side]
    return columns[f"{name}_set"][row].as_py(), columns[name][row].as_py()


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


def _files(folder: Path, details: Sequence[PairRow], beside: Path) -> dict[Key, str]:
    """Return the addresses of the images of some pairs that are files, from the page's folder."""
    ends = {end for row in details for end in ends_of(row)}
    ids = pa.array(sorted({name for _, name in ends}), pa.string())
    base = Path(read_summary(folder).opened_in)
    table = read_table(folder, IMAGES, ["set", "id", "locator"], pc.field("id").isin(ids))
    return {
        (row["set"], row["id"]): quote(os.path.relpath(base / row["locator"], beside))
        for row in table.to_pylist()
        if (row["set"], row["id"]) in ends and row["locator"] and (base / row["locator"]).is_file()
    }


def _marks(row: PairRow, pixels: Images) -> Marks:
    """Return where the images of a row differ; nothing where there is nothing to compare."""
    query, reference = map(pixels.get, ends_of(row))
    kind, matrix = gallery.kind_of(row["reason"]), relation(row)
    if kind is None or matrix is None or query is None or reference is None:
        return Marks()
    return gallery.marks(query, reference, np.reshape(matrix, (3, 3)), kind)


def _nearest(images: pa.Table, name: str) -> Float64:
    own = images.filter(pc.equal(images["set"], name))
    return np.asarray(own["nearest_similarity"].drop_null().to_numpy(), np.float64)


def _classes(
    columns: pa.Table, pairs: Ledger, images: pa.Table, query_sets: Sequence[str]
) -> tuple[tuple[tuple[str, Rate], ...], tuple[int, int]]:
    """Count the leaking images of each class of the query sets.

    Worst first by the lower end of the interval, so that a class of one image that happens to
    leak does not stand above one in which hundreds do.
    """
    mine = pc.is_in(images["set"], pa.array(query_sets, pa.string()))
    members = images.filter(pc.and_(mine, pc.is_valid(images["label"])))
    sizes = _counted(members)
    rows = _first_of_each(pairs.key, np.flatnonzero(pairs.leak & ~pairs.within))
    leaking = columns.select(["query_set", "query"]).take(pa.array(rows))
    leaks = _counted(members.join(leaking, ["set", "id"], ["query_set", "query"], "left semi"))
    several = len({name for name, _ in sizes}) > 1
    rates = [
        (f"{name}: {label}" if several else label, Rate.of(leaks.get((name, label), 0), size))
        for (name, label), size in sizes.items()
    ]
    rates.sort(key=lambda item: (-item[1].low, -item[1].count, item[0]))
    worst = tuple(item for item in rates if item[1].count)
    return worst[:MOST_CLASSES], (len(rates), len(rates) - len(worst))


def _counted(images: pa.Table) -> dict[Key, int]:
    counts = images.group_by(["set", "label"]).aggregate([([], "count_all")])
    return {(row["set"], row["label"]): row["count_all"] for row in counts.to_pylist()}


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
    # the card of each duplicate group: its most certain one
    cards: dict[int, str] = {}
    for row, name in anchors.items():
        cards.setdefault(int(pairs.key[row]), name)
    part = columns.take(pa.array(kept)).to_pydict()
    part["kind"] = [g or d for g, d in zip(part["grade"], part["degree"], strict=True)]
    part["conflict"] = pairs.conflict[kept].astype(int).tolist()
    part["card"] = [cards.get(key, "") for key in pairs.key[kept].tolist()]
    for name in ("probability", "similarity"):
        part[name] = [_rounded(value) for value in part[name]]
    known: dict[str, dict[str, int]] = {name: {"": 0} for name in NAMED}
    rows: list[str] = []
    size = 0
    for values in zip(*(part[name] for name in ROW), strict=True):
        named = zip(known.values(), values, strict=False)
        places = [numbers.setdefault(word or "", len(numbers)) for numbers, word in named]
        text = json.dumps([*places, *values[len(NAMED) :]], separators=(",", ":"))
        size += len(text) + 1
        if size > MOST_BYTES:
            break
        rows.append(text)
    names = {name: list(numbers) for name, numbers in known.items()}
    head = json.dumps({"columns": ROW, "names": names}, separators=(",", ":"))
    data = f'{head[:-1]},"rows":[{",".join(rows)}]}}'
    # the only characters that mean anything to a parser of HTML inside a script
    safe = data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    sets = zip(part["query_set"], part["reference_set"], strict=True)
    between = tuple(records.between(*pair) for pair in dict.fromkeys(sets))
    return Listing(Markup(safe), names, between, len(rows), len(wanted))


def _rounded(value: float | None) -> float | None:
    """Return four digits; what is not certain does not become it."""
    if value is None or np.isnan(value):
        return None
    return min(max(round(value, 4), 0.0001), 0.9999) if 0.0 < value < 1.0 else round(value, 4)
