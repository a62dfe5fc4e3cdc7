"""Cross-attention is changed while images are made (Ren et al. 2024).

"Unveiling and Mitigating Memorization in Text-to-image Diffusion Models through Cross Attention",
equation 16: a query's logits (s_1, ..., s_N) become (C s_1, s_2, ..., s_{N-S}, -inf, ..., -inf)
before the softmax, s_1 being that of the begin token and the last S those of the summary tokens
(the end of a prompt and the padding behind). C times a logit is the logit of C times its key, so
the library's own processor does the rest: a change that changes nothing is the stock computation,
bit for bit. Where the begin token's logits are not positive, attention is not taken off the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from visleak.diffusion.model import DiffusionModel, Sampling, Tensor, TokenModel, with_tokens
from visleak.errors import UsageError, VisleakError
from visleak.lazy import library
from visleak.memorization.extraction.images import Job, Maker
from visleak.memorization.mitigate.method import LETTER, Mitigation
from visleak.records import Bytes8

if TYPE_CHECKING:
    from diffusers import ModelMixin
    from diffusers.models.attention_processor import Attention, AttnProcessor

#: Processors of diffusers that read keys by ``to_k`` and add a mask to the logits.
STOCK: Final = ("AttnProcessor", "AttnProcessor2_0")


@dataclass(frozen=True, slots=True)
class Change:
    """What is done to the rows of a batch of images."""

    factor: float  #: C, in rows with a prompt
    kept: Sequence[int]  #: visible tokens of each image, from the begin token on

    def of(self, states: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return begin-token factors (rows, 1, 1) and added logits (rows, 1, tokens), if any."""
        torch = library("torch", "diffusion", "the mitigation ren")
        rows, tokens = states.shape[:2]
        images = len(self.kept)
        if rows not in (images, 2 * images):
            raise VisleakError(
                f"the network got {rows} rows at once for {images} images; ren needs a row for each"
                " prompt, or for each empty prompt and each prompt"
            )
        empty = rows - images
        ends = [*[tokens] * empty, *self.kept]
        scale = bias = None
        if self.factor != 1.0:
            factors = [1.0] * empty + [self.factor] * images
            scale = torch.tensor(factors, dtype=states.dtype, device=states.device)[:, None, None]
        if any(each < tokens for each in ends):
            hidden = torch.arange(tokens)[None] >= torch.tensor(ends)[:, None]
            bias = torch.zeros(hidden.shape).masked_fill(hidden, float("-inf"))
            bias = bias[:, None].to(states)
        return scale, bias


class _BeginScaled:
    """An attention module whose begin token has another key."""

    def __init__(self, attention: Attention, scale: Tensor) -> None:
        self._attention, self._scale = attention, scale

    def __getattr__(self, name: str) -> object:
        return getattr(self._attention, name)

    def to_k(self, states: Tensor) -> Tensor:
        keys = self._attention.to_k(states).clone()
        keys[:, :1] *= self._scale.to(keys)
        return keys


class Rescaling:
    """An attention processor of diffusers that rescales and masks cross-attention."""

    def __init__(self, stock: AttnProcessor, change: Change) -> None:
        self.stock, self.change = stock, change

    def __call__(
        self,
        attn: Attention,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *args: object,
        **kwargs: object,
    ) -> Tensor:
        """Attend; arguments are the library's."""
        if encoder_hidden_states is not None:
            scale, bias = self.change.of(encoder_hidden_states)
            if bias is not None:
                attention_mask = bias if attention_mask is None else attention_mask + bias
            if scale is not None:
                attn = _BeginScaled(attn, scale)
        states = (hidden_states, encoder_hidden_states, attention_mask)
        return self.stock(attn, *states, *args, **kwargs)


@contextmanager
def processors(network: ModelMixin, made: Callable[[AttnProcessor], Rescaling]) -> Iterator[None]:
    """Replace the attention processors of a network within a context."""
    stock = dict(network.attn_processors)
    try:
        # the library empties the table that it is given
        network.set_attn_processor({name: made(each) for name, each in stock.items()})
        yield
    finally:
        network.set_attn_processor(dict(stock))


SOURCE: Final = (
    "Ren et al. 2024, Unveiling and Mitigating Memorization in Text-to-image Diffusion Models"
    " through Cross Attention, equation 16"
)
#: Families that it is defined for, and why not for the others.
FAMILIES: Final = ("sd", "sdxl")
REFUSED: Final = {
    "sd3": "it attends to prompt and image jointly and has no cross-attention",
    "if": "its T5 puts no begin token before a prompt",
}


@dataclass(frozen=True)
class AttentionRescaling(Mitigation):
    """Ren et al. 2024. The pooled embedding of Stable Diffusion XL stays."""

    name = "ren"
    source = SOURCE

    #: C, which the begin token's logit is multiplied with; with 1 tokens are still hidden
    factor: float = field(metadata={LETTER: "C"})
    #: which tokens are hidden: ``all``, end and padding (equation 16), or ``padding``, which leaves
    #: the end (the code as MemBench runs it)
    summary: Literal["all", "padding"] = "all"

    def __post_init__(self) -> None:
        if not 0 < self.factor <= 100:
            raise UsageError(
                f"C of ren is above 0, at most 100 (the paper: 1 to 1.3); got {self.factor:g}"
            )

    def prepared(self, model: DiffusionModel, seeds: Sequence[int]) -> Maker:
        """Return what makes images with changed cross-attention; refuse where it cannot be."""
        if model.family not in FAMILIES:
            why = REFUSED.get(model.family, "its cross-attention is not known")
            raise UsageError(
                f"ren cannot change model {model.name} ({model.family}): {why}; leave ren out"
            )
        with_tokens(model, self.name)
        network: Any = getattr(model, "network", None)
        if not hasattr(network, "set_attn_processor"):
            raise UsageError(
                "ren needs a network of diffusers with attention processors, which model"
                f" {model.name} has not; leave ren out"
            )
        kinds = {type(each).__name__ for each in network.attn_processors.values()}
        if unknown := sorted(kinds - set(STOCK)):
            raise UsageError(
                f"ren cannot change the attention of model {model.name}, which"
                f" {', '.join(unknown)} computes; load the model without it"
            )
        return Maker(self.key(), self._images)

    def _images(self, model: DiffusionModel, jobs: Sequence[Job], sampling: Sampling) -> Bytes8:
        known: Any = with_tokens(model, self.name)
        parts = []
        # a batch at a time, so that its rows are known
        for start in range(0, len(jobs), sampling.batch):
            some = jobs[start : start + sampling.batch]
            change = self.change(known, some)
            encoded = model.encode_prompt([job.prompt for job in some])
            with processors(known.network, partial(Rescaling, change=change)):
                parts.append(model.sample(encoded, [job.seed for job in some], sampling))
        return np.concatenate(parts)

    def change(self, model: TokenModel, jobs: Sequence[Job]) -> Change:
        """Return what is done to the rows of some images."""
        around = 2 if self.summary == "padding" else 1
        return Change(self.factor, [around + len(model.token_ids(job.prompt)) for job in jobs])
