"""A model for tests whose images are known beforehand: some prompts replay one image."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import cv2
import numpy as np
from skimage import data

from toy_models import ToyModel
from visleak.diffusion.model import Conditioning

SOURCES = (data.astronaut, data.coffee, data.chelsea, data.rocket, data.immunohistochemistry)


def planted(number, side):
    """Return an image to replay."""
    picture = SOURCES[number]()
    least = min(picture.shape[:2])
    return cv2.resize(picture[:least, :least], (side, side), interpolation=cv2.INTER_AREA)


def fresh(seed, side):
    """Return an image of its own for each seed: soft blobs of colour."""
    draw = np.random.default_rng([seed, 7])
    coarse = draw.integers(0, 256, (5, 5, 3)).astype(np.float32)
    smooth = cv2.resize(coarse, (side, side), interpolation=cv2.INTER_CUBIC)
    return np.clip(smooth, 0, 255).astype(np.uint8)


@dataclass
class ReplayingModel(ToyModel):
    """Replays an image in a share of the rows of a told prompt, noisily; else makes fresh ones."""

    replays: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    side: int = 16
    noise: float = 6.0
    digest: str = "fake-1"
    name: str = "replaying"
    rows: list[int] = field(default_factory=list)
    made: list[tuple[str, int]] = field(default_factory=list)

    @property
    def shape(self):
        return (3, self.side, self.side)

    def encode_prompt(self, prompts):
        return Conditioning(np.array(prompts, object)[:, None])

    def sample(self, conditioning, seeds, sampling):
        prompts = [str(row[0]) for row in conditioning.states]
        self.rows.append(len(prompts))
        self.made += list(zip(prompts, seeds, strict=True))
        return np.stack(list(map(self.image, prompts, seeds)))

    def image(self, prompt, seed):
        """Return the image of a prompt and a seed."""
        draw = np.random.default_rng([seed, *prompt.encode()])
        number, share = self.replays.get(prompt, (0, 0.0))
        if draw.random() >= share:
            return fresh(int(draw.integers(1 << 30)), self.side)
        noisy = planted(number, self.side) + draw.normal(0, self.noise, (self.side, self.side, 3))
        return np.clip(noisy, 0, 255).astype(np.uint8)
