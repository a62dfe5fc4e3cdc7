"""What a writer says of its result: the lists, the manifest, and the same result found again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import visleak
from visleak.errors import UsageError
from visleak.formats.registry import Layout
from visleak.formats.writing import Destination, OutputPart, OutputSource
from visleak.records import Problem
from visleak.remedy.manifest import (
    KEPT,
    KEPT_COLUMNS,
    REMOVED,
    REMOVED_COLUMNS,
    Removed,
    changed,
    read_files,
    read_manifest,
    write_rows,
)


@dataclass(frozen=True)
class Written:
    """A data set that was written.

    Attributes:
        folder: where it lies.
        how: ``manifest``, ``link`` or ``copy``.
        sources: part to the SOURCE that opens it; of a part of which only ids were listed, none.
        counts: part to its number of images.
        files: number of files and links, the lists among them.
        bytes: what the files hold.
        unreadable: images that were to be kept and could not be read.
        reused: it was there already, the very same.
    """

    folder: Path
    how: str
    sources: Mapping[str, str]
    counts: Mapping[str, int]
    files: int
    bytes: int
    unreadable: tuple[Problem, ...]
    reused: bool = False


def write_lists(
    place: Destination,
    filled: Sequence[OutputPart],
    names: Mapping[str, Sequence[str]],
    removed: Sequence[Removed],
    extra: Mapping[str, bytes],
) -> None:
    """Write ``kept.csv``, ``removed.csv`` and what else was asked for.

    Args:
        place: where.
        filled: the parts.
        names: by part, the ids of its images in the result, where it can be opened.
        removed: images that are left out.
        extra: more files, by name.
    """
    problems = [
        Removed(p.set, p.id, "", p.locator, "", f"unreadable: {p.reason}")
        for part in filled
        for piece in part.pieces
        for p in piece.problems
    ]
    write_rows(place.made(KEPT), KEPT_COLUMNS, _kept_rows(filled, names))
    write_rows(place.made(REMOVED), REMOVED_COLUMNS, [*removed, *problems])
    for name, data in extra.items():
        place.made(name).write_bytes(data)


def _kept_rows(
    filled: Sequence[OutputPart], names: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, ...]]:
    for part in filled:
        new = iter(names.get(part.name, ()))
        for piece in part.pieces:
            columns = (piece.column(name) for name in ("ids", "locators", "labels"))
            for at, digest, id_, locator, label in zip(
                piece.keep.tolist(), piece.digests, *columns, strict=True
            ):
                stand = piece.instead.get(at)
                yield (
                    piece.images.name,
                    id_ or "",
                    digest.tobytes().hex(),
                    locator or "",
                    label or "",
                    "" if stand is None else "replaced",
                    "" if stand is None else f"{stand.set}/{stand.id}",
                    part.name,
                    next(new, ""),
                )


def content_of(
    filled: Sequence[OutputPart],
    layouts: Mapping[str, Layout | None],
    opened: Mapping[str, OutputSource],
    how: str,
    about: Mapping[str, Any],
    key: str,
    removed: int,
) -> dict[str, Any]:
    """Return what ``manifest.json`` says."""
    parts = []
    for part in filled:
        layout, way = layouts[part.name], opened.get(part.name)
        parts.append(
            {
                "name": part.name,
                "layout": layout.name if layout else "ids alone",
                "opens": way.as_dict() if way else None,
                "images": len(part),
                "replaced": sum(len(piece.instead) for piece in part.pieces),
                "pieces": [
                    {
                        "set": piece.images.name,
                        "source": piece.images.source,
                        "kept": len(piece),
                        "of": len(piece.images),
                    }
                    for piece in part.pieces
                ],
            }
        )
    return {
        "visleak": visleak.__version__,
        "key": key,
        "about": dict(about),
        "as": how,
        "parts": parts,
        "removed": removed,
        "unreadable": sum(len(piece.problems) for part in filled for piece in part.pieces),
        "lists": {"kept": KEPT, "removed": REMOVED},
    }


def found_again(out: Path, key: str, filled: Sequence[OutputPart]) -> Written:
    """Return a finished result that is there already.

    Raises:
        UsageError: it is another one, or was changed since.
    """
    content = read_manifest(out)
    if content.get("key") != key:
        raise UsageError(
            f"the output {out} holds another clean data set; choose a new folder with -o DIR"
        )
    for file in read_files(out, content):
        what = changed(out, file)
        if what is not None:
            raise UsageError(
                f"the output {out} holds this result, but {file.path} was changed since: {what};"
                " choose a new folder with -o DIR"
            )
    return written_in(out, filled, reused=True)


def written_in(out: Path, filled: Sequence[OutputPart], reused: bool) -> Written:
    """Return what stands in a finished folder."""
    content = read_manifest(out)
    files = read_files(out, content)
    return Written(
        out,
        content["as"],
        {
            part["name"]: OutputSource(**part["opens"]).source(out)
            for part in content["parts"]
            if part["opens"] is not None
        },
        {part.name: len(part) for part in filled},
        len(files) + 2,
        sum(file.bytes for file in files),
        tuple(p for part in filled for piece in part.pieces for p in piece.problems),
        reused,
    )
