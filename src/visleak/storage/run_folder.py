"""The folder of a run: claimed by one process, reused, resumed, and finished by its JSON file."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

import visleak
from visleak.delimited import write_csv_rows
from visleak.documents import as_plain, read_document, read_record
from visleak.errors import UsageError, VisleakError, brief
from visleak.formats.listing import split_glob
from visleak.formats.sources import place_of
from visleak.records import AnySet
from visleak.storage.audit_folder import (
    AUDIT,
    DECISIONS,
    IMAGES,
    LEDGER,
    PAIRS,
    RECORDINGS,
    REPLACEMENTS,
    SEGMENTS,
    UNREADABLE,
    VERDICTS,
    AuditSummary,
)
from visleak.storage.database import rows_lacking
from visleak.storage.files import (
    csv_cell,
    csv_value,
    replacing_text,
    write_bytes,
    write_json,
    write_tables,
    write_text,
)

#: Scratch folders of runs that were killed are removed if their name begins so.
SCRATCH_PREFIX: Final = ".visleak-scratch-"
#: Kinds of documents that lie anywhere: they do not make a folder one of visleak's.
SINGLE: Final = (
    "visleak thresholds",
    "visleak leaderboard",
    "visleak mitigation leaderboard",
    "onnx encoder",
)
#: Locked by the run that writes to a folder; the file remains and marks a folder of visleak.
LOCK: Final = ".visleak.lock"
#: Errors of a folder that may be read and not written to.
READ_ONLY: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
#: The document of embeddings and, by its kind, of data sets that were written.
_MANIFEST: Final = "manifest.json"
_CLEAN_SET: Final = "visleak-clean-set"
#: Endings of files that are changed in place.
IN_PLACE: Final = (".sqlite", ".sqlite-wal", ".sqlite-shm", ".lock")
Record = TypeVar("Record")
#: Content of a file of a result: text, bytes, or a table, written as Parquet or CSV by the name of
#: the file; ``None`` and empty content remove the file or the folder of that name.
File: TypeAlias = "str | bytes | pa.Table | None"
_ROWS: Final = 4096  # rows of a table that are turned into texts at a time


def free_file(path: Path, *, force: bool = False, audit: Path | None = None) -> None:
    """Refuse an existing file before any time is spent on its content."""
    if path.is_dir():
        raise UsageError(f"the output {path} is a folder; choose a file with -o FILE")
    if _is_part(path, audit):
        raise UsageError(f"{path} is a part of an audit; choose another file with -o FILE")
    if path.exists() and not force:
        raise UsageError(f"{path} exists; choose another file with -o FILE, or --force replaces it")


def free_table(path: Path, columns: Sequence[str]) -> None:
    """Refuse another file in the place of a table that is written beside a result."""
    if not path.exists():
        return
    header = ",".join(columns).encode()
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(header)) == header:
                return
    raise UsageError(f"{path} is another file, and would be replaced; choose another name with -o")


def _is_part(path: Path, audit: Path | None) -> bool:
    """Whether a file, there or not yet, is one of those that make an audit: by name or by link."""
    tables = (AUDIT, PAIRS, IMAGES, UNREADABLE, RECORDINGS, SEGMENTS, LOCK)
    own = (*tables, LEDGER, VERDICTS, DECISIONS, REPLACEMENTS)
    real = path.resolve()
    if real.name in own and (real.parent / AUDIT).is_file():
        return True
    parts = [audit / name for name in own] if audit is not None and path.exists() else []
    return any(path.samefile(part) for part in parts if part.exists())


def refuse_foreign(folder: Path, result: str = "") -> None:
    """Refuse a folder with files of others only, which visleak would replace.

    With the name of a result, a folder of another command is refused too, as files of the same
    name, such as report.html, would be replaced.
    """
    other = _other_result(folder, result) if result else None
    if other is not None:
        raise UsageError(
            f"{folder} holds a result of {other}, whose files would be replaced; choose another"
            " folder with -o DIR"
        )
    if not folder.is_dir() or (folder / LOCK).exists():
        return
    others = sorted(name for name in os.listdir(folder) if not name.startswith(".visleak"))
    if others and not any(_is_ours(path) for path in folder.glob("*.json")):
        raise UsageError(
            f"{folder} holds files that visleak did not write, such as {others[0]!r}; choose a new"
            " folder with -o DIR"
        )


def _other_result(folder: Path, result: str) -> str | None:
    """Return the kind of a result of another command in a folder, ``None`` without one."""
    for path in sorted(folder.glob("*.json")):
        if not _is_ours(path):
            continue
        kind = next((each for each in _kinds(path) if each.startswith("visleak")), "visleak audit")
        if path.name == result and kind != _CLEAN_SET:
            continue
        # the same command keeps its request or plan beside its result
        same = kind.startswith(f"visleak {Path(result).stem} ")
        if not same and (path.name in (AUDIT, _MANIFEST) or kind.endswith(f" {path.stem}")):
            return kind
    return None


def _is_ours(path: Path) -> bool:
    """Whether a document marks its folder as one of visleak's."""
    return bool(kinds := _kinds(path)) and kinds.isdisjoint(SINGLE)


