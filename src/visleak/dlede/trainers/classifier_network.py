"""The classifier's network."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from visleak.dlede.trainers.layers import Block, convolution, scaled


class LabelNetwork(nn.Module):  # type: ignore[misc]
    """A residual network of eight layers (He et al. 2016), one block a width.

    Args:
        classes: that are told apart.
        width: channels of the first layer; the blocks have 2, 4 and 8 times as many.
    """

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.stem = convolution(3, width, 3)
        self.blocks = nn.Sequential(
            *(Block(width * 2**step, width * 2 ** (step + 1), 2) for step in range(3))
        )
        self.head = nn.Linear(8 * width, classes)

    def forward(self, maps: Any) -> Any:
        """Return the logits (n, classes) of pixels (n, 3, height, width) from 0 to 255."""
        # the mean's gradient is deterministic on every device
        return self.head(self.blocks(torch.relu(self.stem(scaled(maps)))).mean((2, 3)))
