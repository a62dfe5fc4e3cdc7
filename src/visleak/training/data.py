"""The images of a set for a network, decoded once, and the parts to learn and to evaluate."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.encoders.preprocessing import PixelPreparation
from visleak.errors import VisleakError
from visleak.groups import chained, components, numbered
from visleak.images import decode
from visleak.pipeline.context import GrowingColumn, Handle, RunContext
from visleak.quantities import counted
from visleak.records import Bool, Bytes8, ImageSet, Int64, Opener, Unreadable


@dataclass(frozen=True, slots=True)
class Decoded:
    """A part of a set."""

    pixels: Bytes8  # of one image after the other, RGB
    sizes: Int64  # (k, 2): height and width of each, 0 if unreadable
    originals: Int64  # (k, 2): height and width of the upright image, 1 if unreadable
    unreadable: tuple[tuple[int, Unreadable], ...]  # positions in the part, with the reasons


#: From height and width of an image to those it is resized to; picklable.
SizeOf = Callable[[int, int], tuple[int, int]]


def decoded(
    images: ImageSet, place: RunContext, size_of: SizeOf, *, chunk: int, resample: int
) -> Iterator[Decoded]:
    """Yield the images of a set in parts, in its order."""
    opener, done, step = place.share(images.opener), 0, f"reading {images.name}"
    count = len(images)
    tasks = (
        (opener, range(at, min(at + chunk, count)), size_of, resample)
        for at in range(0, count, chunk)
    )
    for part in place.each(_decode, tasks, step):
        yield part
        done += len(part.sizes)
        place.progress(step, done, count)


def _decode(task: tuple[Handle[Opener], range, SizeOf, int]) -> Decoded:
    opener, positions, size_of, resample = task
    pixels = [np.empty(0, np.uint8)]
    sizes = np.zeros((len(positions), 2), np.int64)
    originals = np.ones((len(positions), 2), np.int64)
    unreadable = []
    for at, data in enumerate(opener.load().read(list(positions))):
        image = data if isinstance(data, Unreadable) else decode(data)
        if isinstance(image, Unreadable):
            unreadable.append((at, image))
            continue
        originals[at] = image.height, image.width
        sizes[at] = size = size_of(image.height, image.width)
        pixels.append(PixelPreparation(size, resample=resample)(image).reshape(-1))
    return Decoded(np.concatenate(pixels), sizes, originals, tuple(unreadable))


CHUNK: Final = 256  # images per task at most, and pixels that it returns at most
PIXELS: Final = 4_000_000
SAMPLE: Final = 256  # images whose size is measured before all are read
BICUBIC: Final = 3  # Pillow's number of the filter
_BLOCK: Final = 4096  # rows hashed at a time


@dataclass(frozen=True)
class ImageData:
    """The readable images of a set."""

    images: Bytes8  # (n, side, side, 3), memory-mapped
    rows: Int64  # (n,): position of each in its set, ascending
    unreadable: int  # number of unreadable images, those of the listing included
    labels: pa.StringArray | None  # Arrow string array (n,) or None; null if unknown
    groups: pa.StringArray | None  # likewise

    def __len__(self) -> int:
        return len(self.rows)

    def digest(self) -> str:
        """Return the digest (BLAKE2b-128) of pixels, labels and groups, in the set's order."""
        hasher = hashlib.blake2b(repr(self.images.shape).encode(), digest_size=16)
        for start in range(0, len(self), _BLOCK):
            hasher.update(np.ascontiguousarray(self.images[start : start + _BLOCK]).data)
        for column in (self.labels, self.groups):
            hasher.update(repr(None if column is None else column.to_pylist()).encode())
        return hasher.hexdigest()

    def twins(self) -> Int64:
        """Return a number for each image that only images of equal pixels share."""
        digests = [
            hashlib.blake2b(each.data, digest_size=16).digest()
            for start in range(0, len(self), _BLOCK)
            for each in np.ascontiguousarray(self.images[start : start + _BLOCK])
        ]
        _, number = np.unique(np.array(digests, dtype="V16"), return_inverse=True)
        return np.asarray(number, np.int64)


