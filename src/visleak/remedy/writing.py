"""Data sets written completely or not at all, in the layout of their source, and read back."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

import visleak
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_image_set
from visleak.formats.files import FileOpener
from visleak.formats.folders import is_image_glob
from visleak.formats.listing import split_glob
from visleak.formats.opening import layout_of
from visleak.formats.remote import is_address
from visleak.formats.sources import Layout, locate
from visleak.formats.writing import (
    Destination,
    OutputPart,
    OutputSource,
    Replacement,
    Selection,
    Stored,
    file_of,
    linkable,
    where,
)
from visleak.images import content_digest, decode
from visleak.images.encodings import recognise
from visleak.progress import Progress, silent
from visleak.quantities import size
from visleak.records import ImageSet, Int64, Problem, Unreadable
from visleak.remedy.manifest import (
    KEPT,
    KEPT_COLUMNS,
    MANIFEST,
    REMOVED,
    REMOVED_COLUMNS,
    RemovedImage,
    change_of,
    read_files,
    read_manifest,
    write_manifest,
    write_rows,
)
from visleak.storage.files import flush
from visleak.storage.run_folder import is_running, try_lock

#: Endings of lists, whose images may be in any folder.
_LISTS: Final = (".txt", ".csv", ".tsv", ".parquet")


#: File name extensions of a format, if not only its name.
ENDINGS: Final = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif", ".mpo"),
    "PNG": (".png", ".apng"),
    "TIFF": (".tif", ".tiff"),
    "BMP": (".bmp", ".dib"),
    "PNM": (".pbm", ".pfm", ".pgm", ".pnm", ".ppm"),
    "AVIF": (".avif", ".avifs"),
    "HEIF": (".heic", ".heics", ".heif", ".hif"),
    "JPEG 2000": (".jp2", ".j2c", ".j2k", ".jpc", ".jpf", ".jpx"),
    "JPEG XL": (".jxl",),
    "Sun raster": (".ras",),
}


@dataclass(frozen=True)
class Substitute:
    """The image of another set that replaces an image."""

    images: ImageSet
    position: int


@dataclass(frozen=True)
class Piece:
    """Some images of one set."""

    images: ImageSet
    keep: Int64  # ascending positions in the set
    # substitutes by position, one of ``keep``; position, name and label stay
    instead: Mapping[int, Substitute] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """A data set to be written, of pieces of several sets if images were moved."""

    name: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class WrittenSet:
    """A data set that was written."""

    folder: Path
    how: str  # ``manifest``, ``link`` or ``copy``
    sources: Mapping[str, str]
    counts: Mapping[str, int]
    files: int
    bytes: int
    unreadable: tuple[Problem, ...]
    reused: bool = False

    def as_dict(self) -> dict[str, object]:
        """Return the result as plain values."""
        return {
            "folder": str(self.folder),
            "as": self.how,
            "sources": dict(self.sources),
            "images": dict(self.counts),
            "files": self.files,
            "bytes": self.bytes,
            "unreadable": len(self.unreadable),
            "reused": self.reused,
        }


def write(
    parts: Sequence[Part],
    out: Path,
    how: str,
    *,
    about: Mapping[str, object],
    extra: Mapping[str, bytes] | None = None,
    removed: Iterable[RemovedImage] = (),
    known: Mapping[str, pa.Table] | None = None,
    check: Callable[[Path, Mapping[str, OutputSource]], None] | None = None,
    progress: Progress = silent,
) -> WrittenSet:
    """Write parts as data sets in the layout of their sets, all of them or nothing.

    Everything is written into a hidden folder beside ``out``, read back, compared with the source
    by content digest, flushed to the disk, and renamed in one step.

    Args:
        parts: with different names. Without any, only the lists are written.
        out: folder that does not exist, is empty, or contains this result.
        how: ``manifest`` (lists only), ``link`` (symbolic links to the files) or ``copy``.
        about: settings for the manifest; plain values that do not change between runs.
        extra: more files, by name.
        removed: rows of ``removed.csv``.
        known: by set, columns ``id`` and ``digest`` of the audited images; a changed image is
            refused.
        check: called with the finished folder before it is renamed, and with the sources of the
            parts; if it raises, nothing is kept.
        progress: reports each step.

    Raises:
        UsageError: ``out`` exists or is in an input, or the layout does not support the request.
        VisleakError: an input changed, the disk is full, or something was read back differently.
    """
    _refuse_names(parts)
    if out.name in ("", ".."):
        out = Path(os.path.realpath(out))
    refuse_place(out, _sets(parts))
    refuse_existing(out)
    layouts = {part.name: _layout(part, how) for part in parts}
    # a list may have images of any format
    holds = {
        name: layout.holds if layout is not None and how != "manifest" else "bytes"
        for name, layout in layouts.items()
    }
    filled = []
    for part in parts:
        how_read = (holds[part.name], known or {}, f"reading {part.name}", progress)
        pieces = tuple(_fill(piece, *how_read) for piece in part.pieces)
        filled.append(OutputPart(part.name, pieces))
    _refuse_empty({part.name: len(part) for part in filled})
    left_out = list(removed)
    key = _key(filled, how, about, extra or {}, left_out)
    if (out / MANIFEST).exists():
        return _found_again(out, key, filled)
    if how == "copy":
        _refuse_small_disk(out, sum(int(p.sizes.sum()) for part in filled for p in part.pieces))
    try:
        with staged(out) as folder:
            place = Destination(folder, out, how, len(parts) > 1, progress)
            opened: dict[str, OutputSource] = {}
            for layout in filter(None, dict.fromkeys(layouts.values())):
                own = [part for part in filled if layouts[part.name] == layout]
                opened |= zip((part.name for part in own), layout.write(own, place), strict=True)
            ids = {
                part.name: _verified(part, opened[part.name], folder, progress)
                for part in filled
                if part.name in opened
            }
            problems = _problems(filled)
            write_rows(place.made(KEPT), KEPT_COLUMNS, _kept_rows(filled, ids))
            gone = [*left_out, *map(RemovedImage.unreadable, problems)]
            write_rows(place.made(REMOVED), REMOVED_COLUMNS, gone)
            for name, data in (extra or {}).items():
                place.made(name).write_bytes(data)
            content = {
                "visleak": visleak.__version__,
                "key": key,
                "about": dict(about),
                "as": how,
                "parts": [_about(e, layouts[e.name], opened.get(e.name)) for e in filled],
                "removed": len(left_out),
                "unreadable": len(problems),
                "lists": {"kept": KEPT, "removed": REMOVED},
            }
            write_manifest(folder, content)
            if check is not None:
                check(folder, opened)
    except OSError as error:
        raise VisleakError(f"{out} cannot be written: {error.strerror or error}") from error
    return _written(out, filled, reused=False)


# -- what may be written, and where --------------------------------------------------------------


def _refuse_names(parts: Sequence[Part]) -> None:
    names = [part.name for part in parts]
    if len(set(names)) < len(names):
        raise UsageError("parts must have different names")
    for name in names:
        if not name or name.startswith(".") or "/" in name or "\0" in name:
            raise UsageError(f"part {name!r} cannot be the name of a folder; rename the set")
    _refuse_empty({part.name: len(part.pieces) for part in parts})


def _refuse_empty(sizes: Mapping[str, int]) -> None:
    for name, count in sizes.items():
        if not count:
            raise VisleakError(f"no image of {name!r} is left; no data set is written")


def _sets(parts: Sequence[Part]) -> Iterator[ImageSet]:
    for part in parts:
        for piece in part.pieces:
            yield piece.images
            yield from (substitute.images for substitute in piece.instead.values())


def _inputs_of(images: ImageSet) -> Iterator[Path]:
    """Yield the folders and files of a set, in which nothing may be written."""
    if not images.source or is_address(images.source):
        return
    found = locate(images.source)
    if is_image_glob(Path(found.place)):
        yield Path(split_glob(found.place)[0])
    elif Path(found.place).exists():
        yield Path(found.place)
    # the result may be in the folder of a list
    if isinstance(images.opener, FileOpener) and not found.place.endswith(_LISTS):
        yield Path(images.opener.root)


def refuse_place(out: Path, sets: Iterable[ImageSet]) -> None:
    """Refuse an output folder that is an input, or in one."""
    real = Path(os.path.realpath(out))
    for given in (path for images in sets for path in _inputs_of(images)):
        source = Path(os.path.realpath(given))
        if real == source or (source.is_dir() and source in real.parents):
            raise UsageError(
                f"the output {out} is the input {given}, or in it, and inputs are never changed;"
                " choose another -o DIR"
            )


def refuse_existing(out: Path) -> None:
    """Refuse an output that contains other files."""
    if not os.path.lexists(out):
        return
    if (out / MANIFEST).is_file():
        with contextlib.suppress(VisleakError):
            read_manifest(out)
            return  # _found_again compares it with this result
    if not out.is_dir() or any(out.iterdir()):
        raise UsageError(f"the output {out} exists; choose a new folder with -o DIR")


def _layout(part: Part, how: str) -> Layout | None:
    """Return the layout of a part; ``None`` if only its ids are listed."""
    files = all(linkable(piece.images) for piece in part.pieces)
    if how == "manifest" and not files:
        return None
    layout, name = layout_of(part.pieces[0].images), part.pieces[0].images.name
    for other in part.pieces[1:]:
        if layout_of(other.images) != layout:
            raise UsageError(
                f"part {part.name!r}: set {name!r} is {layout.name} and {other.images.name!r} is"
                f" {layout_of(other.images).name}; they cannot become one, use --format manifest"
            )
        if not layout.mixes:
            raise UsageError(
                f"part {part.name!r}: images cannot be moved from set to set in {layout.name}; use"
                " --format manifest"
            )
    if any(piece.instead for piece in part.pieces) and not layout.swaps:
        raise UsageError(
            f"set {name!r} is {layout.name}, whose images have annotations of their own: they"
            " cannot be replaced; purge the set instead"
        )
    if how == "link" and not files:
        raise UsageError(
            f"set {name!r} is {layout.name}, and there are no files to link to; use --format copy"
        )
    return layout


def _key(
    parts: Sequence[OutputPart],
    how: str,
    about: Mapping[str, object],
    extra: Mapping[str, bytes],
    removed: Sequence[RemovedImage],
) -> str:
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


# -- reading back --------------------------------------------------------------------------------


def _verified(
    part: OutputPart, opened: OutputSource, folder: Path, progress: Progress
) -> list[str]:
    """Open a written part, compare it with its source, and return its new ids in order."""
    images = open_image_set(opened.source(folder), name=part.name, **opened.options)
    order = opened.order if opened.order is not None else np.arange(len(part))

    def wrong(what: str) -> VisleakError:
        return VisleakError(
            f"part {part.name!r} was not written correctly: {what}; nothing was kept"
        )

    def expected(column: str) -> pa.Array:
        return pa.array(part.column(column), pa.string()).take(pa.array(order))

    if len(images) != len(part):
        raise wrong(f"it has {len(images):,} images and not {len(part):,}")
    ids = expected("ids") if opened.ids is None else pa.array(opened.ids, pa.string())
    if not opened.renamed and not images.ids.equals(ids):
        raise wrong("its ids differ")
    labels = images.labels if images.labels is not None else pa.nulls(len(images), pa.string())
    if not labels.equals(expected("labels")):
        raise wrong("its labels differ")
    digests = part.digests()[order]
    step = f"verifying {part.name}"
    for number, stored in enumerate(images.opener.read(range(len(images)))):
        if number % 64 == 0:
            progress(step, number, len(images))
        if isinstance(stored, Unreadable):
            why = stored.detail or stored.reason
            raise wrong(f"image {images.ids[number]} cannot be read back: {why}")
        if content_digest(stored) != digests[number].tobytes():
            raise wrong(f"image {images.ids[number]} has another content")
    progress(step, len(images), len(images))
    return list(images.ids.take(pa.array(np.argsort(order))).to_pylist())


# -- lists and manifest --------------------------------------------------------------------------


def _problems(filled: Sequence[OutputPart]) -> list[Problem]:
    return [problem for part in filled for piece in part.pieces for problem in piece.problems]


def _kept_rows(
    filled: Sequence[OutputPart], ids: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, ...]]:
    """Yield the rows of ``kept.csv``; ``ids`` are the new ones, by part."""
    for part in filled:
        new = iter(ids.get(part.name, ()))
        for piece in part.pieces:
            columns = (piece.column(name) for name in ("ids", "locators", "labels"))
            for at, digest, id_, locator, label in zip(
                piece.keep.tolist(), piece.digests, *columns, strict=True
            ):
                other = piece.instead.get(at)
                replaced = ("", "") if other is None else ("replaced", f"{other.set}/{other.id}")
                own = (id_ or "", digest.tobytes().hex(), locator or "", label or "")
                yield piece.images.name, *own, *replaced, part.name, next(new, "")


def _about(
    part: OutputPart, layout: Layout | None, opened: OutputSource | None
) -> dict[str, object]:
    return {
        "name": part.name,
        "layout": layout.name if layout else "ids alone",
        "opens": opened.as_dict() if opened else None,
        "images": len(part),
        "replaced": sum(len(piece.instead) for piece in part.pieces),
        "pieces": [
            {"set": own.name, "source": own.source, "kept": len(piece), "of": len(own)}
            for piece in part.pieces
            for own in [piece.images]
        ],
    }


def _found_again(out: Path, key: str, filled: Sequence[OutputPart]) -> WrittenSet:
    content = read_manifest(out)
    advice = "choose a new folder with -o DIR"
    if content.get("key") != key:
        raise UsageError(f"the output {out} holds another clean data set; {advice}")
    for file in read_files(out, content):
        if change := change_of(out, file):
            raise UsageError(
                f"the output {out} holds this result, but {file.path} was changed since: {change};"
                f" {advice}"
            )
    return _written(out, filled, reused=True)


def _written(out: Path, filled: Sequence[OutputPart], reused: bool) -> WrittenSet:
    content = read_manifest(out)
    files = read_files(out, content)
    opens = {part["name"]: part["opens"] for part in content["parts"] if part["opens"] is not None}
    return WrittenSet(
        out,
        content["as"],
        {name: OutputSource(**about).source(out) for name, about in opens.items()},
        {part.name: len(part) for part in filled},
        len(files) + 2,
        sum(file.bytes for file in files),
        tuple(_problems(filled)),
        reused,
    )


# -- what the images hold, read once before anything is written ------------------------------------


def _fill(
    piece: Piece, holds: str, known: Mapping[str, pa.Table], step: str, progress: Progress
) -> Selection:
    """Read all images of a piece, and compare them with the digests of an audit.

    ``holds``: how the layout stores an image: ``named`` (a file with the extension of its format),
    ``bytes`` (encoded, any format) or ``arrays`` (pixels).
    """
    images, audited = piece.images, known.get(piece.images.name)
    instead = _replacements(piece, holds)
    if audited is not None:
        refuse_changed(images, sorted(instead), audited)
    read = [position for position in piece.keep.tolist() if position not in instead]
    held = {at: _digest_and_size(each.stored) for at, each in instead.items()}
    problems = []
    for number, (position, stored, digest) in enumerate(_as_audited(images, read, audited)):
        if number % 64 == 0:
            progress(step, number, len(read))
        if isinstance(stored, Unreadable):
            id_, locator = images.ids[position].as_py(), images.locators[position].as_py()
            problems.append(Problem(images.name, id_, locator or "", stored.reason, stored.detail))
        else:
            held[position] = _digest_and_size(stored, digest)
    progress(step, len(read), len(read))
    keep = sorted(held)
    digests = np.frombuffer(b"".join(held[at][0] for at in keep), np.uint8).reshape(-1, 16)
    sizes = np.array([held[at][1] for at in keep], np.int64)
    return Selection(images, np.array(keep, np.int64), digests, sizes, instead, tuple(problems))


def refuse_changed(images: ImageSet, positions: Sequence[int], known: pa.Table) -> None:
    """Refuse a set if images at ascending positions changed since the audit."""
    for _ in _as_audited(images, positions, known):
        pass


def _as_audited(
    images: ImageSet, positions: Sequence[int], known: pa.Table | None
) -> Iterator[tuple[int, Stored | Unreadable, bytes]]:
    """Yield images as stored and their digests; refuse one that changed since an audit."""
    expected: list[str | None] = [None] * len(positions)
    if known is not None:
        ids = images.ids.take(pa.array(positions, pa.int64()))
        places = pc.index_in(ids, known["id"].combine_chunks())
        expected = known["digest"].combine_chunks().take(places).to_pylist()
    opened = zip(positions, expected, images.opener.read(positions), strict=True)
    for position, audited, stored in opened:
        change, digest = "", b""
        if not isinstance(stored, Unreadable):
            digest = content_digest(stored)
            if audited not in (None, digest.hex()):
                change = "its content is different"
        elif audited is not None:
            change = f"it cannot be read ({stored.detail or stored.reason})"
        if change:
            raise VisleakError(
                f"{where(images, position)} changed since the audit: {change}; run `visleak audit`"
                " again"
            )
        yield position, stored, digest


def _digest_and_size(stored: Stored, digest: bytes = b"") -> tuple[bytes, int]:
    count = len(stored) if isinstance(stored, bytes) else stored.nbytes
    return digest or content_digest(stored), count


def _replacements(piece: Piece, holds: str) -> dict[int, Replacement]:
    """Return replacements by position; each pool is read once, forward."""
    found: dict[int, Replacement] = {}
    pools = {id(each.images): each.images for each in piece.instead.values()}
    for pool in pools.values():
        places: dict[int, list[int]] = {}
        for place, each in sorted(piece.instead.items()):
            if each.images is pool:
                places.setdefault(each.position, []).append(place)
        positions = sorted(places)
        for position, stored in zip(positions, pool.opener.read(positions), strict=True):
            if isinstance(stored, Unreadable):
                why = stored.detail or stored.reason
                raise VisleakError(f"{where(pool, position)} cannot be read: {why}")
            for place in places[position]:
                locator: str = piece.images.locators[place].as_py()
                # of a file, or of a member of an archive
                name = locator.rpartition("!")[2].rpartition("/")[2] if holds == "named" else None
                fitted = _fitting(stored, holds, name, where(pool, position))
                path = file_of(pool, position) if fitted is stored else None
                found[place] = Replacement(pool.name, pool.ids[position].as_py(), fitted, path)
    return found


def _fitting(stored: Stored, holds: str, name: str | None, shown: str) -> Stored:
    """Return an image in the form that the layout stores; encoded bytes stay as they are.

    If a ``name`` is given, it must have an extension of the format.
    """
    if holds == "arrays":
        image = decode(stored)
        if isinstance(image, Unreadable):
            raise VisleakError(f"{shown} cannot be decoded, and the layout needs pixels")
        if image.pixels.shape != (32, 32, 3):
            shape = f"{image.width} x {image.height}"
            raise VisleakError(f"{shown} has {shape} pixels, and the layout needs 32 x 32")
        return np.ascontiguousarray(image.pixels)
    if isinstance(stored, np.ndarray):
        encoded = io.BytesIO()
        Image.fromarray(stored).save(encoded, "PNG")
        stored = encoded.getvalue()
    if name is None:
        return stored
    kind = recognise(stored)
    ending = name[name.rfind(".") :].lower()
    if kind is None or ending not in ENDINGS.get(kind.name, (f".{kind.name.lower()}",)):
        what = "not an image" if kind is None else kind.name
        raise VisleakError(
            f"{shown} is {what} and cannot have the name {name!r}; use a pool of"
            f" {ending or 'such'} images, or write the lists only with --format manifest"
        )
    return stored


# -- a folder that is written under a temporary name and renamed in one step ----------------------


#: Number of files above which the whole system is flushed instead of each file.
ONE_BY_ONE: Final = 100


@contextlib.contextmanager
def staged(out: Path) -> Iterator[Path]:
    """Yield an empty hidden folder beside ``out``, which is renamed to ``out`` on success.

    Leftovers of killed runs are removed first. On failure the folder is removed.
    """
    beside = out.with_name(f".{out.name}.{os.getpid()}.part")
    out.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(out)
    if beside.exists():
        raise VisleakError(f"another run is writing to {out}; wait for it")
    beside.mkdir()
    handle = os.open(beside, os.O_RDONLY)
    try:
        try_lock(handle)
        yield beside
        _flush_all(beside)
        os.rename(beside, out)
        flush(out.parent)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    finally:
        os.close(handle)


def _refuse_small_disk(out: Path, wanted: int) -> None:
    place = next(parent for parent in out.absolute().parents if parent.exists())
    free = shutil.disk_usage(place).free
    if wanted > free:
        raise VisleakError(
            f"{out} needs {size(wanted)}, its disk has {size(free)} free; make room, or write"
            " only links or lists with --format link or --format manifest"
        )


def _remove_leftovers(out: Path) -> None:
    pattern = re.compile(rf"\.{re.escape(out.name)}\.(\d+)\.part")
    for entry in os.scandir(out.parent):
        found = pattern.fullmatch(entry.name)
        if not found or not entry.is_dir(follow_symlinks=False):
            continue
        if int(found[1]) != os.getpid() and not _is_held(entry.path, int(found[1])):
            shutil.rmtree(entry.path, ignore_errors=True)


def _is_held(folder: str, process: int) -> bool:
    """Whether a writer is running: its process exists, or it holds the lock of the folder."""
    if is_running(process):
        return True
    # the process may run in another container that shares the disk
    handle = os.open(folder, os.O_RDONLY)
    try:
        return not try_lock(handle)
    finally:
        os.close(handle)


def _flush_all(folder: Path) -> None:
    names = [os.path.join(top, name) for top, _, files in os.walk(folder) for name in files]
    if len(names) > ONE_BY_ONE and hasattr(os, "sync"):
        os.sync()
        return
    for name in names:
        if not os.path.islink(name):
            flush(Path(name))
    for top, _, _ in os.walk(folder, topdown=False):
        flush(Path(top))
