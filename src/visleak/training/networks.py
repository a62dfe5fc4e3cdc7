"""Networks that are trained on a set, each ending in its global average pool, and their losses."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from visleak.records import Int64
from visleak.training.plan import Plan

WIDTH: Final = 512  # coordinates of a vector
#: Layers of Plain-11: convolutions of so many channels, and poolings by two.
PLAIN: Final = (64, 64, "pool", 128, 128, 128, "pool", 256, 256, 256, "pool", 512)
#: Channels of the residual blocks, each half as wide and high as the one before.
RESIDUAL: Final = (64, 128, 256, 512)


class Average(nn.Module):  # type: ignore[misc]
    """The global average pool, from (n, channels, height, width) to (n, channels)."""

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Return the mean over the places; its gradient is deterministic on every device."""
        return maps.float().mean((2, 3))


class Block(nn.Module):  # type: ignore[misc]
    """Two convolutions with a shortcut (He et al. 2016, figure 2)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.way = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.around = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
        )

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Return the maps (n, outputs, height / stride, width / stride)."""
        return torch.relu(self.way(maps) + self.around(maps))


def plain_11() -> nn.Module:
    """Return Plain-11 up to its global average pool, for images of 16 pixels and more.

    Each convolution is followed by ReLU, then batch normalisation. Source: Barz & Denzler 2018,
    "Hierarchy-based image embeddings for semantic image retrieval", and its code.
    """
    layers: list[nn.Module] = []
    channels = 3
    for layer in PLAIN:
        if isinstance(layer, str):
            layers.append(nn.AvgPool2d(2))
        else:
            layers += [nn.Conv2d(channels, layer, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(layer)]
            channels = layer
    return nn.Sequential(*layers, Average())


def resnet() -> nn.Module:
    """Return a residual network of ten layers up to its global average pool."""
    stem = [
        *(nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3, 2, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()),
    ]
    blocks, channels = [], 64
    for width in RESIDUAL:
        blocks.append(Block(channels, width, 1 if width == channels else 2))
        channels = width
    return nn.Sequential(*stem, *blocks, Average())


#: Name of a network -> function that returns it.
BUILDERS: Final[dict[str, Callable[[], nn.Module]]] = {"plain-11": plain_11, "resnet": resnet}


def built(network: str, classes: int, seed: int) -> tuple[nn.Module, nn.Module]:
    """Return a network and its head with their initial weights."""
    with seeded(seed):
        features = BUILDERS[network]()
        # Plain-11's last layers, or the projection of Chen et al. 2020, section 4.2
        between = [nn.ReLU(), nn.BatchNorm1d(WIDTH)][:: 1 if classes else -1]
        head = nn.Sequential(nn.Linear(WIDTH, WIDTH), *between, nn.Linear(WIDTH, classes or 128))
        for module in (*features.modules(), *head.modules()):
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
    return features.to(memory_format=torch.channels_last), head


TEMPERATURE: Final = 0.1  # similarities of compared vectors are divided by this


def instance_loss(vectors: torch.Tensor) -> torch.Tensor:
    """Return the contrastive loss of vectors (2 n, width): views of n images, then other views.

    Each of 2 n views has to choose its twin among the others by the cosine of their vectors.
    Source: Chen et al. 2020, "A simple framework for contrastive learning of visual
    representations", equation 1 (NT-Xent).
    """
    unit = functional.normalize(vectors.float(), dim=1)
    count = len(unit)
    own = torch.eye(count, dtype=torch.bool, device=unit.device)
    similarity = (unit @ unit.T / TEMPERATURE).masked_fill(own, float("-inf"))
    twin = torch.arange(count, device=unit.device).roll(count // 2)
    return functional.cross_entropy(similarity, twin)


#: Images of a larger side are cropped and resized, smaller ones mirrored and shifted.
SMALL_SIDE: Final = 64
SHIFT: Final = 1 / 8  # a shift is at most this share of the side
#: Shares of the area that crops keep: for classes, and for instances.
CLASS_AREAS: Final = (0.35, 1.0)
INSTANCE_AREAS: Final = (0.25, 1.0)
#: The logarithm of a crop's aspect ratio is at most that of this number in absolute value.
LONGEST: Final = 4 / 3
#: Of instances: brightness, contrast and colour are multiplied by 1 - JITTER to 1 + JITTER, and
#: this share of the images is made grey.
JITTER: Final = 0.4
GREY: Final = 0.2


def generator(*numbers: int) -> torch.Generator:
    """Return a generator of random numbers that depends on some numbers, and on nothing else."""
    seed = np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]
    made = torch.Generator()
    made.manual_seed(int(seed >> np.uint64(1)))
    return made


def augmented(images: torch.Tensor, plan: Plan, side: int, draw: torch.Generator) -> torch.Tensor:
    """Return augmented images, ``float32`` (n, 3, side, side) from 0 to 255."""
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
    most = round(plan.side * SHIFT)
    return f"mirror; shifts of up to {most} pixels, reflected at the edges"


def resized(maps: torch.Tensor, side: int) -> torch.Tensor:
    """Return images (n, 3, side, side), averaged if they become smaller."""
    if maps.shape[-1] == side:
        return maps
    return functional.interpolate(
        maps, size=(side, side), mode="bilinear", antialias=True, align_corners=False
    )


def _percent(areas: tuple[float, float]) -> str:
    return f"{100 * areas[0]:g}-{100 * areas[1]:g}"


def _mirrored(count: int, draw: torch.Generator) -> torch.Tensor:
    return torch.rand(count, generator=draw) < 0.5


def _shifted(maps: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    """Mirror half of the images, and shift each, reflecting them at the edges."""
    count, _, height, width = maps.shape
    most = round(height * SHIFT)
    down, across = torch.randint(0, 2 * most + 1, (2, count), generator=draw)
    step = torch.arange(max(height, width))
    turned = torch.where(_mirrored(count, draw)[:, None], width - 1 - step[:width], step[:width])
    rows = (down[:, None] + step[:height]).to(maps.device)[:, :, None]
    columns = (across[:, None] + turned).to(maps.device)[:, None]
    padded = functional.pad(maps, (most,) * 4, mode="reflect").permute(0, 2, 3, 1)
    each = torch.arange(count, device=maps.device)[:, None, None]
    return padded[each, rows, columns].permute(0, 3, 1, 2)


def _cropped(
    maps: torch.Tensor, side: int, areas: tuple[float, float], draw: torch.Generator
) -> torch.Tensor:
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


def warped(maps: torch.Tensor, frames: torch.Tensor, padding: str) -> torch.Tensor:
    """Return images resampled by affine maps."""
    grid = functional.affine_grid(frames, list(maps.shape), align_corners=False)
    return functional.grid_sample(maps, grid, padding_mode=padding, align_corners=False)


def _jittered(maps: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
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


# -- one training loop of torch, reproducible to the bit ------------------------------------------

# Every random number of a step is drawn from a generator made of the seed and the number of the
# step, so that a resumed run has the same batches and changes, and ends with the same weights (on
# one machine, with the same number of threads). Nothing of torch's own state is left changed.


class Diverged(Exception):
    """The loss is not finite; holds the number of the epoch, from 1."""


@contextmanager
def deterministic(threads: int | None = None) -> Iterator[None]:
    """Let torch use deterministic algorithms only, and a number of threads; restore it after."""
    # cuBLAS reads it when it is first used
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    tuned = torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(threads or before[1])
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.set_num_threads(before[1])
        torch.backends.cudnn.benchmark = tuned


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw initial weights from a seed; torch's own generator stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@dataclass
class Loop:
    """The steps of a training run; its state can be saved and restored between two steps."""

    optimizer: torch.optim.Optimizer  # of torch
    epochs: int  # number of passes
    batches: Callable[[int], Sequence[Int64]]  # items of each step of an epoch, equally many
    rate: Callable[[int], float]  # learning rate of a step
    loss_of: Callable[[Int64, int], torch.Tensor]  # the loss of some items at a step
    on_step: Callable[[], None] = lambda: None  # on_step, on_epoch: called after each
    on_epoch: Callable[[], None] = lambda: None
    step: int = 0  # number of steps done
    running: float = 0.0  # sum of the losses of the current epoch
    losses: list[float] = field(default_factory=list)  # mean loss of each finished epoch

    def run(self) -> list[float]:
        """Do the remaining steps; return the mean loss of each epoch."""
        while len(self.losses) < self.epochs:
            epoch = len(self.losses)
            batches = self.batches(epoch)
            for items in batches[self.step - epoch * len(batches) :]:
                for group in self.optimizer.param_groups:
                    group["lr"] = self.rate(self.step)
                loss = self.loss_of(items, self.step)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.running += float(loss.detach())
                self.step += 1
                self.on_step()
            self.losses.append(self.running / len(batches))
            self.running = 0.0
            if not math.isfinite(self.losses[-1]):
                raise Diverged(epoch + 1)
            self.on_epoch()
        return self.losses
