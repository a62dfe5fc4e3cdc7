"""A training from images to an encoder: that it learns, repeats itself, and survives."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageOps

from refusals import refusal
from visleak.encoders import load_encoder
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images
from visleak.records import DecodedImage
from visleak.storage import claimed
from visleak.training import EncoderSettings, checkpoint_path, data, run, train_encoder
from visleak.training.data import Sizes
from visleak.training.networks import built
from visleak.training.plan import Plan, shape_for
from visleak.training.run import Scaling, TrainedNetwork, deviation, twin_rate, write_model

torch = pytest.importorskip("torch")

#: Enough to learn three textures of 16 pixels.
WISHES = EncoderSettings(epochs=6, batch=24, seed=3)
EACH = 30


def crops(picture, count, seed):
    """Return crops of an image at places drawn with a seed, made 16 pixels small."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        y, x = (rng.integers(0, side - 96) for side in picture.shape[:2])
        crop = Image.fromarray(picture[y : y + 96, x : x + 96])
        yield np.asarray(crop.resize((16, 16), Image.Resampling.BOX))


@pytest.fixture(scope="module")
def toy(natural, tmp_path_factory):
    """Return a folder of three classes with thirty crops each."""
    root = tmp_path_factory.mktemp("toy") / "toy"
    for seed, kind in enumerate(("astronaut", "grass", "moon")):
        (root / kind).mkdir(parents=True)
        for number, pixels in enumerate(crops(natural[kind], EACH, seed)):
            Image.fromarray(pixels).save(root / kind / f"{number:02}.png")
    return root


def learnt(source, out, settings=WISHES, **options):
    return train_encoder(open_images(source), out, settings=settings, threads=1, **options)


@pytest.fixture(scope="module")
def model(toy, tmp_path_factory):
    return learnt(toy, tmp_path_factory.mktemp("model") / "model.onnx")


@pytest.fixture(scope="module")
def blind(natural, tmp_path_factory):
    """Return an encoder of crops without labels, and what was said while it was trained."""
    said = []
    pictures = [each for picture in natural.values() for each in crops(picture, 20, 5)]
    settings = EncoderSettings(epochs=8, batch=30)
    out = tmp_path_factory.mktemp("blind") / "model.onnx"
    return learnt(pictures, out, settings, notify=said.append), said


def untrained(network, side, classes, seed=0, scaling=None):
    plan = Plan(network, side, classes, 9, 1, 5, 0)
    scaling = scaling or Scaling((0.5,) * 3, (0.25,) * 3)
    return TrainedNetwork(plan, scaling, *built(network, classes, seed), ())


def stopped(step, done, total):
    if step.startswith("training") and done >= 0.6 * total:
        raise KeyboardInterrupt


def test_classes_are_learnt(model):
    accuracy = model.scores["accuracy"]
    assert accuracy.total == 9
    assert accuracy.share >= 0.9
    assert model.record["objective"] == "classes"
    assert model.record["class_names"] == ["astronaut", "grass", "moon"]
    assert (model.record["plan"]["network"], model.record["plan"]["side"]) == ("plain-11", 16)
    assert model.record["losses"][-1] < 0.7 * model.record["losses"][0]
    assert json.loads(model.recipe.read_text())["about"] == model.record


def test_a_blind_encoder_finds_the_changed_twin(blind, natural):
    made, said = blind
    assert said == ["images has no labels: the network learns to distinguish images"]
    assert made.record["objective"] == "instances"
    assert made.scores["views"].total == made.record["held_out"] == 18
    assert made.record["losses"][-1] < 0.85 * made.record["losses"][0]
    originals = np.stack([each for p in natural.values() for each in crops(p, 5, 6)])
    changed = (originals[:, :, ::-1] * 0.8).astype(np.uint8)
    encoder = load_encoder(f"onnx:{made.model}")
    known = [encoder.encode([_picture(each) for each in side])[0] for side in (changed, originals)]
    unlearnt = untrained("plain-11", 16, 0)
    before = twin_rate(unlearnt.vectors(changed), unlearnt.vectors(originals)).share
    after = twin_rate(*known).share
    assert after >= 0.4
    assert after >= 2 * before


