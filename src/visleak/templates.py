"""Pages from the templates of a room: all that is put into them is escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from jinja2 import Environment

#: Characters that turn text around.
_TURNED: Final = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@cache
def environment(package: str, finalize: Callable[[object], object] | None = None) -> Environment:
    """Return the templates in the folder ``templates`` of a package."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def visible(value: object) -> object:
    """Make characters visible that hide or turn around what stands beside them.

    >>> visible("gpj\\u202e.exe")
    'gpj\\\\u202e.exe'
    """
    if type(value) is not str or value.isprintable():
        return value
    return "".join(
        f"\\u{ord(c):04x}" if c in _TURNED or (ord(c) < 32 and c not in "\n\t") else c
        for c in value
    )


def plain(text: str) -> str:
    r"""Return untrusted text as one line that no terminal takes for a command.

    >>> print(plain("a" + chr(27) + "[31mred" + chr(10) + ".png"))
    a\x1b[31mred\n.png
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def policy(style: str, script: str = "") -> str:
    """Return a policy that allows this style sheet, this script, images in the page, no network."""
    known = [f"style-src '{_digest(style)}'"]
    known += [f"script-src '{_digest(script)}'"] if script else []
    return "; ".join(
        ["default-src 'none'", "img-src data:", "base-uri 'none'", "form-action 'none'", *known]
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
