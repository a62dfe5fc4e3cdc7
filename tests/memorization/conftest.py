"""Toy diffusion models that the memorisation tests share: scripts, and a model really trained."""

from __future__ import annotations

import hashlib
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "memorization"
MODULES = ("words", "pictures", "worlds", "toy_networks", "diffusion", "language", "training")

#: Updates after which a plain toy knows its twelve pictures by heart, where so large a share of
#: its training pairs repeats them; with the 15 % of the experiments it would take 1,000.
STEPS, MEMORISED = 450, 0.35


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
def trained_toy(request: pytest.FixtureRequest) -> Path:
    """Return the folder of a plain toy; one worker trains it, the others wait.

    Training is a process of its own with one thread, so that it disturbs no other test and no
    other test disturbs it. The toy stays in pytest's cache, or in the folder that
    ``VISLEAK_TOYS`` names, until a script or torch changes.
    """
    sources = [(FOLDER / f"{name}.py").read_bytes() for name in MODULES]
    made_by = hashlib.blake2b(version("torch").encode() + b"".join(sources), digest_size=8)
    kept = os.environ.get("VISLEAK_TOYS")
    cache = kept or str(request.config.cache.mkdir(f"toys-{made_by.hexdigest()}"))
    settings = {"world": "plain", "seed": 0, "steps": STEPS, "memorised": MEMORISED, "cache": cache}
    options = [f"--{name}={value}" for name, value in settings.items()]
    command = [sys.executable, str(FOLDER / "training.py"), *options]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=alone, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return Path(done.stdout.splitlines()[-1])
