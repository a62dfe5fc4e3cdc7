"""Toy models: stock classes load them, and a training that was killed ends as if it was not."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

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


# the tokenizers


# the pipeline


def test_stock_pipeline_loads_and_draws(pipeline):
    found = pipeline("a red circle", num_inference_steps=2, output_type="np").images
    assert found.shape == (1, 16, 16, 3)
    assert pipeline.vae_scale_factor == 1
    assert pipeline.safety_checker is None


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
