"""The cheap screen: normalised gradient correlation over shifts, for every candidate pair.

Gradients are compared as complex numbers (across + i down), so that brightness drops out, and
correlated at all shifts at once by the Fourier transform; each shift is normalised by the energy
of its own overlap (Padfield 2012; gradient correlation after Argyriou & Vlachos 2003).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt
import scipy.fft

from visleak.records import VIEWS, Bytes8, Float32, Int8

#: Side of the grey thumbnails that are compared.
SIDE: Final = 32
#: Largest shift, in thumbnail pixels: a quarter of the side.
REACH: Final = 8
#: Transform length: the shifts up to REACH are free of wrap-around.
LENGTH: Final = SIDE + REACH
#: Gradients of this size (grey levels) and less count in full, stronger ones by their root.
DAMPING: Final = 4.0
#: Pairs worked on at a time; only bounds memory.
_BATCH: Final = 512


def thumbnail(pixels: Bytes8) -> Bytes8:
    """Return the image's grey thumbnail, ``uint8`` (32, 32), aspect ratio given up."""
    grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    if grey.shape == (SIDE, SIDE):
        return np.asarray(grey, np.uint8)
    method = cv2.INTER_AREA if min(grey.shape) >= SIDE else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(grey, (SIDE, SIDE), interpolation=method), np.uint8)


def seen(pixels: Bytes8, view: int) -> Bytes8:
    """Return an image, or a stack of them (.., h, w), as seen in a view.

    >>> seen(np.array([[1, 2], [3, 4]], np.uint8), VIEWS.index("turn-90")).tolist()
    [[3, 1], [4, 2]]
    """
    if VIEWS[view] == "inverted":
        return np.asarray(255 - pixels)
    if view >= VIEWS.index("mirror"):
        pixels = pixels[..., ::-1]
    return np.asarray(np.rot90(pixels, -(view % 4), axes=(-2, -1)))


def screen(query: Bytes8, reference: Bytes8, view: Int8) -> tuple[Float32, npt.NDArray[np.int8]]:
    """Return how well the gradients of pairs of thumbnails agree at the best shift.

    Args:
        query, reference: ``uint8`` (n, 32, 32) thumbnails.
        view: ``int8`` (n,): the view in which each query is compared.

    Returns:
        Score ``float32`` (n,) in [-1, 1], higher is more similar, and shift ``int8`` (n, 2): how
        far the reference's content lies right of and below the query's, in thumbnail pixels.
    """
    # a query meets many references: what depends on one image is computed once an image
    looks, which = _distinct(query, view)
    others, other = _distinct(reference, np.zeros(len(reference), np.int8))
    score = np.empty(len(query), np.float32)
    shift = np.empty((len(query), 2), np.int8)
    shifts = np.arange(-REACH, REACH + 1)
    left, right = _Spectra.of(looks, -shifts), _Spectra.of(others, shifts)
    for start in range(0, len(query), _BATCH):
        part = slice(start, start + _BATCH)
        score[part], shift[part] = _correlate(left, right, which[part], other[part])
    return score, shift


def _distinct(images: Bytes8, view: Int8) -> tuple[Bytes8, npt.NDArray[np.int64]]:
    """Return the distinct images as seen in their views, and which of them each row is."""
    rows = np.concatenate([images.reshape(-1, SIDE * SIDE), view[:, None].view(np.uint8)], 1)
    keys = np.ascontiguousarray(rows).view(f"V{rows.shape[1]}").ravel()
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    looks = np.empty((len(first), SIDE, SIDE), np.uint8)
    for each in np.unique(view):
        mine = view[first] == each
        looks[mine] = seen(images[first[mine]], int(each))
    return looks, which


@dataclass(frozen=True, slots=True)
class _Spectra:
    """What a correlation needs of each image."""

    spectrum: npt.NDArray[np.complex64]  # transform of the gradient, complex64 (n, length, length)
    # of the gradient inside the overlap at each shift, float32 (n, down, across)
    energy: npt.NDArray[np.float32]

    @classmethod
    def of(cls, looks: Bytes8, shifts: npt.NDArray[np.int64]) -> _Spectra:
        gradient = damped_gradient(looks)
        return cls(scipy.fft.fft2(gradient, (LENGTH, LENGTH)), overlap_energy(gradient, shifts))


def damped_gradient(grey: npt.NDArray[np.generic]) -> npt.NDArray[np.complex64]:
    """Return central differences as complex numbers, damped so that no one edge rules."""
    across, down = damped_differences(grey)
    gradient = np.empty(across.shape, np.complex64)
    gradient.real, gradient.imag = across, down
    return gradient


def damped_differences(grey: npt.NDArray[np.generic]) -> tuple[Float32, Float32]:
    """Return the same as two real planes, across and down (.., h, w)."""
    across, down = central_differences(grey.astype(np.float32))
    # NumPy's complex absolute value and division take four times as long
    weight = across * across
    weight += down * down
    np.sqrt(weight, out=weight)
    weight += np.float32(DAMPING)
    np.sqrt(weight, out=weight)
    np.divide(1, weight, out=weight)
    across *= weight
    down *= weight
    return across, down


def central_differences(planes: Float32) -> tuple[Float32, Float32]:
    """Return differences of neighbours across and down (.., h, w), edges repeated."""
    across, down = np.empty_like(planes), np.empty_like(planes)
    for along, made in ((planes, across), (planes.swapaxes(-1, -2), down.swapaxes(-1, -2))):
        np.subtract(along[..., 2:], along[..., :-2], out=made[..., 1:-1])
        np.subtract(along[..., 1], along[..., 0], out=made[..., 0])
        np.subtract(along[..., -1], along[..., -2], out=made[..., -1])
    return across, down


def _correlate(
    query: _Spectra, reference: _Spectra, left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]
) -> tuple[Float32, npt.NDArray[np.int8]]:
    """Return the best normalised correlation of pairs over shifts, and the shift."""
    spectrum = np.conj(query.spectrum[left]) * reference.spectrum[right]
    product = scipy.fft.ifft2(spectrum, overwrite_x=True).real
    shifts = np.arange(-REACH, REACH + 1)
    product = product[:, shifts[:, None], shifts[None, :]]
    energy = query.energy[left] * reference.energy[right]
    score = product / np.sqrt(np.maximum(energy, 1e-6))
    share = (1 - np.abs(shifts) / SIDE).astype(np.float32)
    # a small overlap agrees by chance more easily
    score *= np.sqrt(share[:, None] * share[None, :])
    flat = score.reshape(len(score), -1)
    best = flat.argmax(axis=1)
    down, across = np.divmod(best, len(shifts))
    shift = np.stack([shifts[across], shifts[down]], axis=1).astype(np.int8)
    return flat[np.arange(len(flat)), best].astype(np.float32), shift


def overlap_energy(
    gradient: npt.NDArray[np.complex64], shifts: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """Return the energy inside the part that overlaps at each pair of shifts (n, down, across)."""
    squared = gradient.real**2 + gradient.imag**2
    first, last = np.maximum(0, shifts), SIDE + np.minimum(0, shifts)
    down = np.zeros((len(gradient), SIDE + 1, SIDE), np.float32)
    np.cumsum(squared, axis=1, out=down[:, 1:])
    across = np.zeros((len(gradient), len(shifts), SIDE + 1), np.float32)
    np.cumsum(down[:, last] - down[:, first], axis=2, out=across[:, :, 1:])
    return np.asarray(across[:, :, last] - across[:, :, first])
