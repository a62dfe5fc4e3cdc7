"""The words of a language model: which of them no search should propose."""

from __future__ import annotations

import hashlib
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

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
    """Read a list of banned words: one a line; ``#`` begins a remark.

    Raises:
        UsageError: there is no such file.
        VisleakError: it is no UTF-8 text, or larger than 10 MB.
    """
    if not path.is_file():
        raise UsageError(
            f"--banned {path}: there is no such file; give a text file with one word a line, own or"
            " none"
        )
    try:
        if path.stat().st_size > _LARGEST:
            raise VisleakError(f"--banned {path} is over 10 MB; a list of words is shorter")
        return words_in(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise VisleakError(
            f"--banned {path} cannot be read ({error}); it is UTF-8 text, one word a line"
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
