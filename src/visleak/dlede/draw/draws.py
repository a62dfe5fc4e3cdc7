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

from visleak.dlede.draw.split import Draw, Split
from visleak.dlede.draw.stratify import stratified_order
from visleak.dlede.results import ClassCounts
from visleak.dlede.settings import Plan
from visleak.errors import UsageError
from visleak.formats import Boxes
from visleak.records import Int64

#: Kinds of random numbers, distinct for each use.
LEAKED, REPLACED = 1, 2

#: Most classes that a stratified draw considers; the most frequent ones.
MOST_CLASSES: Final = 1000


def leaked_at(step: int, test: int) -> int:
    """Return the number of ``test`` images that leak at a step, halves up.

    >>> leaked_at(10, 1790), leaked_at(10, 2250), leaked_at(100, 7)
    (179, 225, 7)
    """
    return (test * step + 50) // 100


class Sampler:
    """Draws from a split, chain by chain (Babu et al. 2025, section 4).

    Test images are copied into training, and as many original training images, drawn at random,
    are removed, so that sizes stay the same. Nested chains keep what leaked and what was removed
    before, and add to both.

    Args:
        split: the split.
        plan: of the curve.

    Raises:
        UsageError: a step leaks more images than can be removed, or none at all; or the draw is
            stratified, and neither boxes nor labels are known.
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
        self._counts = _class_counts(split) if plan.stratified else None

    def at(self, step: int, repetition: int) -> Draw:
        """Return the draw of a step of a chain."""
        test, train = len(self.split.test), len(self.split.train)
        count = leaked_at(step, test)
        leaked = self._order(LEAKED, step, repetition, test)[:count]
        replaced = self._order(REPLACED, step, repetition, train)[:count]
        kept = np.delete(np.arange(train), replaced)
        return Draw(kept.astype(np.int64), np.sort(leaked).astype(np.int64))

    def _order(self, kind: int, step: int, repetition: int, images: int) -> Int64:
        """Return the order in which images are drawn."""
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


def _class_counts(split: Split) -> tuple[Int64, Int64]:
    """Return the number of objects of each class in each test and training image.

    Raises:
        UsageError: neither boxes nor labels are known.
    """
    if split.train_boxes is not None and split.test_boxes is not None:
        counts = split.test_boxes.counts(), split.train_boxes.counts()
    elif split.train.labels is not None and split.test.labels is not None:
        columns = [
            np.asarray(images.labels.fill_null("").to_pylist())
            for images in (split.test, split.train)
            if images.labels is not None
        ]
        names = np.unique(np.concatenate(columns))
        one, other = ((column[:, None] == names[None, :]).astype(np.int64) for column in columns)
        counts = one, other
    else:
        raise UsageError(
            "a stratified draw needs classes, and neither boxes nor labels of the images are"
            " known; leave out --stratify, or give --label"
        )
    frequent = np.argsort(-(counts[0].sum(axis=0)), kind="stable")[:MOST_CLASSES]
    return counts[0][:, frequent], counts[1][:, frequent]


def class_counts(split: Split, draws: Mapping[int, Sequence[Draw]]) -> ClassCounts | None:
    """Count the classes of the test set, and of the training set at each step.

    Classes are those of the boxes, without crowds, otherwise the labels of whole images. Images
    without a label count for none.

    Args:
        split: the split.
        draws: by step, the draws of all repetitions; one or more each.

    Returns:
        ``None`` if neither boxes nor labels are known, or no image shows anything.
    """
    found = _contents(split)
    if found is None:
        return None
    names, train, test, boxed = found
    present: list[int] = np.flatnonzero(train.count(False) + test.count(False)).tolist()
    if not present:
        return None

    def trained(objects: bool) -> tuple[tuple[float, ...], ...]:
        rows = []
        for drawn in draws.values():
            counts = [
                train.count(objects, draw.kept) + test.count(objects, draw.leaked) for draw in drawn
            ]
            rows.append(tuple(np.mean(counts, axis=0)[present].tolist()))
        return tuple(rows)

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
    """The contents of a set: one row per image and class.

    Attributes:
        image, label: ``int64``, the image, and the class.
        number: ``int64``, its objects of that class.
        classes: number of classes.
        size: number of images.
    """

    image: Int64
    label: Int64
    number: Int64
    classes: int
    size: int

    def count(self, objects: bool, rows: Int64 | None = None) -> Int64:
        """Return the number of images (of some rows), or of objects, of each class."""
        some = np.zeros(self.size, np.bool_)
        some[slice(None) if rows is None else rows] = True
        weights = some[self.image] * (self.number if objects else 1)
        return np.bincount(self.label, weights, self.classes).astype(np.int64)


def _contents(split: Split) -> tuple[Sequence[str], _Contents, _Contents, bool] | None:
    """Return the classes, the contents of both sets, and whether they are objects."""
    if split.train_boxes is not None and split.test_boxes is not None:
        names: Sequence[str] = split.train_boxes.names
        return names, _of_boxes(split.train_boxes), _of_boxes(split.test_boxes), True
    columns = [split.train.labels, split.test.labels]
    if columns[0] is None or columns[1] is None:
        return None
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
