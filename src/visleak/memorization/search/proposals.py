"""Which words may stand at a position of a prompt: proposals of a masked language model."""

from __future__ import annotations

import hashlib
import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from visleak.encoders import language_models
from visleak.errors import UsageError, VisleakError
from visleak.lazy import library
from visleak.records import Bool, Float64, Int64

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Rows = Sequence[Sequence[int]]
#: Our list of banned words, and bytes of such a list at most.
OWN: Final = "banned_words.txt"
LARGEST: Final = 10_000_000
#: Rows of a forward pass of the language model.
BATCH: Final = 64
#: ASCII punctuation that is never proposed where stop words are on; the full stop has a rule of
#: its own.
PUNCTUATION: Final = frozenset(string.punctuation) - {"."}


@dataclass(frozen=True, slots=True)
class Candidates:
    """What may stand at one position of one prompt."""

    ids: Int64  #: of words, most probable first; forced words come last
    log_probabilities: Float64  #: of the language model over its whole vocabulary, one each


@dataclass(frozen=True, slots=True)
class Rules:
    """Which proposals of a language model are taken; all of them by default, as in the paper."""

    prefix: str = ""  #: text in front that only the language model reads (the code: ``Image of a``)
    #: never propose ``[unusedX]``, what is not ASCII, digits, punctuation and ``...``, and a full
    #: stop at the last position only (the code)
    stop: bool = False
    #: words that are never proposed, where they are one piece of the vocabulary: colours and
    #: landscapes raise D without memorization (the code has such a list)
    banned: tuple[str, ...] = ()
    banned_name: str = "none"  #: name of the list in results

    def about(self) -> dict[str, object]:
        """Return the rules as plain data; the list by name, size and digest."""
        text = "\n".join(sorted(set(self.banned))).encode("utf-8", "surrogatepass")
        return {
            "prefix": self.prefix,
            "stop_words": "rule" if self.stop else "none",
            "banned": self.banned_name,
            "banned_words": len(set(self.banned)),
            "banned_digest": hashlib.blake2b(text, digest_size=16).hexdigest(),
            "full_stop": "last" if self.stop else "anywhere",
        }

    def banning(self, banned: str | None) -> Rules:
        """Return the rules with another list of banned words: none, own or a file."""
        if banned is None:
            return self
        if banned in ("none", "own"):
            words = own_banned_words() if banned == "own" else ()
            return replace(self, banned=words, banned_name=banned)
        return replace(self, banned=read_banned_words(Path(banned)), banned_name=Path(banned).name)


class Proposer(Protocol):
    """Proposes words for positions of prompts: rows of ids, masks among them."""

    name: str  #: of the model

    def about(self) -> dict[str, object]:
        """Return everything that proposals depend on, as plain data."""

    def start(self, length: int) -> list[int]:
        """Return a prompt of ``length`` masks."""

    def ids(self, text: str) -> tuple[list[int], int]:
        """Return the ids of a prompt, and how many of its pieces are unknown and left out."""

    def candidates(
        self, states: Rows, positions: Sequence[int], count: int, forced: Rows | None = None
    ) -> list[Candidates]:
        """Return candidates for one position of each of several prompts."""

    def texts(self, states: Rows) -> list[str]:
        """Return prompts as text: pieces merged into words, masks left out."""

    def words(self) -> Int64:
        """Return ids of all whole words that may stand in a prompt, ascending."""


def is_stop_word(token: str) -> bool:
    """Whether a token is on the authors' kind of stop list, made by rule, not by meaning."""
    return (
        (token.startswith("[unused") and token.endswith("]"))
        or not token.isascii()
        or token.isdigit()
        or token in PUNCTUATION
        or token == "..."
    )


def own_banned_words() -> tuple[str, ...]:
    """Return our words of colour, landscape and texture, which raise D without memorization."""
    return words_in(resources.files(__package__).joinpath(OWN).read_text(encoding="utf-8"))


