"""What the tables of the audit folder show: pairs for the gallery, conflicts, classes, nearest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from visleak.errors import VisleakError
from visleak.gallery import Card, ImageLoader, decoded, drawn, relation
from visleak.records import Bytes8
from visleak.report.choice import COLUMNS, Choice, Ledger, choose, ledger
from visleak.stats import Rate
from visleak.storage import IMAGES, PAIRS, opened_for_arrow, read_table
from visleak.verdicts import Verdict, consensus_of, digests_of, judged_pairs, pair_key
from visleak.verification.marks import Marks, kind_of, marks

#: Most rows of the table of label conflicts.
MOST_CONFLICTS: Final = 100
#: Most classes of the chart.
MOST_CLASSES: Final = 12


@dataclass(frozen=True, slots=True)
class PairCard:
    """One pair of the gallery.

    Attributes:
        images: thumbnails; ``None`` if an image is not available.
        marks: where the content of the two images differs; empty without thumbnails.
    """

    anchor: str
    query_set: str
    query: str
    reference_set: str
    reference: str
    similarity: float | None
    probability: float | None
    grade: str
    machine_grade: str
    judged: str
    said: tuple[tuple[str, str], ...]
    degree: str
    reason: str
    transform: str
    query_label: str
    reference_label: str
    conflict: bool
    within: bool
    modality: str
    coverage: str
    more: int
    card: Card | None
    marks: Marks

    @property
    def kind(self) -> str:
        """Text of the chip: the grade, or the degree if the pair was not verified."""
        return self.grade or self.degree or "ungraded"

    @property
    def between(self) -> str:
        """The two sets, as the filter names them."""
        if self.within:
            return f"within {self.query_set}"
        return f"{self.query_set} → {self.reference_set}"

    @property
    def searched(self) -> str:
        """The text that the search box looks through."""
        parts = (self.query, self.reference, self.query_label, self.reference_label)
        return " ".join(part for part in (*parts, self.judged and "judged") if part).lower()


@dataclass(frozen=True, slots=True)
class Conflict:
    """A leaking or repeated pair whose two labels differ: one of them may be wrong.

    Attributes:
        probability: that the pair is near or exact; ``None`` if it was not verified.
    """

    query_set: str
    query: str
    query_label: str
    reference_set: str
    reference: str
    reference_label: str
    kind: str
    probability: float | None
    anchor: str


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
    conflicts: tuple[Conflict, ...]
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
            _conflict(detail, anchors.get(int(row), ""))
            for row, detail in zip(conflicting, details[len(chosen.rows) :], strict=True)
        ),
        conflict_total=int(pairs.conflict.sum()),
        nearest=tuple(_nearest(images, name) for name in query_sets),
        classes=classes,
        class_total=total,
    )


def _rows(path: Path, wanted: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
    """Read some rows whole, in the order wanted, a batch of the file in memory at a time."""
    found: dict[int, dict[str, Any]] = {}
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
) -> list[dict[str, Any]]:
    """Read some rows whole with verdicts applied, and with what each reviewer says of them."""
    table = judged_pairs(folder, verdicts=said).take(pa.array(wanted))
    consensus = consensus_of(said)
    left, right = (digests.to_pylist() for digests in digests_of(folder, table))
    rows: list[dict[str, Any]] = table.to_pylist()
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


def _conflict(row: dict[str, Any], anchor: str) -> Conflict:
    return Conflict(
        query_set=row["query_set"],
        query=row["query"],
        query_label=row["query_label"] or "",
        reference_set=row["reference_set"],
        reference=row["reference"],
        reference_label=row["reference_label"] or "",
        kind=row["grade"] or row["degree"] or "",
        probability=_known(row["probability"]),
        anchor=anchor,
    )


def _cards(
    details: Sequence[dict[str, Any]], pairs: Ledger, chosen: Choice, loader: ImageLoader | None
) -> tuple[PairCard, ...]:
    pixels = decoded(details, loader) if loader else {}
    return tuple(
        _card(row, f"pair-{number}", bool(pairs.conflict[at]), int(more), pixels)
        for number, (row, at, more) in enumerate(
            zip(details, chosen.rows, chosen.more, strict=True), 1
        )
    )


def _card(
    row: dict[str, Any],
    anchor: str,
    conflict: bool,
    more: int,
    pixels: Mapping[tuple[str, str], Bytes8],
) -> PairCard:
    texts = ("grade", "degree", "reason", "transform", "query_label", "reference_label")
    return PairCard(
        anchor=anchor,
        similarity=_known(row["similarity"]),
        probability=_known(row["probability"]),
        machine_grade=row.get("machine_grade") or "",
        judged=row.get("judged") or "",
        said=row.get("said", ()),
        conflict=conflict,
        within=row["coverage"] == "within",
        more=more,
        card=drawn(row, pixels),
        marks=_marks(row, pixels),
        **{name: row[name] or "" for name in (*texts, "modality", "coverage")},
        **{name: row[name] for name in ("query_set", "query", "reference_set", "reference")},
    )


def _marks(row: Mapping[str, Any], pixels: Mapping[tuple[str, str], Bytes8]) -> Marks:
    """Return where the images of a row differ; nothing where there is nothing to compare."""
    query = pixels.get((row["query_set"], row["query"]))
    reference = pixels.get((row["reference_set"], row["reference"]))
    kind, matrix = kind_of(row["reason"]), relation(row)
    if kind is None or matrix is None or query is None or reference is None:
        return Marks()
    return marks(query, reference, np.reshape(matrix, (3, 3)), kind)


def _known(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else float(value)


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
