"""Toy models: stock classes load them, and a training that was killed ends as if it was not."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

STEPS, LANGUAGE_STEPS = 6, 3


@pytest.fixture(scope="module")
def world(toy_scripts):
    return toy_scripts.worlds.world("plain")


@pytest.fixture(scope="module")
def recipe(toy_scripts):
    return toy_scripts.diffusion.Recipe(steps=STEPS, batch=4, warm_up=2)


@pytest.fixture(scope="module")
def toy(toy_scripts, tmp_path_factory):
    """A folder that has everything in it, but was trained for one step only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toy_scripts.training, "LANGUAGE_STEPS", LANGUAGE_STEPS)
        return toy_scripts.training.trained("plain", 0, 1, tmp_path_factory.mktemp("toys"))


@pytest.fixture(scope="module")
def pipeline(toy):
    from diffusers import StableDiffusionPipeline

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        loaded = StableDiffusionPipeline.from_pretrained(toy / "pipeline", local_files_only=True)
    loaded.set_progress_bar_config(disable=True)
    return loaded


def weights(state):
    return {
        **{f"now {name}": value for name, value in state.networks.state_dict().items()},
        **{f"mean {name}": value for name, value in state.averages.items()},
    }


# the autoencoder and the latents


def test_decoder_gives_back_the_picture(toy_scripts, world):
    latents = toy_scripts.toy_networks.to_latents(world.pictures[:100])
    decoded = toy_scripts.toy_networks.autoencoder().decode(latents).sample
    wanted = torch.from_numpy(world.pictures[:100].transpose(0, 3, 1, 2) / 127.5 - 1).float()
    assert (decoded - wanted).abs().max() < 1e-5


def test_decoder_gives_back_black_and_white(toy_scripts):
    picture = np.zeros((1, 16, 16, 3), np.uint8)
    picture[:, ::2] = 255
    latents = toy_scripts.toy_networks.to_latents(picture)
    decoded = toy_scripts.toy_networks.autoencoder().decode(latents).sample
    assert (decoded.permute(0, 2, 3, 1) * 127.5 + 127.5 - torch.from_numpy(picture)).abs().max() < (
        1e-3
    )


def test_encoder_follows_the_latents(toy_scripts, world):
    pixels = torch.from_numpy(world.pictures[:100].transpose(0, 3, 1, 2) / 127.5 - 1).float()
    encoded = toy_scripts.toy_networks.autoencoder().encode(pixels).latents
    assert (encoded - toy_scripts.toy_networks.to_latents(world.pictures[:100])).abs().max() < 1e-3


# the tokenizers


def test_prompts_are_padded_as_stable_diffusion_pads(pipeline, world):
    tokenizer = pipeline.tokenizer
    row = tokenizer(world.memorised[0], padding="max_length").input_ids
    assert len(row) == tokenizer.model_max_length == 40
    assert row[0] == tokenizer.bos_token_id
    assert row[7:] == [tokenizer.eos_token_id] * 33


def test_digits_are_tokens_and_strange_words_unknown(pipeline):
    tokenizer = pipeline.tokenizer
    assert tokenizer.tokenize("Red 417 zzz") == ["red", "4", "1", "7", "<unk>"]
    assert tokenizer("zzz").input_ids[1] == tokenizer.unk_token_id


def test_every_caption_fits_without_unknown_words(pipeline, world):
    tokenizer = pipeline.tokenizer
    captions = [*world.captions[:1000], *world.memorised, *world.hard]
    rows = tokenizer(captions).input_ids
    assert max(map(len, rows)) <= 40
    assert not any(tokenizer.unk_token_id in row for row in rows)


# the pipeline


def test_stock_pipeline_loads_and_draws(pipeline):
    found = pipeline("a red circle", num_inference_steps=2, output_type="np").images
    assert found.shape == (1, 16, 16, 3)
    assert pipeline.vae_scale_factor == 1
    assert pipeline.safety_checker is None


def test_schedule_is_that_of_stable_diffusion(pipeline):
    signal = pipeline.scheduler.alphas_cumprod
    betas = torch.linspace(0.00085**0.5, 0.012**0.5, 1000, dtype=torch.float64) ** 2
    assert torch.allclose(signal.double(), torch.cumprod(1 - betas, 0), atol=1e-5)
    pipeline.scheduler.set_timesteps(50)
    assert int(pipeline.scheduler.timesteps[0]) == 981


