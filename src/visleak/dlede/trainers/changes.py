"""How pictures and their boxes are changed while a network learns; drawn anew each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch.nn import functional

from visleak.dlede.trainers.heatmaps import Objects
from visleak.dlede.trainers.pictures import GREY
from visleak.records import Bytes8, Float64

#: A picture is enlarged by up to this factor, or made smaller by it.
ZOOM: Final = 1.2

#: It is shifted by up to this share of the canvas, and its light multiplied by 1 - LIGHT to
#: 1 + LIGHT.
SHIFT: Final = 0.1
LIGHT: Final = 0.3

#: An object of which less than this share is left on the canvas is neither to be found nor wrong.
LEFT: Final = 0.3


@dataclass(frozen=True)
class Changes:
    """What is done to each picture of a batch, (pictures,) each.

    Attributes:
        zoom: factor about the middle of the canvas; negative across where it is mirrored.
        shift: after it, in shares of the canvas, (pictures, 2): across and down.
        light: factor of the pixels.
    """

    zoom: Float64
    shift: Float64
    light: Float64

    @classmethod
    def drawn(cls, count: int, random: np.random.Generator) -> Changes:
        """Draw them."""
        zoom = np.exp(random.uniform(-np.log(ZOOM), np.log(ZOOM), count))
        mirror = random.choice([-1.0, 1.0], count)
        shift = random.uniform(-SHIFT, SHIFT, (count, 2))
        light = random.uniform(1 - LIGHT, 1 + LIGHT, count)
        return cls(np.stack([zoom * mirror, zoom], 1), shift, light)

    def of_pixels(self, pixels: Bytes8, device: str) -> Any:
        """Return changed pictures, ``float32`` (n, 3, height, width) from 0 to 255.

        Args:
            pixels: ``uint8`` (n, height, width, 3).
            device: of torch.
        """
        maps = torch.from_numpy(pixels).to(device).permute(0, 3, 1, 2).float() - GREY
        # where each place of the result comes from, in coordinates from -1 to 1
        frames = np.zeros((len(pixels), 2, 3))
        frames[:, [0, 1], [0, 1]] = 1 / self.zoom
        frames[:, :, 2] = -2 * self.shift / self.zoom
        grid = functional.affine_grid(
            torch.from_numpy(frames).float().to(device), list(maps.shape), align_corners=False
        )
        found = functional.grid_sample(maps, grid, padding_mode="zeros", align_corners=False)
        light = torch.from_numpy(self.light).float().to(device)[:, None, None, None]
        changed = ((found + GREY) * light).clamp(0, 255)
        return changed.contiguous(memory_format=torch.channels_last)

    def of_objects(self, pictures: Sequence[Objects], canvas: tuple[int, int]) -> list[Objects]:
        """Return the objects where they are after the changes.

        Args:
            pictures: the objects of each picture.
            canvas: height and width.
        """
        size = np.array(canvas[::-1], np.float64)
        made = []
        for objects, zoom, shift in zip(pictures, self.zoom, self.shift, strict=True):
            ends = (objects.corners.reshape(-1, 2, 2) / size - 0.5) * zoom + 0.5 + shift
            ends = np.sort(ends, axis=1) * size
            seen = np.clip(ends, 0, size)
            area, kept = (np.prod(each[:, 1] - each[:, 0], axis=1) for each in (ends, seen))
            there = kept > 0
            crowd = objects.crowd | (kept < LEFT * area)
            made.append(Objects(objects.label[there], seen.reshape(-1, 4)[there], crowd[there]))
        return made
