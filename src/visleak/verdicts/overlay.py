"""The pairs of an audit with verdicts applied, as every later command reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.groups import image_rows
from visleak.pipeline.comparison import relation, share_classes
from visleak.records import ImageRow, PairRow
from visleak.storage import AUDIT, IMAGES, PAIRS, ComparisonSummary, read_summary, read_table
from visleak.storage.audit_folder import schema_of
from visleak.verdicts.ledger import read_verdicts
from visleak.verdicts.record import NEAR, Consensus, Key, Verdict, consensus_of, pair_key

#: Columns that verdicts add: the automatic grade, and the state of the review.
ADDED: Final = pa.schema([("machine_grade", pa.string()), ("judged", pa.string())])

#: Columns that identify a pair.
_WHO: Final = ("query_set", "query", "reference_set", "reference")
_GRADED: Final = ("grade", "probability")

#: Reason of a pair that the audit had not listed. Stored in tables.
UNLISTED: Final = "judged by a person; the machine had not listed it"


def judged_pairs(
    folder: Path, columns: Sequence[str] | None = None, verdicts: Iterable[Verdict] | None = None
) -> pa.Table:
    """Return ``pairs.parquet`` with the verdicts of people applied.

    If reviewers agree, ``grade`` is theirs and ``probability`` 1 or 0; disputed pairs keep both.
    Two columns are added: ``machine_grade``, and ``judged``: ``human``, ``disputed`` or null.
    Judged pairs that the audit had not listed are added in order; their ``similarity`` is null if
    it was not measured.

    Args:
        folder: the audit folder.
        columns: to return, the added ones among them; by default all.
        verdicts: in order of time; by default those of the folder.

    Raises:
        VisleakError: a file of the folder is damaged.
    """
    consensus = consensus_of(read_verdicts(folder) if verdicts is None else verdicts)
    wanted = list(columns) if columns is not None else [*_schema(folder).names, *ADDED.names]
    if not consensus:
        return _unjudged(folder, wanted)
    stored = [name for name in wanted if name not in ADDED.names]
    needed = list(dict.fromkeys([*stored, *_WHO, *_GRADED]))
    images = _judged_images(folder, consensus)
    table = read_table(folder, PAIRS, needed)
    keys = _keys(table, images, consensus)
    table = _laid_over(table, keys, consensus)
    missing = _unlisted(folder, images, consensus, _listed(table, keys))
    if missing is not None:
        names = table.column_names
        table = pa.concat_tables([table, missing.select(names)])
        if {"similarity", *_WHO} <= set(names):
            table = _sorted(table)
    return table.select(wanted)


def _schema(folder: Path) -> pa.Schema:
    finished = (folder / AUDIT).is_file()
    measured = finished and read_summary(folder).settings.overlap is not None
    return schema_of(PAIRS, overlap=measured)


def disputed(pairs: pa.Table) -> pa.ChunkedArray:
    """Return whether reviewers disagree on each row of judged pairs; never null."""
    return pc.fill_null(pc.equal(pairs["judged"], "disputed"), False)


def digests_of(folder: Path, table: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Return the content digests of the queries and references of rows of a table of pairs.

    Null where only vectors are left of an image.
    """
    images = read_table(folder, IMAGES, ["set", "id", "digest"])
    rows = [image_rows(table, side, images) for side in ("query", "reference")]
    left, right = (images["digest"].take(pa.array(own, mask=own < 0)) for own in rows)
    return left.combine_chunks(), right.combine_chunks()


def _unjudged(folder: Path, wanted: Sequence[str]) -> pa.Table:
    stored = [name for name in wanted if name not in ADDED.names]
    asked = [*stored, "grade"] if "machine_grade" in wanted and "grade" not in stored else stored
    table = read_table(folder, PAIRS, asked)
    if "machine_grade" in wanted:
        table = table.append_column(ADDED.field("machine_grade"), table["grade"])
    if "judged" in wanted:
        nothing = pa.nulls(table.num_rows, pa.string())
        table = table.append_column(ADDED.field("judged"), nothing)
    return table.select(wanted)


def _judged_images(folder: Path, consensus: Mapping[Key, Consensus]) -> pa.Table:
    digests = pa.array(sorted({digest for key in consensus for digest in key}), pa.string())
    columns = ["set", "id", "digest", "label", "flat", "nearest_set", "nearest"]
    return read_table(
        folder, IMAGES, [*columns, "nearest_similarity"], pc.field("digest").isin(digests)
    )


def _keys(table: pa.Table, images: pa.Table, consensus: Mapping[Key, Consensus]) -> dict[int, Key]:
    """Return the judged rows, and the key of each."""
    left, right = (image_rows(table, side, images) for side in ("query", "reference"))
    digests = images["digest"].to_pylist()
    keys = {
        row: pair_key(digests[left[row]], digests[right[row]])
        for row in np.flatnonzero((left >= 0) & (right >= 0)).tolist()
    }
    return {row: key for row, key in keys.items() if key in consensus}


