"""Proposals of a masked language model of transformers, such as BERT."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from visleak.encoders.libraries import library, said
from visleak.encoders.network import tensors_digest
from visleak.encoders.stored_tensors import StoredTensors
from visleak.encoders.weights import (
    TRANSFORMERS,
    Found,
    hub_model,
    load_weights,
    quiet,
    refuse_missing,
    whole,
)
from visleak.errors import UsageError, VisleakError
from visleak.memorization.search.proposals import (
    Candidates,
    Float64,
    Int64,
    Rules,
    Vocabulary,
    banned_ids,
    best_candidates,
    stop_ids,
)

#: Rows a forward pass of the language model.
_BATCH: Final = 64


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
            for start in range(0, len(rows), _BATCH):
                part = rows[start : start + _BATCH]
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


HUB: Final = "hub:"

#: What a tokenizer consists of; any of these that are there are taken.
TOKENIZER: Final = (
    *("tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "spiece.model"),
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
)

#: Weights in safetensors alone; what is pickled is never read.
LAYOUT: Final = replace(
    TRANSFORMERS,
    weights=tuple(name for name in TRANSFORMERS.weights if "safetensors" in name),
    others=TOKENIZER,
)

#: Class of transformers -> what its models are, and one of them. A masked one reads what stands on
#: both sides of a word, a causal one only what stands before it.
KINDS: Final = {
    "AutoModelForMaskedLM": ("a masked", "hub:google-bert/bert-base-uncased"),
    "AutoModelForCausalLM": ("a causal", "hub:openai-community/gpt2"),
}

#: Parts of a masked language model's files that its proposals do not need.
_SPARE: Final = ("pooler.", "seq_relationship", "position_ids", "nsp")


def load_language_model(
    text: str, *, rules: Rules | None = None, device: str = "cpu"
) -> MaskedLanguageModel:
    """Return the masked language model that a text names.

    Args:
        text: a folder with ``config.json``, ``model.safetensors`` and a tokenizer, or
            ``hub:OWNER/NAME``, which is looked for in the Hugging Face cache and fetched once.
        rules: which of its proposals are taken.
        device: of torch.

    Raises:
        MissingExtra: torch or transformers is not installed.
        UsageError: there is no such folder, or it holds a causal language model.
        VisleakError: the model cannot be had or loaded, or is not a masked language model.
    """
    network, tokenizer, digest = loaded(text, "AutoModelForMaskedLM", device, "--lm FOLDER")
    return MaskedLanguageModel(text, network, tokenizer, digest, rules or Rules())


def loaded(text: str, kind: str, device: str, use: str) -> tuple[Any, Any, str]:
    """Return network, tokenizer and digest of a language model of transformers.

    Args:
        text: a folder, or ``hub:OWNER/NAME``.
        kind: class of transformers that loads it, such as ``AutoModelForMaskedLM``.
        device: of torch.
        use: how a folder is written on the command line, for messages.

    Raises:
        MissingExtra: torch or transformers is not installed.
        UsageError: there is no such folder, or it holds a language model of the other kind.
        VisleakError: the model cannot be had or loaded.
    """
    what = f"language model {text}"
    library("torch", "diffusion", what)
    transformers = library("transformers", "diffusion", what)
    found = Found(text, _folder(text, use))
    _refuse_other_kind(found, kind, use)
    with quiet():
        tokenizer = _tokenizer(found, transformers)
    network, missing = load_weights(found, getattr(transformers, kind), use_safetensors=True)
    refuse_missing(found, frozenset(each for each in missing if not _spared(each)))
    return network.to(device).eval().requires_grad_(False), tokenizer, _digest(found)


def _folder(text: str, use: str) -> Path:
    if text.startswith(HUB):
        name = text.removeprefix(HUB)
        return hub_model(f"language model {text}", name, LAYOUT, use)
    path = Path(text).expanduser()
    if not path.is_dir():
        raise UsageError(
            f"language model {text}: there is no such folder; give one with a language model of"
            f" transformers ({use}), or hub:OWNER/NAME"
        )
    return whole(text, path, LAYOUT)


def _refuse_other_kind(found: Found, kind: str, use: str) -> None:
    """Refuse a masked language model where a causal one is needed, and the reverse.

    The library would load the one as the other where a family has both, and speak of many classes
    where it has not.

    Raises:
        UsageError: it is of the other kind.
    """
    auto = import_module("transformers.models.auto.modeling_auto")
    masked, causal = auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    wanted, other = (masked, causal) if kind == "AutoModelForMaskedLM" else (causal, masked)
    config = found.config()
    named = config.get("architectures")
    # weights say what they are of by their class, and where it is missing by their family
    said_to_be = {str(each) for each in named} if isinstance(named, list) else set()
    if said_to_be:
        fits, misfits = said_to_be & set(wanted.values()), said_to_be & set(other.values())
    else:
        family = {str(config.get("model_type"))}
        fits, misfits = family & set(wanted), family & set(other)
    if fits or not misfits:
        return
    needs, example = KINDS[kind]
    (is_one,) = (what for name, (what, _) in KINDS.items() if name != kind)
    raise UsageError(
        f"language model {found.name} is {is_one} one ({', '.join(sorted(misfits))});"
        f" {use.partition(' ')[0]} needs {needs} one, such as {example}"
    )


def _tokenizer(found: Found, transformers: Any) -> Any:
    try:
        return transformers.AutoTokenizer.from_pretrained(
            str(found.path), local_files_only=True, trust_remote_code=False
        )
    except Exception as error:
        # OSError, ValueError, KeyError, and what tokenizers raises
        raise VisleakError(
            f"the tokenizer of language model {found.name} cannot be loaded ({said(error)}); the"
            " folder needs tokenizer.json or vocab.txt"
        ) from error


def _spared(name: str) -> bool:
    return any(part in name for part in _SPARE)


def _digest(found: Found) -> str:
    """Return a digest of weights, configuration and tokenizer."""
    about: dict[str, object] = {"config": found.config()}
    for name in TOKENIZER:
        file = found.path / name
        if file.is_file():
            about[name] = hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()
    return tensors_digest(StoredTensors(found.path), about)
