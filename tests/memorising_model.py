"""The network that a model which memorizes would be if its training ended: nothing to be trained.

Of a caption with three words of a memorized image it knows that image, and of all others the mean
of the training set; its answer is the noise that the expected image leaves (DDPM, equation 11).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import torch

from linear_model import LinearModel
from visleak.diffusion.model import Conditioning, Sampling

COLOURS = ("red", "blue")
WORDS = ("<pad>", *COLOURS, *(f"{a}{b}" for a in ("ka", "lo", "mi", "ne", "pu") for b in "bdfgl"))
CAPTIONS = ("kab lod mif", "neg pul kad", "lof mig nel", "pub kaf log")
SIDE = 16

#: Share of an image in the noise of the first step, as of Stable Diffusion 1 at 999.
SIGNAL = 0.0683


def picture(number: int) -> np.ndarray:
    """Return a memorized image: soft blobs of colour, (16, 16, 3)."""
    coarse = np.random.default_rng([number, 5]).integers(0, 256, (4, 4, 3)).astype(np.uint8)
    return cv2.resize(coarse, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)


@dataclass
class MemorisingModel(LinearModel):
    """Two of three words bring up a fifth of an image, so that a search has a slope to climb."""

    digest: str = "memorising-1"
    shape: tuple[int, int, int] = (3, SIDE, SIDE)

    def noises(self, seeds: Sequence[int]) -> Any:
        rows = [torch.randn(self.shape, generator=torch.Generator().manual_seed(s)) for s in seeds]
        return torch.stack(rows)

    def expected(self, conditioning: Conditioning) -> Any:
        """Return the expected images less the mean of the training set, -1 to 1; slopes flow."""
        counts = conditioning.states[:, 0] @ self.weight
        return torch.einsum("nk,k...->n...", (counts / 3) ** 4, memorised_latents())

    def predict_noise(self, latents: Any, timestep: float, conditioning: Conditioning) -> Any:
        self.passes += len(conditioning)
        moved = SIGNAL * self.expected(conditioning)
        return (latents - moved) / (1 - SIGNAL**2) ** 0.5

    def sample(self, conditioning: Conditioning, seeds: Sequence[int], sampling: Sampling) -> Any:
        made = self.expected(conditioning).numpy() + 0.1 * self.noises(seeds).numpy()
        return np.clip((made.transpose(0, 2, 3, 1) + 1) * 127.5, 0, 255).astype(np.uint8)


def memorised_latents() -> Any:
    """Return the memorized images, (captions, 3, 16, 16), -1 to 1."""
    images = np.stack([picture(number) for number in range(len(CAPTIONS))])
    return torch.from_numpy(images.transpose(0, 3, 1, 2) / 127.5 - 1).float()


def memorising_model() -> MemorisingModel:
    """Return the model: its embeddings are one-hot, and the weight counts words of captions."""
    table = torch.eye(len(WORDS))
    own = [[float(word in caption.split()) for caption in CAPTIONS] for word in WORDS]
    return MemorisingModel(WORDS, table, torch.tensor(own))


def ordinary(count: int = 100) -> tuple[str, ...]:
    """Return different captions that are not memorized; some have two words of one that is."""
    draw, found = np.random.default_rng(3), dict[str, None]()
    while len(found) < count:
        words = [WORDS[at] for at in draw.choice(np.arange(1, len(WORDS)), 3, replace=False)]
        if not any(set(words) == set(caption.split()) for caption in CAPTIONS):
            found[" ".join(words)] = None
    return tuple(found)