def _kinds(path: Path) -> set[str]:
    """Return kind and version of a document of visleak; empty for other files."""
    with suppress(OSError, ValueError, RecursionError):
        content = json.loads(path.read_text("utf-8"))
        if isinstance(content, dict):
            kinds = {str(content[key]) for key in ("kind", "visleak") if key in content}
            known = any(kind.startswith("visleak") or kind in SINGLE for kind in kinds)
            return kinds if "visleak" in content or known else set()
    return set()


def free_folder(folder: str | os.PathLike[str], result: str, *, force: bool = False) -> Path:
    """Return the folder for a result, or refuse it before any time is spent."""
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise UsageError(f"output {path} is a file; choose a folder with -o DIR")
    if not (path / result).exists():
        refuse_foreign(path, result)
    elif not force:
        raise UsageError(
            f"{path} holds a result already ({result}); choose another folder with -o DIR, or"
            " --force replaces it"
        )
    return path


def keep_previous(path: Path, result: str) -> Path | None:
    """Keep the folder of a result beside itself, as ``NAME.previous``; return its path, if any.

    Files are linked where possible: all writers replace whole files. Databases are changed in
    place, so they are copied. A result that was kept earlier is removed, unless it has judgments
    of people that this one lacks.
    """
    if not (path / result).is_file():
        return None
    path = Path(os.path.abspath(path)) if path.name in ("", "..") else path
    aside = path.with_name(f"{path.name}.previous")
    refuse_foreign(path, result)
    _refuse_aside(aside, path, result)
    beside = aside.with_name(f".{aside.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    ignored = shutil.ignore_patterns(f"{SCRATCH_PREFIX}*", "*.part")
    try:
        shutil.copytree(path, beside, copy_function=_link, ignore=ignored)
        if aside.exists():
            shutil.rmtree(aside)
        beside.rename(aside)
    except (OSError, shutil.Error) as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise VisleakError(
            f"the earlier result of {path} cannot be kept in {aside} ({brief(error)}); make room,"
            " or --force replaces it without"
        ) from error
    return aside


def keep_file(path: Path, kind: str) -> Path | None:
    """Keep a file of visleak beside itself, as ``NAME.previous.json``; return its path."""
    aside = path.with_name(f"{path.stem}.previous{path.suffix}")
    if not _is_result(path, kind):
        return None
    if os.path.lexists(aside) and not _is_result(aside, kind):
        raise UsageError(f"{aside} is not a file of visleak; move it, or choose -o FILE")
    aside.unlink(missing_ok=True)
    _link(path, aside)
    return aside


def _refuse_aside(aside: Path, path: Path, result: str) -> None:
    """Refuse to replace other files than a kept result, or judgments that are only there."""
    if os.path.lexists(aside) and (aside.is_symlink() or not aside.is_dir()):
        raise UsageError(f"{aside} is not a folder of visleak; move it, or choose -o DIR")
    refuse_foreign(aside, result)
    for database in (LEDGER, DECISIONS):
        for kept in sorted(aside.rglob(database)):
            if count := rows_lacking(path / kept.relative_to(aside), kept):
                raise UsageError(
                    f"{kept} holds judgments of people that {path} lacks ({count:,}) and would be"
                    " replaced; rename the folder, or choose another one with -o DIR"
                )


def _link(source: str | Path, target: str | Path) -> None:
    """Link a file that is never changed in place; copy other files, and where links fail."""
    if Path(source).suffix not in IN_PLACE:
        with suppress(OSError):
            os.link(source, target)
            return
    shutil.copy2(source, target)


def _is_result(path: Path, kind: str) -> bool:
    """Whether visleak wrote a file of a kind, by its content or its metadata."""
    if path.suffix == ".parquet" and path.is_file():
        with suppress(OSError, ValueError):
            about = json.loads((pq.read_schema(path).metadata or {}).get(b"visleak", b"{}"))
            return isinstance(about, dict) and about.get("kind") == kind
    return path.suffix == ".json" and kind in _kinds(path)


def remove_unfinished(folder: Path) -> None:
    """Remove files of a folder that processes began to write and were killed over."""
    for beside in folder.glob(".*.part"):
        process = beside.suffixes[-2].removeprefix(".") if len(beside.suffixes) > 1 else ""
        if process.isdecimal() and not is_running(int(process)):
            beside.unlink(missing_ok=True)


def is_running(process: int) -> bool:
    """Whether there is such a process, of whatever user."""
    try:
        os.kill(process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def refuse_inputs(out: Path, sources: Iterable[tuple[str, str]], base: Path) -> None:
    """Refuse an output within an input, and an input within the output."""
    held = list(sources)
    refuse_among(out, held, base)
    for name, place in _places(held, base):
        if place.is_relative_to(out.resolve()):
            raise UsageError(
                f"{name!r} ({place}) lies in the output {out}, which would be written over; choose"
                " another folder with -o DIR"
            )


def refuse_among(
    out: Path,
    sources: Iterable[tuple[str, str]],
    base: Path,
    what: str = "output",
    option: str = "-o DIR",
) -> None:
    """Refuse an output within an input."""
    for name, place in _places(sources, base):
        if place.is_dir() and out.resolve().is_relative_to(place):
            raise UsageError(
                f"{what} {out} lies among the images of {name!r}, which are only read; choose"
                f" another place with {option}"
            )


def _places(sources: Iterable[tuple[str, str]], base: Path) -> Iterator[tuple[str, Path]]:
    """Yield the sources that are on this machine; a set given in memory has none."""
    for name, source in sources:
        place = source and place_of(source, base)
        if place and "**" in place.parts and not place.exists():
            place = Path(split_glob(str(place))[0])  # it takes all that lies below
        if place and place.exists():
            yield name, place.resolve()


def refuse_sets(summary: AuditSummary, out: Path) -> None:
    """Refuse an output within the sets of an audit, or around them."""
    sources = [(each.name, each.source) for each in summary.sets]
    refuse_inputs(out, sources, Path(summary.opened_in))


@contextmanager
def claimed(
    folder: Path, sets: Sequence[AnySet] = (), result: str = "", *, reads: bool = True
) -> Iterator[None]:
    """Hold a folder for this run; remove what killed runs left behind.

    Args:
        folder: the folder.
        sets: what is read, among which nothing is written.
        result: the file that makes the folder a finished result.
        reads: whether a folder that cannot be written to and has a result is only read.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"the output {folder} is a file; choose a folder with -o DIR")
    refuse_inputs(folder, [(images.name, images.source) for images in sets], Path())
    refuse_foreign(folder, result)
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("a")
    except OSError as error:
        if error.errno in READ_ONLY and reads and result and (folder / result).is_file():
            yield
            return
        raise VisleakError(
            f"the output folder {folder} cannot be written ({error.strerror or error})"
        ) from error
    try:
        with lock:
            if not try_lock(lock.fileno()):
                raise VisleakError(
                    f"another run is writing to {folder}; wait for it or choose another -o DIR"
                )
            remove_leftovers(folder)
            yield
    except UsageError:
        # what was refused leaves no folder behind
        if new and os.listdir(folder) == [LOCK]:
            (folder / LOCK).unlink()
            folder.rmdir()
        raise


def try_lock(handle: int) -> bool:
    """Lock an open file or folder where the system has locks; return whether it was free."""
    try:
        import fcntl
    except ImportError:  # no advisory locks on this system: the writers are atomic anyway
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


def remove_leftovers(folder: Path) -> None:
    """Remove scratch folders and half-written files of killed runs from a folder."""
    for leftover in folder.glob(SCRATCH_PREFIX + "*"):
        shutil.rmtree(leftover, ignore_errors=True)
    remove_unfinished(folder)


class RunFolder:
    """The folder of one run of a command.

    The file ``NAME.json`` is written last: where it is present the run is finished, and it holds
    the key of everything that the result depends on. ``NAME`` is the last word of ``kind``.
    """

    def __init__(self, path: str | os.PathLike[str], kind: str, schema: int = 1) -> None:
        self.path, self.kind, self.schema = Path(path), kind, schema
        self.result = self.path / f"{kind.rpartition(' ')[2]}.json"

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the folder for this process; see :func:`visleak.storage.claimed`."""
        with claimed(self.path, result=self.result.name):
            yield

    @property
    def finished(self) -> bool:
        """Whether the folder holds a finished result."""
        return self.result.is_file()

    def content(self) -> dict[str, Any]:
        """Return the content of the result's file."""
        if not self.finished:
            raise UsageError(
                f"{self.path} holds no finished result (no {self.result.name}); run `{self.kind}`"
                " first"
            )
        hint = f"it is not a result of `{self.kind}`"
        return read_document(self.result, self.kind, self.schema, hint)

    def read(self, record: type[Record], **known: object) -> Record:
        """Return the finished result as a record; ``known``: fields that the file does not hold."""
        self.content()
        return read_record(record, self.result, self.kind, self.schema, **known)

    def reused(
        self,
        record: type[Record],
        key: str,
        *,
        force: bool = False,
        files: Iterable[str] = (),
        keeps: str = "",
        **known: Any,
    ) -> Record | None:
        """Return the finished result of this very request; ``None`` where there is none.

        ``force`` allows to replace another result or a damaged one; a folder with files of others
        is refused. ``files``: what a finished result has beside its JSON; ``keeps``: what replacing
        keeps, for the message.
        """
        if self.finished:
            try:
                same = self.content().get("key") == key
                if same and all((self.path / name).is_file() for name in files):
                    return self.read(record, **known)
            except VisleakError as error:
                if not force:
                    raise UsageError(f"{error}; --force replaces it") from error
        try:
            free_folder(self.path, self.result.name, force=force)
        except UsageError as error:
            more = f" {keeps}" if keeps and str(error).endswith("replaces it") else ""
            raise UsageError(f"{error}{more}") from error
        return None

    def finish(self, content: Mapping[str, object], files: Mapping[str, File]) -> None:
        """Write the files of a result, and its JSON last.

        The JSON of an earlier result goes first: a result that is half replaced is none. So do
        files of it that this one does not have.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.result.unlink(missing_ok=True)
            for name, file in files.items():
                _write(self.path / name, file)
            write_json(self.result, content)
        except OSError as error:
            raise VisleakError(f"{self.path} cannot be written ({error.strerror})") from error

    def document(self, headline: str, record: object = None, **more: object) -> dict[str, Any]:
        """Return the content of a result's file: headline, fields of the record, and more."""
        head = {"schema": self.schema, "kind": self.kind, "visleak": visleak.__version__}
        own = {} if record is None else as_plain(record)
        own.pop("folder", None)
        return {**head, "headline": headline, **own, **as_plain(more)}


def _write(path: Path, file: File) -> None:
    """Write a file, or remove it where there is none."""
    if file is None or (isinstance(file, str | bytes) and not file):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    elif isinstance(file, str):
        write_text(path, file)
    elif isinstance(file, bytes):
        write_bytes(path, file)
    elif path.suffix == ".parquet":
        write_tables(path, file.schema, [file])
    else:
        shown = [field.name for field in file.schema if not pa.types.is_list(field.type)]
        with replacing_text(path) as lines:
            write_csv_rows(lines, [[*map(csv_cell, shown)], *_cells(file.select(shown))])


def _cells(table: pa.Table) -> Iterator[list[str]]:
    """Yield the rows of a table as cells of CSV; null is empty."""
    for batch in table.to_batches(max_chunksize=_ROWS):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield ["" if value is None else csv_value(value) for value in row]