def test_labels_may_be_left_aside(toy, tmp_path):
    made = learnt(toy, tmp_path / "m.onnx", EncoderSettings(epochs=2, batch=27, labels="none"))
    assert made.record["objective"] == "instances"
    assert set(made.scores) == {"views", "20 nearest"}
    assert made.scores["20 nearest"].share > 0.5


def _picture(pixels):
    return DecodedImage(np.ascontiguousarray(pixels), *pixels.shape[1::-1])


def test_a_test_set_is_asked_instead(toy, tmp_path):
    test = tmp_path / "test"
    for kind, name in (("moon", "moon"), ("grass", "grass"), ("moon", "sun")):
        (test / name).mkdir(parents=True)
        for number in range(4):
            ImageOps.mirror(Image.open(toy / kind / f"{number:02}.png")).save(
                test / name / f"{number}.png"
            )
    said = []
    settings, asked = EncoderSettings(epochs=4, batch=24), open_images(test, name="other")
    made = learnt(toy, tmp_path / "m.onnx", settings, test=asked, notify=said.append)
    assert made.scores["accuracy"].total == 8
    assert made.scores["accuracy"].share >= 0.75
    assert made.record["plan"]["pictures"] == 3 * EACH
    assert made.record["held_out"] == 0
    assert said == ["4 images of other without a label of the training set: excluded"]


def test_the_largest_pictures_go_to_the_residual_network():
    """Small is what has a short side of 48 pixels or less, or is square and of 64 or less."""
    cases = {
        (48.0, 0, None, "auto"): ("plain-11", 32),
        (49.0, 0, None, "auto"): ("resnet", 128),
        (64.0, 64, None, "auto"): ("plain-11", 64),
        (300.0, 0, 32, "auto"): ("plain-11", 32),
        (300.0, 0, 96, "auto"): ("resnet", 96),
        (300.0, 0, None, "plain-11"): ("plain-11", 32),
    }
    for (short, square, side, network), expected in cases.items():
        settings = EncoderSettings(size=side, network=network)
        assert shape_for(Sizes(short, square), settings) == expected


def test_the_file_needs_no_torch(model, toy, tmp_path):
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import visleak\n"
        f"visleak.audit({str(toy / 'moon')!r}, {str(toy)!r}, encoder='onnx:{model.model}',"
        f" out={str(tmp_path / 'a')!r}, cache=None, workers=1,"
        " settings=visleak.Settings(within=False))\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
    images = pq.read_table(tmp_path / "a" / "images.parquet").to_pylist()
    own = [row for row in images if row["nearest"] is not None]
    assert len(own) == EACH
    assert all(row["nearest"] == f"moon/{row['id']}" for row in own)
    assert min(row["nearest_similarity"] for row in own) > 0.9999


def test_vectors_are_those_of_torch(toy, tmp_path):
    """To 1e-5, from the image's file on: preparation, scaling, network and unit length."""
    rng = np.random.default_rng(0)
    for network, side in (("plain-11", 16), ("resnet", 72)):
        made = untrained(network, side, 3, scaling=Scaling((0.4, 0.5, 0.6), (0.2, 0.25, 0.3)))
        pictures = rng.integers(0, 256, (5, 40, 60, 3), np.uint8)
        out = tmp_path / f"{network}.onnx"
        write_model(made, out, {})
        theirs, _ = load_encoder(f"onnx:{out}").encode([_picture(each) for each in pictures])
        resized = (Image.fromarray(each).resize((side, side), 3) for each in pictures)  # bicubic
        square = np.stack([np.asarray(each) for each in resized])
        scaled = (square / 255 - [0.4, 0.5, 0.6]) / [0.2, 0.25, 0.3]
        maps = torch.tensor(scaled.transpose(0, 3, 1, 2), dtype=torch.float32)
        with torch.inference_mode():
            ours = made.network.eval()(maps).numpy()
        ours /= np.linalg.norm(ours, axis=1, keepdims=True)
        np.testing.assert_allclose(theirs, ours, atol=1e-5)
        np.testing.assert_allclose(made.vectors(square), ours, atol=1e-5)
        assert deviation(made, square, tmp_path) < 1e-5
        assert str(tmp_path).encode() not in out.read_bytes()


