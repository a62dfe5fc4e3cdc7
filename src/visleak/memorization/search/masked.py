"""Proposals of a masked language model of transformers, such as BERT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from visleak.encoders.libraries import library
from visleak.errors import UsageError, VisleakError
from visleak.memorization.search.proposals import (
    Candidates,
    Float64,
    Int64,
    Rules,
    best_candidates,
)
from visleak.memorization.search.vocabulary import Vocabulary, banned_ids, stop_ids

#: Rows a forward pass of the language model.
BATCH: Final = 64


class MaskedLanguageModel:
    """Proposals of a masked language model of transformers.

    Attributes:
        name: as it was asked for.
        rules: which proposals are taken.
    """

    def __init__(self, name: str, network: Any, tokenizer: Any, digest: str, rules: Rules) -> None:
        self.name = name
        self.rules = rules
        self._network = network
        self._tokenizer = tokenizer
        self._digest = digest
        self._torch = library("torch", "diffusion", f"the language model {name}")
        self._vocabulary = Vocabulary.of(tokenizer, int(network.config.vocab_size))
        if tokenizer.mask_token_id is None:
            raise VisleakError(
                f"language model {name} has no mask token; give a masked one, such as BERT"
            )
        self._mask = int(tokenizer.mask_token_id)
        self._prefix = list(tokenizer(rules.prefix, add_special_tokens=False)["input_ids"])
        self._around = _frame(tokenizer)
        self._longest = int(getattr(network.config, "max_position_embeddings", 512))
        self._refused = self._vocabulary.special | banned_ids(self._vocabulary, rules.banned)
        if rules.stop:
            self._refused = self._refused | stop_ids(self._vocabulary)
        self._full_stop = self._vocabulary.id_of(".") if rules.stop_last else None
        self._allowed = np.ones(self._vocabulary.size, bool)
        self._allowed[sorted(self._refused)] = False
        if not self._allowed.any():
            raise VisleakError(f"every word of language model {name} is banned; ban fewer")

    def about(self) -> dict[str, object]:
        """Return everything that proposals depend on, as plain data."""
        return {"model": self.name, "digest": self._digest, **self.rules.about()}

    @property
    def mask(self) -> int:
        """The id of a mask."""
        return self._mask

    def start(self, length: int) -> list[int]:
        """Return a prompt of ``length`` masks.

        Raises:
            UsageError: the model cannot read so many.
        """
        if length < 1:
            raise UsageError(f"a prompt has at least 1 word; got {length}")
        self._check(length)
        return [self._mask] * length

    def ids(self, text: str) -> tuple[list[int], int]:
        """Return the ids of a prompt, and how many of its pieces are unknown and left out.

        Raises:
            UsageError: it is longer than the model can read.
        """
        found = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        known = [int(each) for each in found if int(each) not in self._vocabulary.special]
        self._check(len(known))
        return known, len(found) - len(known)

    def _check(self, length: int) -> None:
        most = self._longest - len(self._prefix) - sum(map(len, self._around))
        if length > most:
            raise UsageError(
                f"language model {self.name} reads prompts of up to {most} word pieces; got"
                f" {length}"
            )

    def candidates(
        self,
        states: Sequence[Sequence[int]],
        positions: Sequence[int],
        count: int,
        forced: Sequence[Sequence[int]] | None = None,
    ) -> list[Candidates]:
        """Return the most probable words of one position of each of several prompts.

        Prompts of one length are read in one pass; ties go to the lower id.
        """
        wanted = forced or [()] * len(states)
        answers = self._answers(states, positions)
        made = []
        for state, position, must, row in zip(states, positions, wanted, answers, strict=True):
            allowed = self._allowed
            if self._full_stop is not None and position != len(state) - 1:
                allowed = allowed.copy()
                allowed[self._full_stop] = False
            made.append(best_candidates(row, allowed, count, must))
        return made

    def _answers(self, states: Sequence[Sequence[int]], positions: Sequence[int]) -> Float64:
        """Return the log-probabilities of all words at the positions, (prompts, vocabulary)."""
        made = np.empty((len(states), self._vocabulary.size))
        by_length: dict[int, list[int]] = {}
        for row, state in enumerate(states):
            by_length.setdefault(len(state), []).append(row)
        for rows in by_length.values():
            for start in range(0, len(rows), BATCH):
                part = rows[start : start + BATCH]
                made[part] = self._pass([states[row] for row in part], [positions[r] for r in part])
        return made

    def _pass(self, states: Sequence[Sequence[int]], positions: Sequence[int]) -> Float64:
        torch = self._torch
        before, after = self._around
        offset = len(before) + len(self._prefix)
        rows = []
        for state, position in zip(states, positions, strict=True):
            masked = [*state[:position], self._mask, *state[position + 1 :]]
            rows.append([*before, *self._prefix, *masked, *after])
        with torch.inference_mode():
            inputs = torch.tensor(rows, device=self._network.device)
            logits = self._network(input_ids=inputs, attention_mask=torch.ones_like(inputs)).logits
            places = torch.tensor([offset + each for each in positions], device=logits.device)
            chosen = logits[torch.arange(len(rows), device=logits.device), places].double()
            found: Float64 = torch.log_softmax(chosen, -1).cpu().numpy()
        return found

    def texts(self, states: Sequence[Sequence[int]]) -> list[str]:
        """Return prompts as text: pieces merged into words, masks left out.

        Blanks before commas and within ``won't`` go, as in the authors' code.
        """
        special = self._vocabulary.special
        rows = [[int(each) for each in state if int(each) not in special] for state in states]
        decoded = self._tokenizer.batch_decode(
            rows, skip_special_tokens=True, clean_up_tokenization_spaces=True
        )
        return [str(text).strip() for text in decoded]

    def words(self) -> Int64:
        """Return ids of all whole words that may stand in a prompt, ascending."""
        inner = self._vocabulary.inner
        return np.array(
            [each for each in np.flatnonzero(self._allowed).tolist() if each not in inner], np.int64
        )


def _frame(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return what a tokenizer puts before and after a text, such as [CLS] and [SEP].

    The library's calls for it differ between its versions; a text shows it in all.
    """
    mask = tokenizer.mask_token_id
    made = list(tokenizer(tokenizer.mask_token)["input_ids"])
    place = made.index(mask)
    return made[:place], made[place + 1 :]
