"""Which words may stand at a position of a prompt: proposals of a masked language model.

Every method that changes a prompt word by word (Algorithms 1 and 2 of Hong et al. 2024, ConZIC)
asks a :class:`Proposer` for candidates, so that they search the same vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from visleak.memorization.search.vocabulary import words_digest

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

#: Of Hugging Face's hub; what the paper proposes words with.
DEFAULT: Final = "hub:google-bert/bert-base-uncased"


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
