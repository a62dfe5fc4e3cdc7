"""Tiny language models of a toy world: a masked and a causal one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from toy_networks import BEGIN, END, POSITIONS, UNKNOWN, WIDTH, word_tokenizer
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

#: Captions per update, highest learning rate, and the probability of a masked word.
BATCH, RATE, MASKED = 64, 3e-3, 0.2

LAYERS, HEADS, IGNORED = 2, 4, -100

Loss = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def mask_tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    """Return a word-level tokenizer with BERT's special tokens."""
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    return PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(words, special, "[CLS] $A [SEP]", "[UNK]"),
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=POSITIONS,
    )


def causal_tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    """Return a word-level tokenizer that adds a start token but no end token."""
    return PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(words, (BEGIN, END, UNKNOWN), f"{BEGIN} $A", UNKNOWN),
        bos_token=BEGIN,
        eos_token=END,
        pad_token=END,
        unk_token=UNKNOWN,
        model_max_length=POSITIONS,
    )


def train_masked(
    words: Sequence[str], captions: Sequence[str], folder: Path, seed: int, steps: int
) -> list[float]:
    """Train a tiny BERT to fill masks, and save it with its tokenizer.

    Args:
        words: the vocabulary.
        captions: training data.
        folder: for the model in the format of transformers.
        seed: of weights, batches and masks.
        steps: updates.

    Returns:
        the loss of every update.
    """
    tokenizer = mask_tokenizer(words)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BertForMaskedLM(
            BertConfig(
                vocab_size=len(tokenizer),
                hidden_size=WIDTH,
                intermediate_size=4 * WIDTH,
                num_hidden_layers=LAYERS,
                num_attention_heads=HEADS,
                max_position_embeddings=POSITIONS,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
                pad_token_id=tokenizer.pad_token_id,
            )
        )
    mask = tokenizer.mask_token_id

    def loss(tokens: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
        words_at = tokens > mask  # special tokens come first in the vocabulary
        share = torch.rand((len(tokens), 1), generator=rng) ** 2 * (1 - MASKED) + MASKED
        hidden = words_at & (torch.rand(tokens.shape, generator=rng) < share)
        shown = tokens.masked_fill(hidden, mask)
        seen = (tokens != tokenizer.pad_token_id).long()
        scores = model(input_ids=shown, attention_mask=seen).logits
        wanted = tokens.masked_fill(~hidden, IGNORED)
        return torch.nn.functional.cross_entropy(scores.flatten(0, 1), wanted.flatten())

    tokens = _tokens(tokenizer, captions)
    losses = _descend(model, tokens, loss, seed, steps)
    _save(model, tokenizer, folder)
    return losses


def train_causal(
    words: Sequence[str], captions: Sequence[str], folder: Path, seed: int, steps: int
) -> list[float]:
    """Train a tiny GPT-2, and save it with its tokenizer.

    Arguments and result are those of `train_masked`.
    """
    tokenizer = causal_tokenizer(words)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=len(tokenizer),
                n_positions=POSITIONS,
                n_embd=WIDTH,
                n_layer=LAYERS,
                n_head=HEADS,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                bos_token_id=tokenizer.bos_token_id,
                eos_token_id=tokenizer.eos_token_id,
            )
        )

    def loss(tokens: torch.Tensor, _: torch.Generator) -> torch.Tensor:
        scores = model(input_ids=tokens[:, :-1]).logits
        wanted = tokens[:, 1:].clone()
        ended = (tokens[:, :-1] == tokenizer.eos_token_id).cumsum(1) > 0
        wanted[ended] = IGNORED  # no loss for the padding after the first end token
        return torch.nn.functional.cross_entropy(scores.flatten(0, 1), wanted.flatten())

    tokens = _tokens(tokenizer, captions)
    losses = _descend(model, tokens, loss, seed, steps)
    _save(model, tokenizer, folder)
    return losses


def _tokens(tokenizer: PreTrainedTokenizerFast, captions: Sequence[str]) -> torch.Tensor:
    """Return captions as padded tokens, each with one end token or more."""
    rows = tokenizer(list(captions), padding=True, truncation=True, return_tensors="pt").input_ids
    return torch.nn.functional.pad(rows, (0, 1), value=tokenizer.pad_token_id)[:, :POSITIONS]


def _descend(model: Any, tokens: torch.Tensor, loss: Loss, seed: int, steps: int) -> list[float]:
    """Train a model in place; the draws of an update are seeded by (seed, update)."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    line = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, RATE, total_steps=steps + 1, cycle_momentum=False
    )
    losses = []
    model.train()
    for step in range(steps):
        rng = torch.Generator().manual_seed((seed << 32) + step + 1)
        found = loss(tokens[torch.randint(len(tokens), (BATCH,), generator=rng)], rng)
        optimizer.zero_grad()
        found.backward()
        optimizer.step()
        line.step()
        losses.append(float(found.detach()))
    return losses


def _save(model: Any, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
