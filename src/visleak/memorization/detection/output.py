"""Writing a detection: JSON, Parquet, CSV, Markdown and figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from visleak.memorization.detection.figures import roc_figure, scores_figure
from visleak.memorization.detection.listing import Listing
from visleak.memorization.detection.markup import markdown
from visleak.memorization.detection.results import Detection
from visleak.memorization.detection.stored import GENERAL_SCORES, RESULT, SCORES, as_dict
from visleak.memorization.detection.tables import roc_table, score_table, token_table
from visleak.memorization.detection.token_figure import tokens_figure
from visleak.memorization.scores import Norm, Scores
from visleak.store import (
    csv_value,
    write_bytes,
    write_json,
    write_tables,
    write_text,
    write_values,
)


def write(result: Detection, listing: Listing, scores: Scores, norm: Norm, folder: Path) -> None:
    """Write everything about a detection into a folder; ``detect.json`` comes last.

    What an earlier result left there and this one has not goes.
    """
    # a result that is half replaced is none
    (folder / RESULT).unlink(missing_ok=True)
    threshold = None if result.threshold is None else result.threshold.value
    _, positive = listing.compared
    kept = positive | listing.ordinary
    d = scores.by(norm)
    tables: tuple[tuple[str, pa.Table | None], ...] = (
        (SCORES, score_table(listing, scores, norm, threshold, general=False)),
        (
            GENERAL_SCORES,
            score_table(listing, scores, norm, threshold, general=True) if result.general else None,
        ),
        ("roc", roc_table(d[kept], positive[kept]) if result.separation else None),
        ("tokens", token_table(result.tokens) if result.tokens else None),
    )
    for name, table in tables:
        _write_table(folder, name, table)
    pictures = (
        ("scores", scores_figure(result, listing, d)),
        ("roc", roc_figure(result, listing, d)),
        ("tokens", tokens_figure(result)),
    )
    for name, files in pictures:
        for kind in ("svg", "png"):
            _write_or_remove(folder / f"{name}.{kind}", files.get(kind, b""))
    write_text(folder / "detect.md", markdown(result))
    write_json(folder / RESULT, as_dict(result))


def _write_table(folder: Path, name: str, table: pa.Table | None) -> None:
    """Write a table as Parquet and, without its lists, as CSV; ``None`` removes both."""
    if table is None:
        for kind in ("parquet", "csv"):
            (folder / f"{name}.{kind}").unlink(missing_ok=True)
        return
    write_tables(folder / f"{name}.parquet", table.schema, [table])
    shown = [field.name for field in table.schema if not pa.types.is_list(field.type)]
    write_values(folder / f"{name}.csv", shown, _cells(table.select(shown)))


def _cells(table: pa.Table) -> Iterator[list[str]]:
    for batch in table.to_batches(max_chunksize=4096):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield [_cell(value) for value in row]


def _cell(value: Any) -> str:
    return "" if value is None else csv_value(value)


def _write_or_remove(path: Path, data: bytes) -> None:
    if data:
        write_bytes(path, data)
    else:
        path.unlink(missing_ok=True)
