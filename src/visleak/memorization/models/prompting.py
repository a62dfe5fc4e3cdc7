"""Prompts as tokens of a text encoder, and the methods of a token model for every family."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from visleak.encoders.libraries import library
from visleak.errors import UsageError, VisleakError
from visleak.memorization.model import Conditioning, Tensor
from visleak.memorization.models.parts import quiet
from visleak.memorization.models.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Rows:
    """Prompts as a text encoder reads them.

    Attributes:
        ids: (n, length) with begin, end and padding.
        mask: (n, length), 1 where a token is no padding.
    """

    ids: Tensor
    mask: Tensor


class PromptTokens:
    """A tokenizer and the text encoder that reads it.

    Attributes:
        length: tokens of a row, with begin, end and padding.
    """

    def __init__(
        self,
        name: str,
        tokenizer: Any,
        encoder: Any,
        length: int,
        cleaned: Callable[[str], str] = str,
        table: Any = None,
    ) -> None:
        """Take the two apart.

        Args:
            name: of the model, for messages.
            tokenizer: of transformers.
            encoder: of transformers.
            length: tokens of a row.
            cleaned: what is done to a prompt before it is taken apart.
            table: the module that embeds ids, where it is not the one that the encoder names.

        Raises:
            VisleakError: the tokenizer is not the encoder's, or marks no end.
        """
        self._torch = library("torch", "diffusion", f"model {name}")
        self._tokenizer, self._encoder, self._cleaned = tokenizer, encoder, cleaned
        self._table = table or encoder.get_input_embeddings()
        self.length = length
        # an empty prompt is what stands around every prompt
        around = [int(each) for each in tokenizer("").input_ids]
        if tokenizer.eos_token_id not in around or tokenizer.pad_token_id is None:
            raise VisleakError(
                f"model {name}: its tokenizer has no end or no padding token; that of the text"
                " encoder is needed"
            )
        end = around.index(tokenizer.eos_token_id)
        self._before, self._after = around[:end], around[end:]
        entries = int(self._table.weight.shape[0])
        if len(tokenizer) > entries or len(tokenizer) <= len(self.special_ids()):
            raise VisleakError(
                f"model {name}: its tokenizer has {len(tokenizer)} tokens and its text encoder"
                f" {entries}; they are not of one model"
            )

    def rows(self, prompts: Sequence[str]) -> Rows:
        """Return prompts, each cut to what fits and filled up to ``length``.

        Raises:
            UsageError: there are none.
        """
        if not prompts:
            raise UsageError("prompts must hold at least one prompt; got none")
        found = self._tokenizer(
            [self._cleaned(prompt) for prompt in prompts],
            padding="max_length",
            max_length=self.length,
            truncation=True,
            return_attention_mask=True,
            return_tensors="pt",
        )
        device = self._encoder.device
        return Rows(found.input_ids.to(device), found.attention_mask.to(device))

    def token_ids(self, prompt: str) -> list[int]:
        """Return the ids of a prompt's own tokens, cut to what fits."""
        found = self._tokenizer(self._cleaned(prompt), max_length=self.length, truncation=True)
        ids = [int(each) for each in found.input_ids]
        return ids[len(self._before) : len(ids) - len(self._after)]

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """Return each token as text; bytes that are no whole character become U+FFFD."""
        return [self._decoded([each]) for each in ids]

    def prompt_of(self, ids: Sequence[int]) -> str:
        """Return the prompt that ids spell, without begin, end and unknown.

        What pads is kept: Stable Diffusion 2 pads with ``!``, which prompts may hold as well.
        """
        tokenizer = self._tokenizer
        dropped = {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id}
        return self._decoded([each for each in ids if each not in dropped])

    def _decoded(self, ids: Sequence[int]) -> str:
        ids = [int(each) for each in ids]
        text = self._tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        return str(text).strip()

    def most_tokens(self) -> int:
        """Return how many tokens of its own a prompt may have."""
        return self.length - len(self._before) - len(self._after)

    def special_ids(self) -> frozenset[int]:
        """Return ids of begin, end, padding, unknown and the like."""
        return frozenset(int(each) for each in self._tokenizer.all_special_ids)

    def table(self) -> Tensor:
        """Return the input embeddings of the tokenizer's tokens (vocabulary, width)."""
        return self._table.weight[: len(self._tokenizer)]

    def rows_around(self, embeddings: Tensor) -> Rows:
        """Return rows with begin, end and padding around tokens that are given as embeddings.

        Where those stand is a token that is none of the special ones.

        Args:
            embeddings: (n, tokens, width).

        Raises:
            UsageError: a shape that cannot be.
        """
        width, most = int(self.table().shape[1]), self.most_tokens()
        shape = tuple(embeddings.shape)
        if len(shape) != 3 or not shape[0] or shape[1] > most or shape[2] != width:
            raise UsageError(
                f"embeddings must be (prompts, at most {most} tokens, {width}); got {shape}"
            )
        special = self.special_ids()
        other = next(each for each in range(len(self._tokenizer)) if each not in special)
        row = [*self._before, *([other] * shape[1]), *self._after]
        kept = len(row)
        row += [int(self._tokenizer.pad_token_id)] * (self.length - kept)
        device = self._encoder.device
        ids = self._torch.tensor([row], device=device).repeat(shape[0], 1)
        mask = (self._torch.arange(self.length, device=device) < kept).long()
        return Rows(ids, mask.repeat(shape[0], 1))

    @contextmanager
    def in_place(self, embeddings: Tensor) -> Iterator[None]:
        """Let the encoder's input embeddings be these where a prompt's own tokens stand."""
        first, last = len(self._before), len(self._before) + int(embeddings.shape[1])

        def replaced(_module: Any, _inputs: Any, output: Tensor) -> Tensor:
            given = embeddings.to(output.device, output.dtype)
            return self._torch.cat([output[:, :first], given, output[:, last:]], 1)

        handle = self._table.register_forward_hook(replaced)
        try:
            yield
        finally:
            handle.remove()


