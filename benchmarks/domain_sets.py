"""Image sets of several domains with their ground truth, and copies planted in them.

Each set is split by a hash of the file name: models are fitted on one half, and figures are
reported on the other. Two images of one ``group`` are copies of each other. Every other pair of a
set is wrong, except pairs of unknown truth: frames of one drive while the car stands still, and
fields of view that overlap.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from changes import changed, generator
from PIL import Image

Pixels = npt.NDArray[np.uint8]

#: The sets, and the folder of each in the data.
FOLDERS = {
    **{
        name: f"domains/{name}"
        for name in (
            *("receipts", "steel", "skin", "xray", "leaf", "blood", "clothing", "fashion"),
            *("screens", "camvid"),
        )
    },
    "photos": "photos",
    "coco": "coco128/images/train2017",
}

#: Halves of a set. The networks that detect altered content are trained on this many images of the
#: fitting half, and documents of each kind; the grader is fitted on the others.
FITTING, REPORTED = 0, 1
OF_NETWORK, DOCUMENTS_OF_NETWORK = 22, 16

#: Drift (pixels compared) below which two frames of one drive show a standing scene.
STANDING = 0.35

#: Frames per second of the drives, and how long a car may stand, seconds.
FRAMES_PER_SECOND, STANDS_FOR = 30, 60

#: Amount of shared detail above which two images of these sets show one thing.
OVERLAPPING = {"blood": 3.0, "skin": 2.0}

Columns = Mapping[str, npt.NDArray[np.float64]]

_SUFFIXES = {".jpg", ".jpeg", ".png"}


@dataclass(frozen=True)
class DomainSet:
    """A set of images with its ground truth.

    Attributes:
        name: of the set.
        root: its folder.
        names: paths of the images relative to the root, sorted.
        groups: one per image: images of one group are copies of each other.
        distinguished_by_colour: images of other colours are different images.
    """

    distinguished_by_colour: ClassVar[bool] = False

    name: str
    root: Path
    names: tuple[str, ...]
    groups: tuple[str, ...]

    @classmethod
    def of(cls, data: Path, name: str) -> DomainSet:
        """Return a set of the project's data."""
        root = data / FOLDERS[name]
        paths = [path for path in root.rglob("*") if path.suffix.lower() in _SUFFIXES]
        names = sorted(path.relative_to(root).as_posix() for path in paths)
        known = _groups(data / "domains" / f"{name}.csv")
        return cls(
            name, root, tuple(names), tuple(known.get(n, known.get(_base(n), n)) for n in names)
        )

    @cached_property
    def halves(self) -> npt.NDArray[np.int64]:
        """The half of each image (n,), by a hash of its name."""
        hashes = (hashlib.blake2b(name.encode(), digest_size=2).digest() for name in self.names)
        return np.array([digest[0] & 1 for digest in hashes])

    def image(self, position: int) -> Pixels:
        """Return the pixels of an image."""
        with Image.open(self.root / self.names[position]) as file:
            return np.asarray(file.convert("RGB"))

    def sources(self, half: int, most: int, skip: int = 0) -> list[int]:
        """Return a fixed random sample of the images of a half, to be planted.

        Args:
            half: ``FITTING`` or ``REPORTED``.
            most: size of the sample, if there are so many.
            skip: images at the start of the random order to leave out.
        """
        positions = np.flatnonzero(self.halves == half)
        drawn = generator("sources", self.name, half).permutation(positions)[skip : skip + most]
        return sorted(drawn.tolist())

    def doubtful(
        self, one: npt.NDArray[np.int64], other: npt.NDArray[np.int64], columns: Columns
    ) -> npt.NDArray[np.bool_]:
        """Return the pairs of different groups that may be near-duplicates.

        Frames of one drive while the car stands still, fields of one blood smear that overlap, and
        lesions that were photographed twice. The ground truth does not list them, so they are
        recognised by measurements: all that a person looked at were near.

        Args:
            one, other: positions of the images, (n,).
            columns: features of the grader, (n,) each.
        """
        if self.name == "camvid":
            return self.of_one_scene(one, other) & (np.exp(columns["drift"]) < STANDING)
        amount = np.expm1(columns["amount"])
        return np.asarray(amount > OVERLAPPING.get(self.name, np.inf))

    def of_one_scene(
        self, one: npt.NDArray[np.int64], other: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Return the pairs whose origin permits that they are near, (n,).

        Frames of one drive within a minute of each other, and all pairs of sets whose fields of
        view may overlap.
        """
        if self.name != "camvid":
            return np.full(len(one), self.name in OVERLAPPING)
        drives = np.array([_drive(name) for name in self.names])
        frames = np.array([_frame(name) for name in self.names])
        seconds = np.abs(frames[one] - frames[other]) / FRAMES_PER_SECOND
        return np.asarray((drives[one] == drives[other]) & (seconds <= STANDS_FOR))


def planted(
    images: DomainSet, sources: Sequence[int], names: Sequence[str]
) -> Iterator[tuple[Pixels, int, str]]:
    """Yield copies of some images: pixels, position of the source, name of the change."""
    for source in sources:
        pixels = images.image(source)
        for name in names:
            yield changed(pixels, name, images.names[source]), source, name


def _groups(path: Path) -> dict[str, str]:
    """Return the group of each file that a table of the data names."""
    if not path.exists():
        return {}
    with path.open() as lines:
        rows = list(csv.DictReader(lines))
    if rows and "relation" in rows[0]:
        # screenshots in two languages under one name: some are byte copies
        return {row["file"]: row["file"] for row in rows if row["relation"] == "identical"}
    return {row["file"]: row.get("original") or row["content"] for row in rows}


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _drive(name: str) -> str:
    return _base(name).split("_")[0]


def _frame(name: str) -> int:
    digits = "".join(c for c in _base(name).split("_")[-1] if c.isdigit())
    return int(digits or 0)
