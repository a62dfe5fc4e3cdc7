"""timm and open_clip, which need a torchvision that fits; `.ci/run` makes one where it can."""

import json
import pickle
from functools import partial

import numpy as np
import pytest
from objects import Trap
from PIL import Image
from tiny_models import OPEN_CLIP as CONFIG
from tiny_models import pictures, unit, working, write_open_clip

from refusals import refusal
from toy_clip import lively
from toy_hub import no_hub
from visleak.encoders import load_encoder
from visleak.errors import UsageError, VisleakError
from visleak.records import DecodedImage

on_cpu = partial(load_encoder, device="cpu")


@pytest.fixture(scope="module")
def timm():
    return working("timm")


def by_transform(transform, network, shown):
    import torch

    inputs = torch.stack([transform(Image.fromarray(each.pixels)) for each in shown])
    with torch.inference_mode():
        return unit(network(inputs).numpy())


@pytest.fixture(scope="module")
def converted(open_clip, tmp_path_factory):
    model = lively(open_clip.CLIP(**CONFIG))
    return write_open_clip(tmp_path_factory.mktemp("converted") / "clip", model, CONFIG)


def test_open_clips_own_vectors(open_clip, converted, natural):
    model, _, transform = open_clip.create_model_and_transforms(f"local-dir:{converted}")
    shown = [each for each in pictures(natural) if each.height == each.width]
    shown += [DecodedImage(np.ascontiguousarray(natural["coffee"][:100, :150]), 150, 100)]
    wanted = by_transform(transform, model.eval().visual, shown)
    encoder = on_cpu(f"clip:{converted}?backend=open_clip")
    np.testing.assert_allclose(encoder.encode(shown)[0], wanted, atol=1e-5)


@pytest.mark.parametrize(
    "change", [{"quick_gelu": False}, {"vision_cfg": {**CONFIG["vision_cfg"], "head_width": 16}}]
)
def test_the_digest_covers_the_configuration(open_clip, converted, tmp_path, change):
    import torch

    config = CONFIG | change
    model = open_clip.CLIP(**config)
    model.load_state_dict(torch.load(converted / "open_clip_pytorch_model.bin", weights_only=True))
    other = on_cpu(f"clip:{write_open_clip(tmp_path / 'x', model, config)}?backend=open_clip")
    assert other.digest != on_cpu(f"clip:{converted}?backend=open_clip").digest


def test_towers_that_only_open_clip_has(open_clip, tmp_path, natural):
    config = CONFIG | {"vision_cfg": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8}}
    model = lively(open_clip.CLIP(**config))
    folder = write_open_clip(tmp_path / "rn", model, config)
    _, _, transform = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    shown = [
        DecodedImage(np.ascontiguousarray(natural[name][:200, :200]), 200, 200) for name in natural
    ]
    encoder = on_cpu(f"clip:{folder}?backend=open_clip")
    wanted = by_transform(transform, model.eval().visual, shown)
    np.testing.assert_allclose(encoder.encode(shown)[0], wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("clip:ViT-B-32/best?backend=open_clip", UsageError, "open_clip has ViT-B-32 with openai"),
        ("clip:/nowhere?backend=open_clip", VisleakError, "has no open_clip_config.json; give one"),
        ("clip:hf-hub:a/b", VisleakError, "model 'a/b' is not a folder and not in the cache"),
        ("timm:resnet5000", UsageError, "has no weights named 'resnet5000'; near are resnet50"),
        ("timm:hf-hub:a/b", VisleakError, "model 'a/b' is not a folder and not in the cache"),
        ("timm:/nowhere", VisleakError, "the folder /nowhere has no config.json; give one with"),
    ],
)
def test_models_that_cannot_be_loaded(tmp_path, monkeypatch, text, kind, said):
    working("timm" if text.startswith("timm") else "open_clip")
    no_hub(monkeypatch, tmp_path)
    assert said in refusal(kind, on_cpu, text)


@pytest.mark.parametrize("library", ["open_clip", "timm"])
def test_a_pickle_in_place_of_weights_is_not_loaded(library, tmp_path, request):
    working(library)
    name, text = {
        "open_clip": ("open_clip_pytorch_model.bin", f"clip:{tmp_path}?backend=open_clip"),
        "timm": ("pytorch_model.bin", f"timm:{tmp_path}"),
    }[library]
    config = {"architecture": "resnet10t", "num_classes": 1000, "pretrained_cfg": {}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": CONFIG}))
    (tmp_path / name).write_bytes(pickle.dumps({"x": Trap(tmp_path / "sprung")}))
    with pytest.raises(VisleakError, match="cannot"):
        on_cpu(text)
    assert not (tmp_path / "sprung").exists()


@pytest.fixture(scope="module", params=[("resnet10t", {}), ("test_vit", {"crop_mode": "squash"})])
def saved(request, timm, tmp_path_factory):
    name, config = request.param
    model = lively(timm.create_model(name, pretrained=False))
    model.pretrained_cfg.update(config)
    folder = tmp_path_factory.mktemp("timm") / name
    timm.models.save_for_hf(model, folder, safe_serialization=True)
    return folder


def test_timms_vectors_are_its_own(timm, saved, natural):
    shown = pictures(natural)
    model = timm.create_model(f"local-dir:{saved}", pretrained=True, num_classes=0).eval()
    config = timm.data.resolve_model_data_config(model)
    transform = timm.data.create_transform(**config, is_training=False)
    encoder = on_cpu(f"timm:{saved}")
    wanted = by_transform(transform, model, shown)
    np.testing.assert_allclose(encoder.encode(shown)[0], wanted, atol=1e-5)
    assert np.abs(wanted @ wanted.T)[np.triu_indices(len(shown), 1)].max() < 0.9999
    assert (encoder.name, encoder.thresholds) == (f"timm:{saved}", None)
    assert encoder.digest == on_cpu(f"timm:local-dir:{saved}").digest


def test_timm_with_weights_from_the_cache(timm, saved, tmp_path, monkeypatch):
    no_hub(monkeypatch, tmp_path)
    name = timm.get_pretrained_cfg(saved.name).hf_hub_id
    there = tmp_path / f"models--{name.replace('/', '--')}"
    commit = "1" * 40
    (there / "snapshots" / commit).mkdir(parents=True)
    (there / "refs").mkdir()
    (there / "refs" / "main").write_text(commit)
    for file in saved.iterdir():
        (there / "snapshots" / commit / file.name).write_bytes(file.read_bytes())
    named, folder = on_cpu(f"timm:{saved.name}"), on_cpu(f"timm:{saved}")
    # the folder of the second one states another resizing
    assert (named.digest == folder.digest) == (saved.name == "resnet10t")
