"""Which test images leak at a step, and which training images make room for them.

A chain's draws depend on the seed and the number of its repetition alone, so that chains may be
added later, and the same chain is the same in every run.
"""

from __future__ import annotations

import itertools
import math
from typing import Final

import numpy as np

from visleak.dlede.lesson import Draw, Split
from visleak.dlede.plan import Plan
from visleak.dlede.stratify import stratified_order
from visleak.errors import UsageError
from visleak.records import Int64

#: Kinds of random numbers, so that no two uses share theirs.
LEAKED, REPLACED = 1, 2

#: Most classes that a stratified draw looks at; the most frequent ones.
MOST_CLASSES: Final = 1000


def leaked_at(step: int, test: int) -> int:
    """Return how many of ``test`` images leak at a step, halves up.

    >>> leaked_at(10, 1790), leaked_at(10, 2250), leaked_at(100, 7)
    (179, 225, 7)
    """
    return (test * step + 50) // 100


class Drawing:
    """Draws from a split, chain by chain (Babu et al. 2025, section 4).

    Test images are copied into training, and as many original training images, drawn at random,
    are taken out, so that sizes stay. Nested chains keep what leaked and what was taken out
    before, and add to both.

    Args:
        split: the split.
        plan: says how.

    Raises:
        UsageError: a step leaks more images than there are to take out, or none at all; or the
            draw is to be stratified, and neither boxes nor labels are known.
    """

    def __init__(self, split: Split, plan: Plan) -> None:
        self.split, self.plan = split, plan
        test, train = len(split.test), len(split.train)
        most = leaked_at(plan.steps[-1], test)
        if most >= train and most > 0:
            raise UsageError(
                f"at {plan.steps[-1]} % there leak {most:,} test images, and there are only"
                f" {train:,} training images to take out; stop at a lower step"
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
        # parts about as large as what a step takes out
        parts = max(1, round(len(train) / max(1, leaked_at(plan.steps[1], len(test)))))
        return stratified_order(train, parts, rng)


def _class_counts(split: Split) -> tuple[Int64, Int64]:
    """Return how many objects of each class each test and training image shows.

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