#: Prompts a call of the text encoder, where only its pooled output is kept.
_POOLED_BATCH = 64


class PromptedPipeline(Pipeline):
    """A pipeline that is a :class:`visleak.memorization.model.TokenModel`.

    What a family cannot do it refuses, with the reason.
    """

    #: Set by the family.
    _tokens: PromptTokens

    def token_ids(self, prompt: str) -> list[int]:
        """Return the ids of a prompt's own tokens, cut to what fits."""
        return self._tokens.token_ids(prompt)

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """Return each token as text; bytes that are no whole character become U+FFFD."""
        return self._tokens.token_texts(ids)

    def prompt_of(self, ids: Sequence[int]) -> str:
        """Return the prompt that ids spell."""
        return self._tokens.prompt_of(ids)

    def most_tokens(self) -> int:
        """Return how many tokens of its own a prompt may have."""
        return self._tokens.most_tokens()

    def special_ids(self) -> frozenset[int]:
        """Return ids that are no part of any prompt: begin, end, padding, unknown."""
        return self._tokens.special_ids()

    def token_table(self) -> Tensor:
        """Return the input embeddings of all tokens (vocabulary, width).

        Raises:
            UsageError: the family has more than one table.
        """
        self._refuse_embeddings("token_table")
        return self._tokens.table()

    def encode_embeddings(self, embeddings: Tensor) -> Conditioning:
        """Encode prompts given as input embeddings of their tokens; gradients flow.

        Begin, end and padding are put around, as for prompts of so many tokens.

        Args:
            embeddings: (n, tokens, width).

        Raises:
            UsageError: a shape that cannot be, or the family has more than one table.
        """
        self._refuse_embeddings("encode_embeddings")
        rows = self._tokens.rows_around(embeddings)
        with self._tokens.in_place(embeddings):
            return self._encoded_rows(rows.ids, rows.mask)

    def pooled_text(self, prompts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return the text encoder's pooled embeddings (n, width), not normalised.

        Raises:
            UsageError: the text encoder has none.
        """
        parts = [prompts[at : at + _POOLED_BATCH] for at in range(0, len(prompts), _POOLED_BATCH)]
        with self._torch.no_grad():
            # the empty prompt tells the width where there are no prompts
            found = [self._pooled(part).float().cpu().numpy() for part in parts or [[""]]]
        return np.asarray(np.concatenate(found)[: len(prompts)])

    def _encoded_rows(self, ids: Tensor, mask: Tensor) -> Conditioning:
        """Encode rows of ids."""
        raise NotImplementedError

    def _pooled(self, prompts: Sequence[str]) -> Tensor:
        """Return pooled embeddings of some prompts."""
        raise NotImplementedError

    def _refuse_embeddings(self, what: str) -> None:
        """Refuse what needs one table of embeddings, if the family has several."""

    def _cannot(self, what: str, why: str) -> UsageError:
        return UsageError(f"model {self.name} ({self.family}) has no {what}: {why}")


class PooledPipeline(PromptedPipeline):
    """A pipeline whose own method encodes prompts, for several encoders, with a pooled part."""

    def encode_prompt(self, prompts: Sequence[str]) -> Conditioning:
        """Encode prompts; ``""`` is the empty prompt. A row never depends on its neighbours.

        Raises:
            UsageError: there are none.
        """
        if not prompts:
            raise UsageError("prompts must hold at least one prompt; got none")
        with quiet():
            states, _, pooled, _ = self.pipeline.encode_prompt(
                list(prompts), None, **self._encoding(), do_classifier_free_guidance=False
            )
        return Conditioning(states, pooled)

    def _encoding(self) -> dict[str, Any]:
        return {"device": self.device}

    def _pooled_of(self, conditioning: Conditioning) -> Tensor:
        """Return the pooled part.

        Raises:
            UsageError: there is none.
        """
        if conditioning.pooled is None:
            raise UsageError(
                f"conditioning of model {self.name} ({self.family}) must have a pooled part; use"
                " encode_prompt, and with_states to change its states"
            )
        return conditioning.pooled.to(self._dtype)

    def _prompted(self, conditioning: Conditioning, guidance: float) -> dict[str, Any]:
        asked = super()._prompted(conditioning, guidance)
        asked["pooled_prompt_embeds"] = self._pooled_of(conditioning)
        if guidance > 1:
            empty = self.unconditional(len(conditioning))
            asked["negative_pooled_prompt_embeds"] = self._pooled_of(empty)
        return asked

    def _pooled(self, prompts: Sequence[str]) -> Tensor:
        return self.encode_prompt(prompts).pooled

    def _refuse_embeddings(self, what: str) -> None:
        raise self._cannot(
            what, "several text encoders read a prompt, each with a table of its own"
        )
