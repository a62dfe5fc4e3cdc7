"""A small real CLIP with a small real tokenizer, made with the library the large ones come from."""

import numpy as np

#: Tokens that a sentence may have, its two ends among them.
CONTEXT = 16

#: Joined letters, as a learnt vocabulary would have them; the rest is spelt letter by letter.
MERGES = [("p", "h"), ("ph", "o"), ("pho", "t"), ("phot", "o</w>"), ("o", "f</w>")]


def letters():
    """Return the 256 characters that a byte-level vocabulary begins with."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return list(bytes_to_unicode().values())


def make_tokenizer():
    from transformers import CLIPTokenizer

    words = [*letters(), *(f"{letter}</w>" for letter in letters()), *map("".join, MERGES)]
    words += ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {word: place for place, word in enumerate(words)}
    return CLIPTokenizer(vocab=vocabulary, merges=MERGES)


def whole_words(vocabulary, length, marks, *, ends=True, lower=False):
    """Return a tokenizer with one token per word of a vocabulary, of lower case with ``lower``."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    ids = {word: place for place, word in enumerate(vocabulary)}
    inner = Tokenizer(models.WordLevel(ids, unk_token=marks["unk_token"]))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    if lower:
        inner.normalizer = normalizers.Lowercase()
    if ends:
        begin, end = marks["bos_token"], marks["eos_token"]
        around = [(begin, ids[begin]), (end, ids[end])]
        inner.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A {end}", special_tokens=around
        )
    return PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=length, **marks)


def clip_config(words, end):
    from transformers import CLIPConfig

    text = {"vocab_size": words, "hidden_size": 24, "num_hidden_layers": 2, "eos_token_id": end}
    heads = {"num_attention_heads": 2, "max_position_embeddings": CONTEXT, "intermediate_size": 32}
    vision = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    shape = {"intermediate_size": 64, "image_size": 48, "patch_size": 16}
    return CLIPConfig(
        text_config={**text, **heads, "bos_token_id": words - 2},
        vision_config={**vision, **shape},
        projection_dim=20,
    )


def lively(module, seed=0):
    """Give a network large random weights, so that its vectors tell its inputs apart."""
    import torch

    made = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name == "logit_scale":
                parameter.fill_(float(np.log(20.0)))
                continue
            noise = torch.randn(parameter.shape, generator=made)
            if parameter.ndim > 1:
                parameter.copy_(noise * (1.5 / parameter[0].numel() ** 0.5))
            else:
                parameter.copy_(0.2 * noise + name.endswith("weight"))
    return module.eval()


def make_clip(folder, *, end=None, seed=0):
    """Write a CLIP with tokenizer and processor; its config may name another ``end``."""
    from transformers import CLIPModel
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    from visleak.encoders.weights import quiet

    tokenizer = make_tokenizer()
    words = len(tokenizer)
    model = CLIPModel(clip_config(words, words - 1 if end is None else end))
    processor = CLIPImageProcessorPil(
        size={"shortest_edge": 48}, crop_size={"height": 48, "width": 48}
    )
    with quiet():
        lively(model, seed).save_pretrained(folder)
        processor.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def text_features(folder, sentences):
    """Return unit vectors of sentences by the library alone, one sentence at a time."""
    import torch
    from transformers import CLIPModel, CLIPTokenizer

    from visleak.encoders.weights import quiet

    with quiet():
        model = CLIPModel.from_pretrained(folder).eval()
        tokenizer = CLIPTokenizer.from_pretrained(folder)
    made = []
    for sentence in sentences:
        given = tokenizer(
            [sentence],
            return_tensors="pt",
            padding="max_length",
            truncation=True,
            max_length=CONTEXT,
        )
        with torch.inference_mode():
            features = model.get_text_features(**given)
        features = getattr(features, "pooler_output", features)
        made.append(features.numpy()[0].astype(np.float64))
    rows = np.stack(made)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
