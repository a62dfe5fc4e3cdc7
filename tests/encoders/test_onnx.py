"""ONNX files: torch's own numbers, every error one line, and a digest of all that counts."""

import json
import re
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image
from tiny_models import unit

import refusals
from visleak.encoders import load_encoder
from visleak.encoders.onnx import external_files
from visleak.errors import UsageError, VisleakError
from visleak.records import DecodedImage

torch = pytest.importorskip("torch")

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
RECIPE = {
    "visleak": "onnx encoder",
    "schema": 1,
    "size": 20,
    "resize": "short-side",
    "crop": [16, 18],
    "interpolation": "bilinear",
    "mean": MEAN,
    "std": STD,
}


def network(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 2, stride=2),
        torch.nn.GELU(),
        torch.nn.AvgPool2d((4, 3)),
        torch.nn.Flatten(),
        torch.nn.Linear(48, 10),
    ).eval()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "net.onnx"
    return saved(path, network())


def saved(path, model, recipe=None, *, fixed=0, example=None, **names):
    """Write a network, for batches of any or of a fixed size, and its recipe."""
    options = {"input_names": ["pixels"], "output_names": ["vectors"], **names}
    axes = None if fixed else {name: {0: "n"} for own in options.values() for name in own}
    shown = torch.zeros(fixed or 2, 3, 16, 18) if example is None else example
    with warnings.catch_warnings():
        # the exporter that writes one file is on its way out; it is the one that needs no more
        warnings.simplefilter("ignore")
        options |= {"dynamo": False, "dynamic_axes": axes}
        torch.onnx.export(model.eval(), (shown,), str(path), **options)
    write(path, **recipe or {})
    return path


def write(path, **others):
    recipe = {name: value for name, value in {**RECIPE, **others}.items() if value != "-"}
    path.with_name(path.name + ".json").write_text(json.dumps(recipe))


def copied(path, folder, **others):
    copy = folder / "net.onnx"
    copy.write_bytes(path.read_bytes())
    write(copy, **others)
    return copy


def shown(seed=0, count=5):
    rng = np.random.default_rng(seed)
    made = []
    for n in range(count):
        rough = rng.integers(0, 256, (6, 8, 3), np.uint8)
        picture = np.asarray(Image.fromarray(rough).resize((50 + n, 40 + 3 * n)))
        made.append(DecodedImage(picture, picture.shape[1], picture.shape[0]))
    return made


def by_hand(pictures):
    """Return the network's input (n, 3, 16, 18), through Pillow and plain arithmetic."""
    rows = []
    for picture in pictures:
        image = Image.fromarray(picture.pixels)
        scale = 20 / min(image.size)
        size = (int(image.width * scale + 1e-9), int(image.height * scale + 1e-9))
        image = image.resize(size, Image.Resampling.BILINEAR)
        left, top = (image.width - 18) // 2, (image.height - 16) // 2
        pixels = np.asarray(image.crop((left, top, left + 18, top + 16)), np.float64) / 255
        rows.append(((pixels - MEAN) / STD).transpose(2, 0, 1))
    return np.stack(rows).astype(np.float32)


def by_torch(prepared):
    with torch.no_grad():
        return unit(network()(torch.from_numpy(prepared)).numpy())


def test_vectors_are_those_of_torch(made):
    encoder = load_encoder(f"onnx:{made}")
    vectors, blank = encoder.encode(shown())
    np.testing.assert_allclose(vectors, by_torch(by_hand(shown())), atol=1e-5)
    assert not blank.any()
    assert (encoder.width, encoder.device, encoder.precision) == (10, "cpu", "fp32")


def test_a_network_of_fixed_batch(tmp_path):
    path = saved(tmp_path / "four.onnx", network(), fixed=4)
    encoder = load_encoder(f"onnx:{path}?batch=50")
    assert encoder.batch == 4
    wanted = by_torch(by_hand(shown(2, 6)))
    np.testing.assert_allclose(encoder.encode(shown(2, 6))[0], wanted, atol=1e-5)


