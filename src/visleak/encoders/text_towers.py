"""The text tower of a CLIP: from sentences to unit vectors, beside the encoder of its pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from visleak.encoders.libraries import library
from visleak.encoders.network import Running
from visleak.errors import VisleakError
from visleak.records import Bool, Float32, Int64
from visleak.vectors import unit_rows

#: Sentences are read at lengths that are multiples of this many tokens: few shapes, little padding.
STEP: Final = 8

Progress = Callable[[int, int], None]


def untold(done: int, total: int) -> None:
    """Tell nobody how far it is."""


@dataclass(frozen=True)
class Tokens:
    """Sentences as a text tower takes them.

    Attributes:
        ids: ``int64`` (n, context), filled up.
        lengths: ``int64`` (n,): tokens up to and with the one that ends a sentence; what comes
            after them does not matter to its vector.
        cut: ``bool`` (n,): the sentence was longer than the context, and its end is lost.
    """

    ids: Int64
    lengths: Int64
    cut: Bool


class Tokenizer(Protocol):
    """Turns sentences into tokens."""

    def __call__(self, sentences: Sequence[str]) -> Tokens:
        """Return the tokens of sentences."""
        ...


@dataclass(frozen=True)
class LoadedText:
    """What a library gives of a text tower.

    Attributes:
        module: the network, in ``float32`` on the CPU.
        vectors: from the module and tokens (n, length) to vectors (n, width).
        tokenizer: makes the tokens.
        context: tokens that a sentence may have.
        logit_scale: what cosines are multiplied by before a softmax (its exponential is taken).
        digest: of the weights, the tokenizer and what is done with them.
    """

    module: Any
    vectors: Callable[[Any, Any], Any]
    tokenizer: Tokenizer
    context: int
    logit_scale: float
    digest: str


@dataclass(frozen=True)
class TextVectors:
    """What a text tower made of sentences.

    Attributes:
        matrix: ``float32`` (n, width), unit rows.
        cut: ``bool`` (n,): the end of the sentence was not read.
    """

    matrix: Float32
    cut: Bool


class TextTower:
    """A loaded text tower with its place to run.

    Sentences are read in batches of one fixed size and, up to padding, their own length, so that a
    vector depends on its sentence alone, and on the size of the batch by less than 1e-6.

    Args:
        name: as the command line calls the model.
        loaded: the network.
        running: where and how it runs.
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
        dtypes = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
        dtype = getattr(self._torch, dtypes[running.precision])
        self._module = loaded.module.eval().to(device=running.device, dtype=dtype)

    def encode(self, sentences: Sequence[str], progress: Progress = untold) -> TextVectors:
        """Return unit vectors of sentences; equal sentences are read once.

        Raises:
            VisleakError: a vector is no direction: beyond the precision, or all zero.
        """
        if not sentences:
            raise ValueError("there are no sentences to encode")
        unique, place = np.unique(np.array(sentences, object), return_inverse=True)
        tokens = self._loaded.tokenizer(unique.tolist())
        rows = unit_rows(self._vectors(tokens, progress))
        wrong = np.flatnonzero(rows.broken)
        if len(wrong):
            raise VisleakError(
                f"model {self.name}: {len(wrong)} sentences have a vector without a direction, such"
                f" as {unique[wrong[0]][:80]!r}; try precision=fp32"
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
                part = tokens.ids[rows[start : start + self._batch], :length]
                made.append(self._run(part))
                done += len(part)
                progress(done, len(order))
        vectors = np.concatenate(made)
        result = np.empty_like(vectors)
        result[order] = vectors
        return result

    def _run(self, ids: Int64) -> Float32:
        """Return the vectors of one batch, filled up with its last sentence."""
        torch = self._torch
        full = np.concatenate([ids, np.repeat(ids[-1:], self._batch - len(ids), axis=0)])
        with torch.inference_mode():
            given = torch.from_numpy(np.ascontiguousarray(full)).to(self.device)
            made = self._loaded.vectors(self._module, given)[: len(ids)]
            return np.asarray(made.float().cpu().numpy(), np.float32)
