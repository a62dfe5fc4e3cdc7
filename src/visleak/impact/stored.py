"""``impact.json``: what was found, for machines, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, get_args, get_origin, get_type_hints

import visleak
from visleak.documents import read_document
from visleak.errors import VisleakError
from visleak.impact.headline import headlines
from visleak.impact.results import Impact

SCHEMA: Final = 1
KIND: Final = "visleak impact"

#: The file.
RESULT: Final = "impact.json"


def as_dict(result: Impact) -> dict[str, Any]:
    """Return the content of ``impact.json``; what is not known is ``null``."""
    about = {
        "schema": SCHEMA,
        "kind": KIND,
        "visleak": visleak.__version__,
        "headline": "; ".join(headlines(result)),
    }
    return about | {each.name: _plain(getattr(result, each.name)) for each in fields(result)}


def read_impact(folder: str | Path) -> Impact:
    """Return the impact that a folder holds.

    Raises:
        VisleakError: there is none, it is damaged, or a newer visleak wrote it.
    """
    path = Path(folder) / RESULT
    content = read_document(path, KIND, SCHEMA, "it is no result of `visleak impact`")
    try:
        made: Impact = _made(Impact, content)
    except (KeyError, TypeError, ValueError) as error:
        raise VisleakError(f"{path} is damaged ({error}); run visleak impact again") from error
    return made


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def _made(kind: Any, value: Any) -> Any:
    """Return a value as what a record's field holds; refuse what it cannot hold."""
    if kind is Any:
        return value
    if kind is float:
        return math.nan if value is None else float(_of(value, int, float))
    if kind in (int, str, bool):
        return _of(value, kind)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        known = _of(value, dict)
        return kind(
            **{each.name: _made(hints[each.name], known[each.name]) for each in fields(kind)}
        )
    inner = get_args(kind)
    if get_origin(kind) is tuple:
        many = _of(value, list)
        kinds = [inner[0]] * len(many) if inner[-1] is Ellipsis else list(inner)
        return tuple(_made(each, item) for each, item in zip(kinds, many, strict=True))
    return {key: _made(inner[1], item) for key, item in _of(value, dict).items()}


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Return the types of a record's fields."""
    return get_type_hints(kind)


def _of(value: Any, *kinds: type) -> Any:
    """Return a value that is of one of some types; ``True`` is no number."""
    if type(value) not in kinds:
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{value!r} is no {names}")
    return value
