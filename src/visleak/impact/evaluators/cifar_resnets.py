"""The residual networks for CIFAR of He et al. (2016), section 4.2, with shortcuts of option A.

6n + 2 layers with weights: a 3 x 3 convolution of 16 channels, three stages of n blocks with 16,
32 and 64 channels at 32, 16 and 8 pixels, global averaging, one linear layer. Where a stage begins
the shortcut takes every second pixel and fills the new channels with zeros, so it has no weights.

Imports torch: imported on use only. Tensors are named as in the widespread checkpoints.
"""

from __future__ import annotations

from typing import Final

from torch import Tensor, nn
from torch.nn import functional

#: Name -> n, blocks a stage.
DEPTHS: Final = {
    "resnet20": 3,
    "resnet32": 5,
    "resnet44": 7,
    "resnet56": 9,
    "resnet110": 18,
    "resnet1202": 200,
}

HEAD: Final = "linear.weight"  # the tensor whose rows are the classes


class Block(nn.Module):  # type: ignore[misc]
    """Two 3 x 3 convolutions and a shortcut past them."""

    def __init__(self, taken: int, made: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(taken, made, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(made)
        self.conv2 = nn.Conv2d(made, made, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(made)
        self.stride = stride
        # half of the new channels before the old ones, half after
        self.new = (made - taken) // 2

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (n, made, height / stride, width / stride)."""
        made = functional.relu(self.bn1(self.conv1(inputs)))
        made = self.bn2(self.conv2(made))
        past = inputs[:, :, :: self.stride, :: self.stride]
        past = functional.pad(past, (0, 0, 0, 0, self.new, self.new))
        return functional.relu(made + past)


class CifarResNet(nn.Module):  # type: ignore[misc]
    """Images (n, 3, 32, 32) to logits (n, classes)."""

    def __init__(self, blocks: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, blocks, 1)
        self.layer2 = _stage(16, 32, blocks, 2)
        self.layer3 = _stage(32, 64, blocks, 2)
        self.linear = nn.Linear(64, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits."""
        made = functional.relu(self.bn1(self.conv1(inputs)))
        made = self.layer3(self.layer2(self.layer1(made)))
        return self.linear(made.mean(dim=(2, 3)))


def _stage(taken: int, made: int, blocks: int, stride: int) -> nn.Sequential:
    first = Block(taken, made, stride)
    return nn.Sequential(first, *(Block(made, made, 1) for _ in range(blocks - 1)))
