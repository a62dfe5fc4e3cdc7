"""Random orders whose beginnings keep the shares of the classes.

A plain draw of a tenth of a small test set may hold most of a rare class or nothing of it, and the
shares of the classes in training then drift from step to step: the paper's own threat to validity
(Babu et al. 2025, section 8).

After Sechidis et al. (2011, "On the stratification of multi-label data"), an image counts for the
rarest class that it shows. These strata are spread over the parts so that every stratum is less
than one image from its share at the end of every part. What images show besides is evened by
random exchanges.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from visleak.dlede.spreading import spread
from visleak.records import Int64

#: Exchanges that are tried to even what images show besides their rarest class, and among how
#: many other images the best is looked for.
EXCHANGES: Final = 4000
CANDIDATES: Final = 32


def stratified_order(counts: Int64, parts: int, rng: np.random.Generator) -> Int64:
    """Return a random order of images whose first k parts hold close to k/parts of each class.

    Part k ends after n * k / parts images, halves up. Where images show one object of one class
    each, the number of each class is less than one from its share at the end of every part.

    Args:
        counts: ``int64`` (n, classes), how many objects of each class each image shows.
        parts: number of equal parts, 1 or more.
        rng: random numbers.

    Returns:
        ``int64`` (n,), a permutation.

    Raises:
        ValueError: ``parts`` is below 1.
    """
    if parts < 1:
        raise ValueError(f"parts must be 1 or more, not {parts}")
    ends = (2 * len(counts) * np.arange(parts + 1) + parts) // (2 * parts)
    part = _placed(_strata(counts), ends, rng)
    shown = counts.sum(axis=1)
    if len(counts) and shown.max(initial=0) > 1:
        _even(part, counts, ends, rng)
    order: Int64 = np.lexsort((rng.random(len(counts)), part))
    return order


def _strata(counts: Int64) -> Int64:
    """Return the rarest class that each image shows; one more for those that show none."""
    images, classes = counts.shape
    if not classes:
        return np.zeros(images, np.int64)
    totals = counts.sum(axis=0)
    rarest = np.where(counts > 0, totals, totals.sum() + 1).argmin(axis=1)
    rarest[~counts.any(axis=1)] = classes
    return np.asarray(rarest, np.int64)


def _placed(strata: Int64, ends: Int64, rng: np.random.Generator) -> Int64:
    """Return the part of each image, so that strata keep their shares at the end of each part."""
    _, sizes = np.unique(strata, return_counts=True)
    held = spread(sizes, ends, rng)
    parts = np.tile(np.arange(held.shape[1]), len(sizes))
    part = np.empty(len(strata), np.int64)
    part[np.lexsort((rng.random(len(strata)), strata))] = np.repeat(parts, held.reshape(-1))
    return part


def _even(part: Int64, counts: Int64, ends: Int64, rng: np.random.Generator) -> None:
    """Exchange images of two parts, in place, where that brings classes nearer to their shares.

    What is made small is the sum, over classes and ends of parts, of the squared deviation in
    units of a plain draw's: ``(first parts' objects - share)^2 / sum of squared counts``. Classes
    with fewer objects than parts are left to the strata: what cannot be even is nearest to its
    shares in the middle, and would never leak early.
    """
    images, parts = len(part), len(ends) - 1
    totals = counts.sum(axis=0)
    weight = (totals >= parts) / np.maximum(np.einsum("ic,ic->c", counts, counts), 1)
    held = np.zeros((parts, counts.shape[1]))
    np.add.at(held, part, counts)
    off = np.cumsum(held, axis=0) - np.outer(ends[1:] / images, totals)
    # sums of deviations up to each part: a difference of two rows is what an exchange meets
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
