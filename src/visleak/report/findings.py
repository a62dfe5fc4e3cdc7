"""What the tables of the audit folder show: pairs for the gallery, conflicts, classes, nearest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from visleak.errors import VisleakError
from visleak.groups import is_word, scale_codes
from visleak.records import DEGREES, GRADES, Bool, Bytes8, Int64, PairRow, ends_of
from visleak.reporting.gallery import Card, ImageLoader, decoded, drawn, relation
from visleak.stats import Rate
from visleak.storage import IMAGES, PAIRS, opened_for_arrow, read_table
from visleak.verdicts import Verdict, consensus_of, digests_of, judged_pairs, pair_key
from visleak.verification.marks import Marks, kind_of, marks

#: Most cards the gallery shows.
CAP: Final = 300
#: So many cards each kind of pair gets before the most certain fill the rest.
FLOOR: Final = 6

#: Columns of the pairs, verdicts applied, that the choice and the counts need.
COLUMNS: Final = [
    "query_set",
    "query",
    "reference_set",
    "similarity",
    "degree",
    "grade",
    "probability",
    "query_label",
    "label_relation",
    "coverage",
    "machine_grade",
]


@dataclass(frozen=True)
class Ledger:
    """The pairs of an audit as plain arrays, one row a pair.

    Attributes:
        key: ``int64``, one number a query image.
        stratum: ``int64``, one number a kind of pair: sets, grade or degree, conflict or not.
        order: rows, most certain first.
    """

    key: Int64
    stratum: Int64
    order: Int64
    leak: Bool
    within: Bool
    conflict: Bool
    shown: Bool
    verified: bool

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True)
class Choice:
    """The rows of the gallery, most certain first, and for each how many more its query has."""

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
    looked = graded | _looked(combine(query_set, reference_set), machine)
    of_degree = ~looked & (degree < len(DEGREES))
    leak = (grade <= GRADES.index("near")) | of_degree
    conflict = leak & is_word(pairs["label_relation"], "different")
    probability = pairs["probability"].to_numpy().astype(np.float64)
    similarity = pairs["similarity"].to_numpy().astype(np.float64)
    certain = np.where(np.isnan(probability), -1.0, probability)
    order = np.lexsort((-similarity, degree, grade, -certain))
    kind = np.where(looked, grade, len(GRADES) + 1 + degree)
    return Ledger(
        key=combine(query_set, codes(pairs["query"])),
        stratum=combine(query_set, reference_set, within, kind, conflict),
        order=order.astype(np.int64),
        leak=leak,
        within=within,
        conflict=conflict,
        shown=(grade <= GRADES.index("similar")) | of_degree,
        verified=bool(graded.any()),
    )


def _looked(couple: Int64, graded: Bool) -> Bool:
    return np.asarray(np.isin(couple, couple[graded]))


def choose(pairs: Ledger, cap: int = CAP) -> Choice:
    """Choose at most ``cap`` pairs, at most one a query, every kind of pair represented.

    A query is shown by its best pair. Only a kind of leak that no best pair is of, such as a
    second reference set that always comes second, takes one card from a query of its own. Rare
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


#: Most rows of the table of label conflicts.
MOST_CONFLICTS: Final = 100
#: Most classes of the chart.
MOST_CLASSES: Final = 12


@dataclass(frozen=True, slots=True)
class PairCard:
    """A pair of the gallery, or without images of the table of conflicts.

    Attributes:
        row: of the judged pairs, with what each reviewer ``said`` of it.
        anchor: of its card; empty without one.
        conflict: a leak or duplicate whose labels differ: one of them may be wrong.
        more: other leaks of its query; of a repeat, other repeats.
        card: ``None`` if an image is not available.
        marks: where the content of the two images differs.
    """

    row: PairRow
    anchor: str
    conflict: bool = True
    more: int = 0
    card: Card | None = None
    marks: Marks = field(default_factory=Marks)

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
        if self.within:
            return f"within {self.row['query_set']}"
        return f"{self.row['query_set']} → {self.row['reference_set']}"

    @property
    def searched(self) -> str:
        """The text that the search box looks through."""
        row = self.row
        labels = (row["query_label"], row["reference_label"])
        judged = "judged" if row.get("judged") else ""
        return " ".join(filter(None, (row["query"], row["reference"], *labels, judged))).lower()


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything the page shows from the tables.

    Attributes:
        pairs: number of pairs in ``pairs.parquet``.
        classes: share of each class's images that leak, worst first; name and rate.
    """

    pairs: int
    verified: bool
    cards: tuple[PairCard, ...]
    conflicts: tuple[PairCard, ...]
    conflict_total: int
    nearest: tuple[tuple[str, npt.NDArray[np.float64]], ...]
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
) -> Findings:
    """Read the two tables, lay verdicts over them, and choose what to show."""
    columns = judged_pairs(folder, COLUMNS, said)
    pairs = ledger(columns)
    chosen = choose(pairs, cap)
    conflicting = _conflicting(pairs)
    rows = np.concatenate([chosen.rows, conflicting])
    details = _judged_rows(folder, rows, said) if said else _rows(folder / PAIRS, rows)
    cards = _cards(details[: len(chosen.rows)], pairs, chosen, loader)
    anchors = {int(row): item.anchor for row, item in zip(chosen.rows, cards, strict=True)}
    images = read_table(folder, IMAGES, ["set", "id", "label", "flat", "nearest_similarity"])
    classes, total = _classes(columns, pairs, images, query_sets)
    return Findings(
        pairs=len(pairs),
        verified=pairs.verified,
        cards=cards,
        conflicts=tuple(
            PairCard(_known(detail), anchors.get(int(row), ""))
            for row, detail in zip(conflicting, details[len(chosen.rows) :], strict=True)
        ),
        conflict_total=int(pairs.conflict.sum()),
        nearest=tuple(_nearest(images, name) for name in query_sets),
        classes=classes,
        class_total=total,
    )


def _rows(path: Path, wanted: npt.NDArray[np.int64]) -> list[PairRow]:
    """Read some rows whole, in the order wanted, a batch of the file in memory at a time."""
    found: dict[int, PairRow] = {}
    start = 0
    try:
        with opened_for_arrow(path) as opened, pq.ParquetFile(opened) as file:
            for batch in file.iter_batches():
                here = np.unique(wanted[(wanted >= start) & (wanted < start + len(batch))])
                details = batch.take(pa.array(here - start)).to_pylist()
                found.update(zip(here.tolist(), details, strict=True))
                start += len(batch)
    except (OSError, pa.ArrowException) as error:
        raise VisleakError(f"{path} cannot be read ({error}); run the audit again") from error
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


def _cards(
    details: Sequence[PairRow], pairs: Ledger, chosen: Choice, loader: ImageLoader | None
) -> tuple[PairCard, ...]:
    pixels = decoded(details, loader) if loader else {}
    return tuple(
        PairCard(
            _known(row),
            f"pair-{number}",
            bool(pairs.conflict[at]),
            int(more),
            drawn(row, pixels),
            _marks(row, pixels),
        )
        for number, (row, at, more) in enumerate(
            zip(details, chosen.rows, chosen.more, strict=True), 1
        )
    )


def _marks(row: PairRow, pixels: Mapping[tuple[str, str], Bytes8]) -> Marks:
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
