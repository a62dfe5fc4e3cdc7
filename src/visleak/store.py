"""The audit folder on disk: its tables, and writers that leave either the old file or the new.

Every file is written beside its final name, flushed to the disk and renamed, so that a kill at
any moment leaves no half-written file under a final name.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from visleak.errors import UsageError, VisleakError
from visleak.records import Problem

#: Version of the folder's layout; readers refuse a newer one and read every older one.
SCHEMA: Final = 1

PAIRS_SCHEMA: Final = pa.schema(
    [
        ("query_set", pa.string()),
        ("query", pa.string()),
        ("reference_set", pa.string()),
        ("reference", pa.string()),
        ("similarity", pa.float32()),
        ("background", pa.float32()),
        ("view", pa.string()),
        ("degree", pa.string()),
        ("grade", pa.string()),
        ("probability", pa.float32()),
        ("reason", pa.string()),
        ("transform", pa.string()),
        ("matrix", pa.list_(pa.float32(), 9)),
        ("query_label", pa.string()),
        ("reference_label", pa.string()),
        ("label_relation", pa.string()),
        ("modality", pa.string()),
        ("coverage", pa.string()),
    ]
)

IMAGES_SCHEMA: Final = pa.schema(
    [
        ("set", pa.string()),
        ("id", pa.string()),
        ("digest", pa.string()),
        ("label", pa.string()),
        ("caption", pa.string()),
        ("group", pa.string()),
        ("frame", pa.int64()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("flat", pa.bool_()),
        ("locator", pa.string()),
        ("nearest_set", pa.string()),
        ("nearest", pa.string()),
        ("nearest_similarity", pa.float32()),
        ("background", pa.float32()),
        ("pairs_total", pa.int64()),
    ]
)

PROBLEM_COLUMNS: Final = ("set", "id", "locator", "reason", "detail")

PAIRS: Final = "pairs.parquet"
IMAGES: Final = "images.parquet"
AUDIT: Final = "audit.json"
UNREADABLE: Final = "unreadable.csv"
RECORDINGS: Final = "recordings.csv"
REPORT: Final = "report.html"
SECTIONS: Final = "sections"

#: What people judged of the pairs of an audit: a ledger, and the same as a table.
LEDGER: Final = "verdicts.sqlite"
VERDICTS: Final = "verdicts.csv"

#: What was decided about replacements: a ledger, and the same as a table.
DECISIONS: Final = "replacements.sqlite"
REPLACEMENTS: Final = "replacements.csv"

#: Kinds of documents that lie anywhere: they do not make a folder one of visleak's.
SINGLE: Final = (
    "visleak thresholds",
    "visleak leaderboard",
    "visleak mitigation leaderboard",
    "onnx encoder",
)

#: Held by the run that writes to a folder; it stays there, and says that the folder is visleak's.
LOCK: Final = ".visleak.lock"


@contextmanager
def naming(path: Path, beside: Path | None = None) -> Iterator[None]:
    """Name a file in errors of the system that name none, as those of a full disk.

    Args:
        path: what is written.
        beside: its name until it is whole, which is told to nobody.
    """
    try:
        yield
    except OSError as error:
        ours = error.filename is None or (beside is not None and error.filename == str(beside))
        if not ours or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a name to write to; on success it becomes ``path`` in one step, on failure it goes.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with replacing(target) as beside:
    ...     _ = beside.write_text("whole")
    >>> target.read_text()
    'whole'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with naming(path, beside):
            yield beside
            _flush(beside)
            os.replace(beside, path)
            _flush(path.parent)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def free_file(path: Path, *, force: bool = False, audit: Path | None = None) -> None:
    """Refuse a file that is there already, before any time is spent on what goes into it.

    Args:
        path: the file, which need not be there.
        force: an older one may be replaced.
        audit: folder of the audit that is read, whose own tables are never written over.

    Raises:
        UsageError: it is a folder, is there already, or is a table of the audit.
    """
    if path.is_dir():
        raise UsageError(f"the output {path} is a folder; choose a file with -o FILE")
    if _is_part(path, audit):
        raise UsageError(f"{path} is a part of an audit; choose another file with -o FILE")
    if path.exists() and not force:
        raise UsageError(f"{path} exists; choose another file with -o FILE, or --force replaces it")


def _is_part(path: Path, audit: Path | None) -> bool:
    """Whether a file, there or not yet, is one of those that make an audit: by name or by link."""
    tables = (AUDIT, PAIRS, IMAGES, UNREADABLE, RECORDINGS, LOCK)
    own = (*tables, LEDGER, VERDICTS, DECISIONS, REPLACEMENTS)
    real = path.resolve()
    if real.name in own and (real.parent / AUDIT).is_file():
        return True
    parts = [audit / name for name in own] if audit is not None and path.exists() else []
    return any(path.samefile(part) for part in parts if part.exists())


def refuse_foreign(folder: Path) -> None:
    """Refuse a folder that holds anything, and nothing by which visleak would know it for its own.

    Raises:
        UsageError: it does.
    """
    if not folder.is_dir() or (folder / LOCK).exists():
        return
    others = sorted(name for name in os.listdir(folder) if not name.startswith(".visleak"))
    if others and not any(_is_ours(path) for path in folder.glob("*.json")):
        raise UsageError(
            f"{folder} holds files that visleak did not write, such as {others[0]!r}; choose a new"
            " folder with -o DIR"
        )


def _is_ours(path: Path) -> bool:
    """Whether a document of visleak says so."""
    with suppress(OSError, ValueError, RecursionError):
        content = json.loads(path.read_text("utf-8"))
        if isinstance(content, dict):
            kinds = {str(content[key]) for key in ("kind", "visleak") if key in content}
            ours = "visleak" in content or any(kind.startswith("visleak") for kind in kinds)
            return ours and kinds.isdisjoint(SINGLE)
    return False


def free_folder(folder: str | os.PathLike[str], result: str, *, force: bool = False) -> Path:
    """Return the folder a result may be written to, before any time is spent on it.

    Args:
        folder: need not be there.
        result: name of the file that is written last.
        force: a result that is there already may be replaced.

    Raises:
        UsageError: it is a file, or holds a result already, or files of somebody else.
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise UsageError(f"output {path} is a file; choose a folder with -o DIR")
    if (path / result).exists() and not force:
        raise UsageError(
            f"{path} holds a result already ({result}); choose another folder with -o DIR, or"
            " --force replaces it"
        )
    if not (path / result).exists():
        refuse_foreign(path)
    return path


