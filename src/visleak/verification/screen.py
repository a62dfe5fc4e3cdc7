"""The screen of candidate pairs: normalized gradient correlation over shifts.

Gradients do not depend on brightness. They are complex numbers (across + i down), correlated at all
shifts at once by the Fourier transform (Argyriou & Vlachos 2003); each shift is normalized by the
energy of its overlap (Padfield 2012).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt
import scipy.fft

from visleak.records import VIEWS, Bytes8, Float32, Int8, Int64

#: Side of the grey thumbnails that are compared.
SIDE: Final = 32
#: Largest shift, a quarter of the side, in thumbnail pixels.
REACH: Final = 8
#: Length of the transform, without wrap-around of shifts up to REACH.
LENGTH: Final = SIDE + REACH
#: Magnitude (grey levels) from which damped gradients grow with the square root.
DAMPING: Final = 4.0
#: Pairs per batch; only bounds memory.
_BATCH: Final = 512


def thumbnail(pixels: Bytes8) -> Bytes8:
    """Return the image resized to a grey thumbnail, ``uint8`` (32, 32)."""
    grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    if grey.shape == (SIDE, SIDE):
        return np.asarray(grey, np.uint8)
    method = cv2.INTER_AREA if min(grey.shape) >= SIDE else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(grey, (SIDE, SIDE), interpolation=method), np.uint8)


def apply_view(pixels: Bytes8, view: int) -> Bytes8:
    """Return an image, or a stack of images (.., h, w), mirrored, turned or inverted.

    >>> apply_view(np.array([[1, 2], [3, 4]], np.uint8), VIEWS.index("turn-90")).tolist()
    [[3, 1], [4, 2]]
    """
    if VIEWS[view] == "inverted":
        return np.asarray(255 - pixels)
    if view >= VIEWS.index("mirror"):
        pixels = pixels[..., ::-1]
    return np.asarray(np.rot90(pixels, -(view % 4), axes=(-2, -1)))


def in_views(images: Bytes8, view: Int8) -> Bytes8:
    """Return square images (n, s, s), each in its view."""
    result = np.empty_like(images)
    for each in np.unique(view):
        result[view == each] = apply_view(images[view == each], int(each))
    return result


def screen(query: Bytes8, reference: Bytes8, view: Int8) -> tuple[Float32, Int8]:
    """Return the correlation of the gradients of pairs of thumbnails at the best shift.

    Args:
        query, reference: ``uint8`` (n, 32, 32) thumbnails.
        view: ``int8`` (n,): the view in which each query is compared.

    Returns:
        Score ``float32`` (n,) in [-1, 1], higher is more similar, and shift ``int8`` (n, 2) of the
        reference's content relative to the query's, right and down, in thumbnail pixels.
    """
    # spectra are computed once per distinct image: a query is compared with many references
    queries, query_row = _distinct(query, view)
    references, reference_row = _distinct(reference, np.zeros(len(reference), np.int8))
    score = np.empty(len(query), np.float32)
    shift = np.empty((len(query), 2), np.int8)
    shifts = np.arange(-REACH, REACH + 1)
    left, right = _Spectra.of(queries, -shifts), _Spectra.of(references, shifts)
    for start in range(0, len(query), _BATCH):
        part = slice(start, start + _BATCH)
        score[part], shift[part] = _correlate(left, right, query_row[part], reference_row[part])
    return score, shift


def _distinct(images: Bytes8, view: Int8) -> tuple[Bytes8, Int64]:
    """Return the distinct images in their views, and the number of each row's image."""
    rows = np.concatenate([images.reshape(-1, SIDE * SIDE), view[:, None].view(np.uint8)], 1)
    keys = np.ascontiguousarray(rows).view(f"V{rows.shape[1]}").ravel()
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    return in_views(images[first], view[first]), which


@dataclass(frozen=True, slots=True)
class _Spectra:
    """Transforms of the gradients of images."""

    spectrum: npt.NDArray[np.complex64]  # complex64 (n, length, length)
    # of the gradient inside the overlap at each shift, float32 (n, down, across)
    energy: Float32

    @classmethod
    def of(cls, thumbnails: Bytes8, shifts: Int64) -> _Spectra:
        gradient = damped_gradient(thumbnails)
        return cls(scipy.fft.fft2(gradient, (LENGTH, LENGTH)), overlap_energy(gradient, shifts))


def damped_gradient(grey: npt.NDArray[np.generic]) -> npt.NDArray[np.complex64]:
    """Return central differences as complex numbers, damped so that no edge dominates."""
    across, down = damped_differences(grey)
    gradient = np.empty(across.shape, np.complex64)
    gradient.real, gradient.imag = across, down
    return gradient


def damped_differences(grey: npt.NDArray[np.generic]) -> tuple[Float32, Float32]:
    """Return damped central differences as two real planes, across and down (.., h, w)."""
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
    """Return differences of neighbours across and down (.., h, w), edges replicated."""
    across, down = np.empty_like(planes), np.empty_like(planes)
    for along, made in ((planes, across), (planes.swapaxes(-1, -2), down.swapaxes(-1, -2))):
        np.subtract(along[..., 2:], along[..., :-2], out=made[..., 1:-1])
        np.subtract(along[..., 1], along[..., 0], out=made[..., 0])
        np.subtract(along[..., -1], along[..., -2], out=made[..., -1])
    return across, down


def _correlate(
    query: _Spectra, reference: _Spectra, left: Int64, right: Int64
) -> tuple[Float32, Int8]:
    """Return the best normalized correlation of pairs over shifts, and the shift."""
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


def overlap_energy(gradient: npt.NDArray[np.complex64], shifts: Int64) -> Float32:
    """Return the energy of the part that overlaps at each pair of shifts (n, down, across)."""
    squared = gradient.real**2 + gradient.imag**2
    first, last = np.maximum(0, shifts), SIDE + np.minimum(0, shifts)
    down = np.zeros((len(gradient), SIDE + 1, SIDE), np.float32)
    np.cumsum(squared, axis=1, out=down[:, 1:])
    across = np.zeros((len(gradient), len(shifts), SIDE + 1), np.float32)
    np.cumsum(down[:, last] - down[:, first], axis=2, out=across[:, :, 1:])
    return np.asarray(across[:, :, last] - across[:, :, first])
