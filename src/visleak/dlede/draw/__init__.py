"""The split under test: two sets, or one set divided by a recipe, with boxes where known."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from visleak.auditing import Audit
from visleak.errors import UsageError, VisleakError, explaining
from visleak.formats import Boxes, boxes_of, open_images
from visleak.formats.files import chosen, joined_opener
from visleak.images import content_digest
from visleak.pipeline.encoded_set import CHANGED, GONE, UnchangedOpener
from visleak.progress import Progress
from visleak.quantities import counted
from visleak.records import Bytes8, ImageSet, Int64, Unreadable
from visleak.storage import write_tables

#: Columns of the tables of a recipe's split, and the attributes of image sets that hold them.
COLUMNS: Final = {"label": "labels", "caption": "captions", "group": "groups", "frame": "frames"}


@dataclass(frozen=True)
class Split:
    """The split under test."""

    # the sets; their names differ
    train: ImageSet
    test: ImageSet
    # their annotated objects, with the same classes; ``None`` if the sets have none
    train_boxes: Boxes | None = None
    test_boxes: Boxes | None = None


@dataclass(frozen=True)
class Draw:
    """The images of one training run."""

    kept: Int64  # int64, ascending: rows of the original training set that remain
    leaked: Int64  # int64, ascending: rows of the test set that replace the others


def split_of(test: ImageSet, train: ImageSet) -> Split:
    """Return the split of two sets, their boxes mapped to one list of classes.

    Args:
        test, train: the sets; with labels or boxes, or neither.

    Raises:
        UsageError: the sets have one name, or boxes of one do not fit those of the other.
        VisleakError: a set is empty, or its annotations are damaged.
    """
    for images in (test, train):
        if not len(images):
            raise VisleakError(f"set {images.name!r} holds no images")
    if test.name == train.name:
        raise UsageError(
            f"both sets are called {test.name!r}; name them: --test NAME=SOURCE --train NAME=SOURCE"
        )
    of_test, of_train = boxes_of(test), boxes_of(train)
    if of_test is None and of_train is None:
        return Split(train, test)
    if of_test is None or of_train is None:
        without, other = (test, train) if of_test is None else (train, test)
        raise UsageError(
            f"set {without.name!r} has no boxes, and set {other.name!r} has some; open both with"
            " their annotations (coco:, yolo: or kitti:), or both without"
        )
    if of_test.relative != of_train.relative:
        shares, pixels = (test, train) if of_test.relative else (train, test)
        raise UsageError(
            f"boxes of set {shares.name!r} are shares of the image (YOLO), those of set"
            f" {pixels.name!r} pixels; give both sets in one format"
        )
    # the training set's classes in their order, then the others
    names = of_train.names
    if of_test.names != names:
        for images, own in ((test, of_test.names), (train, names)):
            twice = next((name for at, name in enumerate(own) if name in own[:at]), None)
            if twice is not None:
                raise UsageError(
                    f"two classes of set {images.name!r} are called {twice!r}, and the other set"
                    " has other classes, so that they cannot be matched by name; rename one"
                )
        names = (*names, *(name for name in of_test.names if name not in names))
    return Split(train, test, _renamed(of_train, names), _renamed(of_test, names))


def _renamed(boxes: Boxes, names: Sequence[str]) -> Boxes:
    """Return boxes with another list of classes, which holds all of theirs."""
    if boxes.names == tuple(names):
        return boxes
    # the last place is that of -1: regions of no class
    place = np.array([*(names.index(name) for name in boxes.names), -1], np.int64)
    return replace(boxes, names=tuple(names), label=place[boxes.label])


def divided(
    images: ImageSet,
    boxes: Boxes | None,
    train: Int64,
    test: Int64,
    names: tuple[str, str] = ("train", "test"),
) -> Split:
    """Return a split of one set."""
    sets = chosen(images, train, names[0]), chosen(images, test, names[1])
    return Split(*sets, *(() if boxes is None else (boxes.taken(train), boxes.taken(test))))


def joined(train: ImageSet, kept: Int64, test: ImageSet, leaked: Int64) -> ImageSet:
    """Return the training images that remain, then the leaked test images, as one set."""
    parts = (chosen(train, kept, train.name), chosen(test, leaked, test.name))
    ids = parts[1].ids
    prefixed = pc.binary_join_element_wise(test.name, ids, ":")
    return replace(
        parts[0],
        ids=pa.concat_arrays([parts[0].ids, pc.if_else(pc.is_in(ids, train.ids), prefixed, ids)]),
        locators=pa.concat_arrays([part.locators for part in parts]),
        opener=joined_opener([part.opener for part in parts], [len(part) for part in parts]),
        annotated=train.annotated and test.annotated,
        columns={},
        **{name: _column(parts, name) for name in COLUMNS.values()},
    )


def _column(parts: tuple[ImageSet, ImageSet], name: str) -> Any:
    """Return a column of both parts; nulls if one has none, ``None`` if neither has any."""
    columns = [getattr(part, name) for part in parts]
    kinds = [column.type for column in columns if column is not None]
    if not kinds:
        return None
    return pa.concat_arrays(
        pa.nulls(len(part), kinds[0]) if column is None else column
        for part, column in zip(parts, columns, strict=True)
    )


def write_split_tables(split: Split, folder: Path, *, force: bool = False) -> Split:
    """Write both parts of a split as tables of paths, and return them opened from there.

    Images are not copied; a split whose images are not files of their own is returned unchanged.
    """
    sets = (split.train, split.test)
    places = [each for images in sets for each in images.locators.to_pylist()]
    if not all(place is not None and Path(place).is_file() for place in places):
        return split
    parts = {folder / f"{images.name}.parquet": images for images in sets}
    tables = {path: _table(images) for path, images in parts.items()}
    for path, table in () if force else tables.items():
        try:
            same = not path.exists() or pq.read_table(path).equals(table)
        except (OSError, pa.ArrowException):
            same = False
        if not same:
            raise UsageError(
                f"{path} is of another split; choose another folder with -o DIR, or --force"
                " replaces it"
            )
    opened = []
    for path, before in parts.items():
        with explaining(f"{path} cannot be written", OSError):
            write_tables(path, tables[path].schema, [tables[path]])
        made = open_images(str(path), name=before.name, dataset=before.dataset, id="id")
        kept = cast(ImageSet, made)
        opened.append(replace(kept, roles=before.roles, annotated=before.annotated))
    return replace(split, train=opened[0], test=opened[1])


def _table(images: ImageSet) -> pa.Table:
    places = (str(Path(locator).absolute()) for locator in images.locators.to_pylist())
    columns: dict[str, object] = {"path": pa.array(places, pa.string()), "id": images.ids}
    for name, kept in COLUMNS.items():
        column = getattr(images, kept)
        if column is not None:
            # numbers would be read as numbers of frames
            timed = images.timed and name == "frame"
            columns[name] = column.cast(pa.timestamp("ms", "UTC")) if timed else column
    return pa.table(columns)


def split_digest(split: Split) -> str:
    """Return a digest of labels, boxes, and names, sizes and times (else contents) of images."""
    hasher = hashlib.blake2b(digest_size=16)
    for images in (split.train, split.test):
        _add_images(hasher, images)
    for boxes in (split.train_boxes, split.test_boxes):
        if boxes is None:
            hasher.update(b"none")
            continue
        hasher.update(json.dumps([list(boxes.names), boxes.images, boxes.relative]).encode())
        for column in (boxes.image, boxes.label, boxes.corners, boxes.crowd):
            hasher.update(np.ascontiguousarray(column).tobytes())
    return hasher.hexdigest()


def draw_digest(draw: Draw) -> str:
    """Return a digest of the rows that are trained on."""
    hasher = hashlib.blake2b(digest_size=16)
    for rows in (draw.kept, draw.leaked):
        hasher.update(np.ascontiguousarray(rows, "<i8").tobytes() + b"|")
    return hasher.hexdigest()


def _add_images(hasher: hashlib.blake2b, images: ImageSet) -> None:
    locators = images.locators.to_pylist()
    places = [locator and os.path.abspath(locator) for locator in locators]
    labels = [] if images.labels is None else images.labels.to_pylist()
    for values in (images.ids.to_pylist(), places, labels):
        hasher.update(json.dumps(values, ensure_ascii=True).encode())
    found = False
    for file in sorted({locator.partition("!")[0] for locator in locators if locator}):
        with contextlib.suppress(OSError):
            status, found = os.stat(file), True
            hasher.update(f"{status.st_size} {status.st_mtime_ns} ".encode())
    for image in () if found else images.opener.read(range(len(images))):
        if isinstance(image, Unreadable):
            hasher.update(b"unreadable")
        elif isinstance(image, bytes):
            hasher.update(hashlib.blake2b(image).digest())
        else:
            hasher.update(f"{image.shape}".encode() + np.ascontiguousarray(image).tobytes())


# -- the images of a split as they were when they were first read ---------------------------------

# A result speaks of one split: what the audit compared, what was hashed and what every model was
# trained and evaluated on must be the same images.


CHUNK: Final = 256  # images read between two reports of progress


@dataclass(frozen=True)
class PinnedOpener:
    """Reads the images of a set; one that is not what it was ends the command."""

    name: str  # of the set
    ids: pa.StringArray  # of its images
    unchanged: UnchangedOpener  # compares them

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield what is stored at some of the positions, see :class:`visleak.records.Opener`."""
        for position, stored in zip(positions, self.unchanged.read(positions), strict=True):
            if isinstance(stored, Unreadable) and stored.reason in (GONE, CHANGED):
                raise VisleakError(
                    f"{self.ids[int(position)].as_py()!r} of set {self.name!r} is not what it was"
                    f" when the command began ({stored.reason}: {stored.detail}); run the command"
                    " again when the set is whole and nothing writes to it"
                )
            yield stored


