"""What the images of parts hold, read once before anything is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import VisleakError
from visleak.formats.writing import OutputPart, Replacement, Selection, Stored, file_of, where
from visleak.images import content_digest
from visleak.pipeline.context import Progress
from visleak.records import ImageSet, Problem, Unreadable
from visleak.remedy.fitting import fitting
from visleak.remedy.parts import Part, Piece, Substitute


def fill(
    parts: Sequence[Part],
    holds: Mapping[str, str],
    known: Mapping[str, pa.Table],
    progress: Progress,
) -> tuple[OutputPart, ...]:
    """Read all images of some parts.

    Args:
        parts: what is to be written.
        holds: how each part's layout stores an image, by its name: ``named`` (a file whose
            ending says the format), ``bytes`` (encoded, any format) or ``arrays`` (pixels).
        known: by set, columns ``id`` and ``digest`` of the images that an audit saw.
        progress: reports each step.

    Raises:
        VisleakError: an image is not what the audit saw, a substitute cannot be read, or its
            place cannot hold it.
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
    images = piece.images
    instead = _stands(piece, holds)
    read = [int(position) for position in piece.keep if int(position) not in instead]
    expected = _expected(images, read, known.get(images.name))
    if images.name in known:
        # whether an image is to go was decided by what it held
        refuse_changed(images, sorted(instead), known[images.name])
    found: dict[int, tuple[bytes, int]] = {
        at: (content_digest(stand.stored), _size(stand.stored)) for at, stand in instead.items()
    }
    problems = []
    data = images.opener.read(read)
    for number, (position, digest, stored) in enumerate(zip(read, expected, data, strict=True)):
        if number % 64 == 0:
            progress(step, number, len(read))
        if isinstance(stored, Unreadable):
            if digest is not None:
                why = stored.detail or stored.reason
                raise VisleakError(_changed(images, position, f"it cannot be read now ({why})"))
            problems.append(_problem(images, position, stored))
            continue
        found[position] = (content_digest(stored), _size(stored))
        if digest is not None and found[position][0].hex() != digest:
            raise VisleakError(_changed(images, position, "its content is another now"))
    progress(step, len(read), len(read))
    keep = np.array(sorted(found), np.int64)
    digests = np.frombuffer(b"".join(found[at][0] for at in keep.tolist()), np.uint8)
    sizes = np.array([found[at][1] for at in keep.tolist()], np.int64)
    return Selection(images, keep, digests.reshape(-1, 16), sizes, instead, tuple(problems))


def refuse_changed(images: ImageSet, positions: Sequence[int], known: pa.Table) -> None:
    """Refuse a set of which images that go are not those that the audit saw any more."""
    expected = _expected(images, positions, known)
    stored = images.opener.read(positions)
    for position, digest, data in zip(positions, expected, stored, strict=True):
        if digest is None:
            continue
        if isinstance(data, Unreadable):
            why = data.detail or data.reason
            raise VisleakError(_changed(images, position, f"it cannot be read now ({why})"))
        if content_digest(data).hex() != digest:
            raise VisleakError(_changed(images, position, "its content is another now"))


def _expected(images: ImageSet, read: Sequence[int], known: pa.Table | None) -> list[str | None]:
    """Return the digest that an audit saw at each position; ``None`` if it saw none."""
    if known is None:
        return [None] * len(read)
    ids = images.ids.take(pa.array(read, pa.int64()))
    places = pc.index_in(ids, known["id"].combine_chunks())
    digests: list[str | None] = known["digest"].combine_chunks().take(places).to_pylist()
    return digests


def _changed(images: ImageSet, position: int, what: str) -> str:
    return f"{where(images, position)} is not what the audit saw: {what}; run `visleak audit` again"


def _problem(images: ImageSet, position: int, why: Unreadable) -> Problem:
    id_, locator = images.ids[position].as_py(), images.locators[position].as_py()
    return Problem(images.name, id_, locator or "", why.reason, why.detail)


def _size(stored: Stored) -> int:
    return len(stored) if isinstance(stored, bytes) else stored.nbytes


def _stands(piece: Piece, holds: str) -> dict[int, Replacement]:
    """Return what takes the places of images; each pool is read once, forward."""
    by_pool: dict[int, list[tuple[int, int, Substitute]]] = {}
    for place, substitute in piece.instead.items():
        row = (substitute.position, place, substitute)
        by_pool.setdefault(id(substitute.images), []).append(row)
    stands: dict[int, Replacement] = {}
    for rows in by_pool.values():
        rows.sort(key=lambda row: row[:2])
        pool = rows[0][2].images
        for position, stored in _read_distinct(pool, [row[0] for row in rows]):
            for place in (row[1] for row in rows if row[0] == position):
                name = _file_name(piece.images, place) if holds == "named" else None
                fitted = fitting(stored, holds, name, where(pool, position))
                path = file_of(pool, position) if fitted is stored else None
                stands[place] = Replacement(pool.name, pool.ids[position].as_py(), fitted, path)
    return stands


def _file_name(images: ImageSet, position: int) -> str:
    locator: str = images.locators[position].as_py()
    return locator.rpartition("!")[2].rpartition("/")[2]


def _read_distinct(pool: ImageSet, positions: Iterable[int]) -> Iterator[tuple[int, Stored]]:
    distinct = sorted(set(positions))
    for position, stored in zip(distinct, pool.opener.read(distinct), strict=True):
        if isinstance(stored, Unreadable):
            why = stored.detail or stored.reason
            raise VisleakError(f"{where(pool, position)} cannot take a place: {why}")
        yield position, stored
