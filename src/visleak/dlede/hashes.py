"""Perceptual hashes of both sides of a split, all compared (Babu et al. 2025, tables 2 and 5).

The 64 bits are those of ``imagehash.phash`` of the upright image: with its EXIF
orientation, over white. Mostly 32 bits of a hash are set (if no coefficient equals the median), so
distances are even; that is why the paper's tables have no odd distance.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from visleak.auditing import workers_for
from visleak.dlede.draw import Split
from visleak.dlede.results import HashEvidence, HashPair
from visleak.encoders.hashes import phashes, thumbnail
from visleak.errors import UsageError, VisleakError
from visleak.images import decode
from visleak.images.decoding import grey
from visleak.pipeline.context import Handle, RunContext
from visleak.pipeline.encoded_set import problems_of
from visleak.pipeline.remote import opener_for
from visleak.progress import Progress, silent
from visleak.quantities import counted
from visleak.records import Bool, Bytes8, ImageSet, Int64, Opener, Problem, Unreadable
from visleak.reporting.contact_sheet import Tile, contact_sheet

#: One number per hash: its first bit is the highest, as in the hexadecimal text of imagehash.
Words = npt.NDArray[np.uint64]

BITS: Final = 64  # bits of a hash: the greatest distance
KEPT: Final = 100  # most similar pairs that are kept, and those on the sheet
SHOWN: Final = 8
#: Distances shown in tables and figures. The paper's cut of 10 is a convention, and a named threat
#: to its validity, so all cuts are shown.
CUTS: Final = 16
PAPER_CUT: Final = 10
CHUNK: Final = 64  # images per task: enough to batch the transform, within a cache
#: Test and training hashes that are compared at once, and distances searched for similar pairs.
BLOCK: Final = (256, 4096)
SEARCHED: Final = 1 << 20


def hash_evidence(
    split: Split, *, kept: int = KEPT, workers: int | None = None, progress: Progress = silent
) -> HashEvidence:
    """Hash the readable images of both sets, and compare every test with every training image."""
    if kept < 0:
        raise UsageError(f"kept must be 0 or more pairs; got {kept}")
    begun = time.perf_counter()
    count = workers_for(len(split.train) + len(split.test), workers)
    with RunContext.at(None, count, None, progress) as place:
        hashed = hash_all(split.test, place), hash_all(split.train, place)
    read = time.perf_counter()
    (test_ids, test), (train_ids, train) = (each.by_id() for each in hashed)
    found = distances(test, train, progress=progress)
    rows, columns, apart = nearest_pairs(test, train, found, kept)
    ids = test_ids.take(pa.array(rows)), train_ids.take(pa.array(columns))
    pairs = zip(*(each.to_pylist() for each in ids), apart.tolist(), strict=True)
    nearest = np.bincount(found.nearest, minlength=BITS + 2)[: BITS + 1]
    return HashEvidence(
        train=len(train),
        test=len(test),
        unreadable=sum(len(each.problems) for each in hashed),
        histogram=tuple(found.histogram.tolist()),
        nearest=tuple(nearest.tolist()),
        most_similar=tuple(HashPair(*pair) for pair in pairs),
        seconds={"hashing": read - begun, "comparing": time.perf_counter() - read},
        problems=tuple(problem for each in hashed for problem in each.problems),
    )


def hash_line(found: HashEvidence) -> str:
    """Return a line about equal and similar hashes."""
    similar, images = (sum(counts[: PAPER_CUT + 1]) for counts in (found.histogram, found.nearest))
    share = 100.0 * images / max(found.test, 1)
    unread = f"; {counted(found.unreadable, 'image')} could not be read" if found.unreadable else ""
    return (
        f"{found.histogram[0]:,} pairs of a test and a training image have equal perceptual hashes,"
        f" {similar:,} differ in at most {PAPER_CUT} bits; {share:.1f} % of the test images are in"
        f" such a pair{unread}"
    )


def pair_sheet(split: Split, evidence: HashEvidence) -> bytes:
    """Return the most similar pairs as PNG (Babu et al. 2025, figures 7 and 8); empty without any.

    The images are read again. Each test image is shown once, with the one most similar to it.
    """
    first: dict[str, HashPair] = {}
    for pair in evidence.most_similar:
        first.setdefault(pair.test, pair)
    pairs = list(first.values())[:SHOWN]
    tests = _pixels(split.test, [pair.test for pair in pairs])
    trains = _pixels(split.train, [pair.train for pair in pairs])
    rows = []
    for pair in pairs:
        apart = f"{pair.distance} of {BITS} bits apart" if pair.distance else "equal hashes"
        rows.append((apart, [_tile(pair.test, tests), _tile(pair.train, trains)]))
    below = "each test image (left) with the training image most similar to it"
    return contact_sheet("Most similar pairs by perceptual hash", below, rows)


def _tile(name: str, pixels: dict[str, Bytes8]) -> Tile:
    if name not in pixels:
        empty = np.full((8, 8, 3), 240, np.uint8)
        return Tile("no longer readable", lambda: empty)
    return Tile(name, lambda: pixels[name])


def _pixels(images: ImageSet, ids: Sequence[str]) -> dict[str, Bytes8]:
    wanted = pa.array(sorted(set(ids)), images.ids.type)
    rows = np.flatnonzero(pc.is_in(images.ids, wanted).to_numpy(zero_copy_only=False))
    found: dict[str, Bytes8] = {}
    for row, data in zip(rows, images.opener.read(rows.tolist()), strict=True):
        image = data if isinstance(data, Unreadable) else decode(data)
        if not isinstance(image, Unreadable):
            found[images.ids[int(row)].as_py()] = image.pixels
    return found


@dataclass(frozen=True)
class Hashes:
    """The hashes of a set's readable images, in its order."""

    ids: pa.StringArray  # of the images, Arrow strings (n,)
    words: Words  # (n,)
    problems: tuple[Problem, ...]  # unreadable images, those of the listing first

    def by_id(self) -> tuple[pa.StringArray, Words]:
        """Return ids and hashes sorted by id: of equally similar pairs the first ids count."""
        order = pc.sort_indices(self.ids)
        return self.ids.take(order), self.words[order.to_numpy()]


