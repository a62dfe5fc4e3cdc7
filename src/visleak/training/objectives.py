"""What a network is trained for: to tell classes apart, or pictures."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.nn import functional

#: Similarities of compared vectors are divided by this.
TEMPERATURE: Final = 0.1


def class_loss(scores: Any, classes: Any) -> Any:
    """Return the mean cross-entropy of scores (n, classes) and class numbers (n,)."""
    return functional.cross_entropy(scores.float(), classes)


def instance_loss(vectors: Any) -> Any:
    """Return how badly each view is told to be of the same picture as its other view.

    The mean cross-entropy over 2 n views, each of which has to choose its twin among the other
    2 n - 1 by the cosine of their vectors.

    Args:
        vectors: (2 n, width), views of n pictures, then other views of them in the same order.

    Source: Chen et al. 2020, "A simple framework for contrastive learning of visual
    representations", equation 1 (NT-Xent).
    """
    unit = functional.normalize(vectors.float(), dim=1)
    count = len(unit)
    own = torch.eye(count, dtype=torch.bool, device=unit.device)
    alike = (unit @ unit.T / TEMPERATURE).masked_fill(own, float("-inf"))
    twin = torch.arange(count, device=unit.device).roll(count // 2)
    return functional.cross_entropy(alike, twin)
