"""A tiny causal language model."""

import pytest

from visleak.memorization.baselines.gradients import load_causal

#: Tokens of the causal language model.
GPT_WORDS = ("<begin>", "<unknown>", ".", "ant", "bee", "cow", "dog", "elk", "fox", "gnu", "hen")


@pytest.fixture(scope="session")
def gpt(tmp_path_factory):
    """A tiny GPT-2 with a tokenizer of words, saved and loaded by the real libraries."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({word: at for at, word in enumerate(GPT_WORDS)}, "<unknown>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<begin>", eos_token="<begin>", unk_token="<unknown>"
    )
    folder = tmp_path_factory.mktemp("gpt")
    tokenizer.save_pretrained(folder)
    config = GPT2Config(vocab_size=len(GPT_WORDS), n_positions=16, n_embd=16, n_layer=2, n_head=2)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(3)
        network = GPT2LMHeadModel(config)
        for each in network.parameters():
            each.mul_(3.0)
    network.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def language(gpt):
    return load_causal(str(gpt))
