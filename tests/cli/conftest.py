"""A small data set with planted leaks, and its audit."""

import math
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from calling import HOSTILE, run
from fault_commands import NETWORKS, Scene, inputs, networks, not_sendable, world
from PIL import Image

from visleak.dlede.train import execution


def crop(picture, number, side=96):
    rng = np.random.default_rng(number)
    top, left = (int(rng.integers(0, length - side)) for length in picture.shape[:2])
    return Image.fromarray(picture[top : top + side, left : left + side])


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """Keep the user's cache out of it, but one for all tests of the room."""
    patch = pytest.MonkeyPatch()
    cache = tmp_path_factory.mktemp("cache")
    # what a user is told once would stand before one test's messages, whichever comes first
    (cache / "memorization-notice-1").touch()
    patch.setenv("VISLEAK_CACHE", str(cache))
    patch.setenv("COLUMNS", "80")
    # on a busy machine a test may take as long as a run that reports its steps
    patch.setattr("visleak.progress.PATIENCE", math.inf)
    yield
    patch.undo()


@pytest.fixture(scope="session")
def dataset(tmp_path_factory, natural):
    """Six training and seven test images; three leak, one cannot be read, two repeat."""
    root = tmp_path_factory.mktemp("dataset")
    train, test = root / "train" / "thing", root / "test" / "thing"
    for folder in (train, test):
        folder.mkdir(parents=True)
    names = ("astronaut", "chelsea", "coffee", "rocket", "coins", "camera")
    for number, name in enumerate(names):
        crop(natural[name], number).save(train / f"t{number}.png")
    for number, name in enumerate(("moon", "brick", "grass")):
        crop(natural[name], number).save(test / f"q{number}.png")
    for name in ("copy.png", HOSTILE):
        (test / name).write_bytes((train / "t0.png").read_bytes())
    Image.open(train / "t1.png").transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(
        test / "mirrored.png"
    )
    (test / "text.jpg").write_text("no picture")
    return root


@pytest.fixture(scope="session")
def audited(dataset, tmp_path_factory):
    """The finished audit of the data set."""
    folder = tmp_path_factory.mktemp("audit") / "out"
    assert run("audit", dataset, "-o", folder).code == 0
    return folder


@pytest.fixture
def folder(audited, tmp_path):
    """A copy of the audit, which may be changed."""
    return Path(shutil.copytree(audited, tmp_path / "audit"))


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Return the folder in which commands run while something fails, and a copy of its inputs."""
    root, kept = (tmp_path_factory.mktemp("faults") / name for name in ("work", "kept"))
    inputs(root)
    shutil.copytree(root, kept)
    return root, kept


@pytest.fixture
def scene(made, monkeypatch):
    """Return a command with the inputs and models that it needs."""

    # how long something took is no result, and nobody pulls the plug
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(os, "fsync", lambda handle: None)

    def prepared(name):
        if name.startswith("memorization"):
            world(name, monkeypatch)
        elif name == "dlede":
            monkeypatch.setattr(execution, "sendable", not_sendable)
        elif name in NETWORKS and not (made[1] / "clip").exists():
            networks(made[1])
        return Scene(name, *made)

    return prepared
