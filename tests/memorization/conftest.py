"""Toy diffusion models that the memorisation tests share: scripts, and a model really trained."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "memorization"
MODULES = ("words", "pictures", "worlds", "toy_networks", "diffusion", "language", "training")

#: Training after which a plain toy has memorized its pictures: half of the pairs repeat them;
#: with the 15 % of the experiments it would take 1,000 updates of twice as many pairs.
TRAINED = {"steps": 300, "batch": 16, "memorised": 0.5, "language-steps": 120}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that needs the trained toy as slow: training takes minutes."""
    for item in items:
        if "trained_toy" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def toy_scripts() -> Iterator[SimpleNamespace]:
    """Load the scripts from their folder, which is no package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        for name in MODULES:
            patch.delitem(sys.modules, name, raising=False)
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
        for name in MODULES:
            sys.modules.pop(name, None)


@pytest.fixture(scope="session")
def trained_toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a plain toy; one worker trains it, the others wait.

    Training is a process of its own with one thread, so that it disturbs no other test and no
    other test disturbs it. ``VISLEAK_TOYS`` names a folder that keeps it for the next run.
    """
    kept = os.environ.get("VISLEAK_TOYS")
    base = tmp_path_factory.getbasetemp()
    common = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    cache = kept or str(common / "toys")
    settings = {"world": "plain", "seed": 0, **TRAINED, "cache": cache}
    options = [f"--{name}={value}" for name, value in settings.items()]
    command = [sys.executable, str(FOLDER / "training.py"), *options]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=alone, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return Path(done.stdout.splitlines()[-1])
