"""What the images of parts hold, read once before anything is written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import VisleakError
from visleak.images import content_digest
from visleak.images.folder import FileOpener
from visleak.pipeline.context import Progress
from visleak.records import Bytes8, ImageSet, Int64, Problem, Unreadable
from visleak.remedy.fitting import Stored, fitting
from visleak.remedy.parts import Part, Piece, Substitute


@dataclass(frozen=True)
class Stand:
    """The content of a picture that takes the place of another.

    Attributes:
        set, id: which one it is.
        stored: what is written in that place.
        path: the file it is, as the system has it; ``None`` if it is no file, or where what is
            written is not what the file holds.
    """

    set: str
    id: str
    stored: Stored
    path: bytes | None


@dataclass(frozen=True)
class Filled:
    """A piece whose images were read.

    Attributes:
        images: the set.
        keep: ``int64`` (n,), ascending: positions that could be read.
        digests: ``uint8`` (n, 16): content digest of what stands in each place of the result.
        sizes: ``int64`` (n,): its bytes.
        instead: position to what takes its place.
        problems: images that were to be kept and could not be read.
    """

    images: ImageSet
    keep: Int64
    digests: Bytes8
    sizes: Int64
    instead: Mapping[int, Stand]
    problems: tuple[Problem, ...]

    def __len__(self) -> int:
        return len(self.keep)

    def stored(self) -> Iterator[Stored]:
        """Yield what stands in each place of the result, read again from the source.

        Raises:
            VisleakError: a picture can no longer be read.
        """
        positions = [int(p) for p in self.keep if int(p) not in self.instead]
        source = zip(positions, self.images.opener.read(positions), strict=True)
        for position in self.keep.tolist():
            if position in self.instead:
                yield self.instead[position].stored
                continue
            _, found = next(source)
            if isinstance(found, Unreadable):
                raise VisleakError(
                    f"{_where(self.images, position)} could be read before and cannot now:"
                    f" {found.detail or found.reason}"
                )
            yield found

    def path(self, position: int) -> bytes | None:
        """Return the file that holds what stands in a place; ``None`` if none does."""
        stand = self.instead.get(position)
        return stand.path if stand is not None else path_of(self.images, position)

    def column(self, name: str) -> list[str | None]:
        """Return a column of the set (``ids``, ``labels``, ...) for the places of the result."""
        values = getattr(self.images, name)
        if values is None:
            return [None] * len(self)
        found: list[str | None] = values.take(pa.array(self.keep)).to_pylist()
        return found


@dataclass(frozen=True)
class FilledPart:
    """A part whose images were read."""

    name: str
    pieces: tuple[Filled, ...]

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    def column(self, name: str) -> list[str | None]:
        """Return a column for the images of all pieces, in order."""
        return [value for piece in self.pieces for value in piece.column(name)]

    def digests(self) -> Bytes8:
        """Return the digests of all pieces, (n, 16)."""
        return np.concatenate([piece.digests for piece in self.pieces])


def path_of(images: ImageSet, position: int) -> bytes | None:
    """Return the file of an image, ``None`` if its pictures are no files."""
    opener = images.opener
    if not isinstance(opener, FileOpener):
        return None
    name: bytes | None = opener.names[position].as_py()
    return None if name is None else os.path.join(os.fsencode(opener.root), name)


def fill(
    parts: Sequence[Part],
    holds: Mapping[str, str],
    known: Mapping[str, pa.Table],
    progress: Progress,
) -> tuple[FilledPart, ...]:
    """Read all images of some parts.

    Args:
        parts: what is to be written.
        holds: how each part's layout stores a picture, by its name: ``named`` (a file whose
            ending says the format), ``bytes`` (encoded, any format) or ``arrays`` (pixels).
        known: by set, columns ``id`` and ``digest`` of the images that an audit saw.
        progress: reports each step.

    Raises:
        VisleakError: an image is not what the audit saw, a substitute cannot be read, or its
            place cannot hold it.
    """
    return tuple(
        FilledPart(
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
) -> Filled:
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
    return Filled(images, keep, digests.reshape(-1, 16), sizes, instead, tuple(problems))


def refuse_changed(images: ImageSet, positions: Sequence[int], known: pa.Table) -> None:
    """Refuse a set of which images that go are not those that the audit saw any more.

    Args:
        images: the set.
        positions: ascending, of the images that go.
        known: columns ``id`` and ``digest`` of the images that the audit saw.

    Raises:
        VisleakError: one is another image now, or cannot be read.
    """
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
    return (
        f"{_where(images, position)} is not what the audit saw: {what}; run `visleak audit` again"
    )


def _where(images: ImageSet, position: int) -> str:
    return f"set {images.name!r}: image {images.ids[position].as_py()!r}"


def _problem(images: ImageSet, position: int, why: Unreadable) -> Problem:
    id_, locator = images.ids[position].as_py(), images.locators[position].as_py()
    return Problem(images.name, id_, locator or "", why.reason, why.detail)


def _size(stored: Stored) -> int:
    return len(stored) if isinstance(stored, bytes) else stored.nbytes


def _stands(piece: Piece, holds: str) -> dict[int, Stand]:
    """Return what takes the places of images; each pool is read once, forward."""
    by_pool: dict[int, list[tuple[int, int, Substitute]]] = {}
    for place, substitute in piece.instead.items():
        row = (substitute.position, place, substitute)
        by_pool.setdefault(id(substitute.images), []).append(row)
    stands: dict[int, Stand] = {}
    for rows in by_pool.values():
        rows.sort(key=lambda row: row[:2])
        pool = rows[0][2].images
        for position, stored in _read_distinct(pool, [row[0] for row in rows]):
            for place in (row[1] for row in rows if row[0] == position):
                name = _file_name(piece.images, place) if holds == "named" else None
                fitted = fitting(stored, holds, name, _where(pool, position))
                path = path_of(pool, position) if fitted is stored else None
                stands[place] = Stand(pool.name, pool.ids[position].as_py(), fitted, path)
    return stands


def _file_name(images: ImageSet, position: int) -> str:
    """Return the last name of an image's file, or of its member of an archive."""
    locator: str = images.locators[position].as_py()
    return locator.rpartition("!")[2].rpartition("/")[2]


def _read_distinct(pool: ImageSet, positions: Iterable[int]) -> Iterator[tuple[int, Stored]]:
    distinct = sorted(set(positions))
    for position, stored in zip(distinct, pool.opener.read(distinct), strict=True):
        if isinstance(stored, Unreadable):
            why = stored.detail or stored.reason
            raise VisleakError(f"{_where(pool, position)} cannot take a place: {why}")
        yield position, stored
