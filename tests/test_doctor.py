"""``visleak doctor``: what it names in installations made on purpose, and what it says of ours."""

import json
import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from visleak import doctor as checkup
from visleak.doctor import (
    PROBES,
    Extra,
    ProbeResult,
    examine,
    extras,
    installed,
    run_probes,
    versions,
)

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
    assert extras(there, STATED)[2].install == "pip install 'visleak[timm]'"


def test_extras_of_this_installation():
    found = {each.name: each.missing for each in extras(installed())}
    assert {"torch", "onnx", "faiss", "ray", "hf", "remote", "heif"} <= found.keys()
    assert "dev" not in found


def test_versions_are_those_of_the_metadata():
    assert versions(installed())["numpy"] == version("numpy")
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
        ({}, {"cv2": BROKEN}, "cv2 does", [f"pip install --force-reinstall {HEADLESS}"]),
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
    found = checkup.issues(there, answers)
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


def test_the_probe_of_cv2_works():
    answer = run_probes(["cv2"])["cv2"]
    assert answer.error is None
    assert any(pool["api"] == "blas" and pool["threads"] >= 1 for pool in answer.found["pools"])
    assert PROBES.keys() == {"cv2", "torch", "torchvision", "onnxruntime"}


@pytest.mark.slow
def test_this_installation():
    """The probes of torch and onnxruntime on the real packages."""
    pytest.importorskip("torch")
    found = examine()
    assert found.devices[0]["name"] == "cpu"
    assert found.versions["torch"] == version("torch")
    assert not [each for each in found.issues if not each.what.startswith("torchvision")]
    json.dumps(found.as_dict())


def pretend(folder: Path, name: str, number: str, code: str) -> None:
    """Install a package that is not what it says."""
    (folder / f"{name.replace('-', '_')}-{number}.dist-info").mkdir(parents=True)
    metadata = folder / f"{name.replace('-', '_')}-{number}.dist-info" / "METADATA"
    metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
    (folder / f"{name}.py").write_text(code)


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


def doctor(paths: Path, cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "visleak", "doctor", *arguments],
        env={**os.environ, "PYTHONPATH": str(paths), "VISLEAK_CACHE": str(cache)},
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_a_broken_installation(tmp_path):
    """Two packages of cv2 and a torchvision of another torch: named, with what to do; exit 1.

    The import that fails happens in a child, so that the rest is still shown.
    """
    site, cache = tmp_path / "site", tmp_path / "cache"
    pretend(site, "torch", "9.1", TORCH)
    error = "operator torchvision::nms does not exist"
    pretend(site, "torchvision", "0.99", f"raise RuntimeError({error!r})")
    pretend(site, "opencv-python", "4.9", "")
    pretend(site, "onnxruntime", "1.99", "get_available_providers = lambda: []")
    cache.mkdir()
    (cache / "cache-2.0.sqlite").write_bytes(b"x" * 2_500_000)
    ran = doctor(site, cache)
    assert ran.returncode == 1, ran.stderr
    assert ran.stderr == ""
    lines = ran.stdout.splitlines()
    assert f"cache     {cache}, 2.5 MB" in lines
    assert "          cuda:0 (Some GPU, 80 GB)" in lines
    broken = lines.index(
        f"problem   torchvision 0.99 does not work beside torch 9.1 (RuntimeError: {error}); it"
        " breaks transformers and timm too"
    )
    assert lines[broken + 1].startswith("          fix: pip uninstall -y torchvision, or ")
    assert [line for line in lines if line.endswith("overwrite each other's files")]
    found = json.loads(doctor(site, cache, "--json").stdout)
    assert len(found["troubles"]) == 2
    assert found["versions"]["torch"] == "9.1"
    assert found["devices"][1] == {"name": "cuda:0", "what": "Some GPU", "bytes": 80_000_000_000}


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    (trouble,) = checkup._cache_issues(checkup._cache(tmp_path / "file" / "cache"))
    assert trouble.what == f"the cache folder {tmp_path / 'file' / 'cache'} cannot be written"
    assert checkup._cache_issues(checkup._cache(tmp_path / "new" / "cache")) == ()
