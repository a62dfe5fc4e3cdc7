"""Language models of transformers: from a folder, or fetched once from the hub."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

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
from visleak.memorization.search.masked import MaskedLanguageModel
from visleak.memorization.search.proposals import Rules

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
