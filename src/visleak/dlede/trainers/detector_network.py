"""The detector's network, its loss, and how its answers are read (Zhou et al. 2019)."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional

from visleak.dlede.trainers.heatmaps import STRIDE
from visleak.dlede.trainers.layers import Block, convolution, scaled

#: Exponents of the focal loss (section 3).
FOCUS, FORGIVING = 2, 4

#: Logarithm of the largest size in cells that is told.
LARGEST: Final = 8.0

#: Chance of an object that every cell begins with.
PRIOR: Final = 0.1


class CentreNetwork(nn.Module):  # type: ignore[misc]
    """A small residual network down to a sixteenth, led back up to a quarter of the resolution.

    Args:
        classes: that are told apart.
        width: channels of the first layer; deeper ones have 2, 4 and 8 times as many.
    """

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.classes = classes
        # a second layer at half the resolution: the smallest objects are a few pixels
        self.stem = nn.Sequential(
            convolution(3, width, 3, 2), nn.ReLU(), convolution(width, width, 3), nn.ReLU()
        )
        self.quarter = Block(width, 2 * width, 2)
        self.eighth = Block(2 * width, 4 * width, 2)
        self.sixteenth = Block(4 * width, 8 * width, 2)
        self.from_eighth = convolution(4 * width, 2 * width, 1)
        self.from_sixteenth = convolution(8 * width, 4 * width, 1)
        self.merged = nn.Sequential(convolution(2 * width, 4 * width, 3), nn.ReLU())
        self.head = nn.Conv2d(4 * width, classes + 4, 1)
        nn.init.normal_(self.head.weight, std=0.01)
        nn.init.zeros_(self.head.bias)
        prior = float(torch.logit(torch.tensor(PRIOR)))
        nn.init.constant_(self.head.bias[:classes], prior)

    def forward(self, maps: Any) -> tuple[Any, Any]:
        """Return the logits of the heat maps (n, classes, h, w) and the boxes (n, 4, h, w).

        Args:
            maps: pixels (n, 3, height, width) from 0 to 255.
        """
        quarter = self.quarter(self.stem(scaled(maps)))
        eighth = self.eighth(quarter)
        deep = self.from_sixteenth(self.sixteenth(eighth))
        # nearest: its gradient is deterministic on every device
        eighth = torch.relu(eighth + functional.interpolate(deep, scale_factor=2))
        back = functional.interpolate(self.from_eighth(eighth), scale_factor=2)
        found = self.head(self.merged(torch.relu(quarter + back)))
        return found[:, : self.classes], found[:, self.classes :]


def detection_loss(logits: Any, boxes: Any, heat: Any, counted: Any, places: Any, true: Any) -> Any:
    """Return the loss of a batch: focal loss of the heat maps, L1 of sizes and offsets.

    Equations 1 to 3 of the paper, all sums divided by the number of objects; sizes as logarithms,
    and with the weight of offsets.

    Args:
        logits, boxes: as the network returns them.
        heat, counted, places, true: tensors of :class:`visleak.dlede.trainers.heatmaps.Targets`.
    """
    chance, missed = functional.logsigmoid(logits), functional.logsigmoid(-logits)
    sure = chance.exp()
    found = chance * (1 - sure) ** FOCUS
    empty = missed * sure**FOCUS * (1 - heat) ** FORGIVING
    focal = -(torch.where(heat == 1, found, empty) * counted).sum()
    said = boxes.permute(0, 2, 3, 1)[places[:, 0], places[:, 1], places[:, 2]]
    return (focal + (said - true).abs().sum()) / max(1, len(places))


def peaks(logits: Any, boxes: Any, most: int) -> tuple[Any, Any, Any]:
    """Return the best peaks of each picture: cells no neighbour of which is hotter.

    Args:
        logits, boxes: as the network returns them.
        most: peaks a picture.

    Returns:
        Chances (n, most), 0 where a picture has no more peaks; classes (n, most); corners
        (n, most, 4) in pixels of the canvas.
    """
    rows, columns = logits.shape[2:]
    chances = torch.sigmoid(logits)
    highest = functional.max_pool2d(chances, 3, stride=1, padding=1)
    chances = torch.where(chances == highest, chances, 0.0).flatten(1)
    # sorted: topk leaves the order of equal ones open
    best, places = (part[:, :most] for part in chances.sort(dim=1, descending=True, stable=True))
    label = places // (rows * columns)
    cell = places % (rows * columns)
    said = boxes.flatten(2).gather(2, cell[:, None, :].expand(-1, 4, -1))
    across, down = cell % columns + said[:, 0], cell // columns + said[:, 1]
    wide, tall = (said[:, 2:].clamp(max=LARGEST).exp() / 2).unbind(1)
    corners = torch.stack([across - wide, down - tall, across + wide, down + tall], 2)
    return best, label, corners * STRIDE