def test_order_of_channels_and_axes(tmp_path):
    class Other(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network()

        def forward(self, pixels):
            return self.inner(pixels.permute(0, 3, 1, 2).flip(1))

    recipe = {"channels": "BGR", "layout": "NHWC", "mean": MEAN[::-1], "std": STD[::-1]}
    names = {"input_names": ["x"], "output_names": ["y"], "example": torch.zeros(1, 16, 18, 3)}
    recipe |= {"input": "x", "output": "y"}
    path = saved(tmp_path / "other.onnx", Other(), recipe, **names)
    vectors, _ = load_encoder(f"onnx:{path}").encode(shown())
    np.testing.assert_allclose(vectors, by_torch(by_hand(shown())), atol=1e-5)


def test_another_recipe_can_be_named_and_may_squash(made, tmp_path):
    other = {**RECIPE, "size": [16, 18], "interpolation": "bicubic"}
    del other["resize"], other["crop"]
    (tmp_path / "prep.json").write_text(json.dumps(other))
    encoder = load_encoder(f"onnx:{made}?prep={tmp_path}/prep.json")
    rows = [
        np.asarray(Image.fromarray(p.pixels).resize((18, 16), Image.Resampling.BICUBIC)) / 255
        for p in shown()
    ]
    prepared = ((np.stack(rows) - MEAN) / STD).transpose(0, 3, 1, 2).astype(np.float32)
    np.testing.assert_allclose(encoder.encode(shown())[0], by_torch(prepared), atol=1e-5)


def test_half_precision(made, tmp_path):
    half = torch.zeros(1, 3, 16, 18).half()
    path = saved(tmp_path / "half.onnx", network().half(), example=half)
    encoder = load_encoder(f"onnx:{path}")
    assert encoder.precision == "fp16"
    vectors, _ = encoder.encode(shown())
    np.testing.assert_allclose(vectors, load_encoder(f"onnx:{made}").encode(shown())[0], atol=5e-3)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_the_digest_covers_weights_and_recipe(made, tmp_path):
    digest = load_encoder(f"onnx:{made}").digest
    same = copied(made, tmp_path, about={"trained": "here"})
    assert load_encoder(f"onnx:{same}?batch=2&device=cpu").digest == digest
    limits = {"hard": 0.9, "soft": 0.8, "provenance": "measured"}
    digests = {digest}
    for others in ({"interpolation": "bicubic"}, {"std": [0.2] * 3}, {"thresholds": limits}):
        encoder = load_encoder(f"onnx:{copied(made, tmp_path, **others)}")
        digests.add(encoder.digest)
    assert encoder.thresholds == limits
    other = saved(tmp_path / "other.onnx", network(seed=1))
    digests.add(load_encoder(f"onnx:{other}").digest)
    assert len(digests) == 5


@pytest.fixture
def spread(made, tmp_path):
    """Return the network with its weights in files of their own, one for each tensor."""
    path = tmp_path / "spread.onnx"
    onnx.save(
        onnx.load(str(made)), str(path), save_as_external_data=True,
        all_tensors_to_one_file=False, size_threshold=0, convert_attribute=True,
    )  # fmt: skip
    write(path)
    return path


def test_weights_in_other_files_count(made, spread):
    encoder = load_encoder(f"onnx:{spread}")
    expected = load_encoder(f"onnx:{made}").encode(shown())[0]
    np.testing.assert_array_equal(encoder.encode(shown())[0], expected)
    tensors = onnx.load(str(spread), load_external_data=False).graph.initializer
    stated = {e.value for t in tensors for e in t.external_data if e.key == "location"}
    names = external_files(memoryview(spread.read_bytes()))
    assert set() < stated <= set(names)
    for name in names:
        file = spread.parent / name
        held = bytearray(file.read_bytes())
        held[0] ^= 1
        file.write_bytes(held)
        assert load_encoder(f"onnx:{spread}").digest != encoder.digest, name
        held[0] ^= 1
        file.write_bytes(held)
    assert load_encoder(f"onnx:{spread}").digest == encoder.digest
    file.unlink()
    with pytest.raises(VisleakError, match=r"keeps weights in .*, and there is no such file$"):
        load_encoder(f"onnx:{spread}")


def test_weights_outside_the_folder_are_refused(made, tmp_path):
    """A file from somebody else must not make us read another one."""
    model = onnx.load(str(made))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret")
    path = copied(made, tmp_path)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(VisleakError, match=r"keeps weights in '\.\./secret', outside its folder$"):
        load_encoder(f"onnx:{path}")


def refused(text, line, kind=VisleakError):
    refusals.refused(kind, line, text, load_encoder)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("onnx:{folder}/no.onnx", r"^no such ONNX file: .*/no\.onnx$"),
        ("onnx:{folder}/net.onnx", r"^no such file: .*net\.onnx\.json; it says how"),
        ("onnx:{made}?device=gpu", r"must be auto, cpu, cuda or cuda:N; got 'gpu'$"),
        ("onnx:{made}?device=cuda", r"^device cuda is not there: this onnxruntime"),
    ],
)
def test_missing_files_and_options_are_refused(made, tmp_path, monkeypatch, text, line):
    monkeypatch.setattr(onnxruntime, "get_available_providers", list)
    (tmp_path / "net.onnx").write_bytes(made.read_bytes())
    refused(text.format(made=made, folder=tmp_path), line, UsageError)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{", r"net\.onnx\.json cannot be read \("),
        ({"visleak": "thresholds"}, r'does not say "visleak"'),
        ({"schema": 2}, r"has layout 2, this visleak reads up to 1; use a newer one$"),
        ({"size": "-"}, r"net\.onnx\.json: size is missing$"),
        ({"sice": 3}, r"'sice' is not known; known are size, mean, .*, thresholds, about$"),
        ({"size": 0}, r"size must be a number of pixels up to 4096, or \[height, width\]; got 0$"),
        ({"crop": "-"}, r"resize short-side takes one number as size, and a crop"),
        ({"mean": [1, 2]}, r"mean must be three numbers, one per channel; got \[1, 2\]$"),
        ({"std": [1, 0, 1]}, r"std must be above 0; got \[1\.0, 0\.0, 1\.0\]$"),
        ({"channels": "RGBA"}, r"channels must be one of RGB, BGR; got 'RGBA'$"),
        ({"normalise": "yes"}, r"normalise must be true or false; got 'yes'$"),
        ({"enough": -1}, r"enough must be a number of pixels from 0 to 4096; got -1$"),
        ({"thresholds": {"hard": 0.9, "soft": 0.7}}, r"thresholds must hold hard and soft, sim"),
        ({"crop": [16, 20]}, r"on an image of 16 x 20 pixels \(.*; compare size, crop"),
        ({"layout": "NHWC"}, r"cannot be run on an image of 16 x 18 pixels \("),
        ({"input": "image"}, r"takes pixels; it must take the one named 'image'$"),
        ({"normalise": False}, r'has length .*, and its json says "normalise": false; set it to'),
    ],
)
def test_a_bad_recipe_is_refused(made, tmp_path, text, line):
    path = copied(made, tmp_path, **(text if isinstance(text, dict) else {}))
    if isinstance(text, str):
        path.with_name("net.onnx.json").write_text(text)
    refused(f"onnx:{path}", line)


