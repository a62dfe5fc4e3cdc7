"""A smooth model in float64, whose D and its slopes can be worked out exactly."""

from hashlib import blake2b

import numpy as np
import torch

from toy_models import ToyModel
from visleak.diffusion.model import Conditioning

TOKENS, WIDTH, SHAPE = 5, 3, (2, 2, 2)


class SmoothModel(ToyModel):
    """``eps(x, c) = x + sum over tokens of tanh(A c_t + B x)``, with a record of its calls."""

    name = "smooth"
    digest = "smooth-1"
    shape = SHAPE

    def __init__(self, dtype=torch.float64):
        draw = torch.Generator().manual_seed(11)
        size = int(np.prod(SHAPE))
        self.a = torch.randn((size, WIDTH), generator=draw, dtype=torch.float64)
        self.b = torch.randn((size, size), generator=draw, dtype=torch.float64) / size
        self.dtype = dtype
        self.batches, self.timesteps, self.sampled = [], [], []

    def encode_prompt(self, prompts):
        rows = []
        for prompt in prompts:
            seed = int.from_bytes(blake2b(prompt.encode(), digest_size=4).digest())
            draw = torch.Generator().manual_seed(seed)
            rows.append(torch.randn((TOKENS, WIDTH), generator=draw))
        return Conditioning(torch.stack(rows).to(self.dtype))

    def first_timestep(self, steps):
        return 1000.0 - steps

    def noises(self, seeds):
        return super().noises(seeds).double()

    def predict_noise(self, latents, timestep, conditioning):
        self.batches.append(len(latents))
        self.timesteps.append(timestep)
        flat = latents.double().flatten(1)
        moved = conditioning.states.double() @ self.a.T + (flat @ self.b.T)[:, None]
        return (flat + torch.tanh(moved).sum(1)).reshape(latents.shape)

    def as_epsilon(self, output, latents, timestep):
        return 0.5 * output + latents

    def sample(self, conditioning, seeds, sampling):
        self.sampled.append((conditioning, list(seeds)))
        return np.zeros((len(seeds), 2, 2, 3), np.uint8)


def distance(model, states, seed):
    """Return D of one embedding (tokens, width) at one noise, written out."""
    noise = model.noises([seed])
    empty = model.encode_prompt([""])
    with_prompt = model.predict_noise(noise, 950.0, Conditioning(states[None]))
    without = model.predict_noise(noise, 950.0, empty)
    return ((with_prompt - without) ** 2).sum() ** 0.5
