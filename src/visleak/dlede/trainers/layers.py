"""Layers that the networks are made of."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import nn

from visleak.dlede.trainers.pictures import GREY

#: Pixels become numbers about 0 of about 1: (pixel - GREY) / SPREAD.
SPREAD: Final = 60.0


def scaled(maps: Any) -> Any:
    """Return pixels from 0 to 255 as a network takes them; what lies around a picture is 0."""
    return (maps - GREY) / SPREAD


def convolution(taken: int, given: int, side: int, stride: int = 1) -> Any:
    """Return a convolution with its normalisation."""
    return nn.Sequential(
        nn.Conv2d(taken, given, side, stride, side // 2, bias=False), nn.BatchNorm2d(given)
    )


class Block(nn.Module):  # type: ignore[misc]
    """Two convolutions around which the input is led (He et al. 2016, figure 2).

    Args:
        taken, given: channels of input and output.
        stride: of the first convolution.
    """

    def __init__(self, taken: int, given: int, stride: int) -> None:
        super().__init__()
        self.way = nn.Sequential(
            convolution(taken, given, 3, stride), nn.ReLU(), convolution(given, given, 3)
        )
        same = taken == given and stride == 1
        self.around = nn.Identity() if same else convolution(taken, given, 1, stride)

    def forward(self, maps: Any) -> Any:
        """Return the maps (n, given, height / stride, width / stride)."""
        return torch.relu(self.way(maps) + self.around(maps))
