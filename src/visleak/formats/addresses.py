"""Addresses of remote images as text: which are known, how they are shown, how they join."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from visleak.errors import UsageError

SCHEMES: Final = ("https", "http", "s3", "gs", "memory")  # what an address may begin with
#: Those that messages name; ``memory`` is this process's own, and for tests.
NAMED: Final = ("https", "http", "s3", "gs")
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SECRETS: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?:[^/\s?#'\"]*@)?"
    r"(?P<path>(?:(?!::)[^\s?#'\"])*)(?:\?(?:(?!::)[^\s#'\"])*)?"
)


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
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in NAMED)
        raise UsageError(
            f"source {redacted(address)!r}: {scheme}:// is not read; known are {known}"
        )
    return scheme


def redacted(text: str) -> str:
    """Return a text whose addresses have neither user and password nor a query.

    A query may be a signature that opens the object to anyone who has it.

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
    """Return the path of an address as a person reads it: no query, nothing quoted.

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
