"""The prompt's embedding is moved until D is small (Wen et al. 2024).

"Detecting, Explaining, and Mitigating Memorization in Diffusion Models", section 5: the output of
the text encoder is optimised, on the noise that an image starts from and at the sampler's first
step, until D < l, without guidance. The paper's formula is of one image; the authors' code (and
MemBench's) takes one norm over all images that it makes of a prompt, about root(n) times as large.

Embeddings, moments and losses are float32 or better, whatever the precision of the network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import ModuleType
from typing import Final, Literal

from visleak.diffusion.model import Conditioning, DiffusionModel, Sampling, Tensor
from visleak.errors import UsageError, VisleakError
from visleak.lazy import library
from visleak.memorization.extraction.images import Job, Maker
from visleak.memorization.mitigate.method import BARE, LETTER, Mitigation, place_of
from visleak.memorization.scores import TriggerScore
from visleak.memorization.settings import ScoreSettings
from visleak.records import Bytes8

#: From embeddings (n, tokens, width) and which rows of all they are to losses (n,) and the slope
#: of each row's loss (n, tokens, width).
Losses = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
#: What a half-precision loss is multiplied with before its slope is taken, the first that stays
#: finite: small slopes would otherwise be rounded to nothing.
FACTORS: Final = (1024.0, 32.0, 1.0)


def descend(states: Tensor, losses_of: Losses, free: Tensor, how: PromptOptimisation) -> Tensor:
    """Return each row (tokens, width) moved until its loss is at most the limit.

    A row without an update is returned bit for bit.
    """
    torch, given = torch_of(), states.detach()
    moving = given.to(torch.promote_types(given.dtype, torch.float32)).clone().requires_grad_(True)
    optimiser = torch.optim.Adam([moving], lr=how.rate)
    counts = free.to(moving).expand(len(given), -1, 1)
    going = torch.arange(len(given), device=given.device)
    for _ in range(how.steps):
        losses, slopes = losses_of(moving.detach()[going], going)
        if not (torch.isfinite(losses).all() and torch.isfinite(slopes).all()):
            raise VisleakError(
                "D of a prompt or its slope is not a finite number; use --precision bf16 or fp32"
            )
        above = losses > how.limit
        going, slopes = going[above], slopes[above]
        if not len(going):
            break
        # one update of some rows, in place; momentum leaves the others alone
        before = moving.detach().clone()
        free_slopes = slopes * counts[going]
        moving.grad = before.new_zeros(before.shape).index_copy(0, going, free_slopes)
        optimiser.step()
        moving.data = before.index_copy(0, going, moving.data[going])
    return moving.detach().to(given.dtype)


def each_alone(
    score: TriggerScore, conditioning: Conditioning, noises: Tensor, targets: Tensor
) -> Losses:
    """Return the loss of embeddings of which each has a noise of its own."""

    def losses_of(rows: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        # callers may have switched gradients off
        with torch_of().enable_grad():
            states = rows.detach().requires_grad_(True)
            now = conditioning[places].with_states(states)
            losses = root(score.squared_distance(now, noises[places], targets[places]))
            return losses.detach(), slope(losses.sum(), states, score.model.precision)

    return losses_of


def one_for_all(
    score: TriggerScore,
    conditioning: Conditioning,
    noises: Tensor,
    targets: Tensor,
    norm: Literal["mean", "frobenius"],
    batch: int,
) -> Losses:
    """Return the loss of one embedding that several images share: mean or norm of all."""

    def losses_of(rows: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        total, slopes = 0.0, rows.new_zeros(rows.shape)
        for some, wanted in zip(noises.split(batch), targets.split(batch), strict=True):
            with torch_of().enable_grad():
                states = rows.detach().requires_grad_(True)
                now = conditioning.with_states(states).repeated(len(some))
                squared = score.squared_distance(now, some, wanted)
                summed = (root(squared) / len(noises) if norm == "mean" else squared).sum()
                slopes = slopes + slope(summed, states, score.model.precision)
            total = total + summed.detach()[None]
        if norm == "mean":
            return total, slopes
        loss: Tensor = root(total)
        # at no distance both are 0, and so is the slope, as of images alone
        return loss, slopes / (2 * loss).clamp_min(1e-12).to(slopes)

    return losses_of


def torch_of() -> ModuleType:
    """Return torch."""
    return library("torch", "diffusion", "the mitigation wen")


def joined(parts: Sequence[Conditioning]) -> Conditioning:
    """Return conditionings one below the other."""
    rows = zip(*((each.states, each.pooled, each.mask) for each in parts), strict=True)
    return Conditioning(*(None if own[0] is None else torch_of().cat(own) for own in rows))


def root(squared: Tensor) -> Tensor:
    """Return roots of sums of squares; the slope at 0 is 0."""
    # below, the root's own slope is infinite, and 0 times infinity no number
    return squared.clamp_min(1e-24).sqrt() * (squared > 0)


def slope(loss: Tensor, states: Tensor, precision: str) -> Tensor:
    """Return the slope of a loss, which is scaled up for a network of half precision."""
    torch, factors = torch_of(), FACTORS if precision == "fp16" else FACTORS[-1:]
    for factor in factors:
        (found,) = torch.autograd.grad(loss * factor, [states], retain_graph=factor != factors[-1])
        if torch.isfinite(found).all():
            break
    return found / factor


SOURCE: Final = (
    "Wen et al. 2024, Detecting, Explaining, and Mitigating Memorization in Diffusion Models,"
    " section 5"
)
#: Families without a begin token: T5 has none.
WITHOUT_BEGIN: Final = frozenset({"if"})
#: From jobs to the embeddings that their images are made of, one row per job.
Embedding = Callable[[DiffusionModel, Sequence[Job], Sampling], Conditioning]
#: Embeddings that images of later batches may need again.
KEPT: Final = 32


@dataclass(frozen=True)
class PromptOptimisation(Mitigation):
    """Wen et al. 2024. A pooled embedding (Stable Diffusion XL, 3) stays."""

    name = "wen"
    source = SOURCE

    #: l: where D is not above it the embedding stays as it is, bit for bit
    limit: float = field(metadata={LETTER: "l"})
    #: ``image``: each image has its own embedding, optimised on its own noise, and l is compared
    #: with its own D. ``prompt``: the images of a prompt share one, and l is compared with the mean
    #: of their D. ``batch``: they share one, and l is compared with the norm of all their
    #: differences together, as the authors' codes do (l of tables 3 and 5 of MemBench is of this
    #: kind, with 10 images)
    scope: Literal["image", "prompt", "batch"] = field(default="image", metadata={BARE: True})
    steps: int = 10  #: updates at most; D after the last one is not verified
    rate: float = field(default=0.05, metadata={LETTER: "lr"})  #: learning rate
    output: Literal["raw", "epsilon"] = "raw"  #: what D compares

    def __post_init__(self) -> None:
        if not 0 <= self.limit < math.inf:
            raise UsageError(f"l of wen is 0 or more, the D to reach; got {self.limit:g}")
        if not 1 <= self.steps <= 10_000:
            raise UsageError(f"steps of wen is 1 to 10,000 (the paper: 10); got {self.steps}")
        if not 0 < self.rate < math.inf:
            raise UsageError(f"lr of wen is above 0 (the paper: 0.05); got {self.rate:g}")

    @property
    def strength(self) -> float:
        """-l: the smaller l, the stronger."""
        return -self.limit

    def prepared(self, model: DiffusionModel, seeds: Sequence[int]) -> Maker:
        """Return what makes images of optimised embeddings."""
        if self.output == "epsilon" and model.prediction == "flow":
            raise UsageError(
                f"model {model.name} predicts a velocity (flow matching), and the noises that"
                " velocities stand for are all equal at the first step; use wen with output=raw"
            )
        if self.scope == "image":
            return self._maker(self.key(), self._alone)
        if not seeds:
            raise UsageError(f"wen with scope={self.scope} needs the seeds of a prompt's images")
        shared = [int(seed) for seed in seeds]
        row = lru_cache(KEPT)(partial(self._shared, shared, model))

        def conditioning(
            _: DiffusionModel, jobs: Sequence[Job], sampling: Sampling
        ) -> Conditioning:
            for job in jobs:
                place_of(job.seed, shared, self)
            # one prompt after the other, so that none depends on its neighbours
            return joined([row(sampling, job.prompt) for job in jobs])

        return self._maker(self.key(seeds=shared), conditioning)

    def _maker(self, key: str, conditioning: Embedding) -> Maker:
        """Return what optimises embeddings, one row per job, then samples from the same noises."""

        def images(model: DiffusionModel, jobs: Sequence[Job], sampling: Sampling) -> Bytes8:
            try:
                rows = conditioning(model, jobs, sampling)
            except torch_of().cuda.OutOfMemoryError as error:
                raise VisleakError(
                    f"slopes for batches of {sampling.batch} images do not fit into the memory of"
                    f" {model.device}; use a smaller batch"
                ) from error
            return model.sample(rows, [job.seed for job in jobs], sampling)

        return Maker(key, images)

    def _score(self, model: DiffusionModel, sampling: Sampling) -> TriggerScore:
        steps, batch = sampling.steps, sampling.batch
        return TriggerScore(model, ScoreSettings(steps=steps, output=self.output, batch=batch))

    def _alone(
        self, model: DiffusionModel, jobs: Sequence[Job], sampling: Sampling
    ) -> Conditioning:
        """Return an embedding of each image, optimised a batch of images at a time."""
        score, parts = self._score(model, sampling), []
        for start in range(0, len(jobs), sampling.batch):
            some = jobs[start : start + sampling.batch]
            encoded = _encoded(model, [job.prompt for job in some])
            states = optimised_each(score, encoded, [job.seed for job in some], self)
            parts.append(encoded.with_states(states))
        return joined(parts)

    def _shared(
        self, seeds: Sequence[int], model: DiffusionModel, sampling: Sampling, prompt: str
    ) -> Conditioning:
        """Return the embedding of a prompt; it does not depend on the batches of its images."""
        encoded, score = _encoded(model, [prompt]), self._score(model, sampling)
        norm: Literal["mean", "frobenius"] = "frobenius" if self.scope == "batch" else "mean"
        return encoded.with_states(optimised_together(score, encoded, seeds, self, norm))


def optimised_each(
    score: TriggerScore, encoded: Conditioning, seeds: Sequence[int], how: PromptOptimisation
) -> Tensor:
    """Return embeddings, each optimised on the noise of its own seed; all in one batch."""
    noises = score.model.noises(seeds)
    losses_of = each_alone(score, encoded, noises, empty_outputs(score, noises, len(seeds)))
    return descend(encoded.states, losses_of, free_rows(score.model, encoded), how)


def optimised_together(
    score: TriggerScore,
    encoded: Conditioning,
    seeds: Sequence[int],
    how: PromptOptimisation,
    norm: Literal["mean", "frobenius"],
) -> Tensor:
    """Return one embedding, optimised on the noises of several seeds."""
    noises, batch = score.model.noises(seeds), score.settings.batch
    targets = empty_outputs(score, noises, batch)
    losses_of = one_for_all(score, encoded, noises, targets, norm, batch)
    return descend(encoded.states, losses_of, free_rows(score.model, encoded), how)


def empty_outputs(score: TriggerScore, noises: Tensor, batch: int) -> Tensor:
    """Return the network's outputs for the empty prompt, a batch of noises at a time."""
    empty, parts = _encoded(score.model, [""]), noises.split(batch)
    with torch_of().no_grad():
        return torch_of().cat([score.predict(empty.repeated(len(part)), part) for part in parts])


def free_rows(model: DiffusionModel, conditioning: Conditioning) -> Tensor:
    """Return 1 where a token's row may move, (n or 1, tokens, 1): not the begin or masked ones."""
    states, mask = conditioning.states, conditioning.mask
    free = states.new_ones((1, states.shape[1], 1))
    if model.family not in WITHOUT_BEGIN:
        free[:, 0] = 0
    return free if mask is None else free * mask[..., None].to(free)


def _encoded(model: DiffusionModel, prompts: Sequence[str]) -> Conditioning:
    with torch_of().no_grad():
        return model.encode_prompt(prompts)
