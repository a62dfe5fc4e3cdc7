"""JSON files with a kind and a layout version; records to their content and back."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from visleak.errors import VisleakError

Record = TypeVar("Record")


def read_document(
    path: Path, kind: str, schema: int, hint: str, key: str = "kind"
) -> dict[str, Any]:
    """Return the content of a json file of a kind."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise VisleakError(f"{path} cannot be read ({error})") from error
    if not isinstance(content, dict) or content.get(key) != kind:
        raise VisleakError(f'{path} does not say "{key}": "{kind}"; {hint}')
    found = content.get("schema")
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= schema:
        raise VisleakError(
            f"{path} has layout {found!r}, this visleak reads up to {schema}; use a newer one"
        )
    return content


def read_entries(
    path: Path, kind: str, schema: int, is_entry: Callable[[Any], bool]
) -> list[dict[str, Any]]:
    """Return the entries of a leaderboard, in the order of its file."""
    content = read_document(path, kind, schema, "it is not a leaderboard; choose another file")
    entries = content.get("entries")
    if not isinstance(entries, list):
        raise VisleakError(f"{path} is damaged: it has no list of entries; nothing was written")
    for place, entry in enumerate(entries, 1):
        if not is_entry(entry):
            raise VisleakError(f"{path} is damaged in entry {place}; nothing was written")
    return entries


def read_record(record: type[Record], path: Path, kind: str, schema: int, **known: Any) -> Record:
    """Return the record that a json file of a verb holds as its content."""
    content = read_document(path, kind, schema, f"it is not a result of `{kind}`")
    try:
        made: Record = from_plain(record, content, **known)
    except (KeyError, TypeError, ValueError) as error:
        raise VisleakError(f"{path} is damaged ({error}); run {kind} again") from error
    return made


def digest_of(value: Any) -> str:
    """Return a digest of plain data, by its JSON; the order of keys is of no account.

    >>> digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    True
    """
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def as_plain(value: Any) -> Any:
    """Return a record, or what it is made of, for JSON; numbers that are not known are ``None``.

    A record with ``as_dict`` and ``from_dict`` is written and read by these. A field with
    ``metadata={"optional": True}`` is left out where it is ``None``; ``metadata={"key": "name"}``
    gives its key another name.

    >>> as_plain((1.5, math.nan, {"names": frozenset("ba")}, np.array([[0.5, math.nan]])))
    [1.5, None, {'names': ['a', 'b']}, [[0.5, None]]]
    """
    if hasattr(type(value), "from_dict"):
        value = value.as_dict()
    elif is_dataclass(value):
        held = {each: getattr(value, each.name) for each in fields(value)}
        value = {
            each.metadata.get("key", each.name): own
            for each, own in held.items()
            if own is not None or not each.metadata.get("optional")
        }
    elif isinstance(value, np.ndarray):
        value = value.tolist()
    elif isinstance(value, frozenset):
        value = sorted(value)
    if isinstance(value, Mapping):
        return {key: as_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def from_plain(kind: Any, value: Any, **given: Any) -> Any:
    """Return what :func:`as_plain` was given; refuse what its type cannot hold.

    Missing fields take their defaults.

    Args:
        kind: a record, or a type of its fields: numbers, texts, tuples, mappings and sets of
            them, arrays of ``float64``, other records, and any of these or ``None``.
        value: as it was read.
        given: fields of a record that the value does not hold.

    Raises:
        KeyError: a field without a default is missing.
        TypeError, ValueError: a value is of another type.

    >>> from_plain(dict[str, float], {"a": None})
    {'a': nan}
    """
    if kind in (Any, object, int, str, bool, float):
        return _single(kind, value)
    if hasattr(kind, "from_dict"):
        return kind.from_dict(_of(value, dict))
    if isinstance(kind, type) and is_dataclass(kind):
        known, hints = _of(value, dict), _hints(kind)
        keys = {each.name: each.metadata.get("key", each.name) for each in fields(kind)}
        wanted = [
            each.name
            for each in fields(kind)
            if each.name not in given and (keys[each.name] in known or not _has_default(each))
        ]
        content = {name: from_plain(hints[name], known[keys[name]]) for name in wanted}
        return kind(**content, **given)
    if get_origin(kind) is UnionType:
        (known,) = (each for each in get_args(kind) if each is not NoneType)
        return None if value is None else from_plain(known, value)
    return _many(get_origin(kind), get_args(kind), value)


def _single(kind: Any, value: Any) -> Any:
    if kind in (Any, object):
        return value
    if kind is float:
        return math.nan if value is None else float(_of(value, int, float))
    return _of(value, kind)


def _many(origin: Any, inner: tuple[Any, ...], value: Any) -> Any:
    if origin is tuple:
        many = _of(value, list)
        kinds = [inner[0]] * len(many) if inner[-1] is Ellipsis else list(inner)
        return tuple(from_plain(each, item) for each, item in zip(kinds, many, strict=True))
    if origin is frozenset:
        return frozenset(from_plain(inner[0], item) for item in _of(value, list))
    if origin is np.ndarray:
        return np.array(_numbers(_of(value, list)), np.float64)
    return {key: from_plain(inner[1], item) for key, item in _of(value, dict).items()}


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _numbers(value: Any) -> Any:
    """Return lists of lists of numbers; ``None`` is not known."""
    if isinstance(value, list):
        return [_numbers(each) for each in value]
    return from_plain(float, value)


def _of(value: Any, *kinds: type) -> Any:
    """Return a value that is of one of some types; ``True`` is not a number."""
    if type(value) not in kinds:
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{value!r} is not {names}")
    return value
