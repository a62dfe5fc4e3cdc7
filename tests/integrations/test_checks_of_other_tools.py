"""The pytest plugin, the GitHub Action and the pre-commit hook, run as their tools run them."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from PIL import Image

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(sys.executable).parent


@pytest.fixture(scope="module")
def data(tmp_path_factory, natural):
    """A leaking split, and ``fair``, which does not leak."""
    root = tmp_path_factory.mktemp("data")
    names = {"train": "astronaut", "test": "astronaut", "fair": "coffee"}
    for side, name in names.items():
        (root / side).mkdir()
        Image.fromarray(natural[name][:96, :96]).save(root / side / "a.png")
    return root


def called(command, folder, **more):
    environment = {**os.environ, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}", **more}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_marker_of_pytest(data):
    (data / "test_data.py").write_text("""
import pytest

@pytest.mark.no_leak("fair", "train")
def test_fair(): pass

@pytest.mark.no_leak("test", "train", allowed=0.5, cache=None)
def test_leaking(): pass
""")
    ran = called(
        [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-p", "no:cacheprovider",
         "-p", "no:visleak", "-p", "visleak.integrations.pytest_plugin", "test_data.py"],
        data,
    )  # fmt: skip
    assert ran.returncode == 1
    assert "1 failed, 1 passed" in ran.stdout
    assert "1 of 1 test images" in ran.stdout


def test_the_action_of_github(data):
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    script = action["runs"]["steps"][-1]
    assert "${{" not in script["run"]
    given = {name: action["inputs"][text[11:-3].strip()]["default"]
             for name, text in script["env"].items()}  # fmt: skip
    assert given.keys() == {"SOURCE", "TEST", "TRAIN", "GATES", "BASELINE", "OUTPUT"}
    for test, code in (("test", 3), ("fair", 0)):
        # both in one folder, as in a workspace that is kept
        sides = {"TEST": f"test={test}", "TRAIN": "train", "OUTPUT": "out folder"}
        ran = called(["bash", "-e", "-c", script["run"]], data, **{**given, **sides})
        assert ran.returncode == code, ran.stderr
        assert ("::error file=test/a.png" in ran.stdout) == (code == 3)
        assert (data / "out folder" / "report.html").is_file()


def test_the_hook_of_pre_commit(data):
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    entry = shlex.split(hook["entry"])
    for test, code in (("test", 3), ("fair", 0), ("test", 3)):
        ran = called([*entry, "--test", f"test={test}", "--train", "train"], data)
        assert ran.returncode == code, ran.stderr
