"""The toy models of the experiments: their scripts run, and stock classes load what they write."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "memorization"
MODULES = ("words", "pictures", "worlds", "toy_networks", "diffusion", "language", "training")

#: A world of fewer images than the experiments have, which takes three seconds less.
SMALL = {"GENERAL": 120, "HELD_OUT": 20, "HARD": 10, "OTHER": 120}


@pytest.fixture
def toy_scripts(monkeypatch):
    """Load the scripts from their folder, which is no package."""
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    scripts = SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    for name, count in SMALL.items():
        monkeypatch.setattr(scripts.worlds, name, count)
    monkeypatch.setattr(scripts.training, "SAMPLE", 20)
    monkeypatch.setattr(scripts.training, "LANGUAGE_STEPS", 3)
    yield scripts
    for name in MODULES:
        sys.modules.pop(name, None)


def test_stock_pipeline_loads_and_draws(toy_scripts, tmp_path, monkeypatch):
    from diffusers import StableDiffusionPipeline

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    toy = toy_scripts.training.trained("plain", 0, 1, tmp_path)
    pipeline = StableDiffusionPipeline.from_pretrained(toy / "pipeline", local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    found = pipeline("a red circle", num_inference_steps=2, output_type="np").images
    assert found.shape == (1, 16, 16, 3)
    assert pipeline.vae_scale_factor == 1
    assert pipeline.safety_checker is None
