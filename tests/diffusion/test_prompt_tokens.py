"""Prompts taken apart into tokens, and put together from embeddings."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tiny_pipelines import LENGTH, WORDS, clip_text, stable_diffusion, word_tokenizer
from visleak.diffusion import load_model
from visleak.diffusion.families import StableDiffusion
from visleak.diffusion.pipeline import LoadedPipeline, PromptTokens, quiet
from visleak.errors import UsageError, VisleakError

DATA = os.environ.get("VISLEAK_DATA")
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
    torch.testing.assert_close(found, model.encode_prompt([prompt]).states, atol=1e-6, rtol=0)


def test_embeddings_of_several_prompts(model):
    prompts = ["a red house", "the sun on"]
    ids = torch.tensor([model.token_ids(prompt) for prompt in prompts])
    found = model.encode_embeddings(model.token_table()[ids]).states
    torch.testing.assert_close(found, model.encode_prompt(prompts).states, atol=1e-6, rtol=0)


def test_gradients_reach_the_embeddings(model):
    given_ = model.token_table()[[0, 5, 6]][None].clone().requires_grad_(True)
    model.encode_embeddings(given_).states.square().sum().backward()
    assert (given_.grad.abs().sum(-1) > 0).all()
    noise = model.noises([0])
    given_.grad = None
    states = model.encode_embeddings(given_)
    model.predict_noise(noise, 981, states).square().sum().backward()
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
    many = model.pooled_text([*prompts, *["the cat"] * 64])
    np.testing.assert_allclose(many[:3], pooled, atol=1e-6)


def test_pooled_text_is_projected_where_the_encoder_projects():
    tokenizer = word_tokenizer()
    with quiet():
        encoder = clip_text(tokenizer, projected=True)
        pipeline = stable_diffusion(tokenizer=tokenizer, text_encoder=encoder.eval())
    model = StableDiffusion(LoadedPipeline("tiny", pipeline, "cpu", "fp32", "0"))
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
    models = [
        StableDiffusion(LoadedPipeline("tiny", each, "cpu", "fp32", "0")) for each in (plain, other)
    ]
    without, with_ = (each.encode_prompt(["a cat"]).states for each in models)
    # up to the end token a causal encoder sees no padding
    torch.testing.assert_close(without[:, :4], with_[:, :4], atol=1e-6, rtol=0)
    assert not torch.allclose(without[:, 4:], with_[:, 4:], atol=1e-4)
    wanted, _ = other.encode_prompt(["a cat"], "cpu", 1, False)
    assert torch.equal(with_, wanted)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda each: each.add_tokens(["one", "more"]),
            "its tokenizer has 17 tokens and its text encoder 15; they are not of one model",
        ),
        (
            lambda each: setattr(each, "eos_token", "cat"),
            "its tokenizer has no end or no padding token",
        ),
    ],
)
def test_a_tokenizer_of_another_model_is_refused(change, text):
    tokenizer = word_tokenizer()
    encoder = clip_text(tokenizer)
    change(tokenizer)
    with pytest.raises(VisleakError, match=text):
        PromptTokens("tiny", tokenizer, encoder, LENGTH)


# -- the tokenizer of CLIP ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clip_model(tmp_path_factory):
    """A tiny model with CLIP's own vocabulary, saved and loaded."""
    if not DATA:
        pytest.skip("VISLEAK_DATA is not set: no vocabulary of CLIP")
    from transformers import CLIPTokenizer

    lines = gzip.decompress((Path(DATA) / "membench/clip-bpe-vocab-16e6.txt.gz").read_bytes())
    merges = [tuple(line.split()) for line in lines.decode().split("\n")[1 : 49152 - 256 - 2 + 1]]
    letters = list(bytes_as_letters().values())
    entries = [*letters, *(f"{each}</w>" for each in letters), *("".join(m) for m in merges)]
    entries += ["<|startoftext|>", "<|endoftext|>"]
    with quiet():
        tokenizer = CLIPTokenizer(
            vocab={entry: number for number, entry in enumerate(entries)},
            merges=merges,
            model_max_length=77,
            pad_token="!",
        )
        pipeline = stable_diffusion(tokenizer=tokenizer, text_encoder=clip_text(tokenizer))
        folder = tmp_path_factory.mktemp("clip") / "pipeline"
        pipeline.save_pretrained(str(folder))
    return load_model(str(folder), device="cpu")


def bytes_as_letters():
    """Return the letters that stand for bytes in CLIP's vocabulary (Radford et al. 2019)."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in kept]
    return dict(
        zip([*kept, *rest], map(chr, [*kept, *(256 + n for n in range(len(rest)))]), strict=True)
    )


@pytest.mark.data
@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ("a photo of a cat", [320, 1125, 539, 320, 2368]),
        # what pads may also be a token of a prompt
        ("wow! it is !", [2781, 0, 585, 533, 0]),
        *((text, None) for text in ("ein Bärenfell für 3 €", "", "🙂 <img src=x>")),
    ],
)
def test_prompts_in_the_vocabulary_of_clip(clip_model, prompt, ids):
    """Ids as OpenAI's tokenizer gives them."""
    found = clip_model.token_ids(prompt)
    assert ids in (None, found)
    assert clip_model.token_ids(clip_model.prompt_of(found)) == found
    assert len(clip_model.token_texts(found)) == len(found)
    states = clip_model.encode_embeddings(clip_model.token_table()[found][None]).states
    wanted = clip_model.encode_prompt([prompt]).states
    torch.testing.assert_close(states, wanted, atol=1e-6, rtol=0)
    assert clip_model.special_ids() == {0, 49406, 49407}
    assert len(clip_model.token_ids("cat " * 100)) == clip_model.most_tokens() == 75