def pinned(split: Split, progress: Progress) -> Split:
    """Read all images of a split, and return it with images that must not change."""
    return replace(split, train=_pinned(split.train, progress), test=_pinned(split.test, progress))


def _pinned(images: ImageSet, progress: Progress) -> ImageSet:
    rows, digests = [], []
    for row, stored in enumerate(images.opener.read(range(len(images)))):
        if row % CHUNK == 0:
            progress(f"reading {images.name}", row, len(images))
        if not isinstance(stored, Unreadable):
            rows.append(row)
            digests.append(content_digest(stored))
    progress(f"reading {images.name}", len(images), len(images))
    known = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16)
    unchanged = UnchangedOpener(images.opener, np.array(rows, np.int64), known)
    return replace(images, opener=PinnedOpener(images.name, images.ids, unchanged))


def check_unchanged(split: Split, digest: str) -> None:
    """Refuse a pinned split whose files changed: programs that train read the files themselves."""
    if split_digest(split) != digest:
        for images in (split.train, split.test):
            for _ in images.opener.read(range(len(images))):
                pass


def check_audited(audit: Audit, split: Split) -> None:
    """Refuse an audit that compared other contents than those of a pinned split."""
    table, compared = audit.images(), audit.summary.comparisons
    sides = (
        (split.test, {each.query_set for each in compared}),
        (split.train, {each.reference_set for each in compared}),
    )
    for images, names in sides:
        if not isinstance(images.opener, PinnedOpener):
            continue
        unchanged, every = images.opener.unchanged, set(images.ids.to_pylist())
        ids = images.ids.take(pa.array(unchanged.positions)).to_pylist()
        found = [digest.tobytes().hex() for digest in unchanged.digests]
        # the set of the audit that has these images; it may have another name
        for name in sorted(names, key=lambda name: (name != images.name, name)):
            own = table.filter(pc.equal(table["set"], name))
            audited = dict(zip(own["id"].to_pylist(), own["digest"].to_pylist(), strict=True))
            if audited and audited.keys() <= every:
                break
        else:
            continue
        pairs = zip(ids, found, strict=True)
        other = [id_ for id_, digest in pairs if audited.get(id_, digest) != digest]
        if other:
            raise VisleakError(
                f"{counted(len(other), 'image')} of set {images.name!r} changed since the audit"
                f" {audit.folder}, such as {other[0]!r}; run the audit again, or restore them"
            )
