"""The methods of a token model, for every family whose prompts a tokenizer takes apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError
from visleak.memorization.model import Conditioning, Tensor
from visleak.memorization.models.parts import quiet
from visleak.memorization.models.pipeline import Pipeline
from visleak.memorization.models.tokens import PromptTokens

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
