"""Reading bytes from wherever they are: a file here, or an object in a remote store.

A remote object is read forward. Where a store can begin in the middle, a jump is a new request;
where it cannot, what lies between is read and thrown away, and going back starts over. So what
is built on :func:`opened` never needs more than a stream.
"""

from __future__ import annotations

import contextlib
import io
import os
from typing import IO, Any, Final, cast
from urllib.parse import quote

from visleak.images.addresses import is_address, is_web, known_scheme, scheme_of
from visleak.images.stores import SENT_AS_IS, StoreError, attempted, filesystem, stamp_of

#: Bytes asked for at a time.
BLOCK: Final = 1 << 20

#: A gap of more bytes is jumped over by a new request rather than read through.
JUMP: Final = 1 << 20


class _StatusError(Exception):
    """A web server answered, but not with the object."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _WebStream:
    """The answer of a web server to one request: bytes from ``offset`` on."""

    def __init__(self, url: str, offset: int) -> None:
        from fsspec.asyn import sync

        self._fs, self._sync = filesystem(scheme_of(url)), sync
        self._answer = sync(self._fs.loop, self._asked, quote(url, safe=SENT_AS_IS), offset)
        status, headers = self._answer.status, self._answer.headers
        self._beyond = status == 416  # nothing lies that far
        self.begins = offset if status == 206 or self._beyond else 0
        length, span = headers.get("Content-Length", ""), headers.get("Content-Range", "")
        total = length if status == 200 else span.rpartition("/")[2]
        self.size = int(total) if total.isdecimal() else None
        tag = headers.get("ETag") or headers.get("Last-Modified")
        self.stamp = f"{self.size} {tag}" if tag and not self._beyond else None

    async def _asked(self, url: str, offset: int) -> Any:
        session = await self._fs.set_session()
        headers = {"Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        answer = await session.get(self._fs.encode_url(url), headers=headers)
        if answer.status >= 400 and answer.status != 416:
            answer.close()
            raise _StatusError(answer.status)
        return answer

    def read(self, size: int) -> bytes:
        if self._beyond:
            return b""
        return cast(bytes, self._sync(self._fs.loop, self._answer.content.read, size))

    def close(self) -> None:
        self._fs.loop.call_soon_threadsafe(self._answer.close)


class _StoreStream:
    """An object of a store that can begin anywhere."""

    def __init__(self, url: str, offset: int) -> None:
        fs = filesystem(scheme_of(url))
        path = fs._strip_protocol(url)
        self._file = fs.open(path, "rb", block_size=BLOCK)
        try:
            about = getattr(self._file, "details", None) or fs.info(path)
            self.begins, self.size = offset, about.get("size")
            self.stamp = stamp_of(about)
            self._file.seek(offset)
        except BaseException:
            self._file.close()
            raise

    def read(self, size: int) -> bytes:
        return cast(bytes, self._file.read(size))

    def close(self) -> None:
        self._file.close()


class RemoteFile(io.RawIOBase):
    """A remote object as a file that is read forward and may jump.

    A connection that breaks is taken up again where it broke.

    Args:
        url: its address.

    Attributes:
        size: bytes, or ``None`` where the store does not say.
        stamp: text that changes when the object does, or ``None`` where the store says nothing.

    Raises:
        StoreError: it cannot be had.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        known_scheme(url)
        self._url = url
        self._at = self._stream_at = 0
        self._stream: _WebStream | _StoreStream | None = None
        self._jumps = True
        self.size: int | None = None
        self.stamp: str | None = None
        first = attempted(lambda: self._connect(0))
        self.size, self.stamp = first.size, first.stamp

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def seekable(self) -> bool:
        """Say that it can jump, at whatever price."""
        return True

    def tell(self) -> int:
        """Return the byte that is read next."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte; nothing is asked of the store before the next read."""
        if whence == io.SEEK_CUR:
            offset += self._at
        elif whence == io.SEEK_END:
            offset += self._end()
        if offset < 0:
            raise ValueError(f"no byte lies before the first ({offset})")
        self._at = offset
        return offset

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as one answer goes; return how far, 0 at the end."""
        view = memoryview(buffer).cast("B")
        data = attempted(lambda: self._piece(len(view)))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        """Let go of the connection."""
        self._let_go()
        super().close()

    def _let_go(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _end(self) -> int:
        """Return the number of bytes; where nobody says, by reading them."""
        if self.size is not None:
            return self.size
        before = self._at
        while self.read(BLOCK):
            pass
        end, self._at = self._at, before
        self.size = end
        return end

    def _piece(self, size: int) -> bytes:
        """Return up to ``size`` bytes from here; a failure lets go of the connection."""
        try:
            stream, gap = self._stream, self._at - self._stream_at
            if stream is None or gap < 0 or (gap > JUMP and self._jumps):
                stream = self._connect(self._at)
            while self._stream_at < self._at:
                skipped = stream.read(min(BLOCK, self._at - self._stream_at))
                if not skipped:
                    return b""
                self._stream_at += len(skipped)
            data = stream.read(size)
        except BaseException:
            self._let_go()
            raise
        self._stream_at += len(data)
        return data

    def _connect(self, offset: int) -> _WebStream | _StoreStream:
        """Ask for the bytes from ``offset`` on, and note where the answer begins."""
        self._let_go()
        stream = (_WebStream if is_web(self._url) else _StoreStream)(self._url, offset)
        if self.stamp is not None and stream.stamp not in (None, self.stamp):
            stream.close()
            raise StoreError("io-error", "the object changed while it was read")
        self._stream, self._stream_at = stream, stream.begins
        self._jumps = stream.begins == offset
        return stream


def opened(place: str) -> IO[bytes]:
    """Open a file here, or a remote object, for reading.

    Raises:
        OSError: it cannot be had; :class:`StoreError` if it is remote.
    """
    if not is_address(place):
        return open(place, "rb")
    return io.BufferedReader(RemoteFile(place), BLOCK)


def arrow_source(place: str) -> contextlib.AbstractContextManager[Any]:
    """Return what Arrow reads a file from: its path, which it opens itself, or an open object."""
    return opened(place) if is_address(place) else contextlib.nullcontext(place)


def stamp_of_file(file: IO[bytes]) -> str | None:
    """Return the stamp of what :func:`opened` opened; empty for a file here, which has its own."""
    raw = getattr(file, "raw", None)
    return raw.stamp if isinstance(raw, RemoteFile) else ""


def size_of_file(file: IO[bytes]) -> int | None:
    """Return how many bytes there are in what :func:`opened` opened, ``None`` if nobody says."""
    raw = getattr(file, "raw", None)
    return raw.size if isinstance(raw, RemoteFile) else os.fstat(file.fileno()).st_size
