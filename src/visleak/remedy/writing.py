"""Data sets written whole or not at all, in the layout that they came in."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from visleak.errors import UsageError, VisleakError
from visleak.formats.addresses import is_address
from visleak.formats.files import FileOpener
from visleak.formats.folders import is_image_glob
from visleak.formats.listing import split_glob
from visleak.formats.opening import layout_of
from visleak.formats.registry import Layout
from visleak.formats.sources import locate
from visleak.formats.writing import Destination, OutputPart, OutputSource, linkable
from visleak.pipeline.context import Progress, silent
from visleak.records import ImageSet
from visleak.remedy.contents import fill
from visleak.remedy.manifest import MANIFEST, Removed, read_manifest, write_manifest
from visleak.remedy.parts import Part
from visleak.remedy.results import Written, content_of, found_again, write_lists, written_in
from visleak.remedy.staging import refuse_place, refuse_small_disk, staged
from visleak.remedy.verifying import verify

__all__ = ["HOWS", "Written", "inputs_of", "write"]

#: What a result consists of: lists alone, lists and links, lists and copies.
HOWS: Final = ("manifest", "link", "copy")


def write(
    parts: Sequence[Part],
    out: Path,
    how: str,
    *,
    about: Mapping[str, Any],
    extra: Mapping[str, bytes] | None = None,
    removed: Iterable[Removed] = (),
    known: Mapping[str, pa.Table] | None = None,
    check: Callable[[Path, Mapping[str, OutputSource]], None] | None = None,
    progress: Progress = silent,
) -> Written:
    """Write parts as data sets in the layout of their sets, all of them or nothing.

    Everything goes into a hidden folder beside ``out``, is read back and compared with the source
    by content digest, pushed to the disk, and gets its name in one step.

    Args:
        parts: what is written; names differ. Without any, the lists alone.
        out: folder that does not exist, or is empty; or holds this very result.
        how: ``manifest`` (lists alone), ``link`` (symbolic links to the files) or ``copy``.
        about: what was asked, for the manifest; plain values, nothing that changes between runs.
        extra: more files, by name.
        removed: images that are left out, for ``removed.csv``.
        known: by set, columns ``id`` and ``digest`` of the images that an audit saw: what is not
            the same any more is refused.
        check: is called with the finished folder before it gets its name, and with how the parts
            that can be opened are; where it raises, nothing is kept.
        progress: is told how far each step is.

    Raises:
        UsageError: ``out`` is taken or lies in an input, or the layout cannot hold what is asked.
        VisleakError: an input changed, the disk is full, or something was read back differently.
    """
    _refuse_words(parts, how)
    if out.name in ("", ".."):
        out = Path(os.path.realpath(out))
    refuse_place(out, [path for images in _sets(parts) for path in inputs_of(images)])
    refuse_taken(out)
    layouts = {part.name: _layout(part, how) for part in parts}
    holds = {part: _holds(layout, how) for part, layout in layouts.items()}
    filled = fill(parts, holds, known or {}, progress)
    empty = next((part.name for part in filled if not len(part)), None)
    if empty is not None:
        raise VisleakError(f"nothing is left of {empty!r}; no data set is written")
    left_out = list(removed)
    key = _key(filled, how, about, extra or {}, left_out)
    if (out / MANIFEST).exists():
        return found_again(out, key, filled)
    if how == "copy":
        refuse_small_disk(out, sum(int(p.sizes.sum()) for part in filled for p in part.pieces))
    try:
        with staged(out) as folder:
            place = Destination(folder, out, how, len(parts) > 1, progress)
            opened = _write_parts(filled, layouts, place)
            names = {
                part.name: verify(part, opened[part.name], folder, progress)
                for part in filled
                if part.name in opened
            }
            write_lists(place, filled, names, left_out, extra or {})
            content = content_of(filled, layouts, opened, how, about, key, len(left_out))
            write_manifest(folder, content)
            if check is not None:
                check(folder, opened)
    except OSError as error:
        raise VisleakError(f"{out} cannot be written: {error.strerror or error}") from error
    return written_in(out, filled, reused=False)


def _refuse_words(parts: Sequence[Part], how: str) -> None:
    if how not in HOWS:
        raise UsageError(f"as must be one of {', '.join(HOWS)}; got {how!r}")
    names = [part.name for part in parts]
    if len(set(names)) < len(names):
        raise UsageError("parts must have different names")
    for name in names:
        if not name or name.startswith(".") or "/" in name or "\0" in name:
            raise UsageError(
                f"part {name!r} cannot be the name of a folder; name the set otherwise"
            )


def _sets(parts: Sequence[Part]) -> Iterator[ImageSet]:
    for part in parts:
        for piece in part.pieces:
            yield piece.images
            yield from (substitute.images for substitute in piece.instead.values())


def inputs_of(images: ImageSet) -> Iterator[Path]:
    """Yield the folders and files of a set that nothing may be written into."""
    if not images.source or is_address(images.source):
        return
    found = locate(images.source)
    if is_image_glob(Path(found.place)):
        yield Path(split_glob(found.place)[0])
    elif Path(found.place).exists():
        yield Path(found.place)
    # a list names files here and there; its own folder may hold the result
    if isinstance(images.opener, FileOpener) and not found.place.endswith(_LISTS):
        yield Path(images.opener.root)


_LISTS: Final = (".txt", ".csv", ".tsv", ".parquet")


def refuse_taken(out: Path) -> None:
    """Refuse an output that holds something else."""
    if not os.path.lexists(out):
        return
    if (out / MANIFEST).is_file():
        with contextlib.suppress(VisleakError):
            read_manifest(out)
            return  # whether it is this very result is known once all is read
    if not out.is_dir() or any(out.iterdir()):
        raise UsageError(f"the output {out} exists; choose a new folder with -o DIR")


def _layout(part: Part, how: str) -> Layout | None:
    """Return the layout a part is written in; ``None`` where ids are all that is listed."""
    if not part.pieces:
        raise VisleakError(f"nothing is left of {part.name!r}; no data set is written")
    if how == "manifest" and not all(linkable(piece.images) for piece in part.pieces):
        return None
    found = [layout_of(piece.images) for piece in part.pieces]
    layout, name = found[0], part.pieces[0].images.name
    other = next((p for p, each in zip(part.pieces, found, strict=True) if each != layout), None)
    if other is not None:
        raise UsageError(
            f"part {part.name!r}: set {name!r} is {layout.name} and {other.images.name!r} is"
            f" {layout_of(other.images).name}; they cannot become one, use --format manifest"
        )
    if len(part.pieces) > 1 and not layout.mixes:
        raise UsageError(
            f"part {part.name!r}: images cannot be moved from set to set in {layout.name}; use"
            " --format manifest"
        )
    if any(piece.instead for piece in part.pieces) and not layout.swaps:
        raise UsageError(
            f"set {name!r} is {layout.name}, whose pictures have annotations of their own: no"
            " other picture can take their place; purge it instead"
        )
    if how == "link" and not all(linkable(piece.images) for piece in part.pieces):
        raise UsageError(
            f"set {name!r} is {layout.name}, and there are no files to link to; use --format copy"
        )
    return layout


def _holds(layout: Layout | None, how: str) -> str:
    """Return how a picture is held, see :func:`fill`; a list names pictures of any format."""
    return "bytes" if layout is None or how == "manifest" else layout.holds


def _key(
    parts: Sequence[OutputPart],
    how: str,
    about: Mapping[str, Any],
    extra: Mapping[str, bytes],
    removed: Sequence[Removed],
) -> str:
    """Return a digest of everything that the result depends on."""
    hasher = hashlib.blake2b(digest_size=16)
    hasher.update(json.dumps([how, about], sort_keys=True).encode())
    for part in parts:
        sources = [[piece.images.name, piece.images.source] for piece in part.pieces]
        columns = [part.column("ids"), part.column("labels")]
        hasher.update(json.dumps([part.name, sources, columns]).encode())
        hasher.update(part.digests().tobytes())
    for name, data in sorted(extra.items()):
        hasher.update(json.dumps([name, hashlib.blake2b(data).hexdigest()]).encode())
    hasher.update(json.dumps(removed).encode())
    return hasher.hexdigest()


def _write_parts(
    filled: Sequence[OutputPart], layouts: Mapping[str, Layout | None], place: Destination
) -> dict[str, OutputSource]:
    """Write the parts, those of one layout together; return how those that can be are opened."""
    opened: dict[str, OutputSource] = {}
    for layout in dict.fromkeys(layouts.values()):
        own = [part for part in filled if layouts[part.name] == layout]
        if layout is not None:
            names = [part.name for part in own]
            opened.update(zip(names, layout.write(own, place), strict=True))
    return opened
