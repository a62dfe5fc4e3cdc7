"""A CLIP of 16 x 16 pixels and whole words: a tokenizer that is not CLIP's own."""

from toy_clip import lively, whole_words

WORDS = ("a", "red", "blue", "circle", "square", "of", "the")
BEGIN, END, UNKNOWN = "<bos>", "<eos>", "<unk>"

#: Tokens that a sentence may have, its two ends among them.
CONTEXT = 8
SIDE, PATCH = 16, 4


def make_word_clip(folder, *, processor, ends=True):
    """Write a CLIP with its tokenizer; without ``ends`` the tower has no place to read."""
    from transformers import CLIPConfig, CLIPModel
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    from visleak.encoders.weights import quiet

    marks = {"bos_token": BEGIN, "eos_token": END, "pad_token": END, "unk_token": UNKNOWN}
    words = (BEGIN, END, UNKNOWN, *WORDS)
    tokenizer = whole_words(words, CONTEXT, marks, ends=ends, lower=True)
    small = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    text = {"vocab_size": len(words), "hidden_size": 16, "max_position_embeddings": CONTEXT}
    text |= {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    vision = {"hidden_size": 24, "image_size": SIDE, "patch_size": PATCH}
    config = CLIPConfig(text_config=small | text, vision_config=small | vision, projection_dim=12)
    crop, half = {"height": SIDE, "width": SIDE}, [0.5, 0.5, 0.5]
    prepared = CLIPImageProcessorPil(
        size={"shortest_edge": SIDE}, crop_size=crop, image_mean=half, image_std=half
    )
    with quiet():
        lively(CLIPModel(config)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        if processor:
            prepared.save_pretrained(folder)
    return folder