def read_banned_words(path: Path) -> tuple[str, ...]:
    """Read a list of banned words: one per line; ``#`` begins a comment."""
    if not path.is_file():
        raise UsageError(
            f"--banned {path}: there is no such file; give a text file with one word per line, own"
            " or none"
        )
    try:
        if path.stat().st_size > LARGEST:
            raise VisleakError(f"--banned {path} is over 10 MB; a list of words is shorter")
        return words_in(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise VisleakError(
            f"--banned {path} cannot be read ({error}); it is UTF-8 text, one word per line"
        ) from error


def words_in(text: str) -> tuple[str, ...]:
    """Return the words of a list, each once, in its order."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return tuple(dict.fromkeys(line for line in lines if line))


def best_candidates(
    log_probabilities: Float64, allowed: Bool, count: int, forced: Sequence[int] = ()
) -> Candidates:
    """Return the most probable of the allowed words; forced ones take the places of the least."""
    there = np.flatnonzero(allowed)
    # stable, so that equal probabilities are in the order of ids
    found = there[np.argsort(-log_probabilities[there], kind="stable")][:count].tolist()
    missing = [each for each in dict.fromkeys(forced) if each not in found]
    over = max(0, len(found) + len(missing) - count)
    spare = [each for each in found if each not in forced]
    dropped = spare[max(0, len(spare) - over) :]
    ids = np.array([*(each for each in found if each not in dropped), *missing], np.int64)
    return Candidates(ids, np.asarray(log_probabilities[ids]))


class MaskedLanguageModel:
    """Proposals of a masked language model of transformers, such as BERT."""

    def __init__(
        self,
        name: str,
        network: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        digest: str,
        rules: Rules,
    ) -> None:
        self.name, self.rules = name, rules
        self._network, self._tokenizer, self._digest = network, tokenizer, digest
        self._torch = library("torch", "diffusion", f"the language model {name}")
        self._size = int(network.config.vocab_size)
        tokens = {str(text): int(number) for text, number in tokenizer.get_vocab().items()}
        if beyond := [text for text, number in tokens.items() if number >= self._size]:
            raise VisleakError(
                f"the language model's tokenizer has {len(beyond)} tokens that the network does"
                f" not have, such as {min(beyond)!r}; they are of two models"
            )
        if tokenizer.mask_token_id is None:
            raise VisleakError(
                f"language model {name} has no mask token; give a masked one, such as BERT"
            )
        self.mask = int(tokenizer.mask_token_id)
        self._special = frozenset(map(int, tokenizer.all_special_ids)) | (
            frozenset(range(self._size)) - frozenset(tokens.values())
        )
        self._inner = {number for text, number in tokens.items() if text.startswith("##")}
        self._prefix = list(tokenizer(rules.prefix, add_special_tokens=False)["input_ids"])
        # the tokens around a text, such as [CLS]; versions have other functions for them
        around = list(tokenizer(tokenizer.mask_token)["input_ids"])
        place = around.index(self.mask)
        self._before, self._after = around[:place], around[place + 1 :]
        self._longest = int(getattr(network.config, "max_position_embeddings", 512))
        # banned words of several pieces are ignored, as in the authors' code
        banned = {tokens.get(form) for word in rules.banned for form in (word, word.lower())}
        stop = {number for text, number in tokens.items() if rules.stop and is_stop_word(text)}
        refused = self._special | stop | (banned - {None})
        self._allowed = np.ones(self._size, bool)
        self._allowed[sorted(int(each) for each in refused if each is not None)] = False
        if not self._allowed.any():
            raise VisleakError(f"every word of language model {name} is banned; ban fewer")
        self._full_stop = tokens.get(".") if rules.stop else None

    def about(self) -> dict[str, object]:
        """Return everything that proposals depend on, as plain data."""
        return {"model": self.name, "digest": self._digest, **self.rules.about()}

    def start(self, length: int) -> list[int]:
        """Return a prompt of ``length`` masks."""
        if length < 1:
            raise UsageError(f"a prompt has at least 1 word; got {length}")
        self._check(length)
        return [self.mask] * length

    def ids(self, text: str) -> tuple[list[int], int]:
        """Return the ids of a prompt, and how many of its pieces are unknown and left out."""
        found = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        known = [int(each) for each in found if int(each) not in self._special]
        self._check(len(known))
        return known, len(found) - len(known)

    def _check(self, length: int) -> None:
        most = self._longest - len(self._prefix) - len(self._before) - len(self._after)
        if length > most:
            raise UsageError(
                f"language model {self.name} reads prompts of up to {most} word pieces; got"
                f" {length}"
            )

    def candidates(
        self, states: Rows, positions: Sequence[int], count: int, forced: Rows | None = None
    ) -> list[Candidates]:
        """Return the most probable words of one position of each prompt; ties by id."""
        logs = np.empty((len(states), self._size))
        lengths = np.array([len(state) for state in states])
        for length in dict.fromkeys(lengths.tolist()):
            rows = np.flatnonzero(lengths == length).tolist()
            for start in range(0, len(rows), BATCH):
                part = rows[start : start + BATCH]
                logs[part] = self._pass([(states[at], positions[at]) for at in part])
        made = []
        for at, (state, position) in enumerate(zip(states, positions, strict=True)):
            allowed = self._allowed
            if self._full_stop is not None and position != len(state) - 1:
                allowed = allowed.copy()
                allowed[self._full_stop] = False
            made.append(best_candidates(logs[at], allowed, count, forced[at] if forced else ()))
        return made

    def _pass(self, places: Sequence[tuple[Sequence[int], int]]) -> Float64:
        """Return the log-probabilities of all words at positions, (prompts, vocabulary)."""
        torch, before = self._torch, [*self._before, *self._prefix]
        rows = [
            [*before, *state[:at], self.mask, *state[at + 1 :], *self._after]
            for state, at in places
        ]
        with torch.inference_mode():
            inputs = torch.tensor(rows, device=self._network.device)
            logits = self._network(input_ids=inputs, attention_mask=torch.ones_like(inputs)).logits
            columns = torch.tensor([len(before) + at for _, at in places], device=logits.device)
            chosen = logits[torch.arange(len(rows), device=logits.device), columns].double()
            return np.asarray(torch.log_softmax(chosen, -1).cpu().numpy())

    def texts(self, states: Rows) -> list[str]:
        """Return prompts as text: pieces merged, masks left out, no blank before a comma."""
        rows = [[int(each) for each in state if int(each) not in self._special] for state in states]
        decoded = self._tokenizer.batch_decode(
            rows, skip_special_tokens=True, clean_up_tokenization_spaces=True
        )
        return [str(text).strip() for text in decoded]

    def words(self) -> Int64:
        """Return ids of all whole words that may stand in a prompt, ascending."""
        allowed = np.flatnonzero(self._allowed).tolist()
        return np.array([each for each in allowed if each not in self._inner], np.int64)


def load_language_model(
    text: str, *, rules: Rules | None = None, device: str = "cpu"
) -> MaskedLanguageModel:
    """Return the masked language model of a folder or ``hub:OWNER/NAME``, which is fetched once."""
    kind = "AutoModelForMaskedLM"
    loaded = language_models.load_language_model(text, kind, device, "--lm FOLDER")
    return MaskedLanguageModel(text, *loaded, rules or Rules())
