"""A model whose D has a closed form, and whose images are known beforehand."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from PIL import Image

from visleak.diffusion.model import Conditioning, Sampling
from visleak.memorization.search.proposals import Candidates

SHAPE = (1, 2, 3)


@dataclass
class LinearModel:
    """The network's answer is linear in the sum of the tokens' embeddings: D = |W sum e|.

    With ``wobble`` D depends on the noise, too. Pass ``most`` and the model dies at that call.
    """

    words: tuple[str, ...]
    table: Any
    weight: Any
    wobble: float = 0.0
    name: str = "linear"
    family: str = "sd"
    prediction: str = "epsilon"
    digest: str = "linear-1"
    shape: tuple[int, int, int] = SHAPE
    device: str = "cpu"
    precision: str = "fp32"
    passes: int = 0
    dies_at: int | None = None
    seen: list[str] = field(default_factory=list)
    known: dict[bytes, str] = field(default_factory=dict)
    replays: dict[str, np.ndarray] = field(default_factory=dict)

    def about(self) -> dict[str, object]:
        return {"name": self.name, "digest": self.digest}

    def encode_prompt(self, prompts: Sequence[str]) -> Conditioning:
        self.seen += prompts
        rows = [
            self.table[self.token_ids(text)].sum(0)
            if self.token_ids(text)
            else torch.zeros(self.table.shape[1], dtype=self.table.dtype)
            for text in prompts
        ]
        self.known |= {row.numpy().tobytes(): text for row, text in zip(rows, prompts, strict=True)}
        return Conditioning(torch.stack(rows)[:, None])

    def encode_embeddings(self, embeddings: Any) -> Conditioning:
        return Conditioning(embeddings.sum(1, keepdim=True))

    def first_timestep(self, steps: int) -> float:
        return 981.0

    def noises(self, seeds: Sequence[int]) -> Any:
        drawn = [torch.randn(SHAPE, generator=torch.Generator().manual_seed(s)) for s in seeds]
        return torch.stack(drawn).to(self.weight.dtype)

    def predict_noise(self, latents: Any, timestep: float, conditioning: Conditioning) -> Any:
        self.passes += len(conditioning)
        if self.dies_at is not None and self.passes >= self.dies_at:
            raise KeyboardInterrupt
        moved = conditioning.states[:, 0] @ self.weight
        moved = moved.reshape(-1, *SHAPE)
        return latents + moved * (1.0 + self.wobble * latents)

    def as_epsilon(self, output: Any, latents: Any, timestep: float) -> Any:
        return output

    def sample(self, conditioning: Conditioning, seeds: Sequence[int], sampling: Sampling) -> Any:
        rows = conditioning.states.reshape(len(seeds), -1)
        prompts = [self.known[row.numpy().tobytes()] for row in rows]
        return np.stack([self.image(text, seed) for text, seed in zip(prompts, seeds, strict=True)])

    def image(self, prompt: str, seed: int) -> np.ndarray:
        """Return the image that a word of the prompt replays, with noise; else blobs."""
        draw = np.random.default_rng([seed, *prompt.encode()])
        for word, picture in self.replays.items():
            if word in prompt.split():
                noisy = picture + draw.normal(0, 5, picture.shape)
                return np.clip(noisy, 0, 255).astype(np.uint8)
        coarse = draw.integers(0, 256, (4, 4, 3)).astype(np.uint8)
        return np.asarray(Image.fromarray(coarse).resize((64, 64), Image.Resampling.BICUBIC))

    def token_ids(self, prompt: str) -> list[int]:
        return [self.words.index(word) for word in prompt.split() if word in self.words]

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        return [self.words[at] for at in ids]

    def prompt_of(self, ids: Sequence[int]) -> str:
        return " ".join(self.words[at] for at in ids)

    def most_tokens(self) -> int:
        return 12

    def token_table(self) -> Any:
        return self.table

    def special_ids(self) -> frozenset[int]:
        return frozenset({0})

    def pooled_text(self, prompts: Sequence[str]) -> Any:
        return self.encode_prompt(prompts).states[:, 0].numpy()

    def d(self, prompt: str) -> float:
        """D by hand, without a wobble."""
        ids = self.token_ids(prompt)
        return float(np.linalg.norm(self.table.numpy()[ids].sum(0) @ self.weight.numpy()))


WORDS = ("<pad>", "ant", "bee", "cow", "dog", "elk", "fox", "gnu", "hen", "ibis")


def linear_model(seed: int = 0, *, wobble: float = 0.0, width: int = 4) -> LinearModel:
    source = torch.Generator().manual_seed(seed)
    table = torch.randn((len(WORDS), width), generator=source)
    weight = torch.randn((width, int(np.prod(SHAPE))), generator=source)
    return LinearModel(WORDS, table, weight, wobble)


class WordProposer:
    """Proposes the words of a model with fixed probabilities of their places."""

    name = "words"

    def __init__(self, model: LinearModel, seed: int = 0) -> None:
        self.model = model
        count = len(model.words) - 1
        chances = np.random.default_rng(seed).dirichlet(np.ones(count), size=12)
        self.chances = chances

    def about(self) -> dict[str, object]:
        return {"words": len(self.model.words)}

    def start(self, length: int) -> list[int]:
        return [0] * length

    def ids(self, text: str) -> tuple[list[int], int]:
        return self.model.token_ids(text), 0

    def candidates(self, states, positions, count, forced=None):
        found = []
        for at in positions:
            order = np.argsort(-self.chances[at], kind="stable")[:count]
            found.append(Candidates(order + 1, np.log(self.chances[at][order])))
        return found

    def texts(self, states: Sequence[Sequence[int]]) -> list[str]:
        return [self.model.prompt_of([at for at in state if at]) for state in states]

    def words(self) -> Any:
        return np.arange(1, len(self.model.words))
