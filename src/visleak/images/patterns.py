"""Names of shards: brace patterns, globs and unions, here and in remote stores."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Final

from visleak.errors import UsageError
from visleak.images.addresses import is_address, redacted
from visleak.images.archive import TARS
from visleak.images.lists import glob_names, matches, split_glob
from visleak.images.stores import listed

#: A pattern that stands for more shards is refused.
MAX_SHARDS: Final = 1_000_000

_NUMBERS: Final = re.compile(r"(-?\d+)\.\.(-?\d+)")
_LETTERS: Final = re.compile(r"([A-Za-z])\.\.([A-Za-z])")


def names_shards(text: str) -> bool:
    """Whether a text is a pattern of tar archives, or a union of them or of such patterns.

    >>> [names_shards(text) for text in ("train-{000..146}.tar", "a.tar::b-*.tar", "a.tar")]
    [True, True, False]
    """
    parts = text.split("::")
    several = len(parts) > 1 or "{" in text or "}" in text or _has_magic(text)
    return several and all(part.partition("?")[0].lower().endswith(TARS) for part in parts)


def _has_magic(text: str) -> bool:
    # a question mark begins the query of an address
    return "*" in text or "[" in text if is_address(text) else glob.has_magic(text)


def expanded(pattern: str) -> list[str]:
    """Return what a brace pattern stands for, in its order, as a shell would.

    >>> expanded("{a,b}-{08..10}.tar")[:4]
    ['a-08.tar', 'a-09.tar', 'a-10.tar', 'b-08.tar']

    Raises:
        UsageError: the braces are not balanced, hold neither a list nor a range, or stand for
            more than :data:`MAX_SHARDS`.
    """
    pieces = list(_pieces(pattern, pattern))
    if prod(map(len, pieces)) > MAX_SHARDS:
        raise UsageError(
            f"pattern {redacted(pattern)!r} stands for more than {MAX_SHARDS:,} shards"
        )
    texts = [""]
    for choices in pieces:
        texts = [text + choice for text in texts for choice in choices]
    return texts


def _pieces(text: str, whole: str) -> Iterator[list[str]]:
    """Yield the alternatives of each part of a pattern."""
    while text:
        before, opening, rest = text.partition("{")
        if "}" in before:
            raise _refusal(whole, "a } has no {")
        yield [before]
        if not opening:
            return
        inside, text = _closed(rest, whole)
        yield _choices(inside, whole)


def _closed(rest: str, whole: str) -> tuple[str, str]:
    """Return what stands up to the brace that closes, and after it."""
    depth = 1
    for place, letter in enumerate(rest):
        depth += (letter == "{") - (letter == "}")
        if not depth:
            return rest[:place], rest[place + 1 :]
    raise _refusal(whole, "a { has no }")


def _choices(inside: str, whole: str) -> list[str]:
    """Return what a pair of braces stands for."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(inside):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and not depth:
            parts.append(inside[start:place])
            start = place + 1
    if parts:
        return [text for part in (*parts, inside[start:]) for text in (expanded(part) or [""])]
    if found := _NUMBERS.fullmatch(inside):
        first, last = int(found[1]), int(found[2])
        if abs(last - first) >= MAX_SHARDS:
            raise _refusal(whole, f"{{{inside}}} stands for more than {MAX_SHARDS:,} shards")
        padded = any(re.match(r"-?0\d", end) for end in found.groups())
        width = max(map(len, found.groups())) if padded else 0
        step = 1 if last >= first else -1
        return [f"{number:0{width}d}" for number in range(first, last + step, step)]
    if found := _LETTERS.fullmatch(inside):
        first, last = ord(found[1]), ord(found[2])
        step = 1 if last >= first else -1
        return [chr(code) for code in range(first, last + step, step)]
    raise _refusal(whole, f"{{{inside}}} is neither a list {{a,b}} nor a range {{000..146}}")


def _refusal(whole: str, why: str) -> UsageError:
    return UsageError(f"pattern {redacted(whole)!r}: {why}")


def shards_of_pattern(text: str) -> list[str]:
    """Return the shards that a pattern names, in its order; what a glob finds is sorted.

    Shards that braces name need not exist; a glob finds what is there.

    Raises:
        UsageError: see :func:`expanded`; a glob finds nothing; a shard is named twice.
        StoreError: a remote folder cannot be listed.
    """
    found: list[str] = []
    for part in text.split("::"):
        for name in [part] if os.path.exists(part) else expanded(part):
            magic = _has_magic(name) and not os.path.exists(name)
            found += _matching(name) if magic else [name]
    if len(set(found)) < len(found):
        twice = next(name for place, name in enumerate(found) if name in found[:place])
        raise UsageError(f"source {redacted(text)!r} names the shard {redacted(twice)} twice")
    return found


def globbed(pattern: str, *endings: str) -> list[str]:
    """Return the files or objects that match a glob and have one of the endings, sorted.

    Raises:
        StoreError: a remote folder cannot be listed.
    """
    root, rest = split_glob(pattern)
    if is_address(pattern):
        parts, start = rest.split("/"), len(root) + 1
        return sorted(
            place
            for place, _ in listed(root)
            if place.lower().endswith(endings) and matches(place[start:].split("/"), parts)
        )
    names = glob_names(root, rest, lambda path: _is_listed(path, endings))
    return sorted(str(Path(root, name)) for name in names)


def _is_listed(path: str, endings: tuple[str, ...]) -> bool:
    name = os.path.basename(path)
    return not name.startswith(".") and name.lower().endswith(endings)


def _matching(pattern: str) -> list[str]:
    found = globbed(pattern, *TARS)
    if not found:
        raise UsageError(f"source {redacted(pattern)!r}: no shard matches")
    return found
