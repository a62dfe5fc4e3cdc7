"""PEZ with D as its objective: gradients at hard prompts move soft ones.

Wen et al. 2023, "Hard Prompts Made Easy", algorithm 1: soft token embeddings P; at every step each
is projected to the nearest embedding of the vocabulary, the gradient of the loss is taken at the
projection and applied to P. Here the loss is -D. Hong et al. 2024 (table 2) run it for 200
iterations and find nothing: D rises to that of triggers on texts that give one-coloured images.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from visleak.encoders.libraries import library
from visleak.errors import UsageError
from visleak.memorization.model import Tensor, TokenModel
from visleak.memorization.scores import TriggerScore
from visleak.memorization.search.running import Run, begun, better, draw_of, generator
from visleak.memorization.search.task import GRADIENT_CALLS, Candidate, Found, SearchTask

#: Parts of the state that are arrays.
MOMENTS: Final = ("soft", "mean", "square")

#: Of AdamW, as torch has them.
BETAS: Final = (0.9, 0.999)
EPSILON: Final = 1e-8

#: Embeddings that are compared with the vocabulary at a time.
ROWS: Final = 256


@dataclass(frozen=True, slots=True)
class PezSettings:
    """How PEZ runs.

    Attributes:
        length: tokens of a prompt (PEZ: 16; MemBench's search: 8).
        iterations: steps (PEZ: 3,000; Hong et al.: 200); ``None`` goes on while the budget lasts.
        rate: learning rate of AdamW (PEZ: 0.1).
        decay: its weight decay (PEZ: 0.1).
    """

    length: int = 8
    iterations: int | None = 200
    rate: float = 0.1
    decay: float = 0.1

    def __post_init__(self) -> None:
        if self.length < 1 or (self.iterations is not None and self.iterations < 1):
            raise UsageError(
                "length and iterations of pez are at least 1; got"
                f" {self.length} and {self.iterations}"
            )
        if not self.rate > 0.0 or not 0.0 <= self.decay < 1.0 / self.rate:
            raise UsageError(
                "the rate of pez is above 0 and its decay from 0 to below 1 / rate; got"
                f" {self.rate:g} and {self.decay:g}"
            )


class Pez:
    """Gradient search over hard prompts; chains are independent and share the noises of a step.

    Every step has its own noises. A step costs ``GRADIENT_CALLS`` passes per chain and noise, and
    one per noise for the empty prompt. The score of a candidate is D of its tokens; its text may be
    split into others.

    Args:
        model: whose vocabulary prompts are made of; that of the task's score.
        settings: how it runs.
    """

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
            "noises": "one draw a step, shared by all chains",
        }

    def search(self, task: SearchTask) -> Found:
        """Return the best prompt of every chain, over all its steps.

        Raises:
            UsageError: the budget does not hold a single step, or nothing ends the search.
        """
        torch = library("torch", "diffusion", "the baseline pez")
        with begun(self.name, self.about(), task) as run:
            run.ends_by(self.settings.iterations)
            vocabulary = Vocabulary(self.model)
            moments, step, best = self._begun(run, vocabulary, torch)
            cost = task.score.settings.noises * (GRADIENT_CALLS * task.chains + 1)
            run.must_have_begun(step, cost)
            while step != self.settings.iterations and run.affords(cost):
                ids = vocabulary.nearest(moments.soft)
                scores, gradients = ascent(task.score, vocabulary, ids, draw_of(task.seed, step))
                run.calls += cost
                seen = [
                    Candidate(self.model.prompt_of(row), score, chain, step)
                    for chain, (row, score) in enumerate(zip(ids.tolist(), scores, strict=True))
                ]
                run.add(seen)
                best = [better(old, new) for old, new in zip(best, seen, strict=True)]
                moments = adamw(
                    moments, -gradients, step + 1, self.settings.rate, self.settings.decay
                )
                step += 1
                run.save(_state(step, moments, best), now=step == self.settings.iterations)
                run.say(step, self.settings.iterations)
            found = [each for each in best if each is not None and each.prompt.strip()]
            complete = step == self.settings.iterations
            return run.found(found, _state(step, moments, best), complete=complete)

    def _begun(
        self, run: Run, vocabulary: Vocabulary, torch: Any
    ) -> tuple[Moments, int, list[Candidate | None]]:
        """Return the embeddings, the step and the best prompts to resume from."""
        kept = run.state
        if kept is not None:
            known = [torch.from_numpy(_unpacked(kept[name])) for name in MOMENTS]
            best = [None if each is None else Candidate(**each) for each in kept["best"]]
            return Moments(*known), int(kept["step"]), best
        rows = [
            generator(run.task.seed, chain).choice(vocabulary.ids, self.settings.length)
            for chain in range(run.task.chains)
        ]
        soft = vocabulary.embedded(torch.as_tensor([row.tolist() for row in rows])).float().cpu()
        nothing = torch.zeros_like(soft)
        return Moments(soft, nothing, nothing), 0, [None] * run.task.chains


def _state(step: int, moments: Moments, best: Sequence[Candidate | None]) -> dict[str, Any]:
    packed = {name: _packed(getattr(moments, name).numpy()) for name in MOMENTS}
    return {"step": step, "best": [each and asdict(each) for each in best], **packed}


def _packed(array: npt.NDArray[Any]) -> dict[str, Any]:
    """Return an array as plain data: as numbers it would be several times as long."""
    data = b64encode(array.tobytes()).decode("ascii")
    return {"shape": list(array.shape), "dtype": str(array.dtype), "data": data}


def _unpacked(plain: Mapping[str, Any]) -> npt.NDArray[Any]:
    values = np.frombuffer(b64decode(plain["data"]), plain["dtype"])
    return values.reshape(plain["shape"]).copy()


class Vocabulary:
    """The tokens that prompts may be made of: all but the special ones.

    Args:
        model: whose they are.

    Attributes:
        ids: of the tokens.
    """

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

    def embedded(self, ids: Tensor) -> Tensor:
        """Return the embeddings of tokens (..., width)."""
        return self._table[ids.to(self._table.device)].clone()

    def nearest(self, soft: Tensor) -> Tensor:
        """Return the ids of the tokens whose embeddings have the highest cosine (chains, tokens).

        Args:
            soft: (chains, tokens, width).
        """
        flat = _unit(soft.reshape(-1, soft.shape[-1]).to(self._directions))
        places = [(part @ self._directions.T).argmax(1) for part in flat.split(ROWS)]
        return self._allowed[self._torch.cat(places)].reshape(soft.shape[:-1]).cpu()

    def encoded(self, embeddings: Tensor) -> Any:
        """Return prompts of these embeddings, as the network reads them."""
        return self._model.encode_embeddings(embeddings)


@dataclass(frozen=True, slots=True)
class Moments:
    """Embeddings with what AdamW remembers of their gradients, each (chains, tokens, width).

    Attributes:
        soft: the embeddings.
        mean: moving mean of the gradients.
        square: moving mean of their squares.
    """

    soft: Tensor
    mean: Tensor
    square: Tensor


def adamw(state: Moments, gradient: Tensor, step: int, rate: float, decay: float) -> Moments:
    """Return the embeddings after one step of AdamW (Loshchilov & Hutter 2019) downhill.

    Args:
        state: before it.
        gradient: of the loss, of the same shape.
        step: its number, from 1.
        rate, decay: learning rate and weight decay.
    """
    first, second = BETAS
    mean = first * state.mean + (1.0 - first) * gradient
    square = second * state.square + (1.0 - second) * gradient.square()
    size = (square / (1.0 - second**step)).sqrt() + EPSILON
    soft = state.soft * (1.0 - rate * decay) - rate * (mean / (1.0 - first**step)) / size
    return Moments(soft, mean, square)


def ascent(
    score: TriggerScore, vocabulary: Vocabulary, ids: Tensor, draw: int
) -> tuple[Sequence[float], Tensor]:
    """Return D of hard prompts, and its gradient at the embeddings of their tokens.

    Args:
        score: D.
        vocabulary: of the prompts.
        ids: (chains, tokens).
        draw: of the noises.

    Returns:
        D of each prompt by the norm of the settings, and (chains, tokens, width) on the CPU in
        float32: where to D rises.
    """
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
