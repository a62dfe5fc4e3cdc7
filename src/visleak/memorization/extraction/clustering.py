"""Clusters of images that came out nearly the same: DBSCAN on distances, and a medoid each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from visleak.encoders.libraries import library
from visleak.errors import UsageError


@dataclass(frozen=True, slots=True)
class Group:
    """Images of one prompt that are nearly the same.

    Attributes:
        members: places of the images in the list that was given, by falling similarity to the
            medoid, which comes first.
        medoid: place of the image with the largest sum of similarities to the others.
        cohesion: median similarity of the medoid to the others; 1 where it is alone.
    """

    members: tuple[int, ...]
    medoid: int
    cohesion: float


def clusters_of(
    similarity: npt.ArrayLike,
    seeds: Sequence[int],
    *,
    eps: float,
    min_samples: int,
    min_cluster: int,
) -> list[Group]:
    """Return the clusters of the images of one prompt, largest first.

    DBSCAN (Ester et al. 1996) on the distance 1 - similarity, below 0 counted as 0, as the
    authors of MemBench do; then only clusters of ``min_cluster`` images and more are kept (the
    paper's at least 20). The order of the images changes nothing: they are taken by their seeds,
    which also decide between clusters in reach of a border image, and between equal medoids.

    Args:
        similarity: (n, n), higher is more alike; of its two halves the mean counts.
        seeds: (n,), one per image, all different.
        eps: largest distance of neighbours.
        min_samples: neighbours, itself counted, that make an image a core.
        min_cluster: least images of a cluster.

    Raises:
        UsageError: sizes do not fit, a seed stands twice, or a similarity is no number.
        MissingExtra: scikit-learn is not installed.
    """
    matrix = np.asarray(similarity, np.float64)
    count = len(seeds)
    if matrix.shape != (count, count):
        raise UsageError(
            f"similarity must be {count} x {count}, one row per seed; got {matrix.shape}"
        )
    if len(set(seeds)) != count:
        raise UsageError("seeds of the images of one prompt must all differ; one is given twice")
    if not np.isfinite(matrix).all():
        raise UsageError("similarity holds a value that is not a number")
    if not count:
        return []
    order = np.argsort(np.asarray(seeds), kind="stable")
    alike = matrix[np.ix_(order, order)]
    alike = (alike + alike.T) / 2
    labels = _dbscan(alike, eps, min_samples)
    found = []
    for label in range(int(labels.max()) + 1):
        places = np.flatnonzero(labels == label)
        if len(places) >= min_cluster:
            found.append(_group(places, alike))
    # places are by seed here, so equal sizes go by the medoid's seed
    found.sort(key=lambda group: (-len(group.members), group.medoid))
    return [
        Group(
            tuple(int(order[place]) for place in group.members),
            int(order[group.medoid]),
            group.cohesion,
        )
        for group in found
    ]


def middle_of(alike: npt.NDArray[np.float64]) -> int:
    """Return the place of the image with the largest sum of similarities; of equal ones the first.

    >>> middle_of(np.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.8], [0.1, 0.8, 1.0]]))
    1
    """
    # rounded, so that sums of the same numbers in another order are equal
    return int(np.round(alike.sum(1), 9).argmax())


def _dbscan(alike: npt.NDArray[np.float64], eps: float, min_samples: int) -> npt.NDArray[np.int64]:
    """Return the cluster of each image, -1 where it is in none."""
    cluster = library("sklearn.cluster", "diffusion", "the clusters of generated images")
    distance = np.maximum(1.0 - alike, 0.0)
    np.fill_diagonal(distance, 0.0)
    made = cluster.DBSCAN(metric="precomputed", eps=eps, min_samples=min_samples).fit(distance)
    return np.asarray(made.labels_, np.int64)


def _group(places: npt.NDArray[np.int64], alike: npt.NDArray[np.float64]) -> Group:
    """Return a cluster with its medoid; of equal ones that of the lowest place."""
    inside = alike[np.ix_(places, places)].copy()
    np.fill_diagonal(inside, 0.0)
    medoid = middle_of(inside)
    others = np.delete(np.arange(len(places)), medoid)
    ranked = others[np.lexsort((others, -inside[medoid, others]))]
    cohesion = float(np.median(inside[medoid, others])) if len(others) else 1.0
    members = (places[medoid], *places[ranked])
    return Group(tuple(int(each) for each in members), int(places[medoid]), cohesion)
