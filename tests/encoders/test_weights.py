"""Weights from folders, the cache and a hub, and how missing ones are refused."""

import json
import pickle
import shutil
import sys
from pathlib import Path

import pytest
from objects import Trap
from tiny_models import make_sscd

from refusals import refusal
from toy_hub import Hub, no_hub, serving
from visleak.encoders import load_encoder
from visleak.encoders.request import parse
from visleak.encoders.vision_language import LAYOUT
from visleak.encoders.weights import find_model
from visleak.errors import MissingExtra, VisleakError


def refused(text):
    return refusal(VisleakError, load_encoder, text)


@pytest.fixture
def hub(models, tmp_path, monkeypatch):
    """Run a hub with one model, and a file that is not needed."""
    unneeded = tmp_path / "flax_model.msgpack"
    unneeded.write_bytes(b"large")
    files = {path.name: path for path in [*(models / "clip").iterdir(), unneeded]}
    with serving(monkeypatch, tmp_path / "cache", "owner/clip", files) as hub:
        yield hub


def test_a_model_of_the_hub_is_fetched_once(hub, models, tmp_path, monkeypatch):
    fetched = load_encoder("clip:owner/clip")
    assert fetched.digest == load_encoder(f"clip:{models}/clip").digest
    assert (fetched.name, fetched.thresholds) == ("clip:owner/clip", None)
    assert any("model.safetensors" in line for line in hub.asked)
    assert not any("msgpack" in line for line in hub.asked)
    hub.asked.clear()
    assert load_encoder("clip:owner/clip").digest == fetched.digest
    assert hub.asked == []
    no_hub(monkeypatch, tmp_path / "cache")
    assert load_encoder("clip:owner/clip").digest == fetched.digest


def test_another_layout_downloads_the_missing_files(hub):
    load_encoder("clip:owner/clip")
    assert not any("tokenizer" in line for line in hub.asked)
    hub.asked.clear()
    found = find_model(parse("clip:owner/clip"), layout=LAYOUT)
    assert (found.path / "tokenizer.json").is_file()
    fetched = [line for line in hub.asked if line.startswith("GET") and "resolve" in line]
    names = {line.rpartition("/")[2] for line in fetched}
    assert "tokenizer.json" in names <= set(LAYOUT.others)


def test_weights_in_several_files(hub, models, tmp_path, monkeypatch):
    from safetensors.torch import load_file, save_file

    weights = load_file(models / "clip" / "model.safetensors")
    names, parts = sorted(weights), ("model-1-of-2.safetensors", "model-2-of-2.safetensors")
    files = {name: path for name, path in Hub.files.items() if name != "model.safetensors"}
    listed = {}
    for number, part in enumerate(parts):
        chosen = names[number::2]
        save_file({each: weights[each] for each in chosen}, tmp_path / part, {"format": "pt"})
        files[part] = tmp_path / part
        listed.update(dict.fromkeys(chosen, part))
    files["model.safetensors.index.json"] = tmp_path / "index"
    (tmp_path / "index").write_text(json.dumps({"metadata": {}, "weight_map": listed}))
    monkeypatch.setattr(Hub, "files", files)
    wanted = load_encoder(f"clip:{models}/clip").digest
    assert load_encoder("clip:owner/clip").digest == wanted
    hub.asked.clear()
    assert load_encoder("clip:owner/clip").digest == wanted
    parted = load_encoder("hf:owner/clip").digest
    assert parted == load_encoder(f"hf:{models}/clip").digest
    assert hub.asked == []
    (lost,) = (tmp_path / "cache").rglob(f"snapshots/*/{parts[1]}")
    lost.unlink()
    assert load_encoder("clip:owner/clip").digest == wanted
    assert hub.asked != []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("owner/none", "has no such model, or a private one (`hf auth login`)"),
        ("owner/gated", "requires a granted request for access (`hf auth login`)"),
        ("own er/x", "has no models of such a name (OWNER/NAME)"),
    ],
)
def test_models_that_the_hub_refuses(hub, name, said):
    assert said in refused(f"clip:{name}")


def test_a_model_of_another_library_is_refused(hub, monkeypatch):
    monkeypatch.setattr(Hub, "files", {"config.json": Path("x"), "flax_model.msgpack": Path("y")})
    said = refused("clip:owner/clip")
    assert "was not made for transformers: it has no config.json, or none of model.safe" in said
    assert not any("resolve" in line for line in hub.asked)


