"""Language models that go on from left to right, with a memory that may be shifted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from visleak.encoders.libraries import library
from visleak.errors import UsageError
from visleak.memorization.model import Tensor
from visleak.memorization.search.language_models import loaded

#: Keys and values of each layer, each (beams, heads, tokens, width).
Memory = list[tuple[Tensor, Tensor]]

WHAT = "a causal language model"


def load_causal(text: str, *, device: str = "cpu") -> CausalLanguageModel:
    """Return the causal language model that a text names, such as GPT-2.

    Args:
        text: a folder with ``config.json``, ``model.safetensors`` and a tokenizer, or
            ``hub:OWNER/NAME``, which is looked for in the Hugging Face cache and fetched once.
        device: of torch.

    Raises:
        MissingExtra: torch or transformers is not installed.
        UsageError: there is no such folder, or it holds a masked language model.
        VisleakError: the model cannot be had or loaded, or is no causal language model.
    """
    network, tokenizer, digest = loaded(text, "AutoModelForCausalLM", device, "--causal-lm FOLDER")
    return CausalLanguageModel(text, network, tokenizer, digest)


class CausalLanguageModel:
    """A causal network of transformers with its tokenizer.

    Args:
        name: as it was asked for.
        network: of transformers.
        tokenizer: its own.
        digest: of both.

    Attributes:
        name, digest: the same.
        special: ids that are no part of a prompt.
        most: tokens it can read.
    """

    def __init__(self, name: str, network: Any, tokenizer: Any, digest: str) -> None:
        self.name, self.digest = name, digest
        self._torch = library("torch", "diffusion", WHAT)
        self._cache = library("transformers", "diffusion", WHAT).DynamicCache
        self._network, self._tokenizer = network, tokenizer
        size = int(network.config.vocab_size)
        known = {int(at) for at in tokenizer.get_vocab().values()}
        self.special = frozenset(map(int, tokenizer.all_special_ids)) | (set(range(size)) - known)
        self.most = int(getattr(network.config, "max_position_embeddings", 1024))

    def about(self) -> dict[str, object]:
        """Return everything that its answers depend on, as plain data."""
        return {"model": self.name, "digest": self.digest}

    def begin(self, prefix: str) -> list[int]:
        """Return the ids that a text begins with: its own sign for it, and those of a prefix.

        Raises:
            UsageError: there are none.
        """
        sign = self._tokenizer.bos_token_id
        ids = list(self._tokenizer(prefix, add_special_tokens=False)["input_ids"]) if prefix else []
        begun = ([] if sign is None else [int(sign)]) + list(map(int, ids))
        if not begun:
            raise UsageError(
                f"language model {self.name} has no token that begins a text: give a prefix"
            )
        return begun

    def word(self, text: str) -> int | None:
        """Return the id of a text that is one token of its own, else ``None``."""
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"] if text else []
        return int(ids[0]) if len(ids) == 1 and int(ids[0]) not in self.special else None

    def texts(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return what rows of ids spell, without special tokens."""
        return [
            str(text).strip()
            for text in self._tokenizer.batch_decode(rows, skip_special_tokens=True)
        ]

    def rows(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Return rows of equal length as the network reads them, (beams, tokens)."""
        return self._torch.tensor([list(row) for row in rows], device=self._network.device)

    def logits(self, rows: Tensor) -> Tensor:
        """Return the logits of the next token, (beams, vocabulary), in float32."""
        with self._torch.no_grad():
            return self._network(input_ids=rows, use_cache=False).logits[:, -1].float()

    def memory(self, rows: Tensor) -> Memory:
        """Return the keys and values of all tokens but the last; empty where there is but one."""
        if rows.shape[1] < 2:
            return []
        with self._torch.no_grad():
            cache = self._network(input_ids=rows[:, :-1], use_cache=True).past_key_values
        return [(layer.keys, layer.values) for layer in cache.layers]

    def logits_after(self, memory: Memory, last: Tensor) -> Tensor:
        """Return the logits of the next token from a memory and the last token; gradients flow.

        Args:
            memory: of the tokens before the last.
            last: (beams, 1).
        """
        cache = self._cache()
        for number, (keys, values) in enumerate(memory):
            cache.update(keys, values, number)
        answer = self._network(input_ids=last, past_key_values=cache, use_cache=True)
        return answer.logits[:, -1].float()
