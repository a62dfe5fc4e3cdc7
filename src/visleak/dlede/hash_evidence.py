"""Perceptual hashes of both sides of a split, all compared (Babu et al. 2025, tables 2 and 5).

Every hash whose coefficients all differ from their median has exactly 32 of its 64 bits set, so
the distance of two such hashes is even; that is why the paper's tables have no odd distance.
"""

from __future__ import annotations

import time
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.auditing import workers_for
from visleak.dlede.hamming import distances, most_alike
from visleak.dlede.hashing import Hashes, Words, hash_all
from visleak.dlede.lesson import Split
from visleak.dlede.results import AlikePair, HashEvidence
from visleak.errors import UsageError
from visleak.pipeline.workplace import Progress, Workplace, silent

#: Most alike pairs that are kept where nobody says how many.
ALIKE: Final = 100

#: The greatest cut that is counted. The paper's cut of 10 is convention, and a named threat to
#: its validity, so all cuts are shown.
MOST: Final = 16


def hash_evidence(
    split: Split, *, alike: int = ALIKE, workers: int | None = None, progress: Progress = silent
) -> HashEvidence:
    """Hash all readable images of both sets and compare every test with every training image.

    An image whose content is on both sides is a pair at distance 0.

    Args:
        split: the sets.
        alike: how many of the most alike pairs to keep.
        workers: processes that read and hash; never changes the answer.
        progress: is told how far it is.

    Raises:
        UsageError: ``alike`` is negative.
        VisleakError: a set holds vectors only.
    """
    if alike < 0:
        raise UsageError(f"alike must be 0 or more pairs; got {alike}")
    begun = time.perf_counter()
    crew = workers_for(len(split.train) + len(split.test), workers)
    with Workplace.at(None, crew, None, progress) as place:
        hashed = hash_all(split.test, place), hash_all(split.train, place)
    read = time.perf_counter()
    (test_ids, test), (train_ids, train) = (_by_id(each) for each in hashed)
    found = distances(test, train, progress=progress)
    rows, columns, apart = most_alike(test, train, found, alike)
    pairs = zip(
        test_ids.take(pa.array(rows)).to_pylist(),
        train_ids.take(pa.array(columns)).to_pylist(),
        apart.tolist(),
        strict=True,
    )
    nearest = np.bincount(found.nearest, minlength=len(found.histogram))
    return HashEvidence(
        train=len(train),
        test=len(test),
        unreadable=sum(len(each.problems) for each in hashed),
        histogram=tuple(found.histogram.tolist()),
        nearest=tuple(nearest[: len(found.histogram)].tolist()),
        alike=tuple(AlikePair(*pair) for pair in pairs),
        seconds={"hashing": read - begun, "comparing": time.perf_counter() - read},
        problems=tuple(problem for each in hashed for problem in each.problems),
    )


def cuts(evidence: HashEvidence, most: int = MOST) -> tuple[int, ...]:
    """Return the number of pairs at or below each distance, 0 to ``most``."""
    return tuple(np.cumsum(evidence.histogram)[: most + 1].tolist())


def _by_id(hashes: Hashes) -> tuple[pa.StringArray, Words]:
    """Return ids and hashes in the order of the ids: of pairs as alike the first ids count."""
    order = pc.sort_indices(hashes.ids)
    return hashes.ids.take(order), hashes.words[order.to_numpy()]
