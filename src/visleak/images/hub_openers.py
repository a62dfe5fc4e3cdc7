"""Reading the pictures of Hugging Face data sets, as they are stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from visleak.images.addresses import is_address, redacted
from visleak.images.folder import read_file
from visleak.images.memory import rgb_of
from visleak.records import Bytes8, Unreadable

#: Rows asked for at a time.
BATCH: Final = 64


@dataclass(frozen=True)
class HubOpener:
    """Reads the picture column of a data set that can be read anywhere.

    Attributes:
        rows: a ``datasets.Dataset`` with that column alone, in Arrow format.
        column: its name.
        remote: the data set may name pictures by address, for it comes from the hub.
        stamp: text that changes when the data set does, ``None`` where that cannot be told.
    """

    rows: Any
    column: str
    remote: bool
    stamp: str | None

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the pictures at the positions, see :class:`visleak.records.Opener`."""
        for start in range(0, len(positions), BATCH):
            asked = [int(position) for position in positions[start : start + BATCH]]
            try:
                values = self.rows[asked][self.column].to_pylist()
            except Exception as error:  # each storage has exceptions of its own
                said = redacted(" ".join(str(error).split()))[:200]
                values = [Unreadable("io-error", said or type(error).__name__)] * len(asked)
            yield from (stored_picture(value, self.remote) for value in values)


@dataclass
class StreamOpener:
    """Reads a data set that only streams.

    Positions ahead are reached by reading on; a position that is past starts over. So one pass
    of ascending reads is one pass over the stream.

    Attributes:
        stream: a ``datasets.IterableDataset`` with the picture column alone, undecoded.
        column: its name.
        stamp: always ``None``: nobody knows whether a stream has changed.
    """

    stream: Any
    column: str
    stamp: str | None = None
    _items: Iterator[Any] | None = field(default=None, repr=False, compare=False)
    _next: int = field(default=0, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamOpener, (self.stream, self.column)

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the pictures at the positions, see :class:`visleak.records.Opener`."""
        for position in positions:
            try:
                item = self._item(int(position))
            except StopIteration:
                self._items = None
                yield Unreadable("missing", "the stream ends before this picture")
            except Exception as error:  # each storage has exceptions of its own
                self._items = None
                said = redacted(" ".join(str(error).split()))[:200]
                yield Unreadable("io-error", said or type(error).__name__)
            else:
                yield stored_picture(item[self.column], remote=True)

    def _item(self, position: int) -> Any:
        if self._items is None or position < self._next:
            self._items, self._next = iter(self.stream), 0
        while True:
            item = next(self._items)
            self._next += 1
            if self._next > position:
                return item


def stored_picture(value: Any, remote: bool) -> bytes | Bytes8 | Unreadable:
    """Return the picture of a cell: bytes, else the file it names, else what is decoded already."""
    if value is None:
        return Unreadable("missing", "the row holds no picture")
    if not isinstance(value, dict):
        return value if isinstance(value, Unreadable) else rgb_of(value)
    data, path = value.get("bytes"), value.get("path")
    if isinstance(data, bytes):
        return data
    if isinstance(path, str) and path and not (is_address(path) or "::" in path):
        return read_file(path)
    if path and remote:
        return _fetched(str(path))
    what = "an address, and nothing is fetched" if path else "no picture"
    return Unreadable("missing", f"the row holds {what}")


def _fetched(path: str) -> bytes | Unreadable:
    """Return the picture at an address that a data set of the hub names."""
    from datasets.utils.file_utils import xopen

    try:
        with xopen(path, "rb") as file:
            data: bytes = file.read()
            return data
    except FileNotFoundError:
        return Unreadable("missing", "no such file")
    except Exception as error:  # each storage has exceptions of its own
        return Unreadable("io-error", redacted(" ".join(str(error).split()))[:200])
