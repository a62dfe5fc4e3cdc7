"""A smooth model in float64, whose D and its slopes can be worked out exactly."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import torch

from visleak.diffusion.model import Conditioning, Sampling

TOKENS, WIDTH, SHAPE = 5, 3, (2, 2, 2)


class SmoothModel:
    """``eps(x, c) = x + sum over tokens of tanh(A c_t + B x)``, other for every noise and prompt.

    Attributes:
        batches: rows of every call of the network.
        sampled: conditioning and seeds of every call of :meth:`sample`.
    """

    name = "smooth"
    family = "sd"
    prediction = "epsilon"
    digest = "smooth-1"
    shape = SHAPE
    device = "cpu"
    precision = "fp32"

    def __init__(self, dtype: Any = torch.float64) -> None:
        draw = torch.Generator().manual_seed(11)
        size = int(np.prod(SHAPE))
        self.a = torch.randn((size, WIDTH), generator=draw, dtype=torch.float64)
        self.b = torch.randn((size, size), generator=draw, dtype=torch.float64) / size
        self.dtype = dtype
        self.batches: list[int] = []
        self.timesteps: list[float] = []
        self.sampled: list[tuple[Conditioning, list[int]]] = []

    def about(self) -> dict[str, object]:
        return {"name": self.name}

    def encode_prompt(self, prompts: Sequence[str]) -> Conditioning:
        seeds = [int.from_bytes(blake2b(p.encode(), digest_size=4).digest()) for p in prompts]
        rows = [
            torch.randn((TOKENS, WIDTH), generator=torch.Generator().manual_seed(seed))
            for seed in seeds
        ]
        return Conditioning(torch.stack(rows).to(self.dtype))

    def first_timestep(self, steps: int) -> float:
        return 1000.0 - steps

    def noises(self, seeds: Sequence[int]) -> Any:
        rows = [torch.randn(SHAPE, generator=torch.Generator().manual_seed(s)) for s in seeds]
        return torch.stack(rows).double()

    def predict_noise(self, latents: Any, timestep: float, conditioning: Conditioning) -> Any:
        self.batches.append(len(latents))
        self.timesteps.append(timestep)
        flat = latents.double().flatten(1)
        moved = conditioning.states.double() @ self.a.T + (flat @ self.b.T)[:, None]
        return (flat + torch.tanh(moved).sum(1)).reshape(latents.shape)

    def as_epsilon(self, output: Any, latents: Any, timestep: float) -> Any:
        return 0.5 * output + latents

    def sample(self, conditioning: Conditioning, seeds: Sequence[int], sampling: Sampling) -> Any:
        self.sampled.append((conditioning, list(seeds)))
        return np.zeros((len(seeds), 2, 2, 3), np.uint8)


def distance(model: SmoothModel, states: Any, seed: int) -> Any:
    """Return D of one embedding (tokens, width) at one noise, written out."""
    noise = model.noises([seed])
    empty = model.encode_prompt([""])
    with_prompt = model.predict_noise(noise, 950.0, Conditioning(states[None]))
    without = model.predict_noise(noise, 950.0, empty)
    return ((with_prompt - without) ** 2).sum() ** 0.5
