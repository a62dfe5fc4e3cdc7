"""Embeddings made elsewhere as a set: ``emb:FOLDER``, ``emb:FILE.npy``, ``emb:FILE.parquet``.

Opening reads headers and footers, and of small sets the columns that may be ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from visleak.errors import UsageError, VisleakError
from visleak.images.columns import ID_COLUMNS, can_identify
from visleak.images.embedding_files import ParquetPartition, Table
from visleak.images.embedding_layout import Files, layout_of
from visleak.images.embedding_manifest import Manifest, read_manifest
from visleak.images.parquet import read_footer, read_tables
from visleak.images.request import Request
from visleak.records import EmbeddingSet, FileCount

#: Columns are checked for being unique in sets of up to this many vectors; in larger ones an
#: image's id is its row number, unless a column is asked for.
CHECKED: Final = 2_000_000

#: Columns with the name of the picture's file, which is its id where no other column is.
PATH_COLUMNS: Final = ("path", "image_path", "file_name")

#: What a column is for, and how it may be called.
_USES: Final = {
    "label": ("label_name", "label"),
    "caption": ("caption",),
    "group": ("group",),
    "locator": ("locator", "url", *PATH_COLUMNS),
    "width": ("width",),
    "height": ("height",),
}

#: Columns that only mean what visleak means by them where visleak wrote them.
_OWN: Final = ("digest", "flat")

_OPTIONS: Final = ("encoder", "column", "expect")


def open_embeddings(request: Request) -> EmbeddingSet:
    """List the files of a set of embeddings; no vector is read.

    Raises:
        UsageError: an option or a column is asked for that is not there.
        VisleakError: there are no vectors, the files do not fit together, or nobody says which
            encoder made them.
    """
    request.refuse_split()
    for option in request.options:
        if option not in _OPTIONS:
            raise UsageError(
                f"source {request.text!r}: option must be one of {', '.join(_OPTIONS)}; got"
                f" {option!r}"
            )
    if request.frame is not None:
        raise UsageError(
            f"frame {request.frame!r}: {request.text} is a set of embeddings, which has no frames;"
            " give the pictures, or leave it out"
        )
    manifest = read_manifest(request.path) if request.path.is_dir() else None
    layout = layout_of(request)
    files = _with_ids(_numbered(layout.partitions), request, manifest)
    width = _one_width(request, files)
    if manifest is not None:
        _check_manifest(request.path, manifest, files, width, layout.count)
        files = _with_digests(files, manifest)
    claimed = request.options.get("encoder", "")
    if manifest is None and not claimed:
        raise VisleakError(
            f"{request.text}: nothing says which encoder made these vectors; name it:"
            f" emb:{request.path}?encoder=clip"
        )
    if manifest is not None and claimed not in ("", manifest.encoder_name):
        raise VisleakError(
            f"{request.text}: its manifest says that {manifest.encoder_name} made these vectors,"
            f" not {claimed}"
        )
    return EmbeddingSet(
        name=request.name,
        partitions=tuple(files),
        width=width,
        encoder=manifest.encoder if manifest else "",
        encoder_name=manifest.encoder_name if manifest else claimed,
        thresholds=manifest.thresholds if manifest else None,
        dataset=request.dataset,
        roles=request.roles,
        source=request.text,
        files=layout.count,
        options={
            option: value
            for option, value in (
                ("id", request.id),
                ("label", request.label),
                ("group", request.group),
            )
            if value is not None
        },
    )


def _numbered(files: Files) -> Files:
    """Return the partitions with the number of their first row."""
    first = np.concatenate([[0], np.cumsum([part.rows for part in files])]).astype(int)
    return [replace(part, first=int(at)) for part, at in zip(files, first, strict=False)]


def _one_width(request: Request, files: Files) -> int:
    """Return the common width.

    Raises:
        VisleakError: there are no vectors, or of several widths.
    """
    if not sum(part.rows for part in files):
        raise VisleakError(
            f"{request.text} holds no vectors: emb: takes .npy files (img_emb/img_emb_0000.npy) or"
            " .parquet files with a column of vectors"
        )
    for part in files:
        if part.width != files[0].width:
            raise VisleakError(
                f"{part.locator} holds vectors of {part.width} numbers, {files[0].locator} of"
                f" {files[0].width}; a set has one width"
            )
    return files[0].width


def _check_manifest(
    folder: Path, manifest: Manifest, files: Files, width: int, count: FileCount
) -> None:
    """Refuse files that are not those the manifest speaks of."""
    rows = tuple(part.rows for part in files)
    if rows != manifest.shards or width != manifest.width:
        raise VisleakError(
            f"{folder}: its manifest speaks of {len(manifest.shards)} shards with"
            f" {sum(manifest.shards):,} vectors of width {manifest.width}, there are {len(rows)}"
            f" with {sum(rows):,} of width {width} ({count}); fetch the folder again"
        )


def _with_digests(files: Files, manifest: Manifest) -> Files:
    """Return the partitions with the digests that their files must have."""
    stated = zip(files, manifest.digests, manifest.tables, strict=True)
    return [
        replace(part, stated=tuple((path, digest) for path, digest in pairs if digest))
        for part, vectors, table in stated
        if (pairs := ((part.locator, vectors), (getattr(part.about, "path", ""), table)))
    ]


def _with_ids(files: Files, request: Request, manifest: Manifest | None) -> Files:
    """Return the partitions with what is known of their images."""
    tables = [part for part in files if isinstance(part.about, Table)]
    if not tables:
        request.refuse_columns("the set of embeddings")
        return [replace(part, pattern=request.group_pattern) for part in files]
    names = _names(tables, request, manifest)
    return [
        replace(
            part,
            about=replace(part.about, names=names) if isinstance(part.about, Table) else part.about,
            pattern=request.group_pattern,
        )
        for part in files
    ]


def _names(files: Files, request: Request, manifest: Manifest | None) -> dict[str, str]:
    """Return which column says what, by what it is for; of the columns that all files have."""
    schemas = [read_footer(Path(path)).schema.to_arrow_schema() for path in _paths(files)]
    vectors = {part.column for part in files if isinstance(part, ParquetPartition)}
    there = [
        name
        for name in schemas[0].names
        if name not in vectors and all(name in schema.names for schema in schemas[1:])
    ]
    pattern = request.group_pattern
    names: dict[str, str] = {}
    for use in ("id", "label", "group"):
        wanted = getattr(request, use)
        if wanted is None or (use == "group" and pattern is not None):
            continue
        if wanted not in there:
            raise UsageError(
                f"{use} {wanted!r}: {request.text} has no such column; it has {', '.join(there)}"
            )
        names[use] = wanted
    for use, usual in _USES.items():
        found = next((name for name in usual if name in there), None)
        if use not in names and found is not None and not (use == "group" and pattern):
            names[use] = found
    if manifest is not None:
        names |= {use: use for use in _OWN if use in there}
    if "id" not in names:
        found = "id" if manifest is not None and "id" in there else _id_column(files, there)
        names |= {"id": found} if found else {}
    return names


def _paths(files: Files) -> list[str]:
    return list(dict.fromkeys(part.about.path for part in files if isinstance(part.about, Table)))


def _id_column(files: Files, there: Sequence[str]) -> str | None:
    """Return the first of the usual columns that tells the images of a small set apart."""
    if sum(part.rows for part in files) > CHECKED:
        return None
    for name in (*ID_COLUMNS, *PATH_COLUMNS):
        if name not in there:
            continue
        tables = read_tables([Path(path) for path in _paths(files)], [name])
        if can_identify(tables[name]):
            return name
    return None
