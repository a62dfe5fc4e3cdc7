"""How images fall to parts: sizes and class shares beside what was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from visleak.records import Int64

Float64 = npt.NDArray[np.float64]

#: Images cannot be divided: what is off by less than one image is not off.
ONE_IMAGE: Final = 1.0 - 1e-9


@dataclass(frozen=True, slots=True)
class Deviation:
    """One size or class share that differs from what was asked for.

    Attributes:
        part: name of the part.
        class_: name of the class, ``None`` for the part's size.
        points: of a size, how far it is off as a share of what it should be; of a class, the
            difference between its share of the part and of all images.
        images: the same in images, positive where there are too many.
    """

    part: str
    class_: str | None
    points: float
    images: float

    def __str__(self) -> str:
        whole = round(abs(self.images))
        count = f"{whole:,} image{'' if whole == 1 else 's'}" if whole else "less than an image"
        count += f" too {'many' if self.images > 0 else 'few'}"
        if self.class_ is None:
            return f"part {self.part} is off its size by {self.points * 100:.2f} % ({count})"
        return (
            f"class {self.class_} of part {self.part} is off its share by"
            f" {self.points * 100:.2f} points ({count})"
        )


@dataclass(frozen=True)
class Balance:
    """Counts of images by part and class.

    Attributes:
        parts: names.
        shares: ``float64`` (parts,): of all images each part should get; they sum up to 1.
        classes: names; one, empty, where classes do not count.
        counts: ``int64`` (parts, classes).
    """

    parts: tuple[str, ...]
    shares: Float64
    classes: tuple[str, ...]
    counts: Int64

    @property
    def sizes(self) -> Int64:
        """Images a part, (parts,)."""
        return np.asarray(self.counts.sum(axis=1))

    @property
    def total(self) -> int:
        """Images in all."""
        return int(self.counts.sum())

    def deviations(self) -> tuple[Float64, Float64]:
        """Return in images how far sizes (parts,) and classes (parts, classes) are off."""
        return off(self.counts, self.shares)

    def largest(self) -> Deviation:
        """Return the size or class share that is furthest off, in points."""
        return max(self._listed(), key=lambda found: found.points)

    def misses(self, tolerance: float) -> tuple[Deviation, ...]:
        """Return what is off by more than a tolerance and by an image or more, worst first.

        Args:
            tolerance: most points, as in :class:`Deviation`.
        """
        found = [
            each
            for each in self._listed()
            if each.points > tolerance + 1e-12 and abs(each.images) > ONE_IMAGE
        ]
        return tuple(sorted(found, key=lambda each: -each.points))

    def _listed(self) -> list[Deviation]:
        sizes, classes = self.deviations()
        size_points, points = points_of(self.counts, self.shares)
        result = [
            Deviation(part, None, float(size_points[p]), float(sizes[p]))
            for p, part in enumerate(self.parts)
        ]
        if len(self.classes) > 1:
            result += [
                Deviation(part, name, float(points[p, c]), float(classes[p, c]))
                for p, part in enumerate(self.parts)
                for c, name in enumerate(self.classes)
            ]
        return result

    def as_dict(self) -> dict[str, Any]:
        """Return sizes and class shares a part, for JSON."""
        whole = self.counts.sum(axis=0) / max(self.total, 1)
        result: dict[str, Any] = {}
        for p, part in enumerate(self.parts):
            size = int(self.sizes[p])
            about: dict[str, Any] = {
                "images": size,
                "share": size / max(self.total, 1),
                "asked": float(self.shares[p]),
            }
            if len(self.classes) > 1:
                about["classes"] = {
                    name: {
                        "images": int(self.counts[p, c]),
                        "share": int(self.counts[p, c]) / max(size, 1),
                        "of_all": float(whole[c]),
                    }
                    for c, name in enumerate(self.classes)
                }
            result[part] = about
        return result


def off(counts: Int64, shares: Float64) -> tuple[Float64, Float64]:
    """Return in images how far sizes and classes of parts are from what they should be.

    Args:
        counts: ``int64`` (parts, classes).
        shares: ``float64`` (parts,), sum 1.

    Returns:
        Sizes (parts,) against the asked share of all images, and classes (parts, classes)
        against the share that a part of that size should have: positive is too many.
    """
    sizes = counts.sum(axis=1)
    total = max(int(sizes.sum()), 1)
    whole = counts.sum(axis=0) / total
    return sizes - shares * sizes.sum(), counts - sizes[:, None] * whole


def points_of(counts: Int64, shares: Float64) -> tuple[Float64, Float64]:
    """Return how far sizes (parts,) and class shares (parts, classes) are off, in points.

    Sizes relative to what they should be, so that an empty part is off by 1; class shares of a
    part against those of all images.
    """
    sizes = counts.sum(axis=1)
    total = max(int(sizes.sum()), 1)
    classes = counts / np.maximum(sizes, 1)[:, None] - counts.sum(axis=0) / total
    return np.abs(sizes / (shares * total) - 1.0), np.abs(classes)


def peak(counts: Int64, shares: Float64) -> float:
    """Return the largest deviation of a size or a class share, in points."""
    sizes, classes = points_of(counts, shares)
    return float(max(sizes.max(), classes.max()))


def coded(values: pa.Array) -> tuple[Int64, tuple[str | None, ...]]:
    """Return codes and sorted names of an Arrow column of texts; null, if there, is the last name.

    >>> coded(pa.array(["b", None, "a"]))
    (array([1, 2, 0]), ('a', 'b', None))
    """
    names = pc.unique(values).drop_null().take(pc.sort_indices(pc.unique(values).drop_null()))
    codes = pc.fill_null(pc.index_in(values, names), len(names)).to_numpy(zero_copy_only=False)
    return codes.astype(np.int64), (*names.to_pylist(), *([None] if values.null_count else []))
