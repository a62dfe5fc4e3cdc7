"""Ultralytics, which needs a torchvision that fits; `.ci/run` makes one where it can."""

import csv
import json
import os
import pickle
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from handed import lesson_of, split_on_disk

from refusals import refusal
from visleak.dlede.trainers import load_trainer
from visleak.dlede.trainers.ultralytics_trainer import known_model
from visleak.errors import MissingExtra, UsageError
from visleak.progress import silent

MODEL = "ultralytics:yolov8n.yaml?imgsz=64&batch=4"


@pytest.fixture(scope="module")
def torchvision():
    """Skip where the library is not installed, or cannot be imported."""
    try:
        metadata.version("ultralytics")
    except metadata.PackageNotFoundError:
        pytest.skip("ultralytics is not installed here")
    try:
        import_module("torchvision")
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"torchvision cannot be imported here ({type(error).__name__}: {error})")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("ultralytics")


@pytest.fixture(scope="module")
def split(place):
    return split_on_disk(place, size=(64, 64))


@pytest.fixture(scope="module")
def ready(torchvision, place, split):
    return load_trainer(MODEL, device="cpu").prepare(split, place / "ready", silent)


def trained(ready, split, folder, seed):
    folder.mkdir()
    return pickle.loads(pickle.dumps(ready)).train(lesson_of(split, epochs=1, seed=seed), folder)


def losses(folder):
    with (folder / "run" / "results.csv").open() as lines:
        row = list(csv.DictReader(lines))[-1]
    return {
        name: float(value) for name, value in row.items() if name.startswith(("train/", "val/"))
    }


def test_one_seed_gives_one_result_and_another_another(ready, split, place, monkeypatch):
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("MPLCONFIGDIR", matplotlib.get_cachedir())  # to list fonts takes seconds
    monkeypatch.setenv("HOME", str(elsewhere))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(elsewhere))
    first, again, other = (
        trained(ready, split, place / name, seed)
        for name, seed in (("first", 1), ("again", 1), ("other", 2))
    )
    assert list(first.metrics) == ["precision", "recall", "map50", "map50_95", "f1"]
    assert first.metrics == again.metrics
    np.testing.assert_array_equal(first.images["f1"], again.images["f1"])
    assert first.images["f1"].shape == (4,)
    assert np.isfinite(first.images["f1"]).all()
    assert losses(place / "first") == losses(place / "again") != losses(place / "other")
    assert min(losses(place / "first").values()) > 0
    assert first.about == other.about == {"epochs": 1}
    # nothing lies outside of the folders of the training runs, such as settings in the user's home
    assert list(elsewhere.rglob("*")) == []


#: In a process of its own: what is imported writes its settings into the user's home.
LOOK = """
import json, sys
from pathlib import Path
import numpy as np
import torch
from visleak.dlede.trainers import ultralytics_trainer
from visleak.errors import VisleakError
from ultralytics.utils.metrics import ap_per_class, Metric

def look(model):
    try:
        return ultralytics_trainer._model(model).task
    except VisleakError as error:
        return str(error)

class Hostile:
    def __reduce__(self):
        return Path.touch, (Path(sys.argv[1] + ".touched"),)

torch.save({"model": Hostile()}, sys.argv[1])
rng = np.random.default_rng(0)
found = rng.random((200, 10)) < np.linspace(.8, .2, 10)
box = Metric()
shown, there = rng.integers(0, 3, 200), rng.integers(0, 3, 150)
box.update(ap_per_class(found, rng.random(200), shown, there)[2:])
shares, curve = ultralytics_trainer.shares(box), box.f1_curve.mean(0).tolist()
print(json.dumps({"models": list(map(look, sys.argv[1:])), "shares": shares, "curve": curve}))
"""


def test_what_the_library_makes_of_models_and_of_f1(torchvision, ready, split, place):
    if not (place / "first").exists():
        trained(ready, split, place / "first", 1)
    own = place / "first" / "run" / "weights" / "last.pt"
    told = {"YOLO_CONFIG_DIR": str(place), "YOLO_OFFLINE": "1", "ULTRALYTICS_SAFE_LOAD": "1"}
    hostile = place / "hostile.pt"
    command = [sys.executable, "-c", LOOK, str(hostile), str(own), "yolov8n-cls.yaml"]
    said = subprocess.run(command, env={**os.environ, **told}, capture_output=True, check=True)
    read = json.loads(said.stdout.splitlines()[-1])
    assert read["models"][0].startswith(f"{hostile} is not a model of Ultralytics (TypeError: ")
    assert not Path(f"{hostile}.touched").exists()
    assert read["models"][1:] == [
        "detect",
        "yolov8n-cls.yaml is a model for the task classify; take one that detects",
    ]
    # the curve is smoothed before its top is looked for
    shares = read["shares"]
    assert shares["f1"] == pytest.approx(max(read["curve"]), abs=0.01)
    both = shares["precision"], shares["recall"]
    assert shares["f1"] != pytest.approx(2 * both[0] * both[1] / sum(both), abs=1e-4)


def test_what_is_not_installed_is_told(monkeypatch):
    monkeypatch.setattr("visleak.dlede.trainers.ultralytics_trainer.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="--trainer ultralytics needs an extra: pip install"):
        load_trainer(MODEL)


@pytest.fixture
def package(tmp_path):
    models = tmp_path / "ultralytics" / "cfg" / "models" / "v8"
    models.mkdir(parents=True)
    (models / "yolov8.yaml").touch()
    (models / "yolov8-p2.yaml").touch()
    return tmp_path / "ultralytics"


def test_models_are_known_by_name_and_scale_or_path(package, tmp_path, monkeypatch):
    for named in ("yolov8.yaml", "yolov8n.yaml", "yolov8x-p2.yaml"):
        assert known_model(named, package) == named
    (tmp_path / "mine.pt").touch()
    monkeypatch.chdir(tmp_path)
    assert known_model("mine.pt", package) == str(tmp_path / "mine.pt")


@pytest.mark.parametrize("named", ["yolov8n.pt", "yolov9n.yaml", "v8/yolov8.yaml", "yolov8n"])
def test_what_would_have_to_be_fetched_or_is_no_model_is_refused(package, named):
    said = refusal(UsageError, known_model, named, package)
    text = f"{named!r} is neither a file nor an architecture of the installed"
    assert (text if "." in named else "a model is a .pt or .yaml file, such as yolo") in said


def test_a_model_must_be_named():
    said = refusal(UsageError, load_trainer, "ultralytics")
    assert "trainer ultralytics needs FILE.yaml or FILE.pt after its name" in said
