"""Prompts taken apart into tokens, and put together from embeddings."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close as close

from tiny_pipelines import LENGTH, WORDS, clip_text, stable_diffusion, word_tokenizer
from visleak.diffusion import load_model
from visleak.diffusion.families import StableDiffusion
from visleak.diffusion.pipeline import LoadedPipeline, PromptTokens, quiet
from visleak.errors import UsageError, VisleakError

ODD, GO, END = len(WORDS), len(WORDS) + 1, len(WORDS) + 2


@pytest.fixture(scope="module", params=["sd1", "sd2"])
def model(request, made):
    """One pads with its end token, the other with ``!``."""
    return load_model(str(made(request.param)), device="cpu")


@given(words=st.lists(st.sampled_from(WORDS), max_size=14))
def test_a_prompt_is_its_tokens(model, words):
    prompt = " ".join(words)
    ids = model.token_ids(prompt)
    assert ids == [WORDS.index(word) for word in words][: LENGTH - 2]
    assert model.prompt_of(ids) == " ".join(words[: LENGTH - 2])
    assert model.token_texts(ids) == words[: LENGTH - 2]


def test_unknown_words_and_what_is_around_a_prompt(model):
    assert model.token_ids("a zebra cat") == [0, ODD, 3]
    assert model.prompt_of([0, ODD, 3]) == "a cat"
    assert model.most_tokens() == LENGTH - 2
    assert {ODD, GO, END} <= model.special_ids()
    assert model.token_table().shape == (len(WORDS) + 3, 32)
    assert model.token_ids("") == []


@given(words=st.lists(st.sampled_from(WORDS), max_size=LENGTH - 2))
def test_embeddings_of_tokens_are_the_prompt(model, words):
    prompt = " ".join(words)
    given_ = model.token_table()[model.token_ids(prompt)][None]
    found = model.encode_embeddings(given_).states
    close(found, model.encode_prompt([prompt]).states, atol=1e-6, rtol=0)


def test_embeddings_of_several_prompts_and_their_gradients(model):
    prompts = ["a red house", "the sun on"]
    ids = torch.tensor([model.token_ids(prompt) for prompt in prompts])
    given_ = model.token_table()[ids].clone().requires_grad_(True)
    found = model.encode_embeddings(given_)
    close(found.states, model.encode_prompt(prompts).states, atol=1e-6, rtol=0)
    model.predict_noise(model.noises([0, 1]), 981, found).square().sum().backward()
    assert (given_.grad.abs().sum(-1) > 0).all()


@pytest.mark.parametrize("shape", [(3, 32), (0, 3, 32), (1, 9, 32), (1, 3, 31)])
def test_embeddings_of_another_shape_are_refused(model, shape):
    with pytest.raises(UsageError, match=r"embeddings must be \(prompts, at most 8 tokens, 32\)"):
        model.encode_embeddings(torch.zeros(shape))


def test_pooled_text_is_the_state_at_the_end(model):
    prompts = ["a", "a red house on the hill", ""]
    pooled = model.pooled_text(prompts)
    assert pooled.dtype == np.float32
    states = model.encode_prompt(prompts).states.numpy()
    for row, prompt in enumerate(prompts):
        end = 1 + len(model.token_ids(prompt))
        np.testing.assert_allclose(pooled[row], states[row, end], atol=1e-6)
    assert model.pooled_text([]).shape == (0, 32)


def loaded(pipeline):
    return StableDiffusion(LoadedPipeline("tiny", pipeline, "cpu", "fp32", "0"))


def test_pooled_text_is_projected_where_the_encoder_projects():
    tokenizer = word_tokenizer()
    with quiet():
        encoder = clip_text(tokenizer, projected=True).eval()
        model = loaded(stable_diffusion(tokenizer=tokenizer, text_encoder=encoder))
    state = model.encode_prompt(["a cat"]).states[0, 3]
    wanted = encoder.text_projection(state).detach().numpy()
    np.testing.assert_allclose(model.pooled_text(["a cat"])[0], wanted, atol=1e-6)


def test_a_mask_is_used_where_the_encoder_says_so():
    """Some fine-tunes mask their padding."""
    tokenizer = word_tokenizer()
    with quiet():
        plain = stable_diffusion(tokenizer=tokenizer, text_encoder=clip_text(tokenizer).eval())
        state = plain.text_encoder.state_dict()
        masked = clip_text(tokenizer, use_attention_mask=True).eval()
        masked.load_state_dict(state)
        other = stable_diffusion(tokenizer=tokenizer, text_encoder=masked)
    without, with_ = (loaded(each).encode_prompt(["a cat"]).states for each in (plain, other))
    # up to the end token a causal encoder sees no padding
    close(without[:, :4], with_[:, :4], atol=1e-6, rtol=0)
    assert not torch.allclose(without[:, 4:], with_[:, 4:], atol=1e-4)
    wanted, _ = other.encode_prompt(["a cat"], "cpu", 1, False)
    assert torch.equal(with_, wanted)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda each: each.add_tokens(["one", "more"]), "has 17 tokens and its text encoder 15"),
        (lambda each: setattr(each, "eos_token", "cat"), "has no end or no padding token"),
    ],
)
def test_a_tokenizer_of_another_model_is_refused(change, text):
    tokenizer = word_tokenizer()
    encoder = clip_text(tokenizer)
    change(tokenizer)
    with pytest.raises(VisleakError, match=text):
        PromptTokens("tiny", tokenizer, encoder, LENGTH)
