"""The built wheel holds everything that an audit needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command], cwd=cwd, env={**os.environ, **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_an_audit_runs_from_the_wheel(tmp_path: Path) -> None:
    """Without the source tree: data files and entry points are in the wheel."""
    pip = (sys.executable, "-m", "pip", "-q")
    built = run(*pip, "wheel", "--no-deps", "-w", tmp_path / "wheel", ROOT, cwd=tmp_path)
    if "hatchling" in built.stderr:
        pytest.skip("hatchling could not be installed")
    assert built.returncode == 0, built.stderr
    (wheel,) = (tmp_path / "wheel").glob("*.whl")
    target = tmp_path / "installed"
    done = run(*pip, "install", "--no-deps", "--target", target, wheel, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    pixels = np.random.default_rng(3).integers(0, 256, (48, 48, 3), np.uint8)
    for side, size in (("train", 48), ("test", 40)):
        (tmp_path / "data" / side).mkdir(parents=True)
        Image.fromarray(pixels).resize((size, size)).save(tmp_path / "data" / side / "a.png")
    code = "import visleak, sys; print(visleak.__file__); from visleak.__main__ import main; main()"
    done = run(
        sys.executable, "-c", code, "audit", "data", "-o", "out", cwd=tmp_path,
        PYTHONPATH=str(target), VISLEAK_CACHE=str(tmp_path / "cache"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(target))
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