def remove_unfinished(folder: Path) -> None:
    """Remove files of a folder that processes began to write and were killed over."""
    for beside in folder.glob(".*.part"):
        process = beside.suffixes[-2].removeprefix(".") if len(beside.suffixes) > 1 else ""
        if process.isdecimal() and not _is_running(int(process)):
            beside.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _flush(path: Path) -> None:
    """Push a file, or a folder's list of names, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write a text file in one step.

    Lone surrogates, by which Python keeps file names that are not UTF-8, are written as
    ``\\udc..``: in JSON they come back as they were.
    """
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file in one step."""
    with replacing(path) as beside:
        beside.write_bytes(data)


@contextmanager
def replacing_text(path: Path) -> Iterator[TextIO]:
    """Open a text file to write that appears whole or not at all.

    Raises:
        VisleakError: it cannot be written.
    """
    try:
        with (
            replacing(path) as beside,
            beside.open("w", encoding="utf-8", newline="", errors="backslashreplace") as lines,
        ):
            yield lines
    except OSError as error:
        raise VisleakError(f"{path} cannot be written ({error.strerror})") from error


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file in one step, keys in the order given."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    # a path that is no UTF-8 holds lone surrogates: as escapes they are JSON, and come back
    write_text(path, text.encode("utf-8", "backslashreplace").decode("utf-8"))


def file_digest(path: Path) -> str:
    """Return the BLAKE2b-128 digest of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def write_tables(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> int:
    """Write tables of one schema as the row groups of one Parquet file; return the row count.

    The bytes depend on the tables alone: no time stamp, no machine, no worker count.
    """
    rows = 0
    with (
        replacing(path) as beside,
        # Arrow opens no name that is not UTF-8
        beside.open("wb") as file,
        pq.ParquetWriter(
            file, schema, compression="zstd", write_statistics=True, write_page_checksum=True
        ) as writer,
    ):
        for table in tables:
            writer.write_table(table.cast(schema))
            rows += table.num_rows
    return rows


def csv_cell(value: str) -> str:
    """Return a text that a spreadsheet will not take for a formula; :func:`csv_text` undoes it.

    >>> csv_cell("=cmd()")
    "'=cmd()"
    >>> csv_cell("cat.png")
    'cat.png'
    """
    return f"'{value}" if _is_formula(value) else value


def csv_value(value: str | int | float) -> str:
    """Write a value: numbers as they are, a name so that no spreadsheet runs it.

    >>> [csv_value(value) for value in (-0.03, math.nan, True, 271, "=cmd()")]
    ['-0.03', '', 'yes', '271', "'=cmd()"]
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return csv_cell(value)
    if isinstance(value, int):
        return str(value)
    return "" if math.isnan(value) else f"{value:.10g}"


def csv_text(cell: str) -> str:
    """Return the text behind a cell.

    >>> csv_text("'=cmd()"), csv_text("'tis.png")
    ('=cmd()', "'tis.png")
    """
    return cell[1:] if cell[:1] == "'" and _is_formula(cell) else cell


def _is_formula(value: str) -> bool:
    """Whether a spreadsheet might run a text; quotes before it do not count, so none is lost."""
    return value.lstrip("'")[:1] in ("=", "+", "-", "@", "\t", "\r")


def write_csv_rows(file: TextIO, rows: Iterable[Sequence[object]], delimiter: str = ",") -> None:
    r"""Write rows, each ended by a line feed.

    Python's writer quotes a carriage return only where it is part of what ends its lines, and a
    reader would take it for the end of one.

    >>> import io
    >>> file = io.StringIO()
    >>> write_csv_rows(file, [("a\r", 1)])
    >>> file.getvalue()
    '"a\r",1\n'
    """
    held = io.StringIO(newline="")
    writer = csv.writer(held, delimiter=delimiter, lineterminator="\r\n")
    for row in rows:
        held.seek(0)
        held.truncate()
        writer.writerow(row)
        file.write(held.getvalue().removesuffix("\r\n") + "\n")


def write_csv(path: Path, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Write a CSV file in one step, formula-proof, with its header even when there are no rows."""
    text = io.StringIO(newline="")
    write_csv_rows(text, [header])
    write_csv_rows(text, (tuple(csv_cell(cell) for cell in row) for row in rows))
    write_text(path, text.getvalue())


def write_values(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write rows of :func:`csv_value`s with their header in one step; no row at all, no file.

    Raises:
        VisleakError: it cannot be written.
    """
    held = list(rows)
    if not held:
        path.unlink(missing_ok=True)
        return
    with replacing_text(path) as lines:
        write_csv_rows(lines, [header, *held])


def write_problems(path: Path, problems: Iterable[Problem]) -> None:
    """Write ``unreadable.csv``: set, id, locator, reason, detail; sorted by set and id."""
    rows = sorted((p.set, p.id, p.locator, p.reason, p.detail) for p in problems)
    write_csv(path, PROBLEM_COLUMNS, rows)


def read_problems(path: Path) -> tuple[Problem, ...]:
    """Read ``unreadable.csv`` back.

    Raises:
        VisleakError: the file is damaged.
    """
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            header, *rows = csv.reader(lines)
        if tuple(header) != PROBLEM_COLUMNS:
            raise ValueError(f"its columns are not {', '.join(PROBLEM_COLUMNS)}")
        return tuple(Problem(*map(csv_text, row)) for row in rows)
    except (OSError, ValueError, TypeError, csv.Error) as error:
        raise VisleakError(f"{path} cannot be read ({error}); run the audit again") from error


def read_summary(folder: Path) -> dict[str, Any]:
    """Read ``audit.json`` of an audit folder.

    Raises:
        UsageError: there is no such folder or it holds no finished audit.
        VisleakError: the file is damaged, or a newer visleak wrote it.
    """
    path = folder / AUDIT
    if not path.is_file():
        raise UsageError(
            f"{folder} holds no finished audit (no {AUDIT}); run `visleak audit` first"
        )
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise VisleakError(f"{path} is damaged ({error}); run the audit again") from error
    if not isinstance(summary, dict) or not isinstance(summary.get("schema"), int):
        raise VisleakError(f"{path} is not an audit's summary; run the audit again")
    if summary["schema"] > SCHEMA:
        raise VisleakError(
            f"{path} has schema {summary['schema']}, this visleak reads up to {SCHEMA}:"
            " upgrade visleak"
        )
    return summary


@contextmanager
def opened_for_arrow(path: Path) -> Iterator[Path | IO[bytes]]:
    """Give a file to read as Arrow takes it: by its name, or open, as Arrow's names are UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        with path.open("rb") as file:
            yield file
        return
    yield path


def read_table(
    folder: Path, name: str, columns: list[str] | None = None, where: Any = None
) -> pa.Table:
    """Read a table of an audit folder.

    Args:
        folder: the audit folder.
        name: of the table.
        columns: to read; all by default.
        where: an Arrow expression; rows for which it does not hold are not kept in memory.

    Raises:
        VisleakError: the file is missing or damaged.
    """
    path = folder / name
    try:
        with opened_for_arrow(path) as file:
            return pq.read_table(
                file, columns=columns, filters=where, page_checksum_verification=True
            )
    except (OSError, pa.ArrowException) as error:
        raise VisleakError(f"{path} cannot be read ({error}); run the audit again") from error
