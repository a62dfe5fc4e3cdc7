"""Which words may stand at a position of a prompt: proposals of a masked language model."""

from __future__ import annotations

import hashlib
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError, VisleakError

#: ASCII punctuation that is never proposed where stop words are on; the full stop has a rule of
#: its own.
PUNCTUATION: Final = frozenset(string.punctuation) - {"."}

#: The list that comes with visleak.
OWN: Final = "banned_words.txt"

#: Bytes of a list of banned words, at most.
_LARGEST: Final = 10_000_000


@dataclass(frozen=True)
class Vocabulary:
    """The words of a tokenizer.

    Attributes:
        tokens: id of each token by its text.
        size: of the network's output; ids run from 0 to below it.
        special: ids that are no words: begin, end, mask, padding, unknown, and ids without a token.
        inner: ids of pieces that go on a word (``##ing``).
    """

    tokens: Mapping[str, int]
    size: int
    special: frozenset[int]
    inner: frozenset[int]

    @classmethod
    def of(cls, tokenizer: Any, size: int) -> Vocabulary:
        """Return that of a tokenizer and a network of ``size`` outputs."""
        tokens = {str(text): int(number) for text, number in tokenizer.get_vocab().items()}
        nameless = frozenset(range(size)) - frozenset(tokens.values())
        special = frozenset(map(int, tokenizer.all_special_ids)) | nameless
        inner = frozenset(number for text, number in tokens.items() if text.startswith("##"))
        beyond = [text for text, number in tokens.items() if number >= size]
        if beyond:
            raise VisleakError(
                f"the language model's tokenizer knows {len(beyond)} tokens that the network does"
                f" not, such as {min(beyond)!r}; they are of two models"
            )
        return cls(tokens, size, special, inner)

    def id_of(self, word: str) -> int | None:
        """Return the id of a word that is one token, else ``None``."""
        return self.tokens.get(word)


def is_stop_word(token: str) -> bool:
    """Whether a token is on the authors' kind of stop list: it is made by rule, not by meaning.

    >>> words = ("[unused7]", "naïve", "1984", "!", "...", ".", "the")
    >>> [word for word in words if is_stop_word(word)]
    ['[unused7]', 'naïve', '1984', '!', '...']
    """
    return (
        (token.startswith("[unused") and token.endswith("]"))
        or not token.isascii()
        or token.isdigit()
        or token in PUNCTUATION
        or token == "..."
    )


def stop_ids(vocabulary: Vocabulary) -> frozenset[int]:
    """Return ids of all tokens that :func:`is_stop_word` names."""
    return frozenset(number for text, number in vocabulary.tokens.items() if is_stop_word(text))


def banned_ids(vocabulary: Vocabulary, words: Iterable[str]) -> frozenset[int]:
    """Return ids of banned words; those of several pieces are let go, as in the authors' code."""
    found = (vocabulary.id_of(form) for word in words for form in (word, word.lower()))
    return frozenset(each for each in found if each is not None)


def own_banned_words() -> tuple[str, ...]:
    """Return visleak's list of words of colour, landscape and texture.

    They raise D without any memorization: many pictures of one colour or of one kind of landscape
    are alike (Hong et al. 2024 tell of it for PEZ; their code bans such words).

    >>> {"ocean", "turquoise"} <= set(own_banned_words())
    True
    """
    text = resources.files(__package__).joinpath(OWN).read_text(encoding="utf-8")
    return words_in(text)


def read_banned_words(path: Path) -> tuple[str, ...]:
    """Read a list of banned words: one per line; ``#`` begins a remark.

    Raises:
        UsageError: there is no such file.
        VisleakError: it is not UTF-8 text, or larger than 10 MB.
    """
    if not path.is_file():
        raise UsageError(
            f"--banned {path}: there is no such file; give a text file with one word per line, own"
            " or none"
        )
    try:
        if path.stat().st_size > _LARGEST:
            raise VisleakError(f"--banned {path} is over 10 MB; a list of words is shorter")
        return words_in(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise VisleakError(
            f"--banned {path} cannot be read ({error}); it is UTF-8 text, one word per line"
        ) from error


def words_in(text: str) -> tuple[str, ...]:
    r"""Return the words of a list, each once, in its order.

    >>> words_in("red\n# colours\n blue # sky\n\nred\n")
    ('red', 'blue')
    """
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return tuple(dict.fromkeys(line for line in lines if line))


def words_digest(words: Iterable[str]) -> str:
    """Return a digest of a set of words; the order does not matter."""
    text = "\n".join(sorted(set(words)))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


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
            positions: one per prompt, from 0.
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