@pytest.mark.parametrize("data", [b"", b"words", b"\x3a\xff\xff\xff\xff\x0fmore", b"\0" * 99])
def test_other_files_are_refused(made, tmp_path, data):
    path = copied(made, tmp_path)
    path.write_bytes(data)
    refused(f"onnx:{path}", rf"^{re.escape(str(path))} (is not an ONNX file|cannot be loaded) \(")


class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = network()

    def forward(self, pixels):
        return self.inner(pixels), self.inner[0](pixels)


def test_several_outputs(tmp_path):
    path = saved(tmp_path / "two.onnx", Two(), output_names=["vectors", "map"])
    refused(
        f"onnx:{path}", r'two\.onnx has several outputs: vectors, map; name the vectors as "out'
    )
    write(path, output="maps")
    refused(f"onnx:{path}", r"has no output 'maps'; its outputs are vectors, map$")
    write(path, output="map")
    refused(f"onnx:{path}", r"^output 'map' of .* is float32 \(1, 8, 8, 9\) for one image; it mus")
    write(path, output="vectors")
    assert load_encoder(f"onnx:{path}").width == 10


def test_networks_with_other_inputs_are_refused(tmp_path):
    path = saved(tmp_path / "odd.onnx", torch.nn.Linear(3, 3), example=torch.zeros(2, 3))
    refused(f"onnx:{path}", r"takes tensor\(float\) of 2 axes; it must take tensor\(float\) or ten")
