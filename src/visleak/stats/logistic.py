"""Logistic regression around known log-odds: what few labels say beyond them, and how surely."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]

#: Steps of Newton's method; the objective is strictly concave, and far fewer are needed.
_STEPS = 50


@dataclass(frozen=True)
class Shift:
    """A linear change of log-odds with a Gaussian posterior (Laplace approximation)."""

    weights: Float64  # float64 (d,), the mean
    covariance: Float64  # float64 (d, d)

    def log_odds(self, features: Float64, known: Float64) -> tuple[Float64, Float64]:
        """Return mean and variance of the log-odds of rows, each (n,)."""
        variance = ((features @ self.covariance) * features).sum(axis=1)
        return known + features @ self.weights, variance


def fit_shift(features: Float64, known: Float64, truth: Float64, scale: Float64) -> Shift:
    """Fit the change of known log-odds that labels call for; without labels there is none.

    Args:
        features: (n, d).
        known: log-odds without the change, (n,).
        truth: 0 or 1, (n,).
        scale: standard deviation of the prior of each weight around 0, (d,).
    """
    precision = np.diag(1.0 / scale**2)
    weights = np.zeros(len(scale))
    curvature: Float64 = precision
    for _ in range(_STEPS):
        chance = expit(known + features @ weights)
        gradient = features.T @ (truth - chance) - precision @ weights
        curvature = (features * (chance * (1 - chance))[:, None]).T @ features + precision
        step = np.linalg.solve(curvature, gradient)
        # far from the optimum a full step may overshoot
        weights = weights + step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < 1e-9:
            break
    return Shift(weights, np.asarray(np.linalg.inv(curvature), np.float64))


def expit(log_odds: Float64) -> Float64:
    """Return probabilities.

    >>> expit(np.array([0.0, -800.0])).tolist()
    [0.5, 0.0]
    """
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * log_odds)))


def logit(probability: Float64, least: float) -> Float64:
    """Return log-odds of probabilities that are kept away from 0 and 1 by ``least``.

    >>> logit(np.array([0.5, 1.0]), 0.1).round(3).tolist()
    [0.0, 2.197]
    """
    kept = np.clip(probability, least, 1.0 - least)
    return np.asarray(np.log(kept / (1.0 - kept)))
