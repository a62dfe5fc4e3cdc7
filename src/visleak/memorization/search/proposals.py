"""Which words may stand at a position of a prompt: proposals of a masked language model.

Every method that changes a prompt word by word (Algorithms 1 and 2 of Hong et al. 2024, ConZIC)
asks a :class:`Proposer` for candidates, so that they search the same vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from visleak.encoders.libraries import library
from visleak.errors import UsageError, VisleakError
from visleak.memorization.search.vocabulary import (
    Vocabulary,
    banned_ids,
    stop_ids,
    words_digest,
)

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

#: Of Hugging Face's hub; what the paper proposes words with.
DEFAULT: Final = "hub:google-bert/bert-base-uncased"

#: Rows a forward pass of the language model.
BATCH: Final = 64


@dataclass(frozen=True, slots=True)
class Candidates:
    """What may stand at one position of one prompt.

    Attributes:
        ids: of words, most probable first; words that were forced in come last, and have taken the
            places of the least probable.
        log_probabilities: of the language model over its whole vocabulary, one each.
    """

    ids: Int64
    log_probabilities: Float64


@dataclass(frozen=True, slots=True)
class Rules:
    """Which proposals of a language model are taken; the paper's way by default.

    Attributes:
        prefix: text in front of the masks that the language model reads and nobody else; the
            authors' code has ``Image of a``, the paper none.
        stop: never propose ``[unusedX]``, what is not ASCII, digits, ASCII punctuation but the
            full stop, and ``...`` (the code; the paper has no such list).
        banned: words that are never proposed, where they are one piece of the vocabulary: colours
            and landscapes raise D without memorization (the code has such a list).
        banned_name: what the list is called in results.
        stop_last: let a full stop stand at the last position only (the code).
    """

    prefix: str = ""
    stop: bool = False
    banned: tuple[str, ...] = ()
    banned_name: str = "none"
    stop_last: bool = False

    def about(self) -> dict[str, object]:
        """Return the rules as plain data; the list by name, size and digest."""
        return {
            "prefix": self.prefix,
            "stop_words": "rule" if self.stop else "none",
            "banned": self.banned_name,
            "banned_words": len(set(self.banned)),
            "banned_digest": words_digest(self.banned),
            "full_stop": "last" if self.stop_last else "anywhere",
        }


class Proposer(Protocol):
    """Says which words may stand where.

    A prompt is a row of ids, masks among them; all of a search have the same meaning throughout.

    Attributes:
        name: of the model.
    """

    name: str

    def about(self) -> dict[str, object]:
        """Return everything that proposals depend on, as plain data."""
        ...

    def start(self, length: int) -> list[int]:
        """Return a prompt of ``length`` masks."""
        ...

    def ids(self, text: str) -> tuple[list[int], int]:
        """Return the ids of a prompt, and how many of its pieces are unknown and left out."""
        ...

    def candidates(
        self,
        states: Sequence[Sequence[int]],
        positions: Sequence[int],
        count: int,
        forced: Sequence[Sequence[int]] | None = None,
    ) -> list[Candidates]:
        """Return candidates for one position of each of several prompts.

        Args:
            states: the prompts; the word at the position is not looked at.
            positions: one a prompt, from 0.
            count: of candidates; fewer where the vocabulary allows fewer.
            forced: ids that have to be among them, one list a prompt.
        """
        ...

    def texts(self, states: Sequence[Sequence[int]]) -> list[str]:
        """Return prompts as text: pieces merged into words, masks left out."""
        ...

    def words(self) -> Int64:
        """Return ids of all whole words that may stand in a prompt, ascending."""
        ...


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


def best_candidates(
    log_probabilities: Float64,
    allowed: npt.NDArray[np.bool_],
    count: int,
    forced: Sequence[int] = (),
) -> Candidates:
    """Return the ``count`` most probable of the allowed words, and those that are forced in.

    Args:
        log_probabilities: of all words, (vocabulary,).
        allowed: whether a word may be proposed, (vocabulary,).
        count: of candidates, forced ones included.
        forced: ids that have to be there, allowed or not; they take the places of the least
            probable.

    >>> logs = np.log(np.array([0.1, 0.4, 0.3, 0.2]))
    >>> best_candidates(logs, np.array([True, True, False, True]), 2).ids.tolist()
    [1, 3]
    >>> best_candidates(logs, np.array([True, True, False, True]), 2, [2]).ids.tolist()
    [1, 2]
    """
    there = np.flatnonzero(allowed)
    # stable, so that equal probabilities are in the order of ids
    order = there[np.argsort(-log_probabilities[there], kind="stable")][:count]
    found = order.tolist()
    missing = [each for each in dict.fromkeys(forced) if each not in found]
    if missing:
        must = set(forced)
        while found and len(found) + len(missing) > count:
            last = next((each for each in reversed(found) if each not in must), None)
            if last is None:
                break
            found.remove(last)
        found += missing
    ids = np.array(found, np.int64)
    return Candidates(ids, np.asarray(log_probabilities[ids]))


def _frame(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return what a tokenizer puts before and after a text, such as [CLS] and [SEP].

    The library's calls for it differ between its versions; a text shows it in all.
    """
    mask = tokenizer.mask_token_id
    made = list(tokenizer(tokenizer.mask_token)["input_ids"])
    place = made.index(mask)
    return made[:place], made[place + 1 :]
