"""Random changes of images during training, drawn for every step."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from torch.nn import functional

from visleak.training.plan import Plan

#: Images of a larger side are cropped and resized, smaller ones mirrored and shifted.
SMALL_SIDE: Final = 64

#: A shift is at most this share of the side.
SHIFT: Final = 1 / 8

#: Shares of the area that crops keep: for classes, and for instances.
CLASS_AREAS: Final = (0.35, 1.0)
INSTANCE_AREAS: Final = (0.25, 1.0)
#: The logarithm of a crop's aspect ratio lies between minus and plus that of this.
LONGEST: Final = 4 / 3

#: Of instances: brightness, contrast and colour are multiplied by 1 - JITTER to 1 + JITTER, and
#: this share of the images is made grey.
JITTER: Final = 0.4
GREY: Final = 0.2


def generator(*numbers: int) -> Any:
    """Return a generator of random numbers that depends on some numbers, and on nothing else."""
    seed = np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]
    made = torch.Generator()
    made.manual_seed(int(seed >> np.uint64(1)))
    return made


def augmented(images: Any, plan: Plan, side: int, draw: Any) -> Any:
    """Return augmented images, ``float32`` (n, 3, side, side) from 0 to 255.

    Args:
        images: ``uint8`` tensor (n, plan.side, plan.side, 3), on any device.
        plan: of the training.
        side: of the result, in pixels.
        draw: generator of random numbers.
    """
    maps = images.permute(0, 3, 1, 2).float()
    if not plan.classes:
        return _jittered(_cropped(maps, side, INSTANCE_AREAS, draw), draw)
    if plan.side > SMALL_SIDE:
        return _cropped(maps, side, CLASS_AREAS, draw)
    return resized(_shifted(maps, draw), side)


def described(plan: Plan) -> str:
    """Return the changes in words."""
    if not plan.classes:
        return (
            f"random crops of {_percent(INSTANCE_AREAS)} % of the area, resized; mirror;"
            f" brightness, contrast and colour by up to {JITTER:.0%}; {GREY:.0%} grey"
        )
    if plan.side > SMALL_SIDE:
        return f"random crops of {_percent(CLASS_AREAS)} % of the area, resized; mirror"
    return f"mirror; shifts of up to {_most(plan.side)} pixels, reflected at the edges"


def resized(maps: Any, side: int) -> Any:
    """Return images (n, 3, side, side), averaged if they become smaller."""
    if maps.shape[-1] == side:
        return maps
    return functional.interpolate(
        maps, size=(side, side), mode="bilinear", antialias=True, align_corners=False
    )


def _percent(areas: tuple[float, float]) -> str:
    return f"{100 * areas[0]:g}-{100 * areas[1]:g}"


def _most(side: int) -> int:
    return round(side * SHIFT)


def _mirrored(count: int, draw: Any) -> Any:
    return torch.rand(count, generator=draw) < 0.5


def _shifted(maps: Any, draw: Any) -> Any:
    """Mirror half of the images, and shift each, reflecting them at the edges."""
    count, _, height, width = maps.shape
    most = _most(height)
    down, across = torch.randint(0, 2 * most + 1, (2, count), generator=draw)
    step = torch.arange(max(height, width))
    turned = torch.where(_mirrored(count, draw)[:, None], width - 1 - step[:width], step[:width])
    rows = (down[:, None] + step[:height]).to(maps.device)
    columns = (across[:, None] + turned).to(maps.device)
    padded = functional.pad(maps, (most,) * 4, mode="reflect")
    each = torch.arange(count, device=maps.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[each, rows[:, :, None], columns[:, None, :]].permute(
        0, 3, 1, 2
    )


def _cropped(maps: Any, side: int, areas: tuple[float, float], draw: Any) -> Any:
    """Crop each image at random and resize it; half of the crops are mirrored."""
    count = len(maps)
    area = areas[0] + (areas[1] - areas[0]) * torch.rand(count, generator=draw)
    ratio = torch.exp((2 * torch.rand(count, generator=draw) - 1) * np.log(LONGEST))
    wide, tall = (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)
    # centres in coordinates from -1 to 1, as grid_sample has them
    x = (2 * torch.rand(count, generator=draw) - 1) * (1 - wide)
    y = (2 * torch.rand(count, generator=draw) - 1) * (1 - tall)
    wide = torch.where(_mirrored(count, draw), -wide, wide)
    none = torch.zeros(count)
    frames = torch.stack([wide, none, x, none, tall, y], 1).view(count, 2, 3).to(maps.device)
    # sampled as densely as the image is stored, then averaged: no aliasing
    return resized(warped(maps, frames, "reflection"), side)


def warped(maps: Any, frames: Any, padding: str) -> Any:
    """Return images resampled by affine maps.

    Args:
        maps: ``float32`` (n, 3, height, width).
        frames: ``float32`` (n, 2, 3), from the result to the image, in coordinates from -1 to 1.
        padding: outside of the image, a mode of ``grid_sample``.
    """
    grid = functional.affine_grid(frames, list(maps.shape), align_corners=False)
    return functional.grid_sample(maps, grid, padding_mode=padding, align_corners=False)


def _jittered(maps: Any, draw: Any) -> Any:
    """Change brightness, contrast and colour of each image; make some of them grey."""
    count = len(maps)
    factors = 1 - JITTER + 2 * JITTER * torch.rand(3, count, generator=draw)
    factors[2] = torch.where(torch.rand(count, generator=draw) < GREY, 0.0, factors[2])
    light, contrast, colour = factors.to(maps.device).view(3, count, 1, 1, 1)
    maps = maps * light
    middle = maps.mean((1, 2, 3), keepdim=True)
    maps = middle + (maps - middle) * contrast
    weights = torch.tensor([0.299, 0.587, 0.114], device=maps.device).view(1, 3, 1, 1)
    grey = (maps * weights).sum(1, keepdim=True)
    return (grey + (maps - grey) * colour).clamp(0, 255)
