"""A training from images to an encoder: that it learns, repeats itself, and survives."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from train_making import EACH, crops

from refusals import refusal
from visleak.encoders import load_encoder
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images
from visleak.records import DecodedImage
from visleak.storage import claimed
from visleak.training import EncoderSettings, checkpoint_path, data, run, train_encoder
from visleak.training.data import Sizes
from visleak.training.encoder import working_folder
from visleak.training.networks import built
from visleak.training.plan import Plan, shape_for
from visleak.training.run import Scaling, TrainedNetwork, deviation, twin_rate, write_model

torch = pytest.importorskip("torch")

#: Seconds after which a run that should have ended has not.
PATIENCE = 120

#: Enough to learn three textures of 16 pixels.
WISHES = EncoderSettings(epochs=6, batch=24, seed=3)


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


class Stop:
    def __init__(self, share):
        self.share = share

    def __call__(self, step, done, total):
        if step.startswith("training") and done >= self.share * total:
            raise KeyboardInterrupt


def test_classes_are_learnt(model):
    accuracy = model.scores["accuracy"]
    assert accuracy.total == 9
    assert accuracy.share >= 0.9
    assert model.record["objective"] == "classes"
    assert model.record["class_names"] == ["astronaut", "grass", "moon"]
    assert model.record["plan"]["network"] == "plain-11"
    assert model.record["plan"]["side"] == 16
    assert model.record["losses"][-1] < 0.7 * model.record["losses"][0]


def test_without_labels_pictures_are_told_apart(blind):
    made, said = blind
    assert said == ["images has no labels: the network learns to distinguish images"]
    assert made.record["objective"] == "instances"
    assert made.record["class_names"] == []
    assert list(made.scores) == ["views"]
    assert made.scores["views"].total == made.record["held_out"] == 18
    assert made.record["losses"][-1] < 0.85 * made.record["losses"][0]


def test_a_blind_encoder_finds_the_changed_twin(blind, natural):
    originals = np.stack([each for p in natural.values() for each in crops(p, 5, 6)])
    changed = (originals[:, :, ::-1] * 0.8).astype(np.uint8)
    encoder = load_encoder(f"onnx:{blind[0].model}")
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
            pixels = Image.open(toy / kind / f"{number:02}.png").transpose(
                Image.Transpose.FLIP_LEFT_RIGHT
            )
            pixels.save(test / name / f"{number}.png")
    said = []
    made = learnt(
        toy,
        tmp_path / "m.onnx",
        EncoderSettings(epochs=4, batch=24),
        test=open_images(test, name="other"),
        notify=said.append,
    )
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
        (96.0, 96, None, "auto"): ("resnet", 128),
        (300.0, 0, 32, "auto"): ("plain-11", 32),
        (300.0, 0, 96, "auto"): ("resnet", 96),
        (300.0, 0, None, "plain-11"): ("plain-11", 32),
        (8.0, 8, None, "auto"): ("plain-11", 32),
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
    subprocess.run([sys.executable, "-c", script], check=True, timeout=PATIENCE)
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
        square = np.stack(
            [
                np.asarray(Image.fromarray(each).resize((side, side), Image.Resampling.BICUBIC))
                for each in pictures
            ]
        )
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


def files(made):
    return made.model.read_bytes(), made.recipe.read_bytes()


def test_a_seed_gives_the_same_bytes_interrupted_or_not(model, toy, tmp_path):
    out = tmp_path / "model.onnx"
    with pytest.raises(KeyboardInterrupt):
        learnt(toy, out, progress=Stop(0.6))
    assert sorted(each.name for each in working_folder(out).iterdir()) == [
        ".visleak.lock",
        "checkpoint.pt",
    ]
    said = []
    again = learnt(toy, out, notify=said.append)
    assert len(said) == 1
    assert said[0].startswith("resumed: ")
    assert files(again) == files(model)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model.onnx", "model.onnx.json"]


def test_the_checkpoint_of_another_training_is_left_aside(model, toy, tmp_path):
    out = tmp_path / "model.onnx"
    with pytest.raises(KeyboardInterrupt):
        learnt(toy, out, EncoderSettings(epochs=6, batch=24, seed=4), progress=Stop(0.4))
    said = []
    assert files(learnt(toy, out, notify=said.append)) == files(model)
    assert len(said) == 1
    assert "is of another training run" in said[0]


class Payload:
    """A pickle that would touch a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    "how", ["program", "torch program", "garbage", "tensor", "shape", "counts"]
)
def test_a_checkpoint_is_never_trusted(toy, tmp_path, how):
    out = tmp_path / "m.onnx"
    path = checkpoint_path(out)
    with claimed(path.parent):  # as training does
        pass
    touched = tmp_path / "touched"
    if how == "program":
        path.write_bytes(pickle.dumps(Payload(touched)))
    elif how == "torch program":
        torch.save({"kind": Payload(touched)}, path)
    elif how == "garbage":
        path.write_bytes(b"garbage")
    elif how == "tensor":
        torch.save(torch.zeros(3), path)
    elif how == "shape":
        torch.save({"kind": "visleak training 1", "step": 3}, path)
    else:
        with pytest.raises(KeyboardInterrupt):
            learnt(toy, out, progress=Stop(0.4))
        torch.save({**torch.load(path, weights_only=True), "step": "3"}, path)
    line = refusal(VisleakError, learnt, toy, out)
    assert line.startswith(f"{path} is not a checkpoint of visleak (")
    assert line.endswith("; delete it and train again")
    assert not touched.exists()
    assert path.exists()


def test_unreadable_pictures_are_counted(toy, tmp_path):
    folder = tmp_path / "set"
    for kind in ("grass", "moon"):
        (folder / kind).mkdir(parents=True)
        for number in range(12):
            data = (toy / kind / f"{number:02}.png").read_bytes()
            for copy in "ab":
                (folder / kind / f"{number}{copy}.png").write_bytes(data)
    (folder / "moon" / "broken.png").write_bytes(b"no picture")
    said = []
    made = learnt(
        folder, tmp_path / "m.onnx", EncoderSettings(epochs=1, batch=8), notify=said.append
    )
    assert said == ["1 image of set unreadable: excluded"]
    assert made.record["unreadable"] == 1
    assert made.record["held_out"] == 4
    assert made.record["plan"]["pictures"] == 44


def test_what_cannot_be_learnt_from(toy, tmp_path):
    few = [np.full((16, 16, 3), n, np.uint8) for n in range(9)]
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.png").write_bytes(b"no picture")
    (tmp_path / "one" / "x").mkdir(parents=True)
    for number in range(20):
        data = (toy / "moon" / f"{number:02}.png").read_bytes()
        (tmp_path / "one" / "x" / f"{number}.png").write_bytes(data)
    cases = {
        "all images of set 'one' have the label 'x'": tmp_path / "one",
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


def test_the_record_stands_in_the_json(model):
    about = json.loads(model.recipe.read_text())["about"]
    assert about == model.record
    assert about["changes"] == "mirror; shifts of up to 2 pixels, reflected at the edges"
    assert about["onnx_deviation"] < 1e-5
