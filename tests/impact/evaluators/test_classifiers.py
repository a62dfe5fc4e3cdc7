"""Classifiers of every kind: the library's own logits, one network by every route, errors."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import small_classifiers as small
from PIL import Image

import refusals
from visleak.encoders.weights import read_tensors
from visleak.errors import VisleakError
from visleak.impact.evaluators.classifiers import load_classifier
from visleak.records import DecodedImage

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

ROUTES = (
    "onnx:{}/r.onnx",
    "torchscript:{}/r.ts",
    "checkpoint:{}/r.th?arch=resnet20",
    "checkpoint:{}/r.safetensors?arch=resnet20",
)


def shown(natural):
    """Return images of several shapes."""
    sides = [(32, 32), (50, 40), (33, 90), (7, 5)]
    found = []
    for (height, width), name in zip(sides, natural, strict=False):
        pixels = np.ascontiguousarray(natural[name][:height, :width])
        found.append(DecodedImage(pixels, width, height))
    return found


def as_pillow(pictures):
    return [Image.fromarray(each.pixels) for each in pictures]


def logits(text, pictures, **options):
    model = load_classifier(text, device="cpu", **options)
    return model.forward([model.preparation(each) for each in pictures])


@pytest.mark.parametrize("route", ROUTES)
def test_one_network_by_every_route(networks, natural, route):
    pictures = shown(natural)
    wanted = small.directly(small.cifar_resnet(9), as_pillow(pictures))
    np.testing.assert_allclose(logits(route.format(networks), pictures), wanted, atol=2e-4)
    assert np.ptp(wanted.argmax(axis=1)) > 0


def test_logits_of_transformers(tmp_path, natural):
    from transformers import ResNetForImageClassification
    from transformers.models.convnext.image_processing_pil_convnext import ConvNextImageProcessorPil

    from visleak.encoders.weights import quiet

    folder = small.write_hf(tmp_path / "m", ["tench, Tinca tinca", "cat", "dog"])
    with quiet():
        model = ResNetForImageClassification.from_pretrained(folder).eval()
        processor = ConvNextImageProcessorPil.from_pretrained(folder)
    pictures = shown(natural)
    with torch.inference_mode():
        prepared = (processor(image, return_tensors="pt") for image in as_pillow(pictures))
        wanted = [model(**inputs).logits.numpy() for inputs in prepared]
    found = logits(f"hf:{folder}", pictures)
    np.testing.assert_allclose(found, np.concatenate(wanted), rtol=1e-4, atol=1e-5)
    tench = ("tench, Tinca tinca", "tench", "Tinca tinca")
    assert load_classifier(f"hf:{folder}").names == (tench, ("cat",), ("dog",))


def test_names_that_nobody_gave(tmp_path):
    """transformers writes LABEL_0 where there are none: they mean nothing."""
    folder = small.write_hf(tmp_path / "m", ["LABEL_0", "LABEL_1"])
    assert load_classifier(f"hf:{folder}").names is None


def test_a_recipe_orders_channels_and_axes(tmp_path, natural):

    class Turned(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = small.cifar_resnet(9)

        def forward(self, inputs):
            made = self.inner(inputs.permute(0, 3, 1, 2))
            return {"features": inputs.mean(dim=(1, 2)), "logits": made}

    recipe = {"channels": "BGR", "layout": "NHWC", "output": "logits"}
    path = small.write_script(tmp_path / "t.ts", Turned().eval(), (2, 32, 32, 3), **recipe)
    pictures = shown(natural)
    wanted = small.directly(small.cifar_resnet(9), as_pillow(pictures), bgr=True)
    found = logits(f"torchscript:{path}", pictures)
    np.testing.assert_allclose(found, wanted, atol=2e-4)
    wrong = small.write_recipe(tmp_path / "wrong.json", layout="NHWC", output="answers")
    said = refusal(f"torchscript:{path}?prep={wrong}")
    assert "has no output 'answers'; its outputs are features, log" in said


def test_batches_and_neighbours_do_not_count(natural, resnet):
    pictures = shown(natural)
    all_, one = logits(resnet, pictures, batch=3), logits(resnet, pictures[1:2], batch=3)
    np.testing.assert_array_equal(all_[1:2], one)
    np.testing.assert_allclose(logits(resnet, pictures, batch=1), all_, atol=1e-4)


def test_digests_tell_networks_apart(networks, tmp_path):
    texts = [f"checkpoint:{networks}/r.{kind}?arch=resnet20" for kind in ("th", "safetensors")]
    first, second = (load_classifier(text) for text in texts)
    assert first.digest == second.digest
    torch.save(small.cifar_resnet(9, seed=1).state_dict(), tmp_path / "o.pt")
    assert load_classifier(f"checkpoint:{tmp_path}/o.pt?arch=resnet20").digest != first.digest
    recipe = small.write_recipe(tmp_path / "how.json", interpolation="bicubic")
    changed = load_classifier(f"{texts[0]}&prep={recipe}")
    assert changed.digest != first.digest
    assert changed.name == f"{texts[0]}&prep={recipe}"


def refusal(text, **options):
    return refusals.refusal(VisleakError, load_classifier, text, **options)


def test_what_is_no_model(networks, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    (tmp_path / "text.pt").write_text("no weights")
    small.write_recipe(tmp_path / "text.pt.json")
    text = f"checkpoint:{networks}/r.th"
    for model, said in (
        ("resnet50", "a model is written hf:FOLDER, timm:NAME, onnx:FILE, torchscript:FILE or"),
        ("timm:resnet18", "model timm needs an extra: pip install 'visleak[timm]'"),
        ("checkpoint:nowhere.pt?arch=resnet20", "model checkpoint: there is no file nowhere.pt;"),
        (text, "model checkpoint needs the architecture that the weights are of: checkpoint:FI"),
        (f"{text}?arch=resnet2O", "; similar names are resnet32, resnet20, resnet1202; got 'resn"),
        (f"checkpoint:{tmp_path}/text.pt?arch=resnet20", "is not a file of weights alone ("),
        (f"torchscript:{tmp_path}/text.pt", f"{tmp_path}/text.pt is not TorchScript ("),
        (f"torchscript:{networks}/r.th", "no such file:"),
    ):
        assert said in refusal(model)


def test_weights_of_another_network(tmp_path):
    state = small.cifar_resnet(9).state_dict()
    odd = state | {"extra.weight": torch.zeros(2), "conv1.weight": torch.zeros(16, 1, 3, 3)}
    for content, arch, said in (
        (state, "resnet32", "it lacks layer1.3.conv1.weight, layer1.3.bn1.weight, layer1.3"),
        (odd, "resnet20", "it also has extra.weight; it has conv1.weight (16, 1, 3, 3) for (16, 3"),
        ({"fc.weight": torch.zeros(2, 2)}, "resnet20", "it has no linear.weight; it has fc.weight"),
        ({"epoch": 3}, "resnet20", "holds no tensors by name; save the state_dict"),
    ):
        torch.save(content, tmp_path / "w.pt")
        assert said in refusal(f"checkpoint:{tmp_path}/w.pt?arch={arch}")


@pytest.mark.parametrize(
    ("key", "prefix"), [("net", "module."), ("state_dict", "model._orig_mod.")]
)
def test_weights_as_training_code_saves_them(tmp_path, key, prefix):
    state = small.cifar_resnet(9).state_dict()
    wrapped = {f"{prefix}{name}": value for name, value in state.items()}
    torch.save({key: wrapped, "acc": 91.0}, tmp_path / "w.pt")
    assert read_tensors(tmp_path / "w.pt", "model checkpoint").keys() == state.keys()


def test_no_pickle_is_run(tmp_path):

    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"state_dict": Evil()}, tmp_path / "evil.pt")
    said = refusal(f"checkpoint:{tmp_path}/evil.pt?arch=resnet20")
    assert "is not a file of weights alone" in said
    assert not (tmp_path / "ran").exists()


def test_what_does_not_answer_by_class(tmp_path):
    flat = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 4))
    path = small.write_script(tmp_path / "flat.ts", flat, (2, 3, 16, 16))
    said = refusal(f"torchscript:{path}")
    assert said.startswith(f"model torchscript:{path} cannot be run on images of 32 x 32 pixel")
    path = small.write_script(tmp_path / "maps.ts", torch.nn.Conv2d(3, 4, 3))
    said = refusal(f"torchscript:{path}", device="cpu")
    assert "returns an array (1, 4, 30, 30) for a batch of 1" in said
    single = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 1))
    path = small.write_onnx(tmp_path / "one.onnx", single)
    assert f"model onnx:{path} has one output; a classifier has" in refusal(f"onnx:{path}")


def test_onnx_needs_no_torch(networks, labelled, tmp_path):
    out = tmp_path / "p.csv"
    script = f"""
import json, sys
sys.modules |= dict.fromkeys(("torch", "torchmetrics", "transformers"))
from visleak.formats import open_image_set
from visleak.impact.evaluators.classification import classify
found = classify(open_image_set({str(labelled)!r}), "onnx:{networks}/r.onnx", {str(out)!r})
print(json.dumps([found.accuracy.count, found.images]))
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    right, images = json.loads(ran.stdout)
    rows = out.read_text().splitlines()[1:]
    assert images == len(rows) == 36
    assert right == sum(row.split(",")[1] == row.split(",")[2] for row in rows)


def test_half_precision_is_for_those_who_ask(monkeypatch):
    from visleak.encoders.request import parse
    from visleak.impact.evaluators.classifiers import running_of

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    plain, half = (running_of(parse(f"hf:x{o}", "model")) for o in ("", "?precision=fp16"))
    assert (plain.device, plain.precision) == ("cuda:0", "fp32")
    assert half.precision == "fp16"
