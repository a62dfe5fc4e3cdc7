"""The bundled networks, their loss, their predictions and their augmentation (torch)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from visleak.dlede.trainers.detections import STRIDE, Objects
from visleak.dlede.trainers.networks import GREY
from visleak.records import Bytes8, Float64
from visleak.training.networks import Block, warped

#: Pixels become numbers about 0 of about 1: (pixel - GREY) / SPREAD.
SPREAD: Final = 60.0


def scaled(maps: torch.Tensor) -> torch.Tensor:
    """Return the network's input of pixels from 0 to 255; the canvas around an image is 0."""
    return (maps - GREY) / SPREAD


def convolution(inputs: int, outputs: int, side: int, stride: int = 1) -> nn.Module:
    """Return a convolution with its normalisation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, side, stride, side // 2, bias=False), nn.BatchNorm2d(outputs)
    )


class LabelNetwork(nn.Module):  # type: ignore[misc]
    """A residual network of eight layers (He et al. 2016), one block per width."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.stem = convolution(3, width, 3)
        self.blocks = nn.Sequential(
            *(Block(width * 2**step, width * 2 ** (step + 1), 2) for step in range(3))
        )
        self.head = nn.Linear(8 * width, classes)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, classes) of pixels (n, 3, height, width) from 0 to 255."""
        # the mean's gradient is deterministic on every device
        return self.head(self.blocks(torch.relu(self.stem(scaled(maps)))).mean((2, 3)))


#: Exponents of the focal loss (section 3).
FOCUS, FORGIVING = 2, 4

#: Logarithm of the largest predicted size in cells.
LARGEST: Final = 8.0

#: Initial probability of an object in every cell.
PRIOR: Final = 0.1


class CentreNetwork(nn.Module):  # type: ignore[misc]
    """A residual network down to a sixteenth, then up again to a quarter of the resolution."""

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

    def forward(self, maps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the logits of the heat maps (n, classes, h, w) and the boxes (n, 4, h, w)."""
        quarter = self.quarter(self.stem(scaled(maps)))
        eighth = self.eighth(quarter)
        deep = self.from_sixteenth(self.sixteenth(eighth))
        # nearest: its gradient is deterministic on every device
        eighth = torch.relu(eighth + functional.interpolate(deep, scale_factor=2))
        back = functional.interpolate(self.from_eighth(eighth), scale_factor=2)
        found = self.head(self.merged(torch.relu(quarter + back)))
        return found[:, : self.classes], found[:, self.classes :]


def detection_loss(
    logits: torch.Tensor,
    boxes: torch.Tensor,
    heat: torch.Tensor,
    counted: torch.Tensor,
    places: torch.Tensor,
    true: torch.Tensor,
) -> torch.Tensor:
    """Return the loss of a batch: focal loss of the heat maps, L1 of sizes and offsets.

    Equations 1 to 3 of the paper, all sums divided by the number of objects; sizes as logarithms,
    and with the weight of offsets.
    """
    chance, missed = functional.logsigmoid(logits), functional.logsigmoid(-logits)
    sure = chance.exp()
    found = chance * (1 - sure) ** FOCUS
    empty = missed * sure**FOCUS * (1 - heat) ** FORGIVING
    focal = -(torch.where(heat == 1, found, empty) * counted).sum()
    said = boxes.permute(0, 2, 3, 1)[places[:, 0], places[:, 1], places[:, 2]]
    return (focal + (said - true).abs().sum()) / max(1, len(places))


def peaks(
    logits: torch.Tensor, boxes: torch.Tensor, most: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the best peaks of each image: cells without a neighbour of higher probability.

    Probabilities (n, most), 0 if an image has no more; classes; corners (n, most, 4) in pixels of
    the canvas.
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


#: An image is enlarged or reduced by up to this factor.
ZOOM: Final = 1.2

#: It is shifted by up to this share of the canvas, and its brightness multiplied by 1 - LIGHT to
#: 1 + LIGHT.
SHIFT: Final = 0.1
LIGHT: Final = 0.3

#: An object with less than this share on the canvas is ignored, as crowds are.
LEFT: Final = 0.3


@dataclass(frozen=True)
class Augmentation:
    """Random changes of each image of a batch, (images,) each."""

    zoom: Float64  # factor about the centre of the canvas; negative horizontally if it is mirrored
    shift: Float64  # after it, in shares of the canvas, (images, 2): x and y
    light: Float64  # factor of the pixels

    @classmethod
    def drawn(cls, count: int, random: np.random.Generator) -> Augmentation:
        """Draw them from a generator."""
        zoom = np.exp(random.uniform(-np.log(ZOOM), np.log(ZOOM), count))
        mirror = random.choice([-1.0, 1.0], count)
        shift = random.uniform(-SHIFT, SHIFT, (count, 2))
        light = random.uniform(1 - LIGHT, 1 + LIGHT, count)
        return cls(np.stack([zoom * mirror, zoom], 1), shift, light)

    def of_pixels(self, pixels: Bytes8, device: str) -> torch.Tensor:
        """Return augmented images, ``float32`` (n, 3, height, width) from 0 to 255."""
        maps = torch.from_numpy(pixels).to(device).permute(0, 3, 1, 2).float() - GREY
        # from the result to the image, in coordinates from -1 to 1
        frames = np.zeros((len(pixels), 2, 3))
        frames[:, [0, 1], [0, 1]] = 1 / self.zoom
        frames[:, :, 2] = -2 * self.shift / self.zoom
        found = warped(maps, torch.from_numpy(frames).float().to(device), "zeros")
        light = torch.from_numpy(self.light).float().to(device)[:, None, None, None]
        changed = ((found + GREY) * light).clamp(0, 255)
        return changed.contiguous(memory_format=torch.channels_last)

    def of_objects(self, images: Sequence[Objects], canvas: tuple[int, int]) -> list[Objects]:
        """Return the objects after the changes."""
        size = np.array(canvas[::-1], np.float64)
        made = []
        for objects, zoom, shift in zip(images, self.zoom, self.shift, strict=True):
            ends = (objects.corners.reshape(-1, 2, 2) / size - 0.5) * zoom + 0.5 + shift
            ends = np.sort(ends, axis=1) * size
            seen = np.clip(ends, 0, size)
            area, kept = (np.prod(each[:, 1] - each[:, 0], axis=1) for each in (ends, seen))
            there = kept > 0
            crowd = objects.crowd | (kept < LEFT * area)
            made.append(Objects(objects.label[there], seen.reshape(-1, 4)[there], crowd[there]))
        return made
