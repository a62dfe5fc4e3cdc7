"""Parts that are to be written, and what their images hold, read once before anything is."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from visleak.errors import VisleakError
from visleak.formats.writing import OutputPart, Replacement, Selection, Stored, file_of, where
from visleak.images import content_digest, decode
from visleak.images.encodings import recognise
from visleak.progress import Progress
from visleak.records import ImageSet, Int64, Problem, Unreadable

#: Endings of a format's files, where it is not just its name.
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
    """An image of another set, by its position there, that takes the place of one."""

    images: ImageSet
    position: int


@dataclass(frozen=True)
class Piece:
    """Some images of one set."""

    images: ImageSet
    keep: Int64  # ``int64``, ascending positions in the set
    # position (one of ``keep``) to the image that takes its place; it keeps the place, the name and
    # the label
    instead: Mapping[int, Substitute] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.keep) and (
            (np.diff(self.keep) <= 0).any() or self.keep[0] < 0 or self.keep[-1] >= len(self.images)
        ):
            raise ValueError(f"positions of {self.images.name!r} must ascend and be in the set")
        if not set(self.instead) <= set(self.keep.tolist()):
            raise ValueError(f"images of {self.images.name!r} to be replaced must be kept")


@dataclass(frozen=True)
class Part:
    """A data set to be written; pieces of several sets where images were moved."""

    name: str
    pieces: tuple[Piece, ...]


def fill(
    parts: Sequence[Part],
    holds: Mapping[str, str],
    known: Mapping[str, pa.Table],
    progress: Progress,
) -> tuple[OutputPart, ...]:
    """Read all images of some parts, and compare them with the digests that an audit saw.

    ``holds``: how the layout of a part stores an image: ``named`` (a file whose ending says the
    format), ``bytes`` (encoded, any format) or ``arrays`` (pixels).
    """
    return tuple(
        OutputPart(
            part.name,
            tuple(
                _fill_piece(piece, holds[part.name], known, f"reading {part.name}", progress)
                for piece in part.pieces
            ),
        )
        for part in parts
    )


def _fill_piece(
    piece: Piece, holds: str, known: Mapping[str, pa.Table], step: str, progress: Progress
) -> Selection:
    images, audited = piece.images, known.get(piece.images.name)
    instead = _replacements(piece, holds)
    if audited is not None:
        # whether an image is to go was decided by what it held
        refuse_changed(images, sorted(instead), audited)
    read = [position for position in piece.keep.tolist() if position not in instead]
    sizes = {at: _size(each.stored) for at, each in instead.items()}
    digests = {at: content_digest(each.stored) for at, each in instead.items()}
    problems = []
    for number, (position, stored, digest) in enumerate(_as_audited(images, read, audited)):
        if number % 64 == 0:
            progress(step, number, len(read))
        if isinstance(stored, Unreadable):
            id_, locator = images.ids[position].as_py(), images.locators[position].as_py()
            problems.append(Problem(images.name, id_, locator or "", stored.reason, stored.detail))
        else:
            digests[position], sizes[position] = digest, _size(stored)
    progress(step, len(read), len(read))
    keep = np.array(sorted(digests), np.int64)
    return Selection(
        images,
        keep,
        np.frombuffer(b"".join(digests[at] for at in keep.tolist()), np.uint8).reshape(-1, 16),
        np.array([sizes[at] for at in keep.tolist()], np.int64),
        instead,
        tuple(problems),
    )


def refuse_changed(images: ImageSet, positions: Sequence[int], known: pa.Table) -> None:
    """Refuse a set of which images at ascending positions are not what the audit saw any more."""
    for _ in _as_audited(images, positions, known):
        pass


def _as_audited(
    images: ImageSet, positions: Sequence[int], known: pa.Table | None
) -> Iterator[tuple[int, Stored | Unreadable, bytes]]:
    """Yield images as stored and their digests; refuse one that is not what an audit saw."""
    expected: list[str | None] = [None] * len(positions)
    if known is not None:
        places = pc.index_in(
            images.ids.take(pa.array(positions, pa.int64())), known["id"].combine_chunks()
        )
        expected = known["digest"].combine_chunks().take(places).to_pylist()
    for position, audited, stored in zip(
        positions, expected, images.opener.read(positions), strict=True
    ):
        trouble, digest = "", b""
        if not isinstance(stored, Unreadable):
            digest = content_digest(stored)
            if audited not in (None, digest.hex()):
                trouble = "its content is another now"
        elif audited is not None:
            trouble = f"it cannot be read now ({stored.detail or stored.reason})"
        if trouble:
            raise VisleakError(
                f"{where(images, position)} is not what the audit saw: {trouble}; run `visleak"
                " audit` again"
            )
        yield position, stored, digest


def _size(stored: Stored) -> int:
    return len(stored) if isinstance(stored, bytes) else stored.nbytes


def _replacements(piece: Piece, holds: str) -> dict[int, Replacement]:
    """Return what takes the places of images; each pool is read once, forward."""
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
                raise VisleakError(f"{where(pool, position)} cannot take a place: {why}")
            for place in places[position]:
                locator: str = piece.images.locators[place].as_py()
                # of a file, or of its member of an archive
                name = locator.rpartition("!")[2].rpartition("/")[2] if holds == "named" else None
                fitted = _fitting(stored, holds, name, where(pool, position))
                path = file_of(pool, position) if fitted is stored else None
                found[place] = Replacement(pool.name, pool.ids[position].as_py(), fitted, path)
    return found


def _fitting(stored: Stored, holds: str, name: str | None, shown: str) -> Stored:
    """Return an image in the form that its place holds; encoded bytes stay as they are.

    Where a ``name`` is given, its ending must say the format.
    """
    if holds == "arrays":
        image = decode(stored)
        if isinstance(image, Unreadable) or image.pixels.shape != (32, 32, 3):
            has = "cannot be decoded"
            if not isinstance(image, Unreadable):
                has = f"has {image.width} x {image.height} pixels"
            raise VisleakError(f"{shown} {has}: its place holds 32 x 32")
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
        what = "no image" if kind is None else kind.name
        raise VisleakError(
            f"{shown} is {what} and cannot stand under the name {name!r}; take a pool of"
            f" {ending or 'such'} images, or write the list alone with --format manifest"
        )
    return stored
