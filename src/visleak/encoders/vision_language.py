"""CLIPs with both towers: the text tower, through transformers or open_clip, and the pair."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Final

import numpy as np

from visleak.documents import digest_of
from visleak.encoders import load_encoder
from visleak.encoders.clip import backend_of, find_clip, whole_open_clip
from visleak.encoders.network import Running, tensors_digest, torch_type
from visleak.encoders.request import Request, parse
from visleak.encoders.weights import (
    TRANSFORMERS,
    Found,
    load_weights,
    loading,
    quiet,
    refuse_missing,
    transformers_for,
)
from visleak.errors import UsageError, VisleakError
from visleak.lazy import library, member
from visleak.quantities import counted
from visleak.records import Bool, Encoder, Float32, Int64
from visleak.vectors import unit_rows

if TYPE_CHECKING:
    import torch
    import transformers

#: Sentences are read at lengths that are multiples of this many tokens: few shapes, little padding.
STEP: Final = 8
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Tokens:
    """Sentences as a text tower takes them."""

    ids: Int64  # int64 (n, context), filled up
    # int64 (n,): tokens up to and with the one that ends a sentence; later ones do not change its
    # vector
    lengths: Int64
    cut: Bool  # bool (n,): the sentence was longer than the context, and its end is lost


@dataclass(frozen=True)
class LoadedText:
    """A text tower as its library loads it."""

    module: torch.nn.Module  # the network, in float32 on the CPU
    # from the module and tokens (n, length) to vectors (n, width)
    vectors: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]
    tokenizer: Callable[[Sequence[str]], Tokens]  # from sentences to tokens
    context: int  # most tokens of a sentence
    logit_scale: float  # factor of cosines before a softmax (its exponential is taken)
    digest: str  # of the weights, the tokenizer and what is done with them


@dataclass(frozen=True)
class TextVectors:
    """Vectors of sentences."""

    matrix: Float32  # float32 (n, width), unit rows
    cut: Bool  # bool (n,): the end of the sentence was not read


class TextTower:
    """A text tower on a device.

    Sentences are read in batches of one fixed size and, up to padding, their own length, so that a
    vector depends on its sentence alone, and on the size of the batch by less than 1e-6.
    """

    def __init__(self, name: str, loaded: LoadedText, running: Running) -> None:
        self._torch = library("torch", "torch", f"the text tower of {name}")
        self.name = name
        self.digest = loaded.digest
        self.context = loaded.context
        self.logit_scale = loaded.logit_scale
        self.precision, self.device = running.precision, running.device
        self._batch = running.batch
        self._loaded = loaded
        dtype = torch_type(self._torch, running.precision)
        self._module = loaded.module.eval().to(device=running.device, dtype=dtype)

    def encode(
        self, sentences: Sequence[str], progress: Progress = lambda done, total: None
    ) -> TextVectors:
        """Return unit vectors of sentences; equal sentences are read once."""
        if not sentences:
            raise ValueError("there are no sentences to encode")
        unique, place = np.unique(np.array(sentences, object), return_inverse=True)
        tokens = self._loaded.tokenizer(unique.tolist())
        rows = unit_rows(self._vectors(tokens, progress))
        wrong = np.flatnonzero(rows.broken)
        if len(wrong):
            raise VisleakError(
                f"model {self.name}: {counted(len(wrong), 'sentence', 'has', 'have')} a vector"
                f" without a direction, such as {unique[wrong[0]][:80]!r}; try precision=fp32"
            )
        return TextVectors(rows.matrix[place], tokens.cut[place])

    def cut(self, sentences: Sequence[str]) -> Bool:
        """Return which sentences are longer than the context, (n,); the network is not run."""
        return self._loaded.tokenizer(list(sentences)).cut

    def _vectors(self, tokens: Tokens, progress: Progress) -> Float32:
        """Return the tower's vectors (n, width), of any length."""
        lengths = np.minimum(-(-tokens.lengths // STEP) * STEP, tokens.ids.shape[1])
        order = np.argsort(lengths, kind="stable")
        made: list[Float32] = []
        done = 0
        for length in np.unique(lengths):
            rows = order[lengths[order] == length]
            for start in range(0, len(rows), self._batch):
                made.append(self._run(tokens.ids[rows[start : start + self._batch], :length]))
                done += len(made[-1])
                progress(done, len(order))
        # back into the order of the sentences
        return np.concatenate(made)[np.argsort(order, kind="stable")]

    def _run(self, ids: Int64) -> Float32:
        """Return the vectors of one batch, filled up with its last sentence."""
        torch = self._torch
        full = np.concatenate([ids, np.repeat(ids[-1:], self._batch - len(ids), axis=0)])
        with torch.inference_mode():
            given = torch.from_numpy(np.ascontiguousarray(full)).to(self.device)
            made = self._loaded.vectors(self._module, given)[: len(ids)]
            return np.asarray(made.float().cpu().numpy(), np.float32)


#: Files that a tokenizer of transformers is read from: the first alone, or the two after it.
TOKENIZER: Final = ("tokenizer.json", "vocab.json", "merges.txt")
#: The files of a CLIP with both towers; the image tower's layout leaves out the tokenizer.
LAYOUT: Final = replace(
    TRANSFORMERS, others=(*TOKENIZER, "tokenizer_config.json", "special_tokens_map.json")
)
#: Token that configurations from before transformers 4.32 state as the end of a sentence. They are
#: of OpenAI's networks, whose sentences end with the highest token; the library does so too.
OLD_END: Final = 2


def load_clip_text(request: Request) -> LoadedText:
    """Return the text tower of a CLIP of transformers."""
    transformers = transformers_for("the text tower of clip")
    import torch

    found = find_clip(request, LAYOUT)
    if found.config().get("model_type") != "clip":
        raise VisleakError(
            f"model {found.name} is a tower for images alone; texts need the whole CLIP"
        )
    tokenizer = _tokenizer(transformers, found)
    module, missing = load_weights(found, member(transformers, "CLIPModel", "encoder clip"))
    refuse_missing(found, missing)
    config = module.config.text_config
    last, end = max(tokenizer.get_vocab().values()), _end_token(tokenizer)
    expected = last if config.eos_token_id == OLD_END else config.eos_token_id
    if last >= config.vocab_size or end != expected:
        # with a tokenizer of another model the tower would read noise
        raise VisleakError(
            f"model {found.name}: its tokenizer has tokens up to {last} and ends a text with"
            f" {end}, its config.json states {config.vocab_size} tokens and {expected} at the"
            " end; they are of two models"
        )
    parts = {"text_model": module.text_model, "text_projection": module.text_projection}
    tower = torch.nn.ModuleDict(parts)
    about = {
        "network": "CLIP text transformer with projection",
        "heads": int(config.num_attention_heads),
        "activation": str(config.hidden_act),
        "epsilon": float(config.layer_norm_eps),
    }
    weights = tensors_digest(tower.state_dict(), about)
    context = int(config.max_position_embeddings)
    words = hashlib.blake2b(tokenizer.backend_tokenizer.to_str().encode(), digest_size=16)
    return LoadedText(
        module=tower,
        vectors=lambda module, ids: module["text_projection"](
            module["text_model"](input_ids=ids).pooler_output
        ),
        tokenizer=ClipTokenizer(tokenizer, context),
        context=context,
        logit_scale=float(module.logit_scale.detach().exp()),
        digest=digest_of([weights, words.hexdigest(), {"context": context}]),
    )


class ClipTokenizer:
    """CLIP's tokenizer; long sentences are cut as the library cuts them: the end token stays."""

    def __init__(self, tokenizer: transformers.PreTrainedTokenizerBase, context: int) -> None:
        self._tokenizer = tokenizer
        self._context = context
        pad = tokenizer.pad_token_id
        # tokens after the end do not matter
        self._pad = _end_token(tokenizer) if pad is None else pad

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


def _end_token(tokenizer: transformers.PreTrainedTokenizerBase) -> int | None:
    """Return the token that every text ends with; ``None`` if there is none."""
    with quiet():
        empty = tokenizer("")["input_ids"]
    return int(empty[-1]) if empty else None


def _tokenizer(transformers: ModuleType, found: Found) -> transformers.PreTrainedTokenizerBase:
    """Return the tokenizer of a model's folder: CLIP's, or one of whole words."""
    single, *pair = (found.path / file for file in TOKENIZER)
    # the library would make one of an empty vocabulary, without a message
    if not single.is_file() and not all(file.is_file() for file in pair):
        raise VisleakError(
            f"model {found.name}: {found.path} has no tokenizer ({TOKENIZER[0]}, or {TOKENIZER[1]}"
            f" and {TOKENIZER[2]}); copy it there from the published model"
        )
    try:
        model = json.loads(single.read_text(encoding="utf-8"))["model"]["type"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        model = "BPE"  # missing, of an old version, or damaged: the library reports it
    # CLIPTokenizer would split the whole words of such a vocabulary into unknown pairs of letters
    kind = "CLIPTokenizer" if model == "BPE" else "PreTrainedTokenizerFast"
    factory = member(transformers, kind, "the text tower of clip")
    with loading(f"model {found.name}: the tokenizer in {found.path} cannot be loaded"):
        return factory.from_pretrained(
            str(found.path), local_files_only=True, trust_remote_code=False
        )


#: Files of the tokenizers of some models of open_clip; most use the library's own.
TOKENIZER_FILES: Final = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("vocab.json", "merges.txt", "vocab.txt", "sentencepiece.bpe.model", "spiece.model"),
)
#: A text whose tokens identify a tokenizer.
_PROBE: Final = "A photo of 2 Sturgeons, naïve & <b>bold</b>; isn't it?"


def load_open_clip_text(request: Request) -> LoadedText:
    """Return the text tower of a model of open_clip."""
    open_clip = library("open_clip", "open-clip", "clip through open_clip")
    model, name = whole_open_clip(request, TOKENIZER_FILES)
    # texts do not need the image tower
    model.visual = None
    model = model.float()
    with loading(f"encoder clip: open_clip has no tokenizer for {name}"):
        tokenizer = open_clip.get_tokenizer(name)
    context = int(getattr(tokenizer, "context_length", None) or model.context_length)
    weights = tensors_digest(model.state_dict(), {"open_clip": str(model)})
    probe = tokenizer([_PROBE])[0].tolist()
    return LoadedText(
        module=model,
        vectors=lambda model, ids: model.encode_text(ids),
        tokenizer=OpenClipTokenizer(tokenizer, context),
        context=context,
        logit_scale=float(model.logit_scale.detach().exp()),
        digest=digest_of([weights, {"context": context, "tokens": probe}]),
    )


class OpenClipTokenizer:
    """A tokenizer of open_clip; texts keep their padding, which some of its towers read."""

    def __init__(self, tokenizer: transformers.PreTrainedTokenizerBase, context: int) -> None:
        self._tokenizer = tokenizer
        self._context = context

    def __call__(self, sentences: Sequence[str]) -> Tokens:
        """Return the tokens of sentences."""
        with quiet():
            # with one more token, a whole sentence is followed by padding, a cut one is not
            ids, longer = (
                np.asarray(self._tokenizer(list(sentences), context_length=most), np.int64)
                for most in (self._context, self._context + 1)
            )
        cut = (longer[:, :-1] != ids).any(axis=1)
        return Tokens(ids, np.full(len(ids), self._context, np.int64), cut)


@dataclass(frozen=True)
class VisionLanguage:
    """The two towers of one model."""

    images: Encoder  # the encoder of the images, unit vectors
    texts: TextTower  # the tower of the texts, unit vectors of the same width

    def about(self) -> dict[str, object]:
        """Return what identifies the model, as plain values."""
        return {
            "name": self.images.name,
            "digest": self.images.digest,
            "text digest": self.texts.digest,
            "precision": self.texts.precision,
            "device": self.texts.device,
            "context": self.texts.context,
        }


def load_vision_language(text: str, **options: object) -> VisionLanguage:
    """Return a CLIP by the text that names it as an encoder."""
    # texts first: downloading their tokenizer may bring newer weights, which both then share
    texts = load_text_tower(text, **options)
    return VisionLanguage(load_encoder(text, **options), texts)


def load_text_tower(text: str, **options: object) -> TextTower:
    """Return the text tower of a CLIP; arguments and errors as :func:`load_vision_language`."""
    request = parse(text).updated(options)
    if request.name != "clip":
        raise UsageError(
            "the model must be a CLIP, which has a tower for texts: clip, clip:FOLDER,"
            f" clip:OWNER/NAME or clip:MODEL/WEIGHTS?backend=open_clip; got {text!r}"
        )
    load = load_clip_text if backend_of(request) == "transformers" else load_open_clip_text
    running = Running.of(request)
    return TextTower(request.named("backend"), load(request), running)
