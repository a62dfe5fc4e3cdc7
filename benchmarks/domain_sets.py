"""Image sets of many domains with what is known of their truth, and true copies planted in them.

Each set is split by a hash of the file name: rules are fitted on one half, figures reported on the
other. Two images of one ``group`` are copies of each other; every other pair of a set is wrong,
except doubtful ones: frames of one drive while the car stands still, and fields of view that
overlap.
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

#: Halves of a set. Of the fitting half, this many images, and documents of each kind, belong to
#: the network that sees altered content: the grader is fitted on what the network has not seen.
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
    """A set of images with what is known of its truth.

    Attributes:
        name: of the set.
        root: its folder.
        names: paths of the images relative to the root, sorted.
        groups: one per image: images of one group are copies of each other.
        told_by_colour: another colour makes another image.
    """

    told_by_colour: ClassVar[bool] = False

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

    def image(self, place: int) -> Pixels:
        """Return the pixels of an image."""
        with Image.open(self.root / self.names[place]) as file:
            return np.asarray(file.convert("RGB"))

    def sources(self, half: int, most: int, skip: int = 0) -> list[int]:
        """Return images of a half to plant, at most so many, drawn once and for all.

        Args:
            half: ``FITTING`` or ``REPORTED``.
            most: images at most.
            skip: images that would be drawn first and are left to another use.
        """
        places = np.flatnonzero(self.halves == half)
        drawn = generator("sources", self.name, half).permutation(places)[skip : skip + most]
        return sorted(int(place) for place in drawn)

    def doubtful(
        self, one: npt.NDArray[np.int64], other: npt.NDArray[np.int64], columns: Columns
    ) -> npt.NDArray[np.bool_]:
        """Return the pairs of different groups of which nobody can say that they are wrong.

        Frames of one drive while the car stands still, fields of one blood smear that overlap, and
        lesions that were photographed twice. The truth of these sets does not name them, so they
        are known by what is measured: shown to a person, all those looked at were near.

        Args:
            one, other: places of the images, (n,).
            columns: what the grader looks at, (n,) each.
        """
        if self.name == "camvid":
            return self.of_one_scene(one, other) & (np.exp(columns["drift"]) < STANDING)
        amount = np.expm1(columns["amount"])
        return np.asarray(amount > OVERLAPPING.get(self.name, np.inf))

    def of_one_scene(
        self, one: npt.NDArray[np.int64], other: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Return the pairs that may truly be near for what is known of their origin, (n,).

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
    """Yield true copies of some images: pixels, the source's place, the name of the change."""
    for place in sources:
        pixels = images.image(place)
        for name in names:
            yield changed(pixels, name, images.names[place]), place, name


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