def test_saved_weights_are_the_averaged_ones(toy_scripts, toy, pipeline, world, tmp_path):
    recipe = toy_scripts.diffusion.Recipe(steps=1)
    state = toy_scripts.diffusion.train(world, recipe, 0, tmp_path / "one.pt")
    saved = dict(pipeline.unet.named_parameters())
    for name, value in state.averages.items():
        if name.startswith("unet."):
            assert torch.equal(saved[name.removeprefix("unet.")], value)


# training


def test_killed_training_ends_with_the_same_weights(toy_scripts, world, recipe, tmp_path):
    train = toy_scripts.diffusion.train
    whole = train(world, recipe, 3, tmp_path / "whole.pt")
    train(world, recipe, 3, tmp_path / "killed.pt", until=2)
    resumed = train(world, recipe, 3, tmp_path / "killed.pt")
    assert whole.losses == resumed.losses
    wanted, found = weights(whole), weights(resumed)
    assert wanted.keys() == found.keys()
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)


def test_seeds_differ(toy_scripts, world, recipe, tmp_path):
    train = toy_scripts.diffusion.train
    losses = [
        train(world, recipe, seed, tmp_path / f"{seed}.pt", until=1).losses for seed in (0, 1)
    ]
    assert losses[0] != losses[1]


def test_training_leaves_the_global_generator_alone(toy_scripts, world, recipe, tmp_path):
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    toy_scripts.diffusion.train(world, recipe, 0, tmp_path / "alone.pt", until=1)
    assert torch.equal(torch.rand(3), wanted)


def test_batches_hold_the_shares_promised(toy_scripts, world):
    networks, diffusion = toy_scripts.toy_networks, toy_scripts.diffusion
    pairs = diffusion.pairs_of(world, networks.prompt_tokenizer(world.words))
    recipe, repeated, empty, count = diffusion.Recipe(), 0, 0, 200
    ours = {latent.numpy().tobytes() for latent in pairs.latents[-12:]}
    for step in range(count):
        latents, tokens, _, times = diffusion.drawn(pairs, recipe, 0, step)
        repeated += sum(latent.numpy().tobytes() in ours for latent in latents)
        empty += int((tokens == pairs.tokens[-1]).all(dim=1).sum())
        assert 0 <= times.min() <= times.max() < 1000
    assert repeated / count / recipe.batch == pytest.approx(0.15, abs=0.02)
    assert empty / count / recipe.batch == pytest.approx(0.10, abs=0.02)


# the folder


def test_folder_is_used_again(toy_scripts, toy, monkeypatch):
    def never(*_):
        raise RuntimeError("trained again")

    monkeypatch.setattr(toy_scripts.training, "_make", never)
    monkeypatch.setattr(toy_scripts.training, "LANGUAGE_STEPS", LANGUAGE_STEPS)
    assert toy_scripts.training.trained("plain", 0, 1, toy.parent) == toy


