"""The folder of a run: claimed by one process, reused, resumed, and finished by its JSON file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import pyarrow as pa

import visleak
from visleak.delimited import write_csv_rows
from visleak.documents import as_plain, read_document, read_record
from visleak.errors import UsageError, VisleakError
from visleak.storage.files import (
    csv_cell,
    csv_value,
    replacing_text,
    write_bytes,
    write_json,
    write_tables,
    write_text,
)
from visleak.storage.folders import claimed, free_folder

Record = TypeVar("Record")
#: What a file of a result holds: text, bytes, or a table that becomes Parquet or CSV by the name
#: of the file; ``None`` and nothing remove the file or the folder of that name.
File: TypeAlias = "str | bytes | pa.Table | None"
_ROWS: Final = 4096  # rows of a table that are turned into texts at a time


class RunFolder:
    """The folder of one run of a command.

    The file ``NAME.json`` is written last: where it is present the run is finished, and it holds
    the key of everything that the result depends on.

    Args:
        path: the folder; need not exist.
        kind: what the file says it is; its last word is ``NAME``.
        schema: layout of the file.

    Attributes:
        path, kind, schema: the same.
        result: the file.
    """

    def __init__(self, path: str | os.PathLike[str], kind: str, schema: int = 1) -> None:
        self.path, self.kind, self.schema = Path(path), kind, schema
        self.result = self.path / f"{kind.rpartition(' ')[2]}.json"

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the folder for this process; see :func:`visleak.storage.claimed`."""
        with claimed(self.path):
            yield

    @property
    def finished(self) -> bool:
        """Whether the folder holds a finished result."""
        return self.result.is_file()

    def content(self) -> dict[str, Any]:
        """Return the content of the result's file.

        Raises:
            UsageError: there is no finished result.
            VisleakError: it is damaged, of another kind, or of a newer visleak.
        """
        if not self.finished:
            raise UsageError(
                f"{self.path} holds no finished result (no {self.result.name}); run `{self.kind}`"
                " first"
            )
        hint = f"it is not a result of `{self.kind}`"
        return read_document(self.result, self.kind, self.schema, hint)

    def read(self, record: type[Record], **known: Any) -> Record:
        """Return the finished result as a record.

        Args:
            record: its type.
            known: fields that the file does not hold, such as the folder.

        Raises:
            UsageError, VisleakError: as :meth:`content`.
        """
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

        Args:
            record: its type.
            key: of everything that the result depends on.
            force: another result, or a damaged one, may be replaced.
            files: that a finished result has in addition to its JSON.
            keeps: what replacing keeps, such as ``and keeps its images``.
            known: fields that the JSON does not hold.

        Raises:
            UsageError: the folder holds another result or a damaged one that may not be replaced,
                or files that visleak did not write.
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

    def finish(self, content: Mapping[str, Any], files: Mapping[str, File]) -> None:
        """Write the files of a result, and its JSON last.

        The JSON of an earlier result goes first: a result that is half replaced is none. So do
        files of it that this one does not have.

        Args:
            content: of the JSON, as :meth:`document` returns it.
            files: by name, in the order in which they are written.

        Raises:
            VisleakError: the disk refuses.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.result.unlink(missing_ok=True)
            for name, file in files.items():
                _write(self.path / name, file)
            write_json(self.result, content)
        except OSError as error:
            raise VisleakError(f"{self.path} cannot be written ({error.strerror})") from error

    def document(self, headline: str, record: Any = None, **more: Any) -> dict[str, Any]:
        """Return the content of a result's file; unknown numbers become ``null``.

        Args:
            headline: what was found, as one line.
            record: whose fields follow, but for ``folder``.
            more: further fields.
        """
        head = {"schema": self.schema, "kind": self.kind, "visleak": visleak.__version__}
        own = {} if record is None else as_plain(record)
        return {**head, "headline": headline, **_without(own, "folder"), **as_plain(more)}


def _without(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}


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
    """Yield the rows of a table as cells of CSV; what is not known is empty."""
    for batch in table.to_batches(max_chunksize=_ROWS):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield ["" if value is None else csv_value(value) for value in row]
