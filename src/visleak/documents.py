"""JSON files with a kind and a layout version; records to their content and back."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Any,
    Protocol,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

import numpy as np

from visleak.errors import VisleakError

Record = TypeVar("Record")


@runtime_checkable
class _Plain(Protocol):
    """A record that is written and read by methods of its own."""

    def as_dict(self) -> object: ...

    @classmethod
    def from_dict(cls, value: Mapping[str, object], /) -> object: ...


def read_document(
    path: Path, kind: str, schema: int, hint: str, key: str = "kind"
) -> dict[str, object]:
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
    path: Path, kind: str, schema: int, is_entry: Callable[[object], bool]
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


def read_record(
    record: type[Record], path: Path, kind: str, schema: int, **known: object
) -> Record:
    """Return the record that a json file of a verb holds as its content."""
    content = read_document(path, kind, schema, f"it is not a result of `{kind}`")
    try:
        return from_plain(record, content, **known)
    except (KeyError, TypeError, ValueError) as error:
        raise VisleakError(f"{path} is damaged ({error}); run {kind} again") from error


def digest_of(value: object) -> str:
    """Return a digest of plain data, by its JSON; the order of keys is of no account.

    >>> digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    True
    """
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def as_plain(value: object) -> Any:
    """Return a record, or what it is made of, for JSON; numbers that are not known are ``None``.

    A record with ``as_dict`` and ``from_dict`` is written and read by these. A field with
    ``metadata={"optional": True}`` is left out where it is ``None``; ``metadata={"key": "name"}``
    gives its key another name; ``metadata={"former": "name"}`` is the key in older files.

    >>> as_plain((1.5, math.nan, {"names": frozenset("ba")}, np.array([[0.5, math.nan]])))
    [1.5, None, {'names': ['a', 'b']}, [[0.5, None]]]
    """
    if isinstance(value, _Plain):
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


def from_plain(kind: type[Record], value: object, **given: object) -> Record:
    """Return what :func:`as_plain` was given, with ``given`` fields; missing ones take defaults.

    Raises ``KeyError``, ``TypeError`` or ``ValueError`` where the type cannot hold the value.

    >>> from_plain(dict[str, float], {"a": None})
    {'a': nan}
    """
    return cast(Record, _made(kind, value, given))


def _made(kind: object, value: object, given: Mapping[str, object]) -> object:
    origin, inner = get_origin(kind), get_args(kind)
    if kind in (Any, object):
        return value
    if kind is float:
        return math.nan if value is None else float(_of(value, int, float))
    if isinstance(kind, type) and origin is None:
        return _record(kind, value, given)
    if origin is UnionType:
        (known,) = (each for each in inner if each is not NoneType)
        return None if value is None else _made(known, value, {})
    return _many(origin, inner, value)


def _record(kind: type, value: object, given: Mapping[str, object]) -> object:
    if issubclass(kind, _Plain):
        return kind.from_dict(_of(value, dict))
    if is_dataclass(kind):
        return kind(**dict(_fields(kind, _of(value, dict), given)), **given)
    return _of(value, kind)


def _many(origin: object, inner: Sequence[object], value: object) -> object:
    if origin is tuple:
        many = _of(value, list)
        kinds = [inner[0]] * len(many) if inner[-1] is Ellipsis else list(inner)
        return tuple(_made(each, item, {}) for each, item in zip(kinds, many, strict=True))
    if origin is frozenset:
        return frozenset(_made(inner[0], item, {}) for item in _of(value, list))
    if origin is np.ndarray:
        return np.array(_numbers(_of(value, list)), np.float64)
    return {key: _made(inner[1], item, {}) for key, item in _of(value, dict).items()}


def _fields(
    kind: type, known: Mapping[str, object], given: Mapping[str, object]
) -> Iterator[tuple[str, object]]:
    hints = _hints(kind)
    for each in fields(kind):
        key = each.metadata.get("key", each.name)
        key = key if key in known else each.metadata.get("former", key)
        default = each.default is not MISSING or each.default_factory is not MISSING
        if each.name not in given and (key in known or not default):
            yield each.name, _made(hints[each.name], known[key], {})


#: Types of a record's fields.
_hints = cache(get_type_hints)


def _numbers(value: object) -> object:
    """Return lists of lists of numbers; ``None`` is not known."""
    if isinstance(value, list):
        return [_numbers(each) for each in value]
    return _made(float, value, {})


def _of(value: object, *kinds: type) -> Any:
    """Return a value that is of one of some types; ``True`` is not a number."""
    if type(value) not in kinds:
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{value!r} is not {names}")
    return value
