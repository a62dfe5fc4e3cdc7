"""Sizes and class shares of parts: deviations from the targets, and reasons for them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak import quantities
from visleak.documents import as_plain
from visleak.records import Float64, Int64

ONE_IMAGE: Final = 1.0 - 1e-9  # smaller deviations do not miss a tolerance
REASONS: Final = 5  # listed at most; further ones are counted


@dataclass(frozen=True, slots=True)
class Deviation:
    """A size or class share that differs from its target."""

    part: str
    class_: str | None = field(metadata={"key": "class"})  # ``None`` for the size of the part
    # of a size, the deviation relative to the target; of a class, the difference between its share
    # of the part and of all images
    points: float
    images: float  # positive if there are too many

    def __str__(self) -> str:
        whole = round(abs(self.images))
        count = quantities.counted(whole, "image") if whole else "less than an image"
        count += f" too {'many' if self.images > 0 else 'few'}"
        if self.class_ is None:
            return f"part {self.part} is off its size by {self.points * 100:.2f} % ({count})"
        return (
            f"class {self.class_} of part {self.part} is off its share by"
            f" {self.points * 100:.2f} points ({count})"
        )

    def as_dict(self) -> dict[str, object]:
        """Return the deviation as plain values."""
        return {**as_plain(self), "words": str(self)}


@dataclass(frozen=True)
class Balance:
    """Counts of images by part and class."""

    parts: tuple[str, ...]
    shares: Float64  # (parts,): target share of all images, sum 1
    classes: tuple[str, ...]  # names; one empty name without stratification
    counts: Int64  # (parts, classes)

    @property
    def total(self) -> int:
        """Number of all images."""
        return int(self.counts.sum())

    def largest(self) -> Deviation:
        """Return the largest deviation, in points."""
        return max(self._deviations(), key=lambda found: found.points)

    def misses(self, tolerance: float) -> tuple[Deviation, ...]:
        """Return deviations of more than a tolerance and of an image or more, largest first."""
        ranked = sorted(self._deviations(), key=lambda each: -each.points)
        least = tolerance + 1e-12
        return tuple(e for e in ranked if e.points > least and abs(e.images) > ONE_IMAGE)

    def _deviations(self) -> Iterator[Deviation]:
        sizes, classes = deviations(self.counts, self.shares)
        size_points, points = points_of(self.counts, self.shares)
        for p, part in enumerate(self.parts):
            yield Deviation(part, None, float(size_points[p]), float(sizes[p]))
        if len(self.classes) > 1:
            for (p, part), (c, name) in itertools.product(
                enumerate(self.parts), enumerate(self.classes)
            ):
                yield Deviation(part, name, float(points[p, c]), float(classes[p, c]))

    def as_dict(self) -> dict[str, dict[str, object]]:
        """Return sizes and class shares per part as plain values."""
        total = max(self.total, 1)
        whole = self.counts.sum(axis=0) / total
        result: dict[str, dict[str, object]] = {}
        for part, share, counts in zip(self.parts, self.shares, self.counts, strict=True):
            size = int(counts.sum())
            result[part] = {"images": size, "share": size / total, "asked": float(share)}
            if len(self.classes) > 1:
                result[part]["classes"] = {
                    name: {
                        "images": int(counts[c]),
                        "share": int(counts[c]) / max(size, 1),
                        "of_all": float(whole[c]),
                    }
                    for c, name in enumerate(self.classes)
                }
        return result


def deviations(counts: Int64, shares: Float64) -> tuple[Float64, Float64]:
    """Return by how many images sizes (parts,) and classes (parts, classes) miss their targets."""
    sizes = counts.sum(axis=1)
    whole = counts.sum(axis=0) / max(int(sizes.sum()), 1)
    return sizes - shares * sizes.sum(), counts - sizes[:, None] * whole


def points_of(counts: Int64, shares: Float64) -> tuple[Float64, Float64]:
    """Return the deviations of sizes (parts,) and class shares (parts, classes), in points.

    Sizes are relative to their targets, so an empty part deviates by 1; class shares of a part are
    compared with those of all images.
    """
    sizes = counts.sum(axis=1)
    total = max(int(sizes.sum()), 1)
    classes = counts / np.maximum(sizes, 1)[:, None] - counts.sum(axis=0) / total
    return np.abs(sizes / (shares * total) - 1.0), np.abs(classes)


def max_points(counts: Int64, shares: Float64) -> float:
    """Return the largest deviation of a size or a class share, in points."""
    sizes, classes = points_of(counts, shares)
    return float(max(sizes.max(), classes.max()))


def count_by_part(part: Int64, parts: int, label: Int64, classes: int) -> Int64:
    """Return the number of images by part and class, (parts, classes)."""
    flat = np.bincount(part * classes + label, minlength=parts * classes)
    return flat.reshape(parts, classes).astype(np.int64)


def encode_texts(values: pa.Array) -> tuple[Int64, tuple[str | None, ...]]:
    """Return codes and sorted names of a column of texts; null, if present, is the last name.

    >>> encode_texts(pa.array(["b", None, "a"]))
    (array([1, 2, 0]), ('a', 'b', None))
    """
    names = pc.unique(values).drop_null()
    names = names.take(pc.sort_indices(names))
    codes = pc.fill_null(pc.index_in(values, names), len(names)).to_numpy(zero_copy_only=False)
    return codes.astype(np.int64), (*names.to_pylist(), *([None] if values.null_count else []))


@dataclass(frozen=True)
class Loads:
    """Images per component and class, as a sparse matrix by rows."""

    begin: Int64  # (components + 1,): first entry of each component
    # class and number of images of each entry
    classes: Int64
    counts: Int64
    width: int  # number of classes

    @classmethod
    def of(cls, component: Int64, stratum: Int64) -> Loads:
        """Return the loads of images, given component and class of each, both from 0."""
        width = int(stratum.max(initial=0)) + 1
        keys, counts = np.unique(component * width + stratum, return_counts=True)
        number = int(component.max(initial=-1)) + 1
        begin = np.searchsorted(keys, np.arange(number + 1) * width)
        return cls(begin, keys % width, counts.astype(np.int64), width)

    @property
    def owners(self) -> Int64:
        """Component of each entry."""
        return np.repeat(np.arange(len(self.begin) - 1), np.diff(self.begin))

    @property
    def sizes(self) -> Int64:
        """Images per component."""
        sums = np.concatenate([[0], np.cumsum(self.counts)])
        return np.asarray(np.diff(sums[self.begin]))

    def counts_of(self, part: Int64, parts: int) -> Int64:
        """Return images by part and class, (parts, classes), given the part of each component."""
        keys = part[self.owners] * self.width + self.classes
        flat = np.bincount(keys, self.counts, parts * self.width)
        return flat.astype(np.int64).reshape(parts, self.width)

    def dense(self, rows: Int64) -> Int64:
        """Return some components as rows over all classes."""
        result = np.zeros((len(rows), self.width), np.int64)
        for place, row in enumerate(rows.tolist()):
            span = slice(self.begin[row], self.begin[row + 1])
            result[place, self.classes[span]] = self.counts[span]
        return result


# -- reasons -------------------------------------------------------------------------------------

#: Returns a description of a component, given its number.
Describe = Callable[[int], str]


def reasons(
    balance: Balance, loads: Loads, tolerance: float, describe: Describe
) -> tuple[str, ...]:
    """Return the reasons why a balance misses its tolerance, those of every assignment first."""
    misses = balance.misses(tolerance)
    if not misses:
        return ()
    lines = list(_oversized(balance, loads, tolerance, describe))
    # with two parts the misses of a kind mirror each other: the largest is sufficient
    kinds = [miss.class_ for miss in misses]
    largest = [miss for at, miss in enumerate(misses) if miss.class_ not in kinds[:at]]
    for miss in largest:
        if miss.class_ is not None:
            code = balance.classes.index(miss.class_)
            lines += _scarce(balance, loads, code, tolerance, describe)
    for miss in largest:
        own, where = np.ones(len(loads.classes), np.bool_), "there are"
        if miss.class_ is not None:
            own, where = loads.classes == balance.classes.index(miss.class_), "it is in"
        rows = np.unique(loads.owners[own])
        most = rows[np.argmax(loads.sizes[rows])]
        lines.append(
            f"{miss}; {where} {len(rows):,} components, the largest of {loads.sizes[most]:,} images"
            f" ({describe(int(most))}), and no better assignment was found"
        )
    more = len(lines) - REASONS
    return (*lines[:REASONS], *([f"and {more:,} more"] if more > 0 else []))


def _oversized(
    balance: Balance, loads: Loads, tolerance: float, describe: Describe
) -> Iterator[str]:
    allowed = balance.shares * balance.total * (1 + tolerance)
    widest = int(np.argmax(allowed))
    for row in np.argsort(-loads.sizes, kind="stable")[:REASONS].tolist():
        size = int(loads.sizes[row])
        if size - allowed[widest] < 1:
            return
        yield (
            f"one component of {size:,} images ({describe(row)}) is larger than part"
            f" {balance.parts[widest]} allows by {size - int(allowed[widest]):,}"
        )


def _scarce(
    balance: Balance, loads: Loads, code: int, tolerance: float, describe: Describe
) -> Iterator[str]:
    """Yield the reasons why a class cannot have its share in every part."""
    own, name = loads.classes == code, balance.classes[code]
    owners, counts, total = loads.owners[own], loads.counts[own], int(loads.counts[own].sum())
    if len(owners) < len(balance.parts):
        where = "component" if len(owners) == 1 else "components"
        yield (
            f"class {name}: its {total:,} images are in {len(owners)} {where}"
            f" ({', '.join(describe(int(row)) for row in owners)}), so {len(owners)} of"
            f" {len(balance.parts)} parts can have any"
        )
        return
    most = (total / balance.total + tolerance) * balance.shares * balance.total * (1 + tolerance)
    largest = int(np.argmax(counts))
    if counts[largest] - most.max() >= 1:
        part = balance.parts[int(np.argmax(most))]
        yield (
            f"class {name}: one component ({describe(int(owners[largest]))}) holds"
            f" {int(counts[largest]):,} of its {total:,} images, and part {part} allows"
            f" {int(most.max()):,}"
        )
