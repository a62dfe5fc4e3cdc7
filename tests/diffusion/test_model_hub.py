"""Models of the hub: fetched once, only what is needed, then never asked for again."""

import json
import time

import pytest

from refusals import refusal
from toy_hub import COMMIT, Hub, no_hub, serving
from visleak.diffusion import load_model
from visleak.errors import VisleakError


@pytest.fixture
def hub(copied, tmp_path, monkeypatch):
    """Run a hub with one pipeline, and files that nobody needs."""
    folder = copied()
    for name in ("safety_checker/model.safetensors", "unet/diffusion_pytorch_model.bin", "v1.ckpt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"large")
    files = {
        each.relative_to(folder).as_posix(): each for each in folder.rglob("*") if each.is_file()
    }
    with serving(monkeypatch, tmp_path / "cache", "owner/sd", files) as hub:
        yield hub


def refused(text):
    return refusal(VisleakError, load_model, text)


@pytest.mark.parametrize("text", ["hub:owner/sd", "hub:owner/sd@v2", "hub:owner/sd@refs/pr/1"])
def test_a_model_is_fetched_once(hub, made, tmp_path, monkeypatch, text):
    wanted = load_model(str(made("sd1"))).digest
    fetched = load_model(text)
    assert (fetched.name, fetched.digest) == (text, wanted)
    got = {line.partition(f"{COMMIT}/")[2] for line in hub.asked if line.startswith("GET")}
    assert "unet/diffusion_pytorch_model.safetensors" in got
    assert not {name for name in got if name.endswith((".bin", ".ckpt")) or "safety" in name}
    hub.asked.clear()
    assert load_model(text).digest == wanted
    assert hub.asked == []
    no_hub(monkeypatch, tmp_path / "cache")
    assert load_model(text).digest == wanted


def test_what_an_interrupted_download_lacks_is_fetched(hub, tmp_path):
    wanted = load_model("hub:owner/sd").digest
    (lost,) = (tmp_path / "cache").rglob("snapshots/*/vae/diffusion_pytorch_model.safetensors")
    lost.unlink()
    hub.asked.clear()
    assert load_model("hub:owner/sd").digest == wanted
    assert any("vae/" in line for line in hub.asked)


def test_half_precision_fetches_the_smaller_files(hub, monkeypatch):
    half = {
        name.replace(".safetensors", ".fp16.safetensors"): file
        for name, file in Hub.files.items()
        if "safety" not in name
    }
    monkeypatch.setattr(Hub, "files", Hub.files | half)
    load_model("hub:owner/sd", precision="fp16")
    weights = [line for line in hub.asked if line.endswith(".safetensors") and "GET" in line]
    assert len(weights) == 3
    assert all(line.endswith(".fp16.safetensors") for line in weights)


def test_what_the_hub_has_is_judged_before_weights_are_fetched(hub, monkeypatch, tmp_path):
    index = tmp_path / "index"
    content = json.loads(Hub.files["model_index.json"].read_text())
    index.write_text(json.dumps(content | {"unet": ["unet.hostile", "UNet2DConditionModel"]}))
    monkeypatch.setattr(Hub, "files", Hub.files | {"model_index.json": index})
    assert "code that comes with a model is never run" in refused("hub:owner/sd")
    pickles = {
        name.replace("model.safetensors", "model.bin"): file for name, file in Hub.files.items()
    }
    index.write_text(json.dumps(content))
    monkeypatch.setattr(Hub, "files", pickles | {"model_index.json": index})
    (old,) = (tmp_path / "cache").rglob("model_index.json")
    old.unlink()
    assert "/owner/sd/vae has its weights only as pickles (.bin)" in refused("hub:owner/sd")
    monkeypatch.setattr(Hub, "files", {"model.safetensors": index})
    old.unlink(missing_ok=True)
    assert "/owner/sd has no model_index.json; it is not a pipeline" in refused("hub:owner/sd")
    assert not any(line.endswith((".bin", ".safetensors")) for line in hub.asked)


def test_a_model_that_the_hub_does_not_have(hub):
    assert "has no such model, or a private one (`hf auth login`)" in refused("hub:owner/none")


def test_a_hub_that_cannot_be_reached_is_one_line_within_seconds(tmp_path, monkeypatch):
    no_hub(monkeypatch, tmp_path / "cache")
    began = time.monotonic()
    said = refused("hub:owner/sd")
    assert time.monotonic() - began < 60
    cache = f"is not in the cache {tmp_path / 'cache'}, and http://127.0.0.1:9 cannot be reached ("
    for words in (cache, "; on a machine with access: `hf download owner/sd --local-dir FOLDER`"):
        assert words in said


@pytest.mark.parametrize("text", ["hub:", "hub:a/b/c", "hub:a/b@", "hub:a/b@x y", "hub:a/b\n"])
def test_names_that_cannot_be(text):
    assert "model must be a folder or hub:OWNER/NAME, or hub:" in refused(text)
