"""The noise that an output of a network stands for (Salimans & Ho 2022, appendix D)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from visleak.memorization.model import Tensor


def signal_at(signals: npt.ArrayLike, timestep: float) -> float:
    """Return abar, the share of the image in the variance of what the network reads.

    Between whole timesteps the ratio of noise to image is interpolated, as samplers with timesteps
    of that kind do (Karras et al. 2022).

    Args:
        signals: abar of every whole timestep, from 0.
        timestep: at which it is asked.

    >>> signal_at([0.75, 0.5], 1), round(signal_at([0.8, 0.5], 0.5), 2)
    (0.5, 0.64)
    """
    known = np.asarray(signals)
    if float(timestep).is_integer() and 0 <= timestep < len(known):
        return float(known[int(timestep)])
    known = np.maximum(known, 2.0**-24)
    ratios = np.sqrt((1 - known) / known)
    ratio = float(np.interp(timestep, np.arange(len(known)), ratios))
    return 1 / (1 + ratio * ratio)


def noise_of(output: Tensor, latents: Tensor, signal: float, prediction: str) -> Tensor:
    """Return the noise that a velocity (``v_prediction``) or an image (``sample``) stands for.

    Args:
        output: raw, of the network.
        latents: that it read, of the same type.
        signal: abar, above 0.
        prediction: what the output is.
    """
    image, noise = signal**0.5, (1 - signal) ** 0.5
    if prediction == "v_prediction":
        return image * output + noise * latents
    return (latents - image * output) / noise
