"""Which files are the memorized images of a trigger prompt."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from visleak.errors import UsageError, VisleakError
from visleak.images import content_digest, decode
from visleak.memorization.prompts import Prompts
from visleak.quantities import counted
from visleak.records import Bytes8, Unreadable
from visleak.storage import open_rows

#: Endings that images of a folder have; others are ignored.
ENDINGS: Final = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
#: Columns of a map that name what a file is the image of.
_KEYS: Final = ("prompt", "source")


@dataclass(frozen=True)
class References:
    """The memorized images of trigger prompts."""

    files: tuple[tuple[Path, ...], ...]  #: by prompt, in their order; empty where none is at hand
    notes: tuple[str, ...] = ()  #: what a reader must know, one line each

    @property
    def known(self) -> int:
        """Prompts with at least one."""
        return sum(bool(own) for own in self.files)


def references_of(
    triggers: Prompts,
    folder: str | os.PathLike[str] | None = None,
    table: str | os.PathLike[str] | None = None,
    beside: str | os.PathLike[str] | None = None,
) -> References:
    """Return the files of each prompt's memorized images: by folder, table, or list."""
    if folder is None and table is None:
        lying = tuple(tuple(_beside(beside, own)) for own in triggers.sources)
        if not any(lying):
            raise UsageError(
                "similarity to the memorized images needs their files: give --references DIR or"
                " --reference-map CSV, or a list whose sources are paths beside it"
            )
        return References(lying, tuple(_notes(lying)))
    named = None if folder is None else _Named(Path(folder))
    mapped = {} if table is None else _mapped(Path(table))
    found = []
    for prompt, own in zip(triggers.texts, triggers.sources or repeat(()), strict=False):
        files = list(mapped.get(prompt, ()))
        for source in own:
            files += mapped.get(source, ())
            files += () if named is None else named.files(source)
        found.append(tuple(dict.fromkeys(files)))
    if not any(found):
        places = " and ".join(str(place) for place in (folder, table) if place is not None)
        wanted = (
            "the list has no column sources, urls or url, so that a table must name prompts:"
            " --reference-map CSV with the columns prompt and file"
        )
        if example := next((source for own in triggers.sources for source in own), ""):
            name = f"{last_part(example)!r} for {example[:80]!r}"
            wanted = f"a file must be named like a source, such as {name}"
        raise UsageError(
            f"none of the {len(triggers):,} trigger prompts has an image in {places}: {wanted}"
        )
    shared = 0 if named is None else sum(len(each) > 1 for each in named.by_part.values())
    return References(tuple(found), tuple(_notes(found, shared)))


def _beside(folder: str | os.PathLike[str] | None, sources: Iterable[str]) -> Iterator[Path]:
    """Yield the images that sources name as paths in a folder; none leads out of it."""
    if folder is None:
        return
    for source in dict.fromkeys(sources):
        path = Path(folder) / source
        # an address may not be a path at all
        with suppress(OSError, ValueError):
            inside = path.resolve().is_relative_to(Path(folder).resolve())
            if inside and path.suffix.lower() in ENDINGS and path.is_file():
                yield path


def _notes(found: Sequence[tuple[Path, ...]], shared: int = 0) -> Iterator[str]:
    if without := sum(not own for own in found):
        yield (
            f"{without:,} of {len(found):,} trigger prompts have no memorized image: they are"
            " excluded from all similarities"
        )
    if shared:
        yield (
            f"{counted(shared, 'reference file', 'stands', 'stand')} for several"
            " addresses that have the same ending; where those are different images, name files by"
            " --reference-map"
        )


class _Named:
    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise UsageError(f"references {folder} is not a folder")
        self._whole = defaultdict[str, list[Path]](list)
        self._stem = defaultdict[str, list[Path]](list)
        #: Addresses that a file was taken for by their last part alone.
        self.by_part = defaultdict[Path, set[str]](set)
        for path in sorted(folder.rglob("*")):
            if path.suffix.lower() in ENDINGS and path.is_file():
                inside = path.relative_to(folder)
                for key in {path.name, inside.as_posix()}:
                    self._whole[key].append(path)
                for key in {path.stem, inside.with_suffix("").as_posix()}:
                    self._stem[key].append(path)

    def files(self, source: str) -> list[Path]:
        """Return the file of a source, or nothing."""
        part = last_part(source)
        for key, names in (
            *((source, self._whole), (source, self._stem)),
            *((part, self._whole), (part, self._stem), (Path(part).stem, self._stem)),
        ):
            held = names.get(key, []) if key else []
            if len(held) > 1:
                raise UsageError(
                    f"{held[0]} and {held[1]} are both named like the source {source[:120]!r};"
                    " rename one, or name files by --reference-map"
                )
            if held:
                if key != source:
                    self.by_part[held[0]].add(source)
                return held
        return []


def last_part(source: str) -> str:
    """Return the last part of a path or an address, without query.

    >>> last_part("https://cdn.example/a/red%20bag.jpg?v=2"), last_part("plain.png")
    ('red bag.jpg', 'plain.png')
    """
    try:
        parts = urlsplit(source)
    except ValueError:
        return source.rpartition("/")[2]
    path = unquote(parts.path) if parts.scheme and parts.netloc else source
    return path.rstrip("/").rpartition("/")[2]


def _mapped(table: Path) -> dict[str, list[Path]]:
    if not table.is_file():
        raise UsageError(
            f"there is no file {table}; a reference map is a CSV with the columns file and source"
            " (or prompt)"
        )
    found: dict[str, list[Path]] = {}
    with open_rows(table, padded=True) as rows:
        keys = [key for key in _KEYS if key in rows.names] or _KEYS[:1]
        rows.need(("file", *keys), "; it needs file and source (or prompt)")
        for row in rows:
            path = table.parent / row["file"].strip()
            if not path.is_file():
                raise ValueError(f"there is no file {path}")
            for key in keys:
                if what := row[key].strip():
                    found.setdefault(what, []).append(path)
    return found


def read_reference(path: Path) -> tuple[str, Bytes8]:
    """Return the digest of a memorized image's file, hexadecimal, and its pixels."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise VisleakError(f"reference {path} cannot be read ({error.strerror})") from error
    seen = decode(data)
    if isinstance(seen, Unreadable):
        raise VisleakError(
            f"reference {path} cannot be read as an image ({seen.reason}); replace or remove it"
        )
    return content_digest(data).hex(), seen.pixels
