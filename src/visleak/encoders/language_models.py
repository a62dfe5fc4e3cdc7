"""Language models of transformers, masked or causal: read from safetensors alone."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from visleak.encoders.network import tensors_digest
from visleak.encoders.weights import (
    TRANSFORMERS,
    Found,
    StoredTensors,
    hub_model,
    load_weights,
    loading,
    refuse_missing,
    whole,
)
from visleak.errors import UsageError
from visleak.lazy import library

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

HUB: Final = "hub:"
#: What a tokenizer consists of; any of these that are there are taken.
TOKENIZER: Final = (
    *("tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "spiece.model"),
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
)
#: Weights in safetensors alone; pickles are never read.
LAYOUT: Final = replace(
    TRANSFORMERS,
    weights=tuple(name for name in TRANSFORMERS.weights if "safetensors" in name),
    others=TOKENIZER,
)
#: Class of transformers -> kind of its models, and an example. A masked one reads the text on
#: both sides of a word, a causal one only the text before it.
KINDS: Final = {
    "AutoModelForMaskedLM": ("a masked", "hub:google-bert/bert-base-uncased"),
    "AutoModelForCausalLM": ("a causal", "hub:openai-community/gpt2"),
}
#: Parts of a masked language model's files that its proposals do not need.
_SPARE: Final = ("pooler.", "seq_relationship", "position_ids", "nsp")


def load_language_model(
    text: str, kind: str, device: str, use: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, str]:
    """Return network, tokenizer and digest of a language model of transformers."""
    what = f"language model {text}"
    library("torch", "diffusion", what)
    transformers = library("transformers", "diffusion", what)
    if text.startswith(HUB):
        folder = hub_model(what, text.removeprefix(HUB), LAYOUT, use)
    else:
        path = Path(text).expanduser()
        if not path.is_dir():
            raise UsageError(
                f"{what}: there is no such folder; give one with a language model of transformers"
                f" ({use}), or hub:OWNER/NAME"
            )
        folder = whole(text, path, LAYOUT)
    found = Found(text, folder)
    _refuse_other_kind(found, kind, use)
    needs = "the folder needs tokenizer.json or vocab.txt"
    with loading(f"the tokenizer of {what} could not be loaded; {needs}"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            str(found.path), local_files_only=True, trust_remote_code=False
        )
    network, missing = load_weights(found, getattr(transformers, kind), use_safetensors=True)
    needed = (each for each in missing if not any(part in each for part in _SPARE))
    refuse_missing(found, frozenset(needed))
    about: dict[str, object] = {"config": found.config()}
    for name in TOKENIZER:
        if (found.path / name).is_file():
            data = (found.path / name).read_bytes()
            about[name] = hashlib.blake2b(data, digest_size=16).hexdigest()
    digest = tensors_digest(StoredTensors(found.path), about)
    return network.to(device).eval().requires_grad_(False), tokenizer, digest


def _refuse_other_kind(found: Found, kind: str, use: str) -> None:
    """Refuse a masked model where a causal one is needed, and the reverse."""
    auto = import_module("transformers.models.auto.modeling_auto")
    masked, causal = auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    wanted, other = (masked, causal) if kind == "AutoModelForMaskedLM" else (causal, masked)
    config = found.config()
    named = config.get("architectures")
    # weights state their class; where it is missing, their family decides
    names = {str(each) for each in named} if isinstance(named, list) else set[str]()
    if names:
        fits, misfits = names & set(wanted.values()), names & set(other.values())
    else:
        family = {str(config.get("model_type"))}
        fits, misfits = family & set(wanted), family & set(other)
    if misfits and not fits:
        needs, example = KINDS[kind]
        (is_one,) = (what for name, (what, _) in KINDS.items() if name != kind)
        raise UsageError(
            f"language model {found.name} is {is_one} one ({', '.join(sorted(misfits))});"
            f" {use.partition(' ')[0]} needs {needs} one, such as {example}"
        )