def test_a_file_that_does_not_do_what_torch_does_is_refused(tmp_path, monkeypatch):
    other = run.onnx_bytes(untrained("resnet", 32, 3, seed=1))
    monkeypatch.setattr(run, "onnx_bytes", lambda network: other)
    pictures = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8)
    with pytest.raises(VisleakError, match=r"^the ONNX file's vectors differ from torch's by "):
        deviation(untrained("resnet", 32, 3), pictures, tmp_path)


def test_a_seed_gives_the_same_bytes_interrupted_or_not(model, toy, tmp_path):
    out = tmp_path / "model.onnx"
    path = checkpoint_path(out)
    said = []
    # the checkpoint of another training is left aside
    for settings in (replace(WISHES, seed=4), WISHES):
        with pytest.raises(KeyboardInterrupt):
            learnt(toy, out, settings, progress=stopped, notify=said.append)
    assert sorted(each.name for each in path.parent.iterdir()) == [".visleak.lock", path.name]
    kept = path.read_bytes()
    torch.save({**torch.load(path, weights_only=True), "step": "3"}, path)
    assert f"{path} is not a checkpoint" in refusal(VisleakError, learnt, toy, out)
    path.write_bytes(kept)
    again = learnt(toy, out, notify=said.append)
    assert "is of another training run" in said[0]
    assert said[1].startswith("resumed: ")
    assert len(said) == 2
    assert again.model.read_bytes() == model.model.read_bytes()
    assert again.recipe.read_bytes() == model.recipe.read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model.onnx", "model.onnx.json"]


class Payload:
    """A pickle that would make a folder when it is loaded."""

    def __reduce__(self):
        return os.mkdir, ("touched",)


@pytest.mark.parametrize(
    "state",
    [
        pickle.dumps(Payload()),
        {"kind": Payload()},
        b"garbage",
        torch.zeros(3),
        {"kind": "visleak training 1", "step": 3},
    ],
)
def test_a_checkpoint_is_never_trusted(toy, tmp_path, state, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "m.onnx"
    path = checkpoint_path(out)
    with claimed(path.parent):  # as training does
        if isinstance(state, bytes):
            path.write_bytes(state)
        else:
            torch.save(state, path)
    line = refusal(VisleakError, learnt, toy, out)
    assert line.startswith(f"{path} is not a checkpoint of visleak (")
    assert line.endswith("; delete it and train again")
    assert not (tmp_path / "touched").exists()
    assert path.exists()


def test_unreadable_pictures_are_counted(toy, tmp_path):
    folder = shutil.copytree(toy, tmp_path / "set")
    (folder / "moon" / "broken.png").write_bytes(b"no picture")
    said = []
    settings = EncoderSettings(epochs=1, batch=8)
    made = learnt(folder, tmp_path / "m.onnx", settings, notify=said.append)
    assert said == ["1 image of set unreadable: excluded"]
    assert made.record["unreadable"] == 1
    assert made.record["plan"]["pictures"] + made.record["held_out"] == 3 * EACH


def test_what_cannot_be_learnt_from(toy, tmp_path):
    few = [np.full((16, 16, 3), n, np.uint8) for n in range(9)]
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.png").write_bytes(b"no picture")
    shutil.copytree(toy / "moon", tmp_path / "one" / "moon")
    cases = {
        "all images of set 'one' have the label 'moon'": tmp_path / "one",
        "set 'images' has 9 images that can be read; at least 16 are needed": few,
        "set 'bad': none of 1 images spread over it can be read": tmp_path / "bad",
    }
    for text, source in cases.items():
        assert refusal(VisleakError, learnt, source, tmp_path / "out" / "m.onnx").startswith(text)
    assert list((tmp_path / "out").iterdir()) == []


def test_the_papers_schedule_has_its_own_epochs():
    with pytest.raises(UsageError, match="the schedule paper has 372 epochs; leave out the epochs"):
        EncoderSettings(schedule="paper", epochs=5)


def test_a_full_disk_is_said_before(toy, tmp_path, monkeypatch):
    class Full:
        free = 1000

    monkeypatch.setattr(data.shutil, "disk_usage", lambda path: Full)
    with pytest.raises(VisleakError, match=r"^90 images of 16 pixels need 0\.0 GB of scratch"):
        learnt(toy, tmp_path / "m.onnx")
