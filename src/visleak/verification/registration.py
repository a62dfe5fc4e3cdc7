"""Registration of two aligned images to a fraction of a pixel, at full resolution.

A relation found at 256 pixels is off by several pixels at 1,000, and a second scan of a page is
slightly bent. Windows of both images are matched (normalized correlation by the Fourier transform,
Padfield 2012), and a quadratic displacement is fitted robustly: it models the perspective of a
camera and the bend of a page, but not parallax or objects that moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
import scipy.fft

from visleak.records import Bool, Float32, Float64, Int64
from visleak.verification.measures import correlation

#: Side of the windows that are matched, and largest shift of each, pixels.
WINDOW: Final = 32
REACH: Final = 4
#: Distance of neighbouring windows, pixels.
STEP: Final = 16
#: Most windows, those of highest contrast in each area; side of an area, windows.
MAX_WINDOWS: Final = 300
AREA: Final = 4
#: Smallest share of a window inside the mask, and its smallest variance, levels squared.
COVERED: Final = 0.9
LEAST_VARIANCE: Final = 1.0
#: Correlation with weight 0, and smallest total weight of windows for a fit.
CHANCE: Final = 0.1
LEAST_WEIGHT: Final = 3.0
#: Medians are computed on every fifth pixel.
STRIDE: Final = 5
#: Residual of the fit (pixels) at which a window has half its weight.
LOOSE: Final = 0.6
#: Ridge of the coefficients: constant, linear and quadratic.
RIDGE: Final = (3e-4, 2e-3, 5e-2)
#: Largest plausible coefficient of a displacement, pixels.
FARTHEST: Final = 24.0
#: Factors of reduction of the images in the rounds of matching and fitting; reduced images come
#: first, because windows of the full ones cannot follow large displacements.
ROUNDS: Final = (4, 2, 1, 1)

_STEPS: Final = np.arange(-REACH, REACH + 1)


@dataclass(frozen=True, slots=True)
class Displacement:
    """A smooth displacement, a quadratic function of the position."""

    coefficients: Float64  # of the terms, across and down, pixels, (6, 2)
    shape: tuple[int, int]  # height and width of the frame, pixels

    def moved(self, plane: Float32) -> Float32:
        """Return an image (h, w) or (h, w, channels) of the frame, at any size, displaced."""
        if not self.coefficients.any():
            return plane
        return _displaced(plane, plane.shape[0] / self.shape[0] * self.coefficients)


def register(query: Float32, reference: Float32, mask: Bool) -> tuple[Float32, Displacement]:
    """Return the query in register with the reference, and its displacement."""
    limit = _limit(reference, mask)
    theirs, ours = _details(reference, mask, limit), _details(query, mask, limit)
    best, total, moved = correlation(ours, theirs), np.zeros((6, 2)), query
    failed = 0
    for shrink in ROUNDS:
        if shrink == failed:
            # it would fail again on the same images
            continue
        failed = shrink
        small = [_shrunk(plane, shrink) for plane in (ours, theirs, mask)]
        step = _fitted(*small, rigid=shrink > 1)
        if step is None or np.abs(total + shrink * step).max() > FARTHEST:
            continue
        step = shrink * step
        tried = _displaced(query, total + step)
        details = _details(tried, mask, limit)
        found = correlation(details, theirs)
        if found <= best + 1e-4:
            continue
        total, moved, ours, best, failed = total + step, tried, details, found, 0
    return moved, Displacement(total, query.shape)


def _shrunk(plane: Float32 | Bool, by: int) -> Float32:
    """Return a plane at an integer fraction of its size."""
    plane = plane.astype(np.float32)
    size = (plane.shape[1] // by, plane.shape[0] // by)
    return plane if by == 1 else np.asarray(cv2.resize(plane, size, interpolation=cv2.INTER_AREA))


def _limit(grey: Float32, mask: Bool) -> float:
    """Return the level at which details are clipped, so that overlays do not dominate."""
    details = _band(grey)[mask][::STRIDE]
    return 3 * float(np.median(np.abs(details))) + 3 if len(details) else 3.0


def _details(grey: Float32, mask: Bool, limit: float) -> Float32:
    return np.asarray(np.clip(_band(grey) * mask, -limit, limit), np.float32)


def _band(grey: Float32) -> Float32:
    fine = cv2.GaussianBlur(grey, (0, 0), 0.8)
    return np.asarray(fine - cv2.blur(grey, (7, 7)), np.float32)


@dataclass(frozen=True, slots=True)
class _Shifts:
    """The shifts of windows, (n,) each."""

    # centres of the windows, pixels
    x: Float64
    y: Float64
    # of the reference's content relative to the query's, right and down, pixels
    across: Float64
    down: Float64
    correlation: Float64  # at this shift


def _fitted(query: Float32, reference: Float32, mask: Float32, *, rigid: bool) -> Float64 | None:
    """Return the coefficients (6, 2) of the displacement, ``None`` with too few windows.

    ``rigid``: fit a change of perspective, which few windows determine everywhere.
    """
    shifts = _matched(query, reference, mask)
    if shifts is None:
        return None
    weight = np.maximum(shifts.correlation - CHANCE, 0) ** 2
    if weight.sum() < LEAST_WEIGHT or len(weight) < 10:
        return None
    terms = _terms(shifts.x, shifts.y, query.shape)
    target = np.stack([shifts.across, shifts.down], axis=1)
    trust = weight
    coefficients = np.zeros((6, 2))
    for _ in range(6):
        coefficients = (_perspective if rigid else _quadratic)(terms, target, trust, weight.sum())
        miss = np.hypot(*(target - terms @ coefficients).T)
        trust = weight / (1 + (miss / LOOSE) ** 2)
    return coefficients


def _quadratic(terms: Float64, target: Float64, trust: Float64, total: float) -> Float64:
    """Fit the coefficients of a quadratic displacement."""
    weighted = terms * trust[:, None]
    ridge = np.diag(np.repeat(RIDGE, (1, 2, 3))) * total
    return np.asarray(np.linalg.solve(weighted.T @ terms + ridge, weighted.T @ target))


def _perspective(terms: Float64, target: Float64, trust: Float64, total: float) -> Float64:
    """Fit the coefficients of the displacement due to a small change of perspective.

    Its quadratic terms have two free parameters, those of the vanishing line.
    """
    one, (u, v) = terms[:, :3], terms[:, 1:3].T
    nothing = np.zeros_like(one)
    across = np.column_stack([one, nothing, u * u, u * v])
    down = np.column_stack([nothing, one, u * v, v * v])
    ridge = np.diag([*np.tile(np.repeat(RIDGE[:2], (1, 2)), 2), *(2 * RIDGE[1:2])]) * total
    square = sum(rows.T @ (rows * trust[:, None]) for rows in (across, down))
    product = across.T @ (trust * target[:, 0]) + down.T @ (trust * target[:, 1])
    found = np.linalg.solve(square + ridge, product)
    g, h = found[6:]
    return np.stack([[*found[:3], h, g, 0.0], [*found[3:6], g, 0.0, h]], axis=1)


def _terms(x: Float64, y: Float64, shape: tuple[int, ...]) -> Float64:
    """Return the quadratic terms (.., 6) of positions in a frame of a height and width."""
    half = max(shape) / 2
    u, v = (x - shape[1] / 2) / half, (y - shape[0] / 2) / half
    return np.stack([np.ones_like(u), u, v, u * v, u * u, v * v], axis=-1)


def _displaced(plane: Float32, coefficients: Float64) -> Float32:
    height, width = plane.shape[:2]
    # interpolated from a coarse grid, because it is smooth
    coarse = np.meshgrid(np.linspace(0, width - 1, 24), np.linspace(0, height - 1, 24))
    moves = (_terms(coarse[0], coarse[1], plane.shape) @ coefficients).astype(np.float32)
    dense = cv2.resize(moves, (width, height), interpolation=cv2.INTER_LINEAR)
    across = np.arange(width, dtype=np.float32)[None, :] - dense[..., 0]
    down = np.arange(height, dtype=np.float32)[:, None] - dense[..., 1]
    return np.asarray(
        cv2.remap(plane, across, down, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE), np.float32
    )


def _matched(query: Float32, reference: Float32, mask: Float32) -> _Shifts | None:
    """Return the shifts of windows, ``None`` if fewer than four have contrast."""
    if min(query.shape) < WINDOW:
        return None
    energy = np.minimum(_means(query * query), _means(reference * reference))
    usable = (_means(mask) > COVERED) & (energy > LEAST_VARIANCE)
    columns = energy.shape[1]
    index = _spread(np.flatnonzero(usable), energy.ravel(), columns)
    if len(index) < 4:
        return None
    row, column = np.divmod(index, columns)
    score = _scores(*(_windows(plane)[row, column] for plane in (query, reference)))
    flat = score.reshape(len(score), -1)
    best = flat.argmax(axis=1)
    down, across = np.divmod(best, len(_STEPS))
    return _Shifts(
        x=column * STEP + (WINDOW - 1) / 2,
        y=row * STEP + (WINDOW - 1) / 2,
        across=_STEPS[across] + _peak(score, down, across, axis=2),
        down=_STEPS[down] + _peak(score, down, across, axis=1),
        correlation=flat[np.arange(len(flat)), best].astype(np.float64),
    )


def _spread(index: Int64, energy: Float32, columns: int) -> Int64:
    """Return at most ``MAX_WINDOWS`` windows, the strongest of every area, corners included."""
    if len(index) <= MAX_WINDOWS:
        return index
    row, column = np.divmod(index, columns)
    area = row // AREA * columns + column // AREA
    order = np.lexsort((-energy[index], area))
    first = np.searchsorted(area[order], area[order])
    rank = np.empty(len(index), np.int64)
    rank[order] = np.arange(len(index)) - first
    return np.sort(index[np.lexsort((-energy[index], rank))[:MAX_WINDOWS]])


def _windows(plane: Float32) -> Float32:
    """Return the overlapping windows (rows, columns, side, side) of an image, without a copy."""
    return np.lib.stride_tricks.sliding_window_view(plane, (WINDOW, WINDOW))[::STEP, ::STEP]


def _means(plane: Float32) -> Float32:
    """Return the mean of each window of an image, (rows, columns)."""
    sums = cv2.boxFilter(plane, cv2.CV_32F, (WINDOW, WINDOW), anchor=(0, 0))
    return np.asarray(sums[: 1 - WINDOW : STEP, : 1 - WINDOW : STEP], np.float32)


def _scores(ours: Float32, theirs: Float32) -> Float32:
    """Return the normalized correlation of windows at all shifts (n, down, across)."""
    length = WINDOW + REACH
    product = scipy.fft.irfft2(
        np.conj(scipy.fft.rfft2(ours, (length, length)))
        * scipy.fft.rfft2(theirs, (length, length)),
        (length, length),
    )[:, _STEPS[:, None], _STEPS[None, :]]
    energy = _overlap_energy(ours, -_STEPS) * _overlap_energy(theirs, _STEPS)
    return np.asarray(product / np.sqrt(np.maximum(energy, 1e-6)), np.float32)


def _overlap_energy(windows: Float32, steps: Int64) -> Float32:
    """Return the energy of the part of windows that overlaps at each shift."""
    pixel = np.arange(WINDOW)
    inside = (pixel >= np.maximum(0, steps)[:, None]) & (pixel < WINDOW + steps[:, None])
    rows = inside.astype(np.float32)
    return np.asarray(rows @ (windows * windows) @ rows.T, np.float32)


def _peak(score: Float32, down: Int64, across: Int64, axis: int) -> Float64:
    """Return the offset of a parabola's peak from the best whole step, along an axis."""
    at = [np.arange(len(score)), down, across]
    inside = (at[axis] > 0) & (at[axis] < len(_STEPS) - 1)
    at[axis] = np.clip(at[axis], 1, len(_STEPS) - 2)
    values = []
    for step in (-1, 0, 1):
        place = list(at)
        place[axis] = at[axis] + step
        values.append(score[tuple(place)].astype(np.float64))
    before, middle, after = values
    bend = before - 2 * middle + after
    flat = np.abs(bend) < 1e-6
    offset = np.clip((before - after) / np.where(flat, 1.0, 2 * bend), -0.5, 0.5)
    return np.where(inside & ~flat, offset, 0.0)
