"""D, the trigger score: how far a prompt moves the first step of denoising.

    D(p) = E over x_T ~ N(0, I) of || eps(x_T, f(p), T) - eps(x_T, f(""), T) ||_2

(Hong et al. 2024, "MemBench", equation 4; Wen et al. 2024). Larger: more likely memorized. No
guidance scale enters. The authors' search code sums squares instead (no root), at t = 999; all
constants the paper prints for its searches live on that scale, so both are returned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from visleak.diffusion.model import Conditioning, DiffusionModel, Tensor
from visleak.errors import UsageError, VisleakError
from visleak.lazy import library
from visleak.memorization.settings import Norm, ScoreSettings
from visleak.records import Float64


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of prompts, one column per noise."""

    l2: Float64  #: (prompts, noises), the L2 norms of the differences
    squared: Float64  #: (prompts, noises), their squares (sums over channels and pixels)

    @property
    def d_l2(self) -> Float64:
        """Mean of the norms over the noises, (prompts,)."""
        return np.asarray(self.l2.mean(1))

    @property
    def d_squared(self) -> Float64:
        """Mean of the squares over the noises, (prompts,). Not the square of ``d_l2``."""
        return np.asarray(self.squared.mean(1))

    def by(self, norm: Norm) -> Float64:
        """Return D by one of the two norms, (prompts,)."""
        return self.d_l2 if norm == "l2" else self.d_squared


class TriggerScore:
    """D of prompts, by one model.

    All prompts of one draw share their noises (common random numbers), and the empty prompt is
    passed once per noise, so n prompts cost n + 1 passes per noise.

    Attributes:
        model: the diffusion model.
        settings: what D is made of.
        calls: passes of the network so far, one per row of a batch.
        seconds: they took.
    """

    def __init__(self, model: DiffusionModel, settings: ScoreSettings | None = None) -> None:
        self.model = model
        self.settings = settings or ScoreSettings()
        self.calls = 0
        self.seconds = 0.0
        self._torch = library("torch", "diffusion", "the trigger score D")
        self._kept: tuple[int, list[tuple[Tensor, Tensor]]] | None = None
        self._empty: Conditioning | None = None

    @cached_property
    def timestep(self) -> float:
        """The timestep at which the network predicts."""
        if self.settings.timestep == "first":
            return self.model.first_timestep(self.settings.steps)
        return float(self.settings.timestep)

    def __call__(
        self,
        prompts: Sequence[str],
        *,
        draw: int = 0,
        progress: Callable[[int], None] | None = None,
    ) -> Scores:
        """Return the scores of prompts."""
        began, report = time.perf_counter(), progress or (lambda count: None)
        # a search proposes some prompts several times over
        places = {prompt: place for place, prompt in enumerate(dict.fromkeys(prompts))}
        try:
            found = self._squared(list(places), draw, report)
        except self._torch.cuda.OutOfMemoryError as error:
            raise VisleakError(
                f"batches of {self.settings.batch} prompts do not fit into the memory of"
                f" {self.model.device}; use a smaller batch"
            ) from error
        if len(places) < len(prompts):
            found = found[[places[prompt] for prompt in prompts]]
            report(len(prompts) - len(places))
        self.seconds += time.perf_counter() - began
        return Scores(np.sqrt(found), found)

    def _squared(
        self, prompts: Sequence[str], draw: int, progress: Callable[[int], None]
    ) -> Float64:
        """Return the squared distances of prompts that differ, (prompts, noises)."""
        squared = np.zeros((len(prompts), self.settings.noises))
        with self._torch.no_grad():
            pairs = self.noises(draw)
            for start in range(0, len(prompts), self.settings.batch):
                rows = slice(start, start + self.settings.batch)
                encoded = self.model.encode_prompt(prompts[rows])
                for column, (noise, empty) in enumerate(pairs):
                    distance = self.squared_distance(encoded, noise, empty)
                    squared[rows, column] = distance.cpu().numpy()
                wrong = ~np.isfinite(squared[rows]).all(1)
                if wrong.any():
                    raise VisleakError(
                        f"D of {prompts[start + int(wrong.argmax())][:80]!r} is not a finite number"
                        f" in {self.model.precision}; use precision fp32 or bf16"
                    )
                progress(len(encoded))
        return squared

    def noises(self, draw: int) -> list[tuple[Tensor, Tensor]]:
        """Return the noises of a draw, each with the network's output for the empty prompt."""
        if self._kept is not None and self._kept[0] == draw:
            return self._kept[1]
        if self._empty is None:
            self._empty = self.model.encode_prompt([""])
        pairs = []
        with self._torch.no_grad():
            for seed in seeds_of(self.settings.seed, draw, self.settings.noises):
                noise = self.model.noises([seed])
                pairs.append((noise, self.predict(self._empty, noise)))
        self._kept = (draw, pairs)
        return pairs

    def squared_distance(self, encoded: Conditioning, noise: Tensor, empty: Tensor) -> Tensor:
        """Return || eps(x, p) - eps(x, "") ||^2 of each prompt in float64, (n,); gradients flow."""
        output = self.predict(encoded, noise)
        if output.device.type == "mps":
            # Apple's devices have no float64
            output, empty = output.cpu(), empty.cpu()
        return (output.double() - empty.double()).square().flatten(1).sum(1)

    def predict(self, encoded: Conditioning, noise: Tensor) -> Tensor:
        """Return the network's output for prompts at one noise (1, c, h, w); count the calls."""
        latents = noise.expand(len(encoded), *noise.shape[1:])
        self.calls += len(encoded)
        output = self.model.predict_noise(latents, self.timestep, encoded)
        if self.settings.output == "epsilon":
            return self.model.as_epsilon(output, latents, self.timestep)
        return output


def score_for(
    model: DiffusionModel,
    settings: ScoreSettings,
    given: Container[str],
    norm: Norm | None = None,
    timestep: Literal["first"] | int | None = None,
) -> ScoreSettings:
    """Return the settings of D for a model: the usual batch, norm and timestep if none is given."""
    batch = 128 if model.device.startswith("cuda") else 16
    usual: dict[str, Any] = {"batch": batch, "norm": norm, "timestep": timestep}
    settings = replace(
        settings, **{k: v for k, v in usual.items() if v is not None and k not in given}
    )
    trained = model.about().get("train_timesteps")
    if settings.timestep != "first" and isinstance(trained, int):
        # the times of a flow run to the number itself, steps are counted from 0
        most = trained if model.prediction == "flow" else trained - 1
        if settings.timestep > most:
            raise UsageError(
                f"--timestep must be at most {most:,} for this model; got {settings.timestep}"
            )
    return settings


def seeds_of(seed: int, draw: int, count: int) -> list[int]:
    """Return seeds of noises: a function of seed, draw and the noise's number alone."""
    return [
        int(np.random.SeedSequence([seed, draw, number]).generate_state(1, np.uint32)[0])
        for number in range(count)
    ]