def hash_all(images: ImageSet, place: RunContext) -> Hashes:
    """Return the hash of every readable image of a set."""
    if not images.has_pixels:
        raise VisleakError(
            f"set {images.name!r} holds vectors without images; perceptual hashes need images: name"
            " the images themselves"
        )
    positions, step = range(len(images)), f"hashing {images.name}"
    opener = place.share(opener_for(images, positions, place))
    tasks = ((opener, positions[start : start + CHUNK]) for start in range(0, len(images), CHUNK))
    rows, words, refused = [np.empty(0, np.int64)], [np.empty(0, np.uint64)], []
    for found, hashes, unreadable in place.each(_hash_part, tasks, step):
        rows.append(found)
        words.append(hashes)
        refused += unreadable
        place.progress(step, sum(map(len, rows)) + len(refused), len(images))
    ids = images.ids.take(pa.array(np.concatenate(rows)))
    problems = (*images.problems, *problems_of(images, refused))
    return Hashes(ids, np.concatenate(words), problems)


def _hash_part(
    task: tuple[Handle[Opener], range],
) -> tuple[Int64, Words, list[tuple[int, Unreadable]]]:
    """Read, decode and hash a part of a set in a worker; one image is in memory at a time."""
    opener, positions = task
    rows: list[int] = []
    refused: list[tuple[int, Unreadable]] = []
    thumbnails: list[Image.Image] = []
    for position, data in zip(positions, opener.load().read(list(positions)), strict=True):
        image = data if isinstance(data, Unreadable) else grey(data)
        if isinstance(image, Unreadable):
            refused.append((position, image))
        else:
            rows.append(position)
            thumbnails.append(thumbnail(image))
    return np.array(rows, np.int64), words_of(phashes(thumbnails)), refused


def words_of(bits: Bool) -> Words:
    """Return hashes as numbers, (n,) of (n, 64).

    >>> hex(words_of(np.arange(64)[None] < 4)[0])
    '0xf000000000000000'
    """
    return np.packbits(bits, axis=1).view(">u8").ravel().astype(np.uint64)


@dataclass(frozen=True, slots=True)
class Distances:
    """Hamming distances of all test-train pairs."""

    histogram: Int64  # (65,), number of pairs at each distance
    nearest: Bytes8  # (test hashes,), distance of the nearest training hash; 65 of none


def distances(test: Words, train: Words, *, progress: Progress = silent) -> Distances:
    """Compare all pairs."""
    histogram = np.zeros(BITS + 1, np.int64)
    nearest = np.full(len(test), BITS + 1, np.uint8)
    rows, columns = BLOCK
    for start in range(0, len(test), rows):
        block, least = test[start : start + rows], nearest[start : start + rows]
        for first in range(0, len(train), columns):
            found = _between(block, train[first : first + columns])
            histogram += np.bincount(found.ravel(), minlength=BITS + 1)
            np.minimum(least, found.min(axis=1), out=least)
        progress("comparing hashes", min(start + rows, len(test)), len(test))
    return Distances(histogram, nearest)


def nearest_pairs(
    test: Words, train: Words, found: Distances, count: int
) -> tuple[Int64, Int64, Bytes8]:
    """Return the most similar pairs: least distance first, then test row, then training row."""
    count = min(count, int(found.histogram.sum()))
    if not count:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint8)
    upto = np.cumsum(found.histogram)
    last = int(np.searchsorted(upto, count))
    # all pairs below the last distance are taken, and the first of those at it
    missing = count - int(upto[last] - found.histogram[last])
    below = np.flatnonzero(found.nearest < last)
    at = np.flatnonzero(found.nearest == last)[:missing]
    order, size = np.sort(np.concatenate([below, at])), max(1, SEARCHED // len(train))
    parts = []
    for part in (order[start : start + size] for start in range(0, len(order), size)):
        rows = part if missing else part[found.nearest[part] < last]
        apart = _between(test[rows], train)
        taken = apart < last
        ties = np.flatnonzero(apart == last)[:missing]
        missing -= len(ties)
        taken.ravel()[ties] = True
        row, column = np.nonzero(taken)
        parts.append((rows[row], column, apart[row, column]))
    test_rows, train_rows, apart = (np.concatenate(each) for each in zip(*parts, strict=True))
    by_distance = np.lexsort((train_rows, test_rows, apart))
    return test_rows[by_distance], train_rows[by_distance], apart[by_distance]


def _between(test: Words, train: Words) -> Bytes8:
    """Return the Hamming distances of test and training hashes, ``uint8`` (n, m)."""
    return np.asarray(np.bitwise_count(test[:, None] ^ train))
