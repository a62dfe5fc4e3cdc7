"""Who repeats an image in the set that it is of."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from visleak.records import Bool, Int64
from visleak.remedy.graph import NO_TIES, Graph, Ties
from visleak.remedy.proving import Examiner


@dataclass
class Neighbours:
    """Which images repeat the ones that are to move, looked up in the sets they are of.

    An audit compares test with train and test with itself, not train with itself; so an image
    that leaves train might leave a copy behind.

    Attributes:
        examiner: audits images.
        graph: the images.
        couples: indices of the sets that the first audit compared.
        known: ``bool`` (images,): its repeats within its own set are known.
        found: ties that were found so far.
    """

    examiner: Examiner
    graph: Graph
    couples: frozenset[tuple[int, int]]
    known: Bool
    found: Ties = NO_TIES

    def missing(self) -> Ties:
        """Return the ties between sets that the first audit did not compare."""
        found = NO_TIES
        rows = [np.flatnonzero(self.graph.owner == i) for i in range(len(self.graph.sets))]
        for one, other in itertools.combinations(range(len(rows)), 2):
            if (one, other) not in self.couples:
                left, right = sorted((rows[one], rows[other]), key=len)
                found += self.examiner.between(self.graph, left, right)
        return found

    def look(self, rows: Int64) -> bool:
        """Look for repeats of some images within their own sets; whether there were new images."""
        new = rows[~self.known[rows]]
        for index in np.unique(self.graph.owner[new]).tolist():
            own = np.flatnonzero(self.graph.owner == index)
            asked = new[self.graph.owner[new] == index]
            self.found += self.examiner.between(self.graph, asked, own)
        self.known[new] = True
        return bool(len(new))
