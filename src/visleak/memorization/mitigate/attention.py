"""Cross-attention whose begin token weighs more, and whose summary tokens are not seen.

Ren et al. 2024, equation 16: a query's logits (s_1, ..., s_N) become (C s_1, s_2, ..., s_{N-S},
-inf, ..., -inf) before the softmax, s_1 being that of the begin token and the last S those of the
summary tokens. C times a logit is the logit of C times its key, so the library's own processor
does the rest: a change that changes nothing is the stock computation, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from visleak.encoders.libraries import library
from visleak.errors import VisleakError
from visleak.memorization.model import Tensor

#: Processors of diffusers that read keys by ``to_k`` and add a mask to the logits.
STOCK: Final = ("AttnProcessor", "AttnProcessor2_0")


@dataclass(frozen=True, slots=True)
class Branch:
    """What is done to one row for each image: with its prompt, or with the empty one.

    Attributes:
        factors: C, by image.
        kept: how many tokens are seen, from the begin token on, by image; ``None``: all.
    """

    factors: Sequence[float]
    kept: Sequence[int | None]


@dataclass(frozen=True, slots=True)
class Change:
    """What is done to the rows of a batch of images.

    Attributes:
        conditional: rows with the prompts.
        unconditional: rows with the empty prompt, which come first where there is guidance.
    """

    conditional: Branch
    unconditional: Branch

    def of(self, states: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return what is done to a call of the network.

        Args:
            states: (rows, tokens, width) that its cross-attention reads.

        Returns:
            C of each row (rows, 1, 1), and what is added to its logits (rows, 1, tokens); ``None``
            where that changes nothing.

        Raises:
            VisleakError: rows are neither those with a prompt nor both kinds.
        """
        torch = library("torch", "diffusion", "the mitigation ren")
        rows, tokens = states.shape[:2]
        images = len(self.conditional.factors)
        if rows not in (images, 2 * images):
            raise VisleakError(
                f"the network was asked for {rows} rows at once for {images} images; ren knows"
                " their meaning only where prompts, or empty prompts and prompts, come together"
            )
        branches = [self.conditional] if rows == images else [self.unconditional, self.conditional]
        factors = [each for branch in branches for each in branch.factors]
        ends = [tokens if each is None else each for branch in branches for each in branch.kept]
        scale = bias = None
        if any(each != 1.0 for each in factors):
            scale = torch.tensor(factors, dtype=states.dtype, device=states.device)[:, None, None]
        if any(each < tokens for each in ends):
            hidden = torch.arange(tokens)[None] >= torch.tensor(ends)[:, None]
            bias = torch.zeros(hidden.shape).masked_fill(hidden, float("-inf"))
            bias = bias[:, None].to(states)
        return scale, bias


class _BeginScaled:
    """An attention module whose begin token has another key."""

    def __init__(self, attention: Any, scale: Tensor) -> None:
        self._attention, self._scale = attention, scale

    def __getattr__(self, name: str) -> Any:
        return getattr(self._attention, name)

    def to_k(self, states: Tensor) -> Tensor:
        """Return the keys (rows, tokens, width)."""
        torch = library("torch", "diffusion", "the mitigation ren")
        keys = self._attention.to_k(states)
        return torch.cat([keys[:, :1] * self._scale.to(keys), keys[:, 1:]], 1)


class Rescaling:
    """An attention processor of diffusers that changes what cross-attention sees.

    Args:
        stock: the processor that computes; self-attention is left to it.
        change: what is done.
    """

    def __init__(self, stock: Any, change: Change) -> None:
        self.stock, self.change = stock, change

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        temb: Tensor | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Tensor:
        """Attend; arguments are the library's."""
        if encoder_hidden_states is not None:
            scale, bias = self.change.of(encoder_hidden_states)
            if bias is not None:
                attention_mask = bias if attention_mask is None else attention_mask + bias
            if scale is not None:
                attn = _BeginScaled(attn, scale)
        return self.stock(
            attn, hidden_states, encoder_hidden_states, attention_mask, temb, *args, **kwargs
        )


@contextmanager
def processors(network: Any, made: Callable[[Any], Any]) -> Iterator[None]:
    """Replace the attention processors of a network for a while, whatever happens.

    Args:
        network: of diffusers.
        made: from each stock processor to the one in its place.
    """
    stock = dict(network.attn_processors)
    try:
        # the library empties the table that it is given
        network.set_attn_processor({name: made(each) for name, each in stock.items()})
        yield
    finally:
        network.set_attn_processor(dict(stock))


def unknown_processors(network: Any) -> list[str]:
    """Return the kinds of processors of a network that cannot be changed."""
    kinds = {type(each).__name__ for each in network.attn_processors.values()}
    return sorted(kinds - set(STOCK))