@dataclass(frozen=True)
class Sizes:
    """Sizes of some images of a set."""

    short: float  # median length of their short sides in pixels
    square: int  # their common side, 0 if they differ or are not square


def sizes_of(images: ImageSet) -> Sizes:
    """Return the sizes of images spread over a set."""
    positions = np.unique(np.linspace(0, len(images) - 1, SAMPLE).astype(np.int64))
    found = []
    for data in images.opener.read(positions.tolist()):
        image = data if isinstance(data, Unreadable) else decode(data)
        if not isinstance(image, Unreadable):
            found.append((image.height, image.width))
    if not found:
        raise VisleakError(
            f"set {images.name!r}: none of {len(positions):,} images spread over it can be read;"
            " there is nothing to train on"
        )
    sides = np.array(found)
    same = int(sides.min()) if sides.min() == sides.max() else 0
    return Sizes(float(np.median(sides.min(axis=1))), same)


def read_images(images: ImageSet, side: int, place: RunContext) -> ImageData:
    """Decode the images of a set and resize each to a square."""
    need, free = len(images) * side * side * 3, shutil.disk_usage(place.scratch).free
    if need > free:
        raise VisleakError(
            f"{len(images):,} images of {side} pixels need {need / 1e9:,.1f} GB of scratch, and"
            f" there are {free / 1e9:,.1f} GB in {place.scratch.parent.parent}; write elsewhere"
            " with -o FILE, or take a smaller --size"
        )
    chunk = min(CHUNK, max(1, PIXELS // (side * side)))
    square = partial(_square, side=side)
    kept = [np.empty(0, np.bool_)]
    with GrowingColumn(place.file(".pixels"), np.uint8, (side, side, 3)) as column:
        for part in decoded(images, place, square, chunk=chunk, resample=BICUBIC):
            column.append(part.pixels.reshape(-1, side, side, 3))
            kept.append(part.sizes[:, 0] > 0)
        rows = np.flatnonzero(np.concatenate(kept)).astype(np.int64)
        labels, groups = (
            None if each is None else each.take(pa.array(rows))
            for each in (images.labels, images.groups)
        )
        unreadable = len(images) - len(rows) + len(images.problems)
        return ImageData(column.mapped(), rows, unreadable, labels, groups)


def _square(height: int, width: int, *, side: int) -> tuple[int, int]:
    return side, side


SHARE: Final = 0.1  # share of the images that is held out, and their number at most
MOST: Final = 10_000


def hold_out(classes: Int64, groups: Int64, seed: int) -> Bool:
    """Return the images to hold out: the same share of each class, and whole groups.

    Groups are taken in random order as long as no class gives more than its share; if that yields
    less than half of the share, as long as no class gives more than half of its images.
    """
    sizes = np.bincount(classes)
    share = min(SHARE, MOST / max(len(classes), 1))
    wanted = np.maximum(np.floor(sizes * share), sizes > 1).astype(np.int64)
    members = np.argsort(groups, kind="stable")
    parts = np.split(members, np.flatnonzero(np.diff(groups[members])) + 1)
    order = np.random.default_rng(seed).permutation(len(parts))
    held = np.zeros(len(classes), np.bool_)
    left = wanted.copy()
    for limit in (wanted, sizes // 2):
        if 2 * held.sum() >= wanted.sum():
            break
        room = limit - (wanted - left)
        for part in (parts[number] for number in order):
            if held[part[0]] or left.sum() <= 0:
                continue
            taken = np.bincount(classes[part], minlength=len(sizes))
            if (taken <= room).all() and (left[taken > 0] > 0).any():
                held[part] = True
                left, room = left - taken, room - taken
    return held


FEWEST: Final = 16  # fewest images to learn from


@dataclass(frozen=True)
class Evaluation:
    """Images that a network is evaluated on."""

    kind: str  # test or held out
    images: Bytes8  # (n, side, side, 3)
    rows: Int64  # (k,): rows of the used images
    classes: Int64 | None  # (k,): their classes, or None


@dataclass(frozen=True)
class TrainingData:
    """What a network learns from."""

    images: Bytes8  # (n, side, side, 3)
    rows: Int64  # (k,): rows of the learned images
    classes: Int64 | None  # (k,): their classes; None if no labels are known
    names: tuple[str, ...]  # of the classes, sorted
    by_class: bool  # classes are learned; otherwise to distinguish images
    evaluation: Evaluation  # images to evaluate on afterwards


def training_data(
    images: ImageSet,
    data: ImageData,
    test: tuple[ImageSet, ImageData] | None,
    *,
    labels: str,
    seed: int,
    notify: Callable[[str], None],
) -> TrainingData:
    """Return what to learn and what to evaluate on."""
    known = set() if data.labels is None else set(pc.unique(data.labels).to_pylist())
    names = tuple(sorted(known - {None}))
    by_class = labels == "auto" and bool(names)
    if by_class and len(names) == 1:
        raise VisleakError(
            f"all images of set {images.name!r} have the label {names[0]!r}: there is only one"
            " class; --labels none learns without labels, --label COLUMN selects another column"
        )
    classes = _numbers(data, names)
    usable = classes >= 0 if by_class else np.ones(len(data), np.bool_)
    if usable.sum() < FEWEST:
        kind = "labelled images" if by_class else "images"
        raise VisleakError(
            f"set {images.name!r} has {int(usable.sum())} {kind} that can be read; at least"
            f" {FEWEST} are needed to learn from"
        )
    if unlabelled := int((~usable).sum()):
        notify(f"{counted(unlabelled, 'image')} of {images.name} without a label: excluded")
    held = np.zeros(len(data), np.bool_)
    if test is None:
        held[usable] = _held(data, classes, usable, by_class, seed)
        evaluation = Evaluation("held out", data.images, np.flatnonzero(held), None)
        if names:
            evaluation = _with_classes(evaluation, classes)
    else:
        evaluation = _of_test(*test, names, by_class=by_class, notify=notify)
    rows = np.flatnonzero(usable & ~held)
    learned = classes[rows] if names else None
    return TrainingData(data.images, rows, learned, names, by_class, evaluation)


def _held(data: ImageData, classes: Int64, usable: Bool, by_class: bool, seed: int) -> Bool:
    """Return the usable images to hold out; equal ones and groups stay together."""
    rows = np.flatnonzero(usable)
    ties = [chained(data.twins()[rows])]
    if data.groups is not None:
        groups = data.groups.take(pa.array(rows)).dictionary_encode().indices
        ties.append(chained(groups.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)))
    kinds = numbered(classes[rows]) if by_class else np.zeros(len(rows), np.int64)
    return hold_out(kinds, components(len(rows), ties), seed)


def _with_classes(evaluation: Evaluation, classes: Int64) -> Evaluation:
    rows = evaluation.rows[classes[evaluation.rows] >= 0]
    return Evaluation(evaluation.kind, evaluation.images, rows, classes[rows])


def _of_test(
    images: ImageSet,
    data: ImageData,
    names: Sequence[str],
    *,
    by_class: bool,
    notify: Callable[[str], None],
) -> Evaluation:
    classes = _numbers(data, names)
    unknown = int((classes < 0).sum())
    if by_class and unknown == len(data):
        raise VisleakError(
            f"no image of the test set {images.name!r} has one of the training labels"
            f" ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''}); --label COLUMN names"
            " the column for both sets"
        )
    if by_class and unknown:
        notify(
            f"{counted(unknown, 'image')} of {images.name} without a label of the training set:"
            " excluded"
        )
    evaluation = Evaluation("test", data.images, np.arange(len(data)), None)
    return _with_classes(evaluation, classes) if unknown < len(data) else evaluation


def _numbers(data: ImageData, names: Sequence[str]) -> Int64:
    """Return the place of each image's label in the names, -1 if it is not one of them."""
    if data.labels is None or not names:
        return np.full(len(data), -1, np.int64)
    places = pc.index_in(data.labels, pa.array(names, pa.string()))
    return np.asarray(places.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
