"""Remote stores, through fsspec: what may fail and how, and what lies below an address."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, Final, TypeVar
from urllib.parse import quote

from visleak.errors import MissingExtra, VisleakError
from visleak.images.addresses import is_web, known_scheme, redacted, scheme_of

T = TypeVar("T")

#: Seconds before each further attempt, after a failure that may pass.
WAITS: Final = (0.5, 2.0)

#: Seconds until a connection must stand, and between two pieces of an answer.
CONNECT_SECONDS: Final = 20
READ_SECONDS: Final = 60

#: A listing with more folders below each other is taken for a loop.
MAX_DEPTH: Final = 32

#: What a web address keeps as it is when it is sent.
SENT_AS_IS: Final = "%/:?#[]@!$&'()*+,;=~-._"


class StoreError(OSError):
    """A remote object could not be had.

    Attributes:
        reason: one of :data:`visleak.records.REASONS`.
        passing: another attempt may succeed.
    """

    def __init__(self, reason: str, said: str, passing: bool = False) -> None:
        super().__init__(said)
        self.reason = reason
        self.passing = passing


def store_error(error: BaseException) -> StoreError:
    """Return what went wrong, in words without secrets, whatever library says it."""
    if isinstance(error, StoreError):
        return error
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return _of_status(status)
    kind = type(error).__name__
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
    """Return what an action returns; a failure that may pass is tried again, see :data:`WAITS`.

    Raises:
        StoreError: it failed for good.
    """
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
def filesystem(scheme: str) -> Any:
    """Return the fsspec file system of a scheme.

    Its settings (an endpoint, anonymous access) are taken from fsspec's own configuration.

    Raises:
        MissingExtra: fsspec, or what it needs, is not installed.
        VisleakError: what this scheme needs beside it is not installed.
    """
    try:
        import fsspec

        if scheme in ("http", "https"):
            import aiohttp

            timeout = aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS
            )
            return fsspec.filesystem(
                scheme, encoded=True, client_kwargs={"timeout": timeout, "trust_env": True}
            )
        options: dict[str, Any] = {}
        if scheme == "s3":
            options = {
                "connect_timeout": CONNECT_SECONDS,
                "read_timeout": READ_SECONDS,
                "retries": {"max_attempts": len(WAITS) + 1},
            }
            options = {"config_kwargs": options}
        return fsspec.filesystem(scheme, use_listings_cache=False, **options)
    except ImportError as error:
        if scheme == "gs" and importlib.util.find_spec("fsspec"):
            raise VisleakError("a gs:// source needs gcsfs: pip install gcsfs") from error
        raise MissingExtra("remote", f"a {scheme}:// source") from error


def stamp_of(about: dict[str, Any]) -> str | None:
    """Return a text that changes when an object does, of what a store says about it."""
    names = ("ETag", "etag", "LastModified", "mtime", "updated", "created")
    tag = next((about[name] for name in names if about.get(name)), None)
    return None if tag is None else f"{about.get('size')} {tag}"


def listed(folder: str) -> Iterator[tuple[str, str | None]]:
    """Yield address and stamp of every object below a folder's address, in no order.

    Raises:
        StoreError: it cannot be listed.
    """
    fs = filesystem(known_scheme(folder))
    if is_web(folder):
        yield from ((address, None) for address in _linked(fs, folder))
        return
    found = attempted(lambda: fs.find(fs._strip_protocol(folder), detail=True))
    scheme = scheme_of(folder)
    for name, object_ in found.items():
        yield f"{scheme}://{name.lstrip('/')}", stamp_of(object_)


def _linked(fs: Any, folder: str) -> Iterator[str]:
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
