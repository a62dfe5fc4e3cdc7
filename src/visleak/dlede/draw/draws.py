"""Draws: which test images leak at a step, which training images they replace, and the classes.

The draws of a chain depend on the seed and the number of its repetition alone, so that chains can
be added later, and the same chain is the same in every run. A leaked image adds its objects, and
the image that it replaces removes its own, so class proportions drift: a threat to validity that
the paper names (Babu et al. 2025, section 8).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.dlede.draw import Draw, Split
from visleak.dlede.results import ClassCounts
from visleak.dlede.settings import Plan
from visleak.errors import UsageError
from visleak.formats import Boxes
from visleak.records import Int64

LEAKED, REPLACED = 1, 2  # kinds of random numbers, distinct for each use
MOST_CLASSES: Final = 1000  # most classes that a stratified draw considers; the most frequent ones


def leaked_at(step: int, test: int) -> int:
    """Return the number of ``test`` images that leak at a step, halves up.

    >>> leaked_at(10, 1790), leaked_at(10, 2250), leaked_at(100, 7)
    (179, 225, 7)
    """
    return (test * step + 50) // 100


class Sampler:
    """Draws from a split, chain by chain (Babu et al. 2025, section 4).

    Leaked test images replace as many training images, so that sizes stay the same. Nested chains
    keep what leaked and what was removed before, and add to both.
    """

    def __init__(self, split: Split, plan: Plan) -> None:
        self.split, self.plan = split, plan
        test, train = len(split.test), len(split.train)
        most = leaked_at(plan.steps[-1], test)
        if most >= train and most > 0:
            raise UsageError(
                f"at {plan.steps[-1]} % {most:,} test images leak, and there are only {train:,}"
                " training images to replace; stop at a lower step"
            )
        counts = [leaked_at(step, test) for step in plan.steps]
        if any(low == high for low, high in itertools.pairwise(counts)):
            raise UsageError(
                f"{test:,} test images are too few for steps of"
                f" {', '.join(map(str, plan.steps[1:]))} %: two steps would leak the same number"
            )
        self._counts: tuple[Int64, Int64] | None = None
        if plan.stratified:
            found = _contents(split, unlabelled="")
            if found is None:
                raise UsageError(
                    "a stratified draw needs classes, and neither boxes nor labels of the images"
                    " are known; leave out --stratify, or give --label"
                )
            objects, shown = (each.table() for each in found[1:3])
            frequent = np.argsort(-shown.sum(axis=0), kind="stable")[:MOST_CLASSES]
            self._counts = shown[:, frequent], objects[:, frequent]

    def at(self, step: int, repetition: int) -> Draw:
        """Return the draw of a step of a chain."""
        test, train = len(self.split.test), len(self.split.train)
        count = leaked_at(step, test)
        leaked = self._order(LEAKED, step, repetition, test)[:count]
        replaced = self._order(REPLACED, step, repetition, train)[:count]
        kept = np.delete(np.arange(train), replaced)
        return Draw(kept.astype(np.int64), np.sort(leaked).astype(np.int64))

    def _order(self, kind: int, step: int, repetition: int, images: int) -> Int64:
        plan = self.plan
        numbers = [plan.seed, repetition, kind] + ([] if plan.nested else [step])
        rng = np.random.default_rng(numbers)
        if self._counts is None:
            return np.asarray(rng.permutation(images), np.int64)
        test, train = self._counts
        if kind == LEAKED:
            return stratified_order(test, 100 // math.gcd(100, *plan.steps), rng)
        # parts about as large as what a step removes
        parts = max(1, round(len(train) / max(1, leaked_at(plan.steps[1], len(test)))))
        return stratified_order(train, parts, rng)


def class_counts(split: Split, draws: Mapping[int, Sequence[Draw]]) -> ClassCounts | None:
    """Count the classes of the test set, and of the training set at each step.

    Classes are those of the boxes, without crowds, otherwise the labels of whole images.
    """
    found = _contents(split)
    if found is None:
        return None
    names, train, test, boxed = found
    present: list[int] = np.flatnonzero(train.count(False) + test.count(False)).tolist()
    if not present:
        return None

    def trained(objects: bool) -> tuple[tuple[float, ...], ...]:
        counts = (
            [train.count(objects, draw.kept) + test.count(objects, draw.leaked) for draw in drawn]
            for drawn in draws.values()
        )
        return tuple(tuple(np.mean(each, axis=0)[present].tolist()) for each in counts)

    return ClassCounts(
        classes=tuple(names[at] for at in present),
        test_images=tuple(test.count(False)[present].tolist()),
        test_objects=tuple(test.count(True)[present].tolist()) if boxed else (),
        steps=tuple(draws),
        images=trained(False),
        objects=trained(True) if boxed else (),
    )


@dataclass(frozen=True)
class _Contents:
    """The contents of a set: one row per image and class."""

    image: Int64  # image, label: int64, the image, and the class
    label: Int64
    number: Int64  # int64, its objects of that class
    classes: int  # number of classes
    size: int  # number of images

    def table(self) -> Int64:
        """Return the number of objects of each class in each image, (images, classes)."""
        counts = np.zeros((self.size, self.classes), np.int64)
        counts[self.image, self.label] = self.number
        return counts

    def count(self, objects: bool, rows: Int64 | None = None) -> Int64:
        """Return the number of images (of some rows), or of objects, of each class."""
        some = np.zeros(self.size, np.bool_)
        some[slice(None) if rows is None else rows] = True
        weights = some[self.image] * (self.number if objects else 1)
        return np.bincount(self.label, weights, self.classes).astype(np.int64)


def _contents(
    split: Split, unlabelled: str | None = None
) -> tuple[Sequence[str], _Contents, _Contents, bool] | None:
    """Return the classes, the contents of both sets, and whether they are objects."""
    if split.train_boxes is not None and split.test_boxes is not None:
        names: Sequence[str] = split.train_boxes.names
        return names, _of_boxes(split.train_boxes), _of_boxes(split.test_boxes), True
    columns = [split.train.labels, split.test.labels]
    if columns[0] is None or columns[1] is None:
        return None
    if unlabelled is not None:
        columns = [pc.fill_null(column, unlabelled) for column in columns]
    values = pa.concat_arrays(columns).unique().drop_null().sort()
    train, test = (_of_labels(column, values) for column in columns)
    return values.to_pylist(), train, test, False


def _of_boxes(boxes: Boxes) -> _Contents:
    real = ~boxes.crowd & (boxes.label >= 0)
    classes = len(boxes.names)
    both, number = np.unique(boxes.image[real] * classes + boxes.label[real], return_counts=True)
    image, label = np.divmod(both, max(classes, 1))
    return _Contents(image, label, number, classes, boxes.images)


def _of_labels(column: pa.StringArray, values: pa.StringArray) -> _Contents:
    codes = pc.fill_null(pc.index_in(column, value_set=values), -1).to_numpy(zero_copy_only=False)
    image = np.flatnonzero(codes >= 0)
    label = codes[image].astype(np.int64)
    return _Contents(image, label, np.ones(len(image), np.int64), len(values), len(codes))


# -- stratified orders -----------------------------------------------------------------------------
#
# A plain draw of a tenth of a small test set may hold most of a rare class or nothing of it. After
# Sechidis et al. (2011, "On the stratification of multi-label data"), an image counts for the
# rarest class that it shows. These strata are distributed over the parts so that every stratum is
# less than one image from its share at the end of every part; further classes of the images are
# balanced by random exchanges.
#
# The exact numbers are fractions, rounded at random without bias: they are seen as a flow through a
# network, whose fractional arcs always contain a cycle; the flow along it is raised or lowered
# until an arc is whole, with probabilities that keep every mean (dependent rounding; Gandhi et al.
# 2006; the cycles are those of Cox 1987, "A constructive procedure for unbiased controlled
# rounding").

#: Exchanges that are tried to balance the further classes, and candidates for each.
EXCHANGES: Final = 4000
CANDIDATES: Final = 32


def stratified_order(counts: Int64, parts: int, rng: np.random.Generator) -> Int64:
    """Return a random order of images whose first k parts hold close to k/parts of each class.

    Part k ends after n * k / parts images, halves up. Of images with one object each, each class
    is less than one from its share at the end of every part.
    """
    if parts < 1:
        raise ValueError(f"parts must be 1 or more, not {parts}")
    ends = (2 * len(counts) * np.arange(parts + 1) + parts) // (2 * parts)
    strata = _strata(counts)
    _, sizes = np.unique(strata, return_counts=True)
    held = distribute(sizes, ends, rng)
    part = np.empty(len(strata), np.int64)
    in_strata = np.lexsort((rng.random(len(strata)), strata))
    part[in_strata] = np.repeat(np.tile(np.arange(parts), len(sizes)), held.reshape(-1))
    shown = counts.sum(axis=1)
    if len(counts) and shown.max(initial=0) > 1:
        _balance(part, counts, ends, rng)
    order: Int64 = np.lexsort((rng.random(len(counts)), part))
    return order


def _strata(counts: Int64) -> Int64:
    """Return the rarest class in each image; the number of classes for those without any."""
    images, classes = counts.shape
    if not classes:
        return np.zeros(images, np.int64)
    totals = counts.sum(axis=0)
    rarest = np.where(counts > 0, totals, totals.sum() + 1).argmin(axis=1)
    rarest[~counts.any(axis=1)] = classes
    return np.asarray(rarest, np.int64)


def _balance(part: Int64, counts: Int64, ends: Int64, rng: np.random.Generator) -> None:
    """Exchange images of two parts, in place, if that brings classes closer to their shares.

    Minimizes the sum, over classes and ends of parts, of ``(first parts' objects - share)^2 / sum
    of squared counts``. Classes with fewer objects than parts are excluded: their minimum is in the
    middle parts, so that they would never leak early.
    """
    images, parts = len(part), len(ends) - 1
    totals = counts.sum(axis=0)
    weight = (totals >= parts) / np.maximum(np.einsum("ic,ic->c", counts, counts), 1)
    held = np.zeros((parts, counts.shape[1]))
    np.add.at(held, part, counts)
    off = np.cumsum(held, axis=0) - np.outer(ends[1:] / images, totals)
    # sums of deviations up to each part: an exchange changes a difference of two rows
    sums = np.concatenate([np.zeros((1, off.shape[1])), np.cumsum(off, axis=0)])
    for one in rng.integers(images, size=min(EXCHANGES, 2 * images)):
        others = rng.integers(images, size=CANDIDATES)
        gain = (counts[others] - counts[one]).astype(np.float64)
        met = sums[part[others]] - sums[part[one]]
        change = 2 * (gain * met) @ weight
        change += np.abs(part[others] - part[one]) * (gain**2 @ weight)
        best = int(change.argmin())
        if change[best] < 0:
            other = int(others[best])
            low, high = sorted((int(part[one]), int(part[other])))
            sign = 1 if part[one] == low else -1
            steps = np.arange(1, high - low + 1)[:, None]
            sums[low + 1 : high + 1] += sign * steps * gain[best]
            sums[high + 1 :] += sign * (high - low) * gain[best]
            part[one], part[other] = part[other], part[one]


def distribute(sizes: Int64, ends: Int64, rng: np.random.Generator) -> Int64:
    """Return the number of images of each stratum in each part, at random; means are exact shares.

    In each part, and up to the end of each part, a stratum's share is rounded up or down.
    """
    # in units of 1/n images, so that all arithmetic is exact
    whole, cells = int(ends[-1]), np.outer(sizes, np.diff(ends))
    if not whole:
        return np.zeros(cells.shape, np.int64)
    # columns (parts) flow into one chain of nodes per stratum, where the flow accumulates
    nodes = np.arange(cells.size).reshape(cells.shape)
    columns = np.broadcast_to(cells.size + np.arange(cells.shape[1]), cells.shape)
    tail: list[int] = np.concatenate([columns.ravel(), nodes[:, :-1].ravel()]).tolist()
    head: list[int] = np.concatenate([nodes.ravel(), nodes[:, 1:].ravel()]).tolist()
    flow: list[int] = [*cells.ravel().tolist(), *np.outer(sizes, ends[1:-1]).ravel().tolist()]
    # a dict keeps the order of its keys, and so the result
    fractional: list[dict[int, None]] = [{} for _ in range(cells.size + cells.shape[1])]
    for arc, value in enumerate(flow):
        if value % whole:
            fractional[tail[arc]][arc] = fractional[head[arc]][arc] = None
    for start in range(len(fractional)):
        walk: list[tuple[int, bool]] = []
        met: dict[int, int] = {}
        node = start
        # the flow of a node is whole in sum, so a walk along fractions closes
        while fractional[node]:
            met[node] = len(walk)
            last = walk[-1][0] if walk else -1
            arc = next(arc for arc in fractional[node] if arc != last)
            along = tail[arc] == node
            walk.append((arc, along))
            node = head[arc] if along else tail[arc]
            if node in met:
                begin = met[node]
                for arc in _pushed(flow, walk[begin:], whole, rng):
                    del fractional[tail[arc]][arc], fractional[head[arc]][arc]
                del walk[begin:]
                met = {known: at for known, at in met.items() if at < begin}
    return np.array(flow[: cells.size], np.int64).reshape(cells.shape) // whole


def _pushed(
    flow: list[int], cycle: list[tuple[int, bool]], unit: int, rng: np.random.Generator
) -> list[int]:
    """Raise or lower the flow along a cycle until arcs are whole; return those."""
    over = [(flow[arc] % unit, along) for arc, along in cycle]
    up = min(unit - part if along else part for part, along in over)
    down = min(part if along else unit - part for part, along in over)
    change = up if rng.random() * (up + down) < down else -down
    for arc, along in cycle:
        flow[arc] += change if along else -change
    return [arc for arc, _ in cycle if not flow[arc] % unit]
