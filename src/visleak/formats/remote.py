"""Addresses as text, and reading files of this machine and objects of remote stores by fsspec.

A remote object is read forward. Where a store can begin in the middle, a jump is a new request;
where it cannot, the bytes between are read and dropped, and going back starts over. So what is
built on :func:`opened` never needs more than a stream.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import quote, unquote, urlsplit

from visleak.errors import MissingExtra, UsageError, VisleakError

if TYPE_CHECKING:
    import fsspec

SCHEMES: Final = ("https", "http", "s3", "gs", "memory")  # what an address may begin with
#: Those that messages name; ``memory`` is this process's own, and for tests.
NAMED: Final = ("https", "http", "s3", "gs")
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SECRETS: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?:[^/\s?#'\"]*@)?"
    r"(?P<path>(?:(?!::)[^\s?#'\"])*)(?:\?(?:(?!::)[^\s#'\"])*)?"
)
T = TypeVar("T")
WAITS: Final = (0.5, 2.0)  # seconds before each further attempt, after a failure that may pass
#: Seconds until a connection must stand, and between two pieces of an answer.
CONNECT_SECONDS: Final = 20
READ_SECONDS: Final = 60
MAX_DEPTH: Final = 32  # a listing with more folders below each other is taken for a loop
#: What a web address keeps as it is when it is sent.
SENT_AS_IS: Final = "%/:?#[]@!$&'()*+,;=~-._"
BLOCK: Final = 1 << 20  # bytes that are read at a time
#: A gap of more bytes is jumped over by a new request rather than read through.
JUMP: Final = 1 << 20


def is_address(text: str) -> bool:
    """Whether a text begins with a scheme and ``://``, known or not.

    >>> is_address("s3://bucket/a.tar"), is_address("cifar:c10#test"), is_address("a/b")
    (True, False, False)
    """
    return _ADDRESS.match(text) is not None


def scheme_of(address: str) -> str:
    """Return the scheme of an address, lower case."""
    return address.partition("://")[0].lower()


def known_scheme(address: str) -> str:
    """Return the scheme of an address."""
    scheme = scheme_of(address)
    if scheme in SCHEMES:
        return scheme
    known = ", ".join(f"{name}://" for name in NAMED)
    raise UsageError(f"source {redacted(address)!r}: {scheme}:// is not read; known are {known}")


def redacted(text: str) -> str:
    """Return a text whose addresses have neither user and password nor a query.

    A query may be a signature that grants access to the object.

    >>> redacted("get https://me:secret@host/a.tar?sig=abc#test now")
    'get https://host/a.tar#test now'
    >>> redacted("s3://bucket/a.tar::https://host/b.tar?sig=x::c.tar")
    's3://bucket/a.tar::https://host/b.tar::c.tar'
    """
    return _SECRETS.sub(lambda found: found["scheme"] + found["path"], text)


def is_web(address: str) -> bool:
    """Whether an address is one of a web server, where names are quoted."""
    return scheme_of(address) in ("http", "https")


def path_of(address: str) -> str:
    """Return the path of an address, unquoted and without its query.

    >>> path_of("https://host/a%20b/c.tar?sig=x"), path_of("s3://bucket/a#b.png")
    ('/a b/c.tar', '/a#b.png')
    """
    if is_web(address):
        return unquote(urlsplit(address).path)
    return "/" + address.partition("://")[2].partition("/")[2]


def joined(folder: str, name: str) -> str:
    """Return the address of a file below a folder's address.

    >>> joined("https://host/data/", "a b#1.png"), joined("s3://bucket/data", "a b.png")
    ('https://host/data/a%20b%231.png', 's3://bucket/data/a b.png')
    """
    base = folder.rstrip("/")
    return f"{base}/{quote(name) if is_web(folder) else name}"


def folder_of(place: str) -> str:
    """Return the folder that a file or an object is in; the query of an address is left out.

    >>> folder_of("https://host/data/table.csv?sig=x"), folder_of("a/b.csv"), folder_of("b.csv")
    ('https://host/data', 'a', '.')
    """
    if not is_address(place):
        return str(Path(place).parent)
    plain = place.partition("?")[0] if is_web(place) else place
    return plain.rpartition("/")[0]


def origin_of(address: str) -> str:
    """Return scheme and host (or bucket) of an address, without user and password.

    >>> origin_of("https://me:secret@host:8000/a/b")
    'https://host:8000'
    """
    return "/".join(redacted(address).split("/")[:3])


class StoreError(OSError):
    """A remote object could not be loaded."""

    def __init__(self, reason: str, said: str, passing: bool = False) -> None:
        super().__init__(said)
        self.reason = reason
        self.passing = passing


def store_error(error: BaseException) -> StoreError:
    """Return the error of any library as one without secrets in its text."""
    status, kind = getattr(error, "status", None), type(error).__name__
    if isinstance(error, StoreError):
        return error
    if isinstance(status, int):
        return _of_status(status)
    if isinstance(error, FileNotFoundError):
        return StoreError("missing", "the store has no such object")
    if isinstance(error, PermissionError) or "Credentials" in kind:
        hint = "no credentials were found" if "Credentials" in kind else "access was refused"
        return StoreError("no-permission", f"{hint}; the store's own tools say how to sign in")
    if isinstance(error, TimeoutError):
        return StoreError("io-error", "the store did not answer in time", passing=True)
    said = redacted(" ".join(str(error).split()))[:200]
    passing = isinstance(error, OSError) or type(error).__module__.startswith(("aiohttp", "boto"))
    return StoreError("io-error", f"{kind}: {said}" if said else kind, passing)


def _of_status(status: int) -> StoreError:
    if status in (404, 410):
        return StoreError("missing", f"the server says {status}: it has no such object")
    if status in (401, 403):
        return StoreError("no-permission", f"the server says {status}: access was refused")
    passing = status in (408, 425, 429) or status >= 500
    return StoreError("io-error", f"the server says {status}", passing)


def attempted(action: Callable[[], T]) -> T:
    """Return the result of an action; retry after temporary failures, see :data:`WAITS`."""
    for wait in (*WAITS, None):
        try:
            return action()
        except VisleakError:
            raise
        except Exception as error:  # each store has exceptions of its own
            failure = store_error(error)
            if wait is None or not failure.passing:
                raise failure from error
            time.sleep(wait)
    raise AssertionError  # the last round returns or raises


@lru_cache(maxsize=16)
def filesystem(scheme: str) -> fsspec.AbstractFileSystem:
    """Return the fsspec file system of a scheme.

    Its settings (an endpoint, anonymous access) are taken from fsspec's own configuration.
    """
    try:
        import fsspec

        if scheme in ("http", "https"):
            import aiohttp

            timeout = aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS
            )
            client = {"timeout": timeout, "trust_env": True}
            return fsspec.filesystem(scheme, encoded=True, client_kwargs=client)
        limits = {
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": READ_SECONDS,
            "retries": {"max_attempts": len(WAITS) + 1},
        }
        options = {"config_kwargs": limits} if scheme == "s3" else {}
        return fsspec.filesystem(scheme, use_listings_cache=False, **options)
    except ImportError as error:
        if scheme == "gs" and importlib.util.find_spec("fsspec"):
            raise VisleakError("a gs:// source needs gcsfs: pip install gcsfs") from error
        raise MissingExtra("remote", f"a {scheme}:// source") from error


def stamp_of(about: dict[str, object]) -> str | None:
    """Return a text that changes when an object does, from its metadata."""
    names = ("ETag", "etag", "LastModified", "mtime", "updated", "created")
    tag = next((about[name] for name in names if about.get(name)), None)
    return None if tag is None else f"{about.get('size')} {tag}"


def listed(folder: str) -> Iterator[tuple[str, str | None]]:
    """Yield address and stamp of every object below a folder's address, in no order."""
    fs = filesystem(known_scheme(folder))
    if is_web(folder):
        yield from ((address, None) for address in _linked(fs, folder))
        return
    found = attempted(lambda: fs.find(fs._strip_protocol(folder), detail=True))
    scheme = scheme_of(folder)
    for name, object_ in found.items():
        yield f"{scheme}://{name.lstrip('/')}", stamp_of(object_)


