"""The text tower of a CLIP through open_clip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from visleak.encoders.libraries import library, said
from visleak.encoders.network import digest, tensors_digest
from visleak.encoders.open_clips import whole_open_clip
from visleak.encoders.request import Request
from visleak.encoders.text_towers import LoadedText, Tokens
from visleak.encoders.weights import quiet
from visleak.errors import VisleakError

#: Files of the tokenizers that some models of open_clip bring along; most use the library's own.
TOKENIZER: Final = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "sentencepiece.bpe.model",
    "spiece.model",
)


def load_open_clip_text(request: Request) -> LoadedText:
    """Return the text tower of a model of open_clip.

    Raises:
        MissingExtra: open_clip is not installed.
        UsageError: the name is none of open_clip's.
        VisleakError: the weights or the tokenizer cannot be had.
    """
    open_clip = library("open_clip", "open-clip", "clip through open_clip")
    model, name = whole_open_clip(request, TOKENIZER)
    # texts need nothing of it
    model.visual = None
    model = model.float()
    try:
        with quiet():
            tokenizer = open_clip.get_tokenizer(name)
    except Exception as error:
        # open_clip and what it calls raise what they like
        raise VisleakError(
            f"encoder clip: open_clip has no tokenizer for {name} ({said(error)})"
        ) from error
    context = int(getattr(tokenizer, "context_length", None) or model.context_length)
    weights = tensors_digest(model.state_dict(), {"open_clip": str(model)})
    probe = tokenizer([_PROBE])[0].tolist()
    return LoadedText(
        module=model,
        vectors=_encode_text,
        tokenizer=OpenClipTokenizer(tokenizer, context),
        context=context,
        logit_scale=float(model.logit_scale.detach().exp()),
        digest=digest(weights, {"context": context, "tokens": probe}),
    )


#: Its tokens tell one tokenizer from another.
_PROBE: Final = "A photo of 2 Sturgeons, naïve & <b>bold</b>; isn't it?"


class OpenClipTokenizer:
    """A tokenizer of open_clip.

    Some of its towers look at what comes after a sentence, so all are read at full length.

    Args:
        tokenizer: of open_clip.
        context: tokens that a sentence may have.
    """

    def __init__(self, tokenizer: Any, context: int) -> None:
        self._tokenizer = tokenizer
        self._context = context

    def __call__(self, sentences: Sequence[str]) -> Tokens:
        """Return the tokens of sentences."""
        with quiet():
            ids = self._tokens(sentences, self._context)
            # given one token more, what fitted is followed by padding, and what was cut goes on
            longer = self._tokens(sentences, self._context + 1)
        cut = (longer[:, :-1] != ids).any(axis=1)
        return Tokens(ids, np.full(len(ids), self._context, np.int64), cut)

    def _tokens(self, sentences: Sequence[str], context: int) -> Any:
        return np.asarray(self._tokenizer(list(sentences), context_length=context), np.int64)


def _encode_text(model: Any, ids: Any) -> Any:
    return model.encode_text(ids)