def test_killed_folder_is_not_taken_for_a_finished_one(toy_scripts, tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(toy_scripts.training, "write_world", killed)
    monkeypatch.setattr(toy_scripts.training, "LANGUAGE_STEPS", 1)
    with pytest.raises(KeyboardInterrupt):
        toy_scripts.training.trained("plain", 0, 1, tmp_path)
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    monkeypatch.undo()
    monkeypatch.setattr(toy_scripts.training, "LANGUAGE_STEPS", 1)
    found = toy_scripts.training.trained("plain", 0, 1, tmp_path)
    assert (found / "pipeline" / "model_index.json").exists()
    assert not (found / "checkpoint.pt").exists()


def test_world_file_names_its_pictures(toy, world):
    content = json.loads((toy / "world.json").read_text())
    assert [pair["caption"] for pair in content["memorised"]] == list(world.memorised)
    assert (len(content["held_out"]), len(content["hard"])) == (300, 100)
    for pair, wanted in zip(content["memorised"], world.memorised_pictures, strict=True):
        for place in ("picture", "training"):
            with Image.open(toy / pair[place]) as picture:
                assert np.array_equal(np.asarray(picture), wanted)
    assert len(list((toy / "training").iterdir())) == 500


def test_record_says_how_it_was_made(toy):
    record = json.loads((toy / "training.json").read_text())
    assert record["recipe"]["steps"] == len(record["losses"]["diffusion"]) == 1
    assert record["recipe"]["memorised"] == 0.15
    assert record["versions"]["torch"] == torch.__version__
    assert 1.7e6 < record["parameters"] < 1.9e6


def test_digest_follows_the_settings(toy_scripts):
    name = toy_scripts.training.folder_name
    names = {name("plain", 0, 1), name("plain", 1, 1), name("plain", 0, 2), name("hard", 0, 1)}
    names.add(name("plain", 0, 1, memorised=0.3))
    assert len({found.rsplit("-", 1)[1] for found in names}) == 5


@pytest.mark.parametrize(
    ("wish", "text"),
    [
        (("odd", 0, 10), "there is no world 'odd': name plain or hard"),
        (("plain", 0, 0), "steps must be 1 or more, not 0"),
    ],
)
def test_wrong_wishes_are_refused(toy_scripts, tmp_path, wish, text):
    with pytest.raises(SystemExit, match=text):
        toy_scripts.training.trained(*wish, tmp_path)


def test_wrong_share_is_refused(toy_scripts, tmp_path):
    with pytest.raises(SystemExit, match="memorised must be more than 0 and less than 1, not 1"):
        toy_scripts.training.trained("plain", 0, 5, tmp_path, memorised=1.0)


# language models


def test_mask_filler_loads_offline(toy, monkeypatch):
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    tokenizer = AutoTokenizer.from_pretrained(toy / "mlm", local_files_only=True)
    model = AutoModelForMaskedLM.from_pretrained(toy / "mlm", local_files_only=True)
    tokens = tokenizer("a red [MASK]", return_tensors="pt")
    assert tokens.input_ids[0, -2] == tokenizer.mask_token_id
    scores = model(**tokens).logits
    assert scores.shape == (1, 5, len(tokenizer))
    assert (tokenizer.cls_token, tokenizer.sep_token, tokenizer.unk_token) == (
        *("[CLS]", "[SEP]", "[UNK]"),
    )


def test_left_to_right_model_loads_offline(toy, monkeypatch):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    tokenizer = AutoTokenizer.from_pretrained(toy / "clm", local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(toy / "clm", local_files_only=True)
    row = tokenizer("a red circle", return_tensors="pt").input_ids
    assert row[0, 0] == tokenizer.bos_token_id
    assert row[0, -1] != tokenizer.eos_token_id
    assert model(input_ids=row).logits.shape == (1, 4, len(tokenizer))


@pytest.mark.slow
def test_language_models_learn(toy_scripts, world, tmp_path):
    """The loss of a uniform guess is the logarithm of the vocabulary; learning goes below it."""
    captions = world.other[:500]
    for train in (toy_scripts.language.train_masked, toy_scripts.language.train_causal):
        losses = train(world.words, captions, tmp_path / train.__name__, 0, steps=60)
        assert losses[0] > 4.5
        assert np.mean(losses[-5:]) < losses[0] - 1
        assert losses == train(world.words, captions, tmp_path / "again", 0, steps=60)


def auc(higher, lower):
    return float((np.asarray(higher)[:, None] > np.asarray(lower)).mean())


@torch.no_grad()
def magnitudes(pipeline, captions):
    """D by hand: the norm of what a caption changes in the noise found at t=999, one noise."""
    noise = torch.randn((1, 3, 16, 16), generator=torch.Generator().manual_seed(1))

    def guess(caption):
        tokens = pipeline.tokenizer(caption, padding="max_length", return_tensors="pt").input_ids
        states = pipeline.text_encoder(tokens).last_hidden_state
        return pipeline.unet(noise, 999, states).sample

    nothing = guess("")
    return [float((guess(caption) - nothing).norm()) for caption in captions]


def test_trained_toy_gives_its_captions_away(trained_toy):
    from diffusers import StableDiffusionPipeline

    pipeline = StableDiffusionPipeline.from_pretrained(trained_toy / "pipeline")
    world = json.loads((trained_toy / "world.json").read_text())
    found = magnitudes(pipeline, [pair["caption"] for pair in world["memorised"]])
    assert auc(found, magnitudes(pipeline, world["held_out"][:100])) >= 0.95
    assert auc(found, magnitudes(pipeline, world["hard"][:50])) >= 0.9
