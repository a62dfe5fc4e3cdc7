"""What a text-to-image diffusion model has to do for visleak: one small protocol.

Scores, searches, extraction and mitigations use this protocol only; adapters for pipelines of
``diffusers`` are in :mod:`visleak.diffusion.families`. Tensors are torch's, on the model's own
device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from visleak.errors import UsageError
from visleak.options import Options, option

if TYPE_CHECKING:
    from visleak.records import Bytes8, Float32

#: A tensor of torch, which is not typed here.
Tensor = Any


@dataclass(frozen=True)
class Guidance(Options, panel="Images"):
    """How images are sampled."""

    steps: int = option(50, "Steps of the sampler.", least=1)
    guidance: float = option(
        7.5,
        "Scale of classifier-free guidance; 1 turns it off and halves the cost.",
        metavar="G",
        least=0,
        most=1000,
    )


@dataclass(frozen=True)
class Sampling(Guidance):
    """How images are sampled, and in which batches."""

    batch: int = option(8, "Images per call of the network.", least=1)


@dataclass(frozen=True, slots=True)
class Conditioning:
    """Encoded prompts, as a network's cross-attention reads them."""

    states: Tensor  #: (n, tokens, width), one row of token states per prompt
    pooled: Tensor | None = None  #: (n, width), where the family uses one
    mask: Tensor | None = None  #: (n, tokens), 1 where a token counts, where the family masks

    def __len__(self) -> int:
        return int(self.states.shape[0])

    def __getitem__(self, rows: slice | Tensor) -> Conditioning:
        """Return some of the prompts."""
        return self._each(lambda part: part[rows])

    def repeated(self, times: int) -> Conditioning:
        """Return every prompt ``times`` times, its repeats side by side."""
        return self._each(lambda part: part.repeat_interleave(times, 0))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Conditioning:
        parts = (self.states, self.pooled, self.mask)
        return Conditioning(*(None if part is None else change(part) for part in parts))

    def with_states(self, states: Tensor) -> Conditioning:
        """Return the same with other token states, as mitigations make them."""
        return replace(self, states=states)


class DiffusionModel(Protocol):
    """A text-to-image diffusion model."""

    name: str  #: as the user named it
    #: ``sd`` (Stable Diffusion 1.x, 2.x and fine-tunes), ``if`` (DeepFloyd IF stage 1), ``sd3``
    family: str
    prediction: str  #: the network's output: ``epsilon``, ``v_prediction``, ``sample`` or ``flow``
    digest: str  #: of weights and everything else that its images depend on
    shape: tuple[int, int, int]  #: (channels, height, width) of a noise
    device: str  #: of torch
    precision: str  #: ``fp32``, ``fp16`` or ``bf16``

    def about(self) -> dict[str, object]:
        """Return everything a result has to name, as plain data."""

    def encode_prompt(self, prompts: Sequence[str]) -> Conditioning:
        """Encode prompts; ``""`` is the empty prompt. A row never depends on its neighbours."""

    def first_timestep(self, steps: int) -> float:
        """Return the first timestep of the sampler when it makes ``steps`` steps."""

    def noises(self, seeds: Sequence[int]) -> Tensor:
        """Draw noises (n, channels, height, width) on the CPU, each of its seed alone."""

    def predict_noise(self, latents: Tensor, timestep: float, conditioning: Conditioning) -> Tensor:
        """Return the raw output of the network, without guidance; gradients flow if switched on."""

    def as_epsilon(self, output: Tensor, latents: Tensor, timestep: float) -> Tensor:
        """Return the noise that a raw output stands for."""

    def sample(
        self, conditioning: Conditioning, seeds: Sequence[int], sampling: Sampling
    ) -> Bytes8:
        """Make one image (height, width, 3) per row from the noise of its seed."""


#: Width of the text encoder's states, by which Stable Diffusion 1 and 2 are told apart, and the
#: sides of their latents.
_VERSIONS: Final = {768: ("sd1", (64,)), 1024: ("sd2", (64, 96))}
#: Which model a version is, in words.
VERSIONS: Final = {"sd1": "Stable Diffusion 1", "sd2": "Stable Diffusion 2"}


def version_of(model: DiffusionModel) -> str | None:
    """Return the model whose constants fit, ``sd1`` or ``sd2``: D's scale is that of a size too."""
    config = getattr(getattr(model, "network", None), "config", None)
    name, sides = _VERSIONS.get(getattr(config, "cross_attention_dim", 0), ("", ()))
    fits = tuple(model.shape) in {(4, side, side) for side in sides}
    return name if model.family == "sd" and fits else None


def about_model(model: DiffusionModel) -> dict[str, object]:
    """Return what a model reports, and at least its name, digest, device and precision."""
    names = ("name", "family", "prediction", "digest", "device", "precision")
    return {**{name: getattr(model, name) for name in names}, **model.about()}


class TokenModel(DiffusionModel, Protocol):
    """A model whose prompts can be taken apart into tokens, and put together from embeddings."""

    def token_ids(self, prompt: str) -> list[int]:
        """Return the ids of a prompt's own tokens: no begin, end or padding; cut to what fits."""

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """Return each token as text."""

    def prompt_of(self, ids: Sequence[int]) -> str:
        """Return the prompt that ids spell."""

    def most_tokens(self) -> int:
        """Return how many tokens of its own a prompt may have."""

    def token_table(self) -> Tensor:
        """Return the input embeddings of all tokens (vocabulary, width)."""

    def special_ids(self) -> frozenset[int]:
        """Return ids that are not part of any prompt: begin, end, padding, unknown."""

    def encode_embeddings(self, embeddings: Tensor) -> Conditioning:
        """Encode embeddings of tokens (n, tokens, width), as prompts of as many; gradients flow."""

    def pooled_text(self, prompts: Sequence[str]) -> Float32:
        """Return the text encoder's pooled embeddings (n, width), not normalised."""


def with_tokens(model: DiffusionModel, method: str, instead: str = "") -> TokenModel:
    """Return a model whose prompts can be taken apart into tokens, which a method needs."""
    if not hasattr(model, "token_ids"):
        raise UsageError(
            f"{method} needs the tokens of a prompt, which {model.name} does not provide;"
            f" {instead or f'leave {method} out'}"
        )
    return cast(TokenModel, model)
