"""Fetching pictures by address, and which addresses a table may name.

Nothing is fetched but what the caller named: an address on the command line, or the addresses in
a table that was opened with ``?remote=yes``.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError
from visleak.images.addresses import SCHEMES, is_address, joined, origin_of, redacted, scheme_of
from visleak.images.folder import MAX_FILE_BYTES, read_file, why_not
from visleak.images.remote_file import BLOCK, RemoteFile
from visleak.images.request import Request
from visleak.records import Bytes8, Unreadable

#: Pictures fetched at a time; a store answers one late, but many at once.
TOGETHER: Final = 8

#: Pictures fetched ahead of the one that is wanted.
AHEAD: Final = 16


@dataclass(frozen=True)
class RemoteOpener:
    """Fetches pictures by address; those without a scheme are files of this machine.

    Attributes:
        places: Arrow string array, address or path; null is missing.
        stamp: text that changes when a picture does, ``None`` where that cannot be told.
    """

    places: pa.StringArray
    stamp: str | None = None

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the pictures at the positions, see :class:`visleak.records.Opener`."""
        waiting: deque[Future[bytes | Unreadable]] = deque()
        with ThreadPoolExecutor(TOGETHER) as threads:
            for position in positions:
                waiting.append(threads.submit(fetched, self.places[position].as_py()))
                if len(waiting) > AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()


def fetched(place: str | None) -> bytes | Unreadable:
    """Return the picture at a place, or why it cannot be had."""
    if place is None:
        return Unreadable("missing", "the table names no file")
    if not is_address(place):
        return read_file(place)
    if scheme_of(place) not in SCHEMES:
        return Unreadable("unsupported", f"{scheme_of(place)}:// is not fetched")
    try:
        with RemoteFile(place) as file:
            if file.size is not None and file.size > MAX_FILE_BYTES:
                return _over_limit(file.size)
            pieces, size = [], 0
            while (piece := file.read(BLOCK)) and size <= MAX_FILE_BYTES:
                pieces.append(piece)
                size += len(piece)
    except (OSError, ValueError) as error:
        return why_not(error)
    return b"".join(pieces) if size <= MAX_FILE_BYTES else _over_limit(size)


def _over_limit(size: int) -> Unreadable:
    return Unreadable("too-large", f"{size:,} bytes; objects up to {MAX_FILE_BYTES:,} are read")


def remote_places(request: Request, names: Sequence[str | None], root: str) -> Any:
    """Return where the files of a table are, as an Arrow string array; ``None`` where all are here.

    A table is somebody's text. One on this machine may name addresses only if the caller says
    so (``?remote=yes``); a remote one may name what lies on the same host, and never a file of
    this machine.

    Args:
        request: the table.
        names: its file names and addresses.
        root: folder or address that names are relative to.

    Raises:
        UsageError: it names an address that it may not.
    """
    addresses = [name for name in names if name and is_address(name)]
    if is_address(root):
        other = next((a for a in addresses if origin_of(a) != origin_of(root)), None)
        if other is not None:
            raise UsageError(
                f"{request.text} names a picture on another host, {origin_of(other)}; only those"
                " on its own are fetched: save the table here and open it with ?remote=yes"
            )
    elif not addresses:
        return None
    elif request.options.get("remote", "no") not in ("yes", "true", "1"):
        raise UsageError(
            f"{request.text} names {len(addresses):,} files by address, the first at"
            f" {origin_of(addresses[0])}; nothing is fetched unless you allow it:"
            f" {request.path}?remote=yes"
        )
    return pa.array((_place(name, root) for name in names), pa.string())


def _place(name: str | None, root: str) -> str | None:
    if not name or is_address(name):
        return name or None
    return joined(root, name.lstrip("/")) if is_address(root) else os.path.join(root, name)


def without_secrets(texts: pa.StringArray) -> pa.StringArray:
    """Return texts as they may be shown."""
    if not pc.any(pc.match_substring(texts, "://")).as_py():
        return texts
    shown = (None if text is None else redacted(text) for text in texts.to_pylist())
    return pa.array(shown, pa.string())
