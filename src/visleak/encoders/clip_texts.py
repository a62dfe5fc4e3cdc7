"""The text tower of a CLIP through transformers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from visleak.encoders.clip import find_clip
from visleak.encoders.libraries import member, said
from visleak.encoders.network import digest, tensors_digest
from visleak.encoders.request import Request
from visleak.encoders.text_towers import LoadedText, Tokens
from visleak.encoders.weights import (
    TRANSFORMERS,
    Found,
    load_weights,
    quiet,
    refuse_missing,
    transformers_for,
)
from visleak.errors import VisleakError

#: Files that a tokenizer is read from: the first alone, or the two after it together.
TOKENIZER: Final = ("tokenizer.json", "vocab.json", "merges.txt")

#: The files of a CLIP with both towers; the image tower's layout leaves out the tokenizer.
LAYOUT: Final = replace(
    TRANSFORMERS, others=(*TOKENIZER, "tokenizer_config.json", "special_tokens_map.json")
)

#: Configurations from before transformers 4.32 say this of OpenAI's networks, whose sentences end
#: with the highest token there is; the library goes by that then.
OLD_END: Final = 2


def load_clip_text(request: Request) -> LoadedText:
    """Return the text tower of a CLIP of transformers.

    Raises:
        MissingExtra: transformers or torch is not installed.
        VisleakError: the model or its tokenizer cannot be had, or they do not fit together.
    """
    transformers = transformers_for("the text tower of clip")
    found = find_clip(request, LAYOUT)
    if found.config().get("model_type") != "clip":
        raise VisleakError(
            f"model {found.name} is a tower for pictures alone; texts need the whole CLIP"
        )
    tokenizer = _tokenizer(transformers, found)
    module, missing = load_weights(found, member(transformers, "CLIPModel", "encoder clip"))
    refuse_missing(found, missing)
    config = module.config.text_config
    _check(found, tokenizer, config)
    tower = _text_tower(module)
    weights = tensors_digest(
        tower.state_dict(),
        {
            "network": "CLIP text transformer with projection",
            "heads": int(config.num_attention_heads),
            "activation": str(config.hidden_act),
            "epsilon": float(config.layer_norm_eps),
        },
    )
    context = int(config.max_position_embeddings)
    words = hashlib.blake2b(tokenizer.backend_tokenizer.to_str().encode(), digest_size=16)
    return LoadedText(
        module=tower,
        vectors=_text_embeds,
        tokenizer=ClipTokenizer(tokenizer, context),
        context=context,
        logit_scale=float(module.logit_scale.detach().exp()),
        digest=digest(weights, words.hexdigest(), {"context": context}),
    )


class ClipTokenizer:
    """CLIP's tokenizer, with sentences cut as the library cuts them: their end token stays.

    Args:
        tokenizer: of transformers.
        context: tokens that a sentence may have.
    """

    def __init__(self, tokenizer: Any, context: int) -> None:
        self._tokenizer = tokenizer
        self._context = context
        pad = tokenizer.pad_token_id
        # what comes after the end does not matter
        self._pad = _ends_with(tokenizer) if pad is None else pad

    def __call__(self, sentences: Sequence[str]) -> Tokens:
        """Return the tokens of sentences."""
        with quiet():
            rows = self._tokenizer(list(sentences), truncation=False, padding=False)["input_ids"]
        full = np.array([len(row) for row in rows], np.int64)
        lengths = np.minimum(full, self._context)
        ids = np.full((len(rows), self._context), self._pad, np.int64)
        for place, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            ids[place, :length] = [*row[: length - 1], row[-1]]
        return Tokens(ids, lengths, full > self._context)


def _ends_with(tokenizer: Any) -> int | None:
    """Return the token that every text ends with; ``None`` where there is none."""
    with quiet():
        empty = tokenizer("")["input_ids"]
    return int(empty[-1]) if empty else None


def _tokenizer(transformers: Any, found: Found) -> Any:
    """Return the tokenizer of a model's folder: CLIP's, or one of whole words.

    Raises:
        VisleakError: it is not there, or damaged.
    """
    single, *pair = ((found.path / file).is_file() for file in TOKENIZER)
    # the library would make one of an empty vocabulary, and say nothing
    if not (single or all(pair)):
        raise VisleakError(
            f"model {found.name}: {found.path} has no tokenizer ({TOKENIZER[0]}, or {TOKENIZER[1]}"
            f" and {TOKENIZER[2]}); copy it there from the published model"
        )
    # CLIPTokenizer makes pairs of letters whatever it is given: of whole words, unknown ones
    kind = "CLIPTokenizer" if _model_of(found) == "BPE" else "PreTrainedTokenizerFast"
    factory = member(transformers, kind, "the text tower of clip")
    try:
        with quiet():
            return factory.from_pretrained(
                str(found.path), local_files_only=True, trust_remote_code=False
            )
    except Exception as error:
        # the library raises whatever its parsers do
        raise VisleakError(
            f"model {found.name}: the tokenizer in {found.path} cannot be loaded ({said(error)})"
        ) from error


def _model_of(found: Found) -> str:
    """Return what kind of tokenizer a folder has, in the words of ``tokenizer.json``."""
    try:
        content = json.loads((found.path / TOKENIZER[0]).read_text(encoding="utf-8"))
        return str(content["model"]["type"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        # not there, of an old version, or damaged, which the library says in its own words
        return "BPE"


def _check(found: Found, tokenizer: Any, config: Any) -> None:
    """Refuse a tokenizer of another model: the tower would read noise, and nobody would notice."""
    numbers = tokenizer.get_vocab().values()
    last, ends = max(numbers), _ends_with(tokenizer)
    expected = last if config.eos_token_id == OLD_END else config.eos_token_id
    if last >= config.vocab_size or ends != expected:
        raise VisleakError(
            f"model {found.name}: its tokenizer has tokens up to {last} and ends a text with"
            f" {ends}, its config.json speaks of {config.vocab_size} tokens and of"
            f" {expected} at the end; they are of two models"
        )


def _text_tower(module: Any) -> Any:
    """Return the parts of a CLIP that texts need; those for pictures are let go."""
    import torch

    return torch.nn.ModuleDict(
        {"text_model": module.text_model, "text_projection": module.text_projection}
    )


def _text_embeds(module: Any, ids: Any) -> Any:
    return module["text_projection"](module["text_model"](input_ids=ids).pooler_output)
