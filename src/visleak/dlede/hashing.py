"""The 64-bit perceptual hashes of all pictures of a set, spread over workers.

The bits are those of ``imagehash.phash`` of the picture as people see it. A picture that its
camera noted as turned (EXIF) is turned first, and alpha is laid over white; imagehash does
neither, so for such files its bits are of another picture.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from PIL import Image

from visleak.encoders.hashes import phashes, thumbnail
from visleak.errors import VisleakError
from visleak.images.decoding import grey
from visleak.pipeline.afar import opener_for
from visleak.pipeline.workplace import Handle, Workplace, shared
from visleak.records import Bool, ImageSet, Int64, Problem, Unreadable

#: One hash a number: its first bit is the highest, as in the hexadecimal text of imagehash.
Words = npt.NDArray[np.uint64]

#: Pictures a task: enough to share the work of the transform, and what it holds fits a cache.
CHUNK: Final = 64


@dataclass(frozen=True)
class Hashes:
    """The hashes of a set's readable pictures, in its order.

    Attributes:
        ids: of the pictures, Arrow strings (n,).
        words: ``uint64`` (n,).
        problems: pictures that could not be read, those of the listing first.
    """

    ids: pa.StringArray
    words: Words
    problems: tuple[Problem, ...]


def hash_all(images: ImageSet, place: Workplace) -> Hashes:
    """Return the hash of every picture of a set that can be read.

    Raises:
        VisleakError: the set holds vectors only.
    """
    if not images.pictures:
        raise VisleakError(
            f"set {images.name!r} holds vectors and no pictures; perceptual hashes are made of"
            " pictures: name the images themselves"
        )
    rows: list[Int64] = [np.empty(0, np.int64)]
    words: list[Words] = [np.empty(0, np.uint64)]
    problems = list(images.problems)
    done = 0
    for part in place.each(_work, _tasks(images, place), f"hashing {images.name}"):
        rows.append(part.rows)
        words.append(part.words)
        problems.extend(_problem(images, *each) for each in part.refused)
        done += len(part.rows) + len(part.refused)
        place.progress(f"hashing {images.name}", done, len(images))
    ids = images.ids.take(pa.array(np.concatenate(rows)))
    return Hashes(ids, np.concatenate(words), tuple(problems))


def words_of(bits: Bool) -> Words:
    """Return hashes as numbers, (n,) of (n, 64).

    >>> hex(words_of(np.arange(64)[None] < 4)[0])
    '0xf000000000000000'
    """
    return np.packbits(bits, axis=1).view(">u8").ravel().astype(np.uint64)


def bits_set(words: Words) -> Int64:
    """Return how many bits of each hash are set: 32, unless coefficients equal their median.

    >>> bits_set(np.array([0, 5], np.uint64)).tolist()
    [0, 2]
    """
    bits = np.unpackbits(words.view(np.uint8)).reshape(-1, 64)
    return np.asarray(bits.sum(axis=1, dtype=np.int64))


def _problem(images: ImageSet, position: int, why: Unreadable) -> Problem:
    return Problem(
        images.name,
        images.ids[position].as_py(),
        images.locators[position].as_py(),
        why.reason,
        why.detail,
    )


# -- in a worker ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Task:
    """A part of a set, as it is sent to a worker."""

    opener: Handle
    positions: range


@dataclass(frozen=True, slots=True)
class _Part:
    """What became of a part of a set."""

    rows: Int64
    words: Words
    refused: tuple[tuple[int, Unreadable], ...]


def _tasks(images: ImageSet, place: Workplace) -> Iterator[_Task]:
    positions = range(len(images))
    opener = place.share(opener_for(images, positions, place))
    for start in range(0, len(images), CHUNK):
        yield _Task(opener, positions[start : start + CHUNK])


def _work(task: _Task) -> _Part:
    """Read, decode and hash a part of a set; one picture is held at a time."""
    rows: list[int] = []
    refused: list[tuple[int, Unreadable]] = []
    thumbnails: list[Image.Image] = []
    stored = shared(task.opener).read(list(task.positions))
    for position, data in zip(task.positions, stored, strict=True):
        seen = data if isinstance(data, Unreadable) else grey(data)
        if isinstance(seen, Unreadable):
            refused.append((position, seen))
            continue
        rows.append(position)
        thumbnails.append(thumbnail(seen))
    return _Part(np.array(rows, np.int64), words_of(phashes(thumbnails)), tuple(refused))
