"""Toy models: stock classes load them, and a training that was killed ends as if it was not."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "benchmarks" / "memorization"
MODULES = ("words", "pictures", "worlds", "toy_networks", "diffusion", "language", "training")

STEPS, LANGUAGE_STEPS = 6, 3

#: A world of fewer images than the experiments have, which takes three seconds less.
SMALL = {"GENERAL": 120, "HELD_OUT": 20, "HARD": 10, "OTHER": 120}


@pytest.fixture(scope="module")
def toy_scripts():
    """Load the scripts from their folder, which is no package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        for name in MODULES:
            patch.delitem(sys.modules, name, raising=False)
        scripts = SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
        for name, count in SMALL.items():
            patch.setattr(scripts.worlds, name, count)
        patch.setattr(scripts.training, "SAMPLE", 20)
        yield scripts
        for name in MODULES:
            sys.modules.pop(name, None)


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


def test_stock_pipeline_loads_and_draws(pipeline):
    found = pipeline("a red circle", num_inference_steps=2, output_type="np").images
    assert found.shape == (1, 16, 16, 3)
    assert pipeline.vae_scale_factor == 1
    assert pipeline.safety_checker is None


def test_killed_training_ends_with_the_same_weights(toy_scripts, world, recipe, tmp_path):
    train = toy_scripts.diffusion.train
    whole = train(world, recipe, 3, tmp_path / "whole.pt")
    train(world, recipe, 3, tmp_path / "killed.pt", until=2)
    resumed = train(world, recipe, 3, tmp_path / "killed.pt")
    assert whole.losses == resumed.losses
    wanted, found = weights(whole), weights(resumed)
    assert wanted.keys() == found.keys()
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
