"""Networks that are trained on a set, each ending in its global average pool, and their losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional

from visleak.training.loop import seeded

#: Coordinates of a vector.
WIDTH: Final = 512

#: Layers of Plain-11: convolutions of so many channels, and poolings by two.
PLAIN: Final = (64, 64, "pool", 128, 128, 128, "pool", 256, 256, 256, "pool", 512)

#: Channels of the residual blocks, each half as wide and high as the one before.
RESIDUAL: Final = (64, 128, 256, 512)


class Average(nn.Module):  # type: ignore[misc]
    """The global average pool, from (n, channels, height, width) to (n, channels)."""

    def forward(self, maps: Any) -> Any:
        """Return the mean over the places; its gradient is deterministic on every device."""
        return maps.float().mean((2, 3))


class Block(nn.Module):  # type: ignore[misc]
    """Two convolutions with a shortcut (He et al. 2016, figure 2).

    Args:
        inputs, outputs: channels.
        stride: of the first convolution.
    """

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

    def forward(self, maps: Any) -> Any:
        """Return the maps (n, outputs, height / stride, width / stride)."""
        return torch.relu(self.way(maps) + self.around(maps))


def plain_11() -> Any:
    """Return Plain-11 up to its global average pool, for images of 16 pixels and more.

    Each convolution is followed by ReLU, then batch normalisation. Source: Barz & Denzler 2018,
    "Hierarchy-based image embeddings for semantic image retrieval", and its code.
    """
    layers: list[Any] = []
    channels = 3
    for layer in PLAIN:
        if isinstance(layer, str):
            layers.append(nn.AvgPool2d(2))
            continue
        layers += [nn.Conv2d(channels, layer, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(layer)]
        channels = layer
    return nn.Sequential(*layers, Average())


def resnet() -> Any:
    """Return a residual network of ten layers up to its global average pool.

    The stem is two convolutions of 3 x 3 with stride 2, then one block per width.
    """
    stem = [
        *(nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3, 2, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()),
    ]
    blocks, channels = [], 64
    for width in RESIDUAL:
        blocks.append(Block(channels, width, 1 if width == channels else 2))
        channels = width
    return nn.Sequential(*stem, *blocks, Average())


def class_head(classes: int) -> Any:
    """Return the head from vectors (n, 512) to scores (n, classes): Plain-11's last layers."""
    return nn.Sequential(
        nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, classes)
    )


def instance_head() -> Any:
    """Return the head from vectors (n, 512) to compared vectors (n, 128).

    Source: Chen et al. 2020, "A simple framework for contrastive learning", section 4.2.
    """
    return nn.Sequential(
        nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Linear(WIDTH, 128)
    )


#: Name of a network -> function that returns it.
BUILDERS: Final[dict[str, Callable[[], Any]]] = {"plain-11": plain_11, "resnet": resnet}


def built(network: str, classes: int, seed: int) -> tuple[Any, Any]:
    """Return a network and its head with their initial weights.

    Args:
        network: one of :data:`BUILDERS`.
        classes: of the head, 0 for instances.
        seed: of the weights; the global generator is left as it was.
    """
    with seeded(seed):
        features = BUILDERS[network]()
        head = class_head(classes) if classes else instance_head()
        for module in (*features.modules(), *head.modules()):
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
    return features.to(memory_format=torch.channels_last), head


#: Similarities of compared vectors are divided by this.
TEMPERATURE: Final = 0.1


def class_loss(scores: Any, classes: Any) -> Any:
    """Return the mean cross-entropy of scores (n, classes) and class numbers (n,)."""
    return functional.cross_entropy(scores.float(), classes)


def instance_loss(vectors: Any) -> Any:
    """Return the contrastive loss of two views per image.

    The mean cross-entropy over 2 n views, each of which has to choose its twin among the other
    2 n - 1 by the cosine of their vectors.

    Args:
        vectors: (2 n, width), views of n images, then other views of them in the same order.

    Source: Chen et al. 2020, "A simple framework for contrastive learning of visual
    representations", equation 1 (NT-Xent).
    """
    unit = functional.normalize(vectors.float(), dim=1)
    count = len(unit)
    own = torch.eye(count, dtype=torch.bool, device=unit.device)
    similarity = (unit @ unit.T / TEMPERATURE).masked_fill(own, float("-inf"))
    twin = torch.arange(count, device=unit.device).roll(count // 2)
    return functional.cross_entropy(similarity, twin)
