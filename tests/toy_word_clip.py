"""A CLIP of 16 x 16 pixels and whole words: a tokenizer that is not CLIP's own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toy_clip import lively

WORDS = ("a", "red", "blue", "circle", "square", "of", "the")
BEGIN, END, UNKNOWN = "<bos>", "<eos>", "<unk>"

#: Tokens that a sentence may have, its two ends among them.
CONTEXT = 8
SIDE, PATCH = 16, 4


def word_tokenizer(words: Sequence[str] = WORDS, *, ends: bool = True) -> Any:
    """Return a tokenizer with one token a word, in lower case.

    Args:
        words: the vocabulary.
        ends: put begin and end around a text; without them the tower has no place to read.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    ids = {word: place for place, word in enumerate((BEGIN, END, UNKNOWN, *words))}
    made = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    if ends:
        made.post_processor = processors.TemplateProcessing(
            single=f"{BEGIN} $A {END}", special_tokens=[(BEGIN, ids[BEGIN]), (END, ids[END])]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token=BEGIN,
        eos_token=END,
        pad_token=END,
        unk_token=UNKNOWN,
        model_max_length=CONTEXT,
    )


def make_word_clip(folder: Path, *, processor: bool, ends: bool = True, seed: int = 0) -> Path:
    """Write a CLIP with its tokenizer.

    Args:
        folder: where to.
        processor: write how images are prepared, too.
        ends: as of :func:`word_tokenizer`.
        seed: of its weights.
    """
    from transformers import CLIPConfig, CLIPModel
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    from visleak.encoders.weights import quiet

    tokenizer = word_tokenizer(ends=ends)
    small = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    text = {"vocab_size": len(tokenizer), "hidden_size": 16, "max_position_embeddings": CONTEXT}
    marks = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    vision = {"hidden_size": 24, "image_size": SIDE, "patch_size": PATCH}
    config = CLIPConfig(
        text_config={**small, **text, **marks}, vision_config={**small, **vision}, projection_dim=12
    )
    half = [0.5, 0.5, 0.5]
    prepared = CLIPImageProcessorPil(
        size={"shortest_edge": SIDE},
        crop_size={"height": SIDE, "width": SIDE},
        image_mean=half,
        image_std=half,
    )
    with quiet():
        lively(CLIPModel(config), seed).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        if processor:
            prepared.save_pretrained(folder)
    return folder
