"""How many images of each class every component has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from visleak.records import Int64


@dataclass(frozen=True)
class Loads:
    """How many images of each class every component has, row by row.

    Attributes:
        begin: ``int64`` (components + 1,): where each component's entries begin.
        classes, counts: ``int64``: class and number of images of each entry.
        width: number of classes.
    """

    begin: Int64
    classes: Int64
    counts: Int64
    width: int

    @classmethod
    def of(cls, component: Int64, stratum: Int64) -> Loads:
        """Return the loads of images with a component and a class each, both from 0 on."""
        width = int(stratum.max(initial=0)) + 1
        keys, counts = np.unique(component * width + stratum, return_counts=True)
        number = int(component.max(initial=-1)) + 1
        begin = np.searchsorted(keys, np.arange(number + 1) * width)
        return cls(begin, keys % width, counts.astype(np.int64), width)

    @property
    def sizes(self) -> Int64:
        """Images a component."""
        sums = np.concatenate([[0], np.cumsum(self.counts)])
        return np.asarray(np.diff(sums[self.begin]))

    @property
    def totals(self) -> Int64:
        """Images a class."""
        return np.bincount(self.classes, self.counts, self.width).astype(np.int64)

    def counts_of(self, part: Int64, parts: int) -> Int64:
        """Return images by part and class, (parts, classes)."""
        owner = np.repeat(part, np.diff(self.begin))
        flat = np.bincount(owner * self.width + self.classes, self.counts, parts * self.width)
        return flat.astype(np.int64).reshape(parts, self.width)

    def dense(self, rows: Int64) -> Int64:
        """Return some components as rows over all classes."""
        result = np.zeros((len(rows), self.width), np.int64)
        for place, row in enumerate(rows.tolist()):
            span = slice(self.begin[row], self.begin[row + 1])
            result[place, self.classes[span]] = self.counts[span]
        return result