def _laid_over(
    table: pa.Table, keys: Mapping[int, Key], consensus: Mapping[Key, Consensus]
) -> pa.Table:
    """Return the table with the grades of people in the rows that they judged."""
    machine = table["grade"]
    grades = machine.to_numpy(zero_copy_only=False).astype(object)
    chances = table["probability"].to_numpy(zero_copy_only=False).copy()
    judged = np.full(table.num_rows, None, object)
    for row, key in keys.items():
        grade = consensus[key].grade
        judged[row] = "disputed" if grade is None else "human"
        if grade is not None:
            grades[row], chances[row] = grade, float(grade in NEAR)
    columns = {
        "grade": pa.array(grades, pa.string()),
        "probability": pa.array(chances, pa.float32(), from_pandas=True),
    }
    for name, column in columns.items():
        table = table.set_column(table.column_names.index(name), name, column)
    table = table.append_column(ADDED.field("machine_grade"), machine)
    return table.append_column(ADDED.field("judged"), pa.array(judged, pa.string()))


def _listed(table: pa.Table, keys: Mapping[int, Key]) -> set[tuple[str, str, Key]]:
    rows = pa.array(list(keys), pa.int64())
    sets = (table[name].take(rows).to_pylist() for name in ("query_set", "reference_set"))
    return set(zip(*sets, keys.values(), strict=True))


def _unlisted(
    folder: Path,
    images: pa.Table,
    consensus: Mapping[Key, Consensus],
    listed: set[tuple[str, str, Key]],
) -> pa.Table | None:
    """Return rows for the judged pairs that the audit had not listed, ``None`` if all were."""
    holders: dict[tuple[str, str], list[ImageRow]] = {}
    for image in images.to_pylist():
        holders.setdefault((image["set"], image["digest"]), []).append(image)
    rows: list[PairRow] = []
    comparisons = read_summary(folder).comparisons
    for comparison in comparisons:
        own = comparison.query_set, comparison.reference_set
        for key, each in consensus.items():
            if each.grade is None or (*own, key) in listed:
                continue
            # the first said may be the query or the reference; within a set it is the lower id
            for left, right in {key, key[::-1]}:
                rows += _rows(
                    holders.get((own[0], left), ()),
                    holders.get((own[1], right), ()),
                    comparison,
                    each,
                )
    if not rows:
        return None
    table = pa.Table.from_pylist(rows, pa.schema([*_schema(folder), *ADDED]))
    return _related(folder, table, comparisons)


def _rows(
    queries: Sequence[ImageRow],
    references: Sequence[ImageRow],
    comparison: ComparisonSummary,
    consensus: Consensus,
) -> Iterator[PairRow]:
    """Yield the rows of one judged pair of contents in one comparison; blank images have none."""
    inside = comparison.coverage == "within"
    measured = [v.similarity for v in consensus.verdicts if v.similarity is not None]
    for query in queries:
        for reference in references:
            if (inside and query["id"] >= reference["id"]) or query["flat"] or reference["flat"]:
                continue
            nearest = (query["nearest_set"], query["nearest"])
            own = nearest == (reference["set"], reference["id"])
            yield {
                "query_set": query["set"],
                "query": query["id"],
                "reference_set": reference["set"],
                "reference": reference["id"],
                "similarity": query["nearest_similarity"] if own else next(iter(measured), None),
                "grade": consensus.grade,
                "probability": float(consensus.grade in NEAR),
                "reason": UNLISTED,
                "query_label": query["label"],
                "reference_label": reference["label"],
                "modality": comparison.modality,
                "coverage": comparison.coverage,
                "judged": "human",
            }


def _related(folder: Path, table: pa.Table, comparisons: Sequence[ComparisonSummary]) -> pa.Table:
    images = read_table(folder, IMAGES, ["set", "label"])
    labels = {
        name: pc.unique(images.filter(pc.equal(images["set"], name))["label"])
        for name in pc.unique(images["set"]).to_pylist()
    }
    parts = []
    for comparison in comparisons:
        left, right = comparison.query_set, comparison.reference_set
        own = table.filter(
            pc.and_(pc.equal(table["query_set"], left), pc.equal(table["reference_set"], right))
        )
        comparable = (
            left in labels and right in labels and share_classes(labels[left], labels[right])
        )
        said = relation(
            own["query_label"].combine_chunks(), own["reference_label"].combine_chunks(), comparable
        )
        place = own.column_names.index("label_relation")
        parts.append(own.set_column(place, "label_relation", said))
    return pa.concat_tables(parts)


def _sorted(table: pa.Table) -> pa.Table:
    """Return pairs in the order of ``pairs.parquet``; those without a similarity come last."""
    order = pc.sort_indices(
        table,
        sort_keys=[
            ("query_set", "ascending"),
            ("query", "ascending"),
            ("similarity", "descending"),
            ("reference_set", "ascending"),
            ("reference", "ascending"),
        ],
    )
    return table.take(order)
