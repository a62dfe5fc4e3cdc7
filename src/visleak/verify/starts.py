"""Where to begin aligning two tiny pictures: scales and stretches tried at once, at all shifts."""

from __future__ import annotations

from functools import cache
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt
import scipy.fft

from visleak.records import Float32
from visleak.verify import align
from visleak.verify.align import Matrix
from visleak.verify.screen import LENGTH, REACH, SIDE, damped_gradient, overlap_energy

#: Enlargements along one axis that are tried, in all combinations that stretch moderately.
STEPS: Final = (0.7, 0.84, 1.0, 1.19, 1.42)
MOST_STRETCH: Final = 1.25

_SHIFTS: Final = np.arange(-REACH, REACH + 1)


def starts(query: Float32, reference: Float32, keep: int) -> list[Matrix]:
    """Return the relations of scale and shift under which damped gradients agree best.

    Args:
        query, reference: grey ``float32`` (32, 32); the query as seen in its view.
        keep: how many relations, best first, at most one a combination of scales.

    Source: normalised correlation by the Fourier transform, see :mod:`visleak.verify.screen`;
    here at several scales.
    """
    scaled, masks = _scaled(query)
    gradient = damped_gradient(scaled) * masks
    other = damped_gradient(reference[None])
    product = scipy.fft.ifft2(
        np.conj(scipy.fft.fft2(gradient, (LENGTH, LENGTH)))
        * scipy.fft.fft2(other, (LENGTH, LENGTH)),
        overwrite_x=True,
    ).real[:, _SHIFTS[:, None], _SHIFTS[None, :]]
    energy = overlap_energy(gradient, -_SHIFTS) * overlap_energy(other, _SHIFTS)
    score = product / np.sqrt(np.maximum(energy, 1e-6)) * _share()
    flat = score.reshape(len(score), -1)
    best = flat.argmax(axis=1)
    found = flat[np.arange(len(flat)), best]
    relations = []
    for number in np.argsort(-found, kind="stable")[:keep]:
        down, across = divmod(int(best[number]), len(_SHIFTS))
        shift = align.shift_matrix(_SHIFTS[across] / SIDE, _SHIFTS[down] / SIDE)
        relations.append(shift @ _relations()[number])
    return relations


@cache
def _relations() -> tuple[Matrix, ...]:
    """Return the scalings about the centre that are tried."""
    return tuple(
        np.array([[across, 0, 0.5 - across / 2], [0, down, 0.5 - down / 2], [0, 0, 1.0]])
        for across in STEPS
        for down in STEPS
        if max(across / down, down / across) <= MOST_STRETCH
    )


@cache
def _masks() -> npt.NDArray[np.float32]:
    """Return where each scaled picture has gradients of its own, (n, 32, 32)."""
    three = np.ones((3, 3), np.uint8)
    whole = np.ones((SIDE, SIDE), np.float32)
    covers = [align.overlap(relation, SIDE) for relation in _relations()]
    return np.stack([c if (c == whole).all() else cv2.erode(c, three) for c in covers])


@cache
def _share() -> npt.NDArray[np.float32]:
    """Return what each scale and shift leaves of the score: little overlap agrees by chance."""
    share = 1 - np.abs(_SHIFTS) / SIDE
    covered = [min(1, m[0, 0]) * min(1, m[1, 1]) for m in _relations()]
    product = np.array(covered)[:, None, None] * share[None, :, None] * share[None, None, :]
    return np.sqrt(product).astype(np.float32)


def _scaled(query: Float32) -> tuple[Float32, npt.NDArray[np.float32]]:
    """Return the query at all scales (n, 32, 32), and their masks."""
    return np.stack([align.warp(query, relation) for relation in _relations()]), _masks()
