"""PEZ with D as its objective: gradients at hard prompts move soft ones.

Wen et al. 2023, "Hard Prompts Made Easy", algorithm 1: soft token embeddings P; at every step each
is projected to the nearest embedding of the vocabulary, the gradient of the loss is taken at the
projection and applied to P. Here the loss is -D. Hong et al. 2024 (table 2) run it for 200
iterations and find nothing: D rises to that of triggers on texts that give one-coloured images.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from visleak.diffusion.model import Conditioning, Tensor, TokenModel
from visleak.errors import UsageError
from visleak.lazy import library
from visleak.memorization.scores import TriggerScore
from visleak.memorization.search.driver import (
    GRADIENT_CALLS,
    Candidate,
    Run,
    Search,
    Unit,
    draw_of,
    generator,
    refuse_below_one,
)

#: Of AdamW, as torch has them.
BETAS: Final = (0.9, 0.999)
EPSILON: Final = 1e-8

#: Embeddings that are compared with the vocabulary at a time.
ROWS: Final = 256


@dataclass(frozen=True, slots=True)
class PezSettings:
    """How PEZ runs."""

    length: int = 8  #: tokens of a prompt (PEZ: 16; MemBench's search: 8)
    #: steps (PEZ: 3,000; Hong et al.: 200); ``None``: until the budget ends
    iterations: int | None = 200
    rate: float = 0.1  #: learning rate of AdamW (PEZ: 0.1)
    decay: float = 0.1  #: its weight decay (PEZ: 0.1)

    def __post_init__(self) -> None:
        refuse_below_one(self, "length", "iterations")
        if not self.rate > 0.0 or not 0.0 <= self.decay < 1.0 / self.rate:
            raise UsageError(
                "the rate of pez must be above 0 and its decay from 0 to below 1 / rate; got"
                f" {self.rate:g} and {self.decay:g}"
            )


class Pez(Search):
    """Gradient search over hard prompts; chains are independent and share the noises of a step."""

    name = "pez"

    def __init__(self, model: TokenModel, settings: PezSettings | None = None) -> None:
        self.model, self.settings = model, settings or PezSettings()
        if self.settings.length > model.most_tokens():
            raise UsageError(
                f"length {self.settings.length} of pez is more than the {model.most_tokens()}"
                f" tokens that {model.name} reads"
            )

    def about(self) -> dict[str, object]:
        """Return the settings."""
        return {
            **asdict(self.settings),
            "gradient_calls": GRADIENT_CALLS,
            "noises": "one draw per step, shared by all chains",
        }

    def units(self, run: Run) -> Iterator[Unit]:
        """Move the soft prompts of all chains, step by step."""
        task, settings, end = run.task, self.settings, self.settings.iterations
        run.ends_by(end)
        vocabulary = Vocabulary(self.model)
        if run.state is None:
            step, moments = 0, vocabulary.start(task.seed, task.chains, settings.length)
        else:
            step, moments = run.state[0], Moments.of(run.state[1:])
        cost = task.score.settings.noises * (GRADIENT_CALLS * task.chains + 1)
        while step != end and run.affords(cost):
            ids = vocabulary.nearest(moments.soft)
            scores, gradients = ascent(task.score, vocabulary, ids, draw_of(task.seed, step))
            run.calls += cost
            for chain, (row, score) in enumerate(zip(ids.tolist(), scores, strict=True)):
                each = Candidate(self.model.prompt_of(row), score, chain, step)
                run.add([each])
                run.visit(each)
            step += 1
            moments = adamw(moments, -gradients, step, settings.rate, settings.decay)
            yield Unit([step, *moments.plain()], step, end, now=step == end)
        run.complete = step == end


class Vocabulary:
    """The tokens that prompts may be made of: all but the special ones."""

    def __init__(self, model: TokenModel) -> None:
        self._torch = library("torch", "diffusion", "the baseline pez")
        self._model = model
        self._table = model.token_table().detach()
        special = model.special_ids()
        self.ids = [at for at in range(len(self._table)) if at not in special]
        if not self.ids:
            raise UsageError(f"{model.name} has no token that is not special")
        self._allowed = self._torch.as_tensor(self.ids, device=self._table.device)
        self._directions = _unit(self._table[self._allowed].float())

    def start(self, seed: int, chains: int, length: int) -> Moments:
        """Return embeddings of random tokens."""
        drawn = [generator(seed, at).choice(self.ids, length).tolist() for at in range(chains)]
        soft = self.embedded(self._torch.as_tensor(drawn)).float().cpu()
        nothing = self._torch.zeros_like(soft)
        return Moments(soft, nothing, nothing)

    def embedded(self, ids: Tensor) -> Tensor:
        """Return the embeddings of tokens (..., width)."""
        return self._table[ids.to(self._table.device)].clone()

    def nearest(self, soft: Tensor) -> Tensor:
        """Return the tokens of the highest cosine (chains, tokens) to soft ones (.., width)."""
        flat = _unit(soft.reshape(-1, soft.shape[-1]).to(self._directions))
        places = [(part @ self._directions.T).argmax(1) for part in flat.split(ROWS)]
        return self._allowed[self._torch.cat(places)].reshape(soft.shape[:-1]).cpu()

    def encoded(self, embeddings: Tensor) -> Conditioning:
        """Return prompts of these embeddings, as the network reads them."""
        return self._model.encode_embeddings(embeddings)


@dataclass(frozen=True, slots=True)
class Moments:
    """Embeddings with the moments of AdamW, each (chains, tokens, width)."""

    soft: Tensor
    mean: Tensor  #: moving mean of the gradients
    square: Tensor  #: moving mean of their squares

    def plain(self) -> list[object]:
        """Return them as plain data: as base64, since numbers would be several times as long."""
        arrays = [each.numpy() for each in (self.soft, self.mean, self.square)]
        data = [b64encode(each.tobytes()).decode("ascii") for each in arrays]
        return [list(arrays[0].shape), str(arrays[0].dtype), *data]

    @classmethod
    def of(cls, plain: Sequence[Any]) -> Moments:
        """Return what :meth:`plain` made plain."""
        torch = library("torch", "diffusion", "the baseline pez")
        shape, dtype, *data = plain
        arrays = (np.frombuffer(b64decode(each), dtype).reshape(shape).copy() for each in data)
        return cls(*map(torch.from_numpy, arrays))


def adamw(state: Moments, gradient: Tensor, step: int, rate: float, decay: float) -> Moments:
    """Return the embeddings after one step of AdamW (Loshchilov & Hutter 2019) downhill."""
    first, second = BETAS
    mean = first * state.mean + (1.0 - first) * gradient
    square = second * state.square + (1.0 - second) * gradient.square()
    size = (square / (1.0 - second**step)).sqrt() + EPSILON
    soft = state.soft * (1.0 - rate * decay) - rate * (mean / (1.0 - first**step)) / size
    return Moments(soft, mean, square)


def ascent(
    score: TriggerScore, vocabulary: Vocabulary, ids: Tensor, draw: int
) -> tuple[Sequence[float], Tensor]:
    """Return D of hard prompts (chains, tokens), and its gradient (chains, tokens, width)."""
    torch = library("torch", "diffusion", "the baseline pez")
    pairs = score.noises(draw)
    totals: list[float] = []
    slopes = []
    for part in ids.split(score.settings.batch):
        embeddings = vocabulary.embedded(part).requires_grad_(True)
        with torch.enable_grad():
            encoded = vocabulary.encoded(embeddings)
            total: Tensor = 0.0
            for noise, empty in pairs:
                squared = score.squared_distance(encoded, noise, empty)
                # the root has no slope at 0, where a prompt moves nothing
                length = squared.clamp_min(1e-24).sqrt()
                total = total + (squared if score.settings.norm == "squared" else length)
            mean = total / len(pairs)
            (slope,) = torch.autograd.grad(mean.sum(), [embeddings])
        totals += mean.detach().cpu().tolist()
        slopes.append(slope.detach().float().cpu())
    return totals, torch.cat(slopes)


def _unit(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=-1, keepdim=True).clamp_min(1e-12)
