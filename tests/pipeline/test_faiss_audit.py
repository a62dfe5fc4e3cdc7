"""``--search faiss`` from the images to the folder."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import visleak
from visleak import Settings
from visleak.errors import MissingExtra, UsageError
from visleak.pipeline.run import _check_search
from visleak.storage import PAIRS


@pytest.fixture(scope="module")
def sets():
    """Return 60 noisy images, and 90 of which thirty are brighter copies of them."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(30, 200, (120, 6, 6, 3)).astype(np.uint8)
    pictures = [np.kron(grid, np.ones((8, 8, 1), np.uint8)) for grid in coarse]
    return pictures[:60], [p + 20 for p in pictures[:30]] + pictures[60:]


def audited(sets, folder, **asked):
    settings = Settings(verify=False, **asked)
    return visleak.audit(*sets, settings=settings, out=folder, cache=None, workers=1)


def test_a_flat_index_writes_the_same_table(sets, tmp_path):
    """Byte for byte, and the audit says what was searched through."""
    exact = audited(sets, tmp_path / "exact")
    found = audited(sets, tmp_path / "faiss", search="faiss")
    assert exact.rate("hard_or_soft").count >= 25
    assert (exact.folder / PAIRS).read_bytes() == (found.folder / PAIRS).read_bytes()
    assert exact.summary.as_dict()["search"] == {"engine": "exact", "version": None, "indexes": []}
    told = found.summary.as_dict()["search"]
    assert told["engine"] == "faiss"
    assert told["version"]
    assert [each["index"] for each in told["indexes"]] == ["Flat", "Flat"]  # and within test
    first = told["indexes"][0]
    assert first["recall"]["pairs"]["count"] == first["recall"]["pairs"]["total"] > 0
    assert not [line for line in found.summary.as_dict()["skipped"] if "faiss" in line]


def test_an_index_that_may_lose_leaks_says_so(sets, tmp_path, monkeypatch):
    """In the summary, and so in the report."""
    monkeypatch.setattr("visleak.search.faiss_search.suited", lambda sides, sample: "hnsw")
    found = audited(sets, tmp_path / "out", search="faiss", within=False)
    summary = found.summary.as_dict()
    (line,) = [line for line in summary["skipped"] if "faiss" in line]
    one, other = (each["name"] for each in summary["sets"])
    assert line.startswith(f"search for {one} in {other}: faiss HNSW32 may miss pairs: it found")
    (told,) = summary["search"]["indexes"]
    assert (told["index"], told["exact"]) == ("HNSW32", False)
    assert told["parameters"]["efSearch"] >= 16
    assert told["recall"]["queries"] == 30


def test_indexes_are_for_one_machine():
    """Told before the work, not after."""
    place = SimpleNamespace(executor=SimpleNamespace(local=False))
    with pytest.raises(UsageError, match="faiss works on this machine only: leave out --engine"):
        _check_search(Settings(search="faiss"), place)
    _check_search(Settings(), place)


def test_a_missing_package_is_told_before_the_work(sets, tmp_path, monkeypatch):
    """No fingerprint is made for nothing."""
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr(sys.modules["visleak.pipeline.run"], "fingerprint", None)
    with pytest.raises(MissingExtra, match=r"pip install 'visleak\[faiss\]'"):
        audited(sets, tmp_path / "out", search="faiss")
