"""``visleak doctor``: what it names in installations made on purpose, and what it says of ours."""

import json
import os
import subprocess
import sys
import time
from importlib.metadata import version

import pytest

from visleak import doctor
from visleak.doctor import Extra, ProbeResult, examine, extras, installed, run_probes, versions

STATED = (
    "numpy>=1.26",
    "torch>=2.2; extra == 'torch'",
    'transformers >=4.44 ; extra == "torch"',
    "visleak[torch]; extra == 'timm'",
    "timm>=1.0; extra == 'timm'",
    "faiss-cpu>=1.8; extra == 'faiss'",
    "aiohttp>=3.9; python_version >= '3.8' and extra == 'remote'",
    "pytest; extra == 'dev'",
)


def test_extras_and_what_they_lack():
    """Those made of others included; too old is missing too; our own tools are left out."""
    there = {"torch": "2.13.0+cpu", "transformers": "4.9.1", "faiss-gpu": "1.9.0"}
    assert extras(there, STATED) == (
        Extra("faiss", ()),
        Extra("remote", ("aiohttp",)),
        Extra("timm", ("transformers 4.9.1 (it takes 4.44)", "timm")),
        Extra("torch", ("transformers 4.9.1 (it takes 4.44)",)),
    )
    found = {each.name: each.install for each in extras(installed())}
    assert found["remote"] == "pip install 'visleak[remote]'"
    assert "dev" not in found
    found = versions({"opencv-python": "4.9", "onnxruntime-gpu": "1.18"})
    assert (found["cv2"], found["onnxruntime"], found["torch"]) == ("4.9", "1.18", None)


BROKEN = ProbeResult({}, "ImportError: libGL.so.1: cannot open shared object file")
HEADLESS = "opencv-python-headless"


@pytest.mark.parametrize(
    ("there", "answers", "what", "remedies"),
    [
        # each overwrites the other's files, and which one works is chance
        (
            {"opencv-python": "4.9.0", HEADLESS: "5.0.0"},
            {"cv2": ProbeResult({}, None)},
            f"{HEADLESS} 5.0.0 and opencv-python 4.9.0 both bring cv2",
            [f"pip uninstall -y {HEADLESS} opencv-python && pip install {HEADLESS}"],
        ),
        # as in a container without a display's libraries
        (
            {"opencv-python": "4.9"},
            {"cv2": BROKEN},
            f"cv2 does not work ({BROKEN.error})",
            [f"pip uninstall -y opencv-python && pip install {HEADLESS}"],
        ),
        # a broken torch is not blamed on torchvision
        (
            {},
            {"torch": BROKEN, "torchvision": BROKEN},
            "torch does not work",
            [f"pip install --force-reinstall {name}" for name in ("torch", "torchvision")],
        ),
    ],
)
def test_what_is_broken_is_named_with_a_remedy(there, answers, what, remedies):
    found = doctor.issues(there, answers)
    assert found[0].what.startswith(what)
    assert [each.remedy for each in found] == remedies


def test_output_of_child_processes(monkeypatch):
    """Answers, errors, deaths, silence, and one that hangs; all at once."""
    monkeypatch.setattr("visleak.doctor.PATIENCE", 2.0)
    probes = {
        "good": "print('noise'); print('{\"a\": 1}')",
        "bad": "raise RuntimeError('operator torchvision::nms does not exist')",
        "dead": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "silent": "pass",
        "ends": "import sys; sys.exit(3)",
        "hangs": "import time; time.sleep(60)",
    }
    start = time.monotonic()
    found = run_probes(list(probes), probes)
    assert time.monotonic() - start < 20
    assert found == {
        "good": ProbeResult({"a": 1}, None),
        "bad": ProbeResult({}, "RuntimeError: operator torchvision::nms does not exist"),
        "dead": ProbeResult({}, "the process was killed by signal 9"),
        "silent": ProbeResult({}, "its output cannot be read"),
        "ends": ProbeResult({}, "exit code 3"),
        "hangs": ProbeResult({}, "no answer within 2 s"),
    }


@pytest.mark.slow
def test_this_installation():
    """The probes of cv2, torch and onnxruntime on the real packages."""
    pytest.importorskip("torch")
    found = examine()
    assert found.devices[0]["name"] == "cpu"
    assert found.versions["torch"] == version("torch")
    assert any(pool["api"] == "blas" and pool["threads"] >= 1 for pool in found.threads.pools)
    assert not [each for each in found.issues if not each.what.startswith("torchvision")]
    json.dumps(found.as_dict())


TORCH = """
class cuda:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
    get_device_name = staticmethod(lambda n: "Some GPU")
    class _P:
        total_memory = 80_000_000_000
    get_device_properties = staticmethod(lambda n: cuda._P)
class backends:
    class mps:
        is_available = staticmethod(lambda: False)
class version:
    cuda = "12.4"
get_num_threads = lambda: 4
"""
ERROR = "operator torchvision::nms does not exist"


def test_a_broken_installation(tmp_path, monkeypatch):
    """Two packages of cv2 and a torchvision of another torch: named, with what to do; exit 1."""
    site, cache = tmp_path / "site", tmp_path / "cache"
    for name, number, code in (
        ("torch", "9.1", TORCH),
        ("torchvision", "0.99", f"raise RuntimeError({ERROR!r})"),
        ("opencv-python", "4.9", ""),
        ("onnxruntime", "1.99", "get_available_providers = lambda: []"),
    ):
        folder = site / f"{name.replace('-', '_')}-{number}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n"
        )
        (site / f"{name}.py").write_text(code)
    cache.mkdir()
    (cache / "cache-2.0.sqlite").write_bytes(b"x" * 2_500_000)
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    monkeypatch.setenv("VISLEAK_CACHE", str(cache))

    def ran(*arguments):
        command = [sys.executable, "-m", "visleak", "doctor", *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)

    done = ran()
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert f"cache     {cache}, 2.5 MB" in lines
    assert "          cuda:0 (Some GPU, 80 GB)" in lines
    broken = lines.index(
        f"problem   torchvision 0.99 does not work beside torch 9.1 (RuntimeError: {ERROR}); it"
        " breaks transformers and timm too"
    )
    assert lines[broken + 1].startswith("          fix: pip uninstall -y torchvision, or ")
    assert [line for line in lines if line.endswith("overwrite each other's files")]
    found = json.loads(ran("--json").stdout)
    assert len(found["troubles"]) == 2
    assert found["devices"][1] == {"name": "cuda:0", "what": "Some GPU", "bytes": 80_000_000_000}


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "run_probes", lambda names: {"cv2": ProbeResult({}, None)})
    (tmp_path / "file").write_text("")
    for folder, issues in (("file/cache", 1), ("new/cache", 0)):
        monkeypatch.setenv("VISLEAK_CACHE", str(tmp_path / folder))
        found = [each.what for each in examine().issues if "cache" in each.what]
        assert found == [f"the cache folder {tmp_path / folder} cannot be written"] * issues
