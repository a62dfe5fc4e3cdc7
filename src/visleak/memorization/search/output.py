"""Files of a search: what it found as JSON, and its prompts as tables that every verb reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import visleak
from visleak.documents import as_plain, read_document
from visleak.memorization.search.ledger import Banked
from visleak.memorization.search.task import Candidate, SearchTask
from visleak.store import csv_value, write_tables, write_values

SCHEMA: Final = 1

#: Tables of prompts, beside the result.
PROMPTS: Final = "prompts.parquet"
PROMPTS_CSV: Final = "prompts.csv"
BANK: Final = "bank.parquet"

#: Rows of a row group.
_ROWS: Final = 65_536


def kind_of(verb: str) -> str:
    """Return what the result of a verb says it is."""
    return f"visleak memorization {verb}"


def result_name(verb: str) -> str:
    """Return the file that a verb writes last."""
    return f"{verb}.json"


def read_result(folder: Path, verb: str) -> dict[str, Any]:
    """Return the result of ``search``, ``augment`` or ``diversify`` that a folder holds.

    Raises:
        VisleakError: there is none, it is damaged, or a newer visleak wrote it.
    """
    hint = f"it is no result of `{kind_of(verb)}`"
    return read_document(folder / result_name(verb), kind_of(verb), SCHEMA, hint)


def head(verb: str, headline: str, key: str) -> dict[str, Any]:
    """Return how the document of a result begins."""
    return {
        "schema": SCHEMA,
        "kind": kind_of(verb),
        "visleak": visleak.__version__,
        "headline": headline,
        "key": key,
    }


def asked(task: SearchTask) -> dict[str, Any]:
    """Return model, D, chains, seed and budget of a task, as plain data."""
    plain: dict[str, Any] = as_plain(
        {
            "model": task.score.model.about(),
            "score": {**task.score.settings.about(), "asked_at": task.score.timestep},
            "chains": task.chains,
            "seed": task.seed,
            "budget": task.budget,
        }
    )
    return plain


def write_found(
    folder: Path, norm: str, best: Sequence[Candidate], bank: Sequence[Candidate]
) -> None:
    """Write the best prompt of each chain, and the bank; empty prompts are left out."""
    column = f"d_{norm}"
    schema = pa.schema(
        [
            ("prompt", pa.string()),
            (column, pa.float64()),
            ("chain", pa.int32()),
            ("step", pa.int32()),
        ]
    )
    for name, candidates in ((PROMPTS, best), (BANK, bank)):
        rows = [(c.prompt, c.score, c.chain, c.step) for c in candidates if c.prompt]
        write_tables(folder / name, schema, _tables(rows, schema))
        if name == PROMPTS:
            _write_csv(folder / PROMPTS_CSV, schema, rows)


def augment_schema(norm: str) -> pa.Schema:
    """Return the columns of augmented prompts; ``trigger`` is the prompt they were made from."""
    return pa.schema(
        [
            ("prompt", pa.string()),
            ("trigger", pa.string()),
            (f"d_{norm}", pa.float64()),
            ("times", pa.int32()),
            ("changed", pa.int32()),
        ]
    )


def write_banked(path: Path, norm: str, banked: Iterable[Banked]) -> int:
    """Write augmented prompts as they come; return how many."""
    schema = augment_schema(norm)
    return write_tables(path, schema, _tables(_banked_rows(banked), schema))


def write_augmented(folder: Path, norm: str, banked: Sequence[Banked]) -> None:
    """Write the prompts that are kept of all triggers."""
    write_banked(folder / PROMPTS, norm, banked)
    _write_csv(folder / PROMPTS_CSV, augment_schema(norm), list(_banked_rows(banked)))


def write_picks(
    folder: Path, rows: Sequence[tuple[str, int, float | None, str]], column: str
) -> None:
    """Write picks: prompt, row of the list, closeness to earlier picks, group."""
    schema = pa.schema(
        [
            ("prompt", pa.string()),
            ("row", pa.int64()),
            ("closeness", pa.float64()),
            (column, pa.string()),
        ]
    )
    write_tables(folder / PROMPTS, schema, _tables(rows, schema))
    _write_csv(folder / PROMPTS_CSV, schema, rows)


def _banked_rows(banked: Iterable[Banked]) -> Iterator[tuple[Any, ...]]:
    return ((b.prompt, b.source, b.mean, b.times, b.changed) for b in banked)


def _tables(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield rows as tables of bounded size; one of no rows where there are none."""
    left = iter(rows)
    part = list(islice(left, _ROWS))
    while True:
        columns = list(zip(*part, strict=True)) if part else [() for _ in schema]
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)
        ]
        yield pa.Table.from_arrays(arrays, schema=schema)
        part = list(islice(left, _ROWS))
        if not part:
            return


def _write_csv(path: Path, schema: pa.Schema, rows: Iterable[tuple[Any, ...]]) -> None:
    texts = [["" if cell is None else csv_value(cell) for cell in row] for row in rows]
    write_values(path, schema.names, texts)