@pytest.fixture
def copy(models, tmp_path):
    """Return a copy of the small CLIP that may be damaged."""
    return Path(shutil.copytree(models / "clip", tmp_path / "copy"))


def test_a_folder_without_configuration_or_weights(copy):
    assert "there is no folder" in refused("clip:./nowhere")
    for name, words in (("model.safetensors", "weights, none of"), ("config.json", "config.json")):
        (copy / name).unlink()
        assert f"the folder {copy} has no {words}" in refused(f"clip:{copy}")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "config.json cannot be read (Expecting"),
        ("[]", "config.json must hold names and values"),
        ('{"model_type": "bert"}', "is a 'bert', not a CLIP; other models of transformers are hf:"),
        ('{"model_type": "clip", "projection_dim": "many"}', "config.json is not understood ("),
    ],
)
def test_a_configuration_that_is_not_understood(copy, content, said):
    (copy / "config.json").write_text(content)
    assert said in refused(f"clip:{copy}")


def test_weights_that_are_missing_are_never_random(copy, models):
    """transformers would fill them with noise and only warn."""
    from safetensors.torch import load_file, save_file

    weights = load_file(copy / "model.safetensors")
    del weights["visual_projection.weight"]
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    assert "lack 1 tensors, such as visual_projection.weight; they are" in refused(f"clip:{copy}")


def test_damaged_weights(copy):
    file = copy / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    assert f"model {copy} cannot be loaded from {copy} (SafetensorError" in refused(f"clip:{copy}")


def test_a_pickle_in_place_of_weights_is_not_loaded(copy, tmp_path):
    (copy / "model.safetensors").unlink()
    (copy / "pytorch_model.bin").write_bytes(pickle.dumps({"x": Trap(tmp_path / "sprung")}))
    assert "cannot be loaded" in refused(f"clip:{copy}")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("kind", ["clip", "hf"])
def test_old_weights_are_read(copy, models, kind):
    import torch
    from safetensors.torch import load_file

    torch.save(load_file(copy / "model.safetensors"), copy / "pytorch_model.bin")
    (copy / "model.safetensors").unlink()
    assert load_encoder(f"{kind}:{copy}").digest == load_encoder(f"{kind}:{models}/clip").digest


def test_code_of_a_model_is_never_run(copy, tmp_path):
    sprung = tmp_path / "sprung"
    (copy / "theirs.py").write_text(f"open({str(sprung)!r}, 'w')\n")
    code = {"AutoConfig": "theirs.C", "AutoModel": "theirs.M"}
    config = {"model_type": "theirs", "auto_map": code}
    (copy / "config.json").write_text(json.dumps(config))
    assert "cannot be loaded" in refused(f"hf:{copy}")
    assert not sprung.exists()


def test_sscd_from_something_else(models, tmp_path):
    import torch

    linear = tmp_path / "linear.pt"
    with pytest.warns(DeprecationWarning, match="torch.jit.script"):
        torch.jit.script(torch.nn.Linear(3, 4)).save(str(linear))
    assert "does not make a vector of an image (RuntimeError" in refused(f"sscd:{linear}")


def test_sscds_digest_is_the_files(models, tmp_path):
    first = load_encoder(f"sscd:{models}/sscd.torchscript.pt").digest
    assert load_encoder(f"sscd:{make_sscd(tmp_path / 'other.pt', 24)}").digest != first


@pytest.mark.parametrize(
    ("text", "module", "extra"),
    [
        ("pdq", "pdqhash", "pdq"),
        ("clip", "transformers", "torch"),
        ("sscd:x", "torch", "torch"),
        ("timm:resnet50", "timm", "timm"),
        ("clip?backend=open_clip", "open_clip", "open-clip"),
    ],
)
def test_a_library_that_is_not_installed(monkeypatch, text, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf" needs an extra: pip install 'visleak\[{extra}\]'$"):
        load_encoder(text)


def test_a_library_that_cannot_be_imported(monkeypatch, tmp_path):
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    said = refused("timm:resnet50")
    assert "encoder timm needs timm, which is installed but cannot be imported" in said
