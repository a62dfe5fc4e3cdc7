"""Rates of screening and checking pairs by two processes; part of ``detection.py``."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence

import cv2
import numpy as np
import numpy.typing as npt
from samples import Found

from visleak.verification import check, placements, screen
from visleak.verification.image_pair import ImagePair

PROCESSES = 2
Pixels = npt.NDArray[np.uint8]
Job = tuple[Pixels, Pixels, int, tuple[float, float], tuple[float, float], bool]


def _screened(part: tuple[Pixels, Pixels, npt.NDArray[np.int8]]) -> int:
    placements.place(*part)
    return len(part[2])


def _checked(jobs: Sequence[Job]) -> int:
    cv2.setNumThreads(1)
    check.check_pairs(
        [
            ImagePair(query, reference, view, shift, False, enlarged, local)
            for query, reference, view, shift, enlarged, local in jobs
        ]
    )
    return len(jobs)


def per_second(work: Callable[..., int], parts: Sequence[object]) -> float:
    """Return pairs per second of all processes together, without start-up."""
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        pool.map(work, parts[:PROCESSES])
        start = time.perf_counter()
        done = sum(pool.map(work, parts, chunksize=1))
        return done / (time.perf_counter() - start)


def screen_rate(found: Found, test: Pixels, train: Pixels, count: int = 20_000) -> float:
    """Return screened pairs per second; images of 32 pixels, in the order of an audit."""
    query, reference = _rows(found, np.arange(count))
    parts = [
        (
            _thumbnails(test[query[part]]),
            _thumbnails(train[reference[part]]),
            found.pairs.view[part],
        )
        for part in (slice(start, min(count, start + 1024)) for start in range(0, count, 1024))
    ]
    return per_second(_screened, parts)


def check_rate(found: Found, test: Pixels, train: Pixels, count: int = 4000) -> float:
    """Return fully checked pairs of 32 pixels per second, drawn from those of an audit."""
    checked = np.flatnonzero(found.checked)
    chosen = checked[:: max(1, len(checked) // count)]
    query, reference = _rows(found, chosen)
    jobs = [
        (test[q], train[r], *_start(found, int(row)), False)
        for q, r, row in zip(query, reference, chosen, strict=True)
    ]
    return per_second(_checked, [jobs[start : start + 100] for start in range(0, len(jobs), 100)])


def photo_rate(
    found: Found, pictures: Callable[[int, int], tuple[Pixels, Pixels]], count: int = 600
) -> float:
    """Return fully checked pairs of photographs per second, drawn from those of an audit.

    Args:
        found: candidates.
        images: the two bounded images of rows of a query and a reference.
        count: pairs to time.
    """
    checked = np.flatnonzero(found.checked)
    chosen = checked[:: max(1, len(checked) // count)]
    votes = found.pairs.votes
    jobs = [
        (
            *pictures(int(found.pairs.query[row]), int(found.pairs.reference[row])),
            *_start(found, int(row)),
            votes is None or bool(votes[row] > 0),
        )
        for row in chosen
    ]
    return per_second(_checked, [jobs[start : start + 20] for start in range(0, len(jobs), 20)])


def _rows(
    found: Found, chosen: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return CIFAR-10 indices of pairs."""
    return found.query[chosen].astype(np.int64), found.reference[chosen].astype(np.int64)


def _start(found: Found, row: int) -> tuple[int, tuple[float, float], tuple[float, float]]:
    x, y, wider, higher = (
        float(found.evidence.checks[name][row]) for name in ("across", "down", "wider", "higher")
    )
    return int(found.pairs.view[row]), (x, y), (wider, higher)


def _thumbnails(pictures: Pixels) -> Pixels:
    return np.stack([screen.thumbnail(picture) for picture in pictures])