def _linked(fs: fsspec.AbstractFileSystem, folder: str) -> Iterator[str]:
    """Yield the addresses that a web server's page of a folder links to, below it."""
    root, mark, query = quote(folder, safe=SENT_AS_IS).partition("?")
    pending, seen = [(root.rstrip("/") + "/", 0)], set[str]()
    while pending:
        place, depth = pending.pop()
        for entry in attempted(partial(fs.ls, f"{place}{mark}{query}", detail=True)):
            name = entry["name"].partition("#")[0].partition("?")[0]
            if len(name) <= len(place) or not name.startswith(place) or name in seen:
                continue
            seen.add(name)
            if not name.endswith("/"):
                yield name
            elif depth < MAX_DEPTH:
                pending.append((name, depth + 1))


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

    async def _asked(self, url: str, offset: int) -> object:
        session = await self._fs.set_session()
        headers = {"Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        answer = await session.get(self._fs.encode_url(url), headers=headers)
        if answer.status >= 400 and answer.status != 416:
            answer.close()
            raise _of_status(answer.status)
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
        self.read: Callable[[int], bytes] = self._file.read
        self.close: Callable[[], None] = self._file.close
        try:
            about = getattr(self._file, "details", None) or fs.info(path)
            self.begins, self.size = offset, about.get("size")
            self.stamp = stamp_of(about)
            self._file.seek(offset)
        except BaseException:
            self.close()
            raise


class RemoteFile(io.RawIOBase):
    """A remote object as a file that is read forward, jumps, and connects again where it broke."""

    def __init__(self, url: str) -> None:
        super().__init__()
        known_scheme(url)
        self._url = url
        self._at = self._stream_at = 0
        self._stream: _WebStream | _StoreStream | None = None
        self._jumps = True
        self.stamp: str | None = None
        first = attempted(lambda: self._connect(0))
        self.size, self.stamp = first.size, first.stamp

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def seekable(self) -> bool:
        """Say that it can jump; some jumps read from the start again."""
        return True

    def tell(self) -> int:
        """Return the byte that is read next."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte; the store is not accessed before the next read."""
        if whence == io.SEEK_CUR:
            offset += self._at
        elif whence == io.SEEK_END:
            if self.size is None:  # the store does not tell
                while self.read(BLOCK):
                    pass
                self.size = self._at
            offset += self.size
        if offset < 0:
            raise ValueError(f"no byte lies before the first ({offset})")
        self._at = offset
        return offset

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer from one answer; return the number of bytes, 0 at the end."""
        view = memoryview(buffer).cast("B")
        data = attempted(lambda: self._piece(len(view)))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        """Close the connection."""
        self._disconnect()
        super().close()

    def _disconnect(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _connect(self, offset: int) -> _WebStream | _StoreStream:
        """Ask for the bytes from ``offset`` on, and note where the answer begins."""
        self._disconnect()
        stream = (_WebStream if is_web(self._url) else _StoreStream)(self._url, offset)
        if self.stamp is not None and stream.stamp not in (None, self.stamp):
            stream.close()
            raise StoreError("io-error", "the object changed while it was read")
        self._stream, self._stream_at = stream, stream.begins
        self._jumps = stream.begins == offset
        return stream

    def _piece(self, size: int) -> bytes:
        """Return up to ``size`` bytes from here; a failure closes the connection."""
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
            self._disconnect()
            raise
        self._stream_at += len(data)
        return data


def opened(place: str) -> IO[bytes]:
    """Open a local file or a remote object for reading."""
    if not is_address(place):
        return open(place, "rb")
    return io.BufferedReader(RemoteFile(place), BLOCK)


def arrow_source(place: str) -> contextlib.AbstractContextManager[str | IO[bytes]]:
    """Return a local path, or an open remote object, for Arrow to read."""
    return opened(place) if is_address(place) else contextlib.nullcontext(place)


def stamp_of_file(file: IO[bytes]) -> str | None:
    """Return the stamp of a file of :func:`opened`; empty for a local one."""
    raw = getattr(file, "raw", None)
    return raw.stamp if isinstance(raw, RemoteFile) else ""


def size_of_file(file: IO[bytes]) -> int | None:
    """Return the number of bytes of a file of :func:`opened`, ``None`` where it is unknown."""
    raw = getattr(file, "raw", None)
    return raw.size if isinstance(raw, RemoteFile) else os.fstat(file.fileno()).st_size
