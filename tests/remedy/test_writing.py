"""Writing data sets: every layout holds exactly what is kept, and opens again."""

from __future__ import annotations

import csv
import hashlib
import itertools
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_making import FILES, NUMBERED, PACKED, piece, state, written

from visleak.formats import open_images
from visleak.remedy.manifest import KEPT
from visleak.storage import csv_text

HOWS = [(name, how) for name in FILES for how in ("manifest", "link", "copy")]
HOWS += [(name, how) for name in PACKED for how in ("manifest", "copy")]

_NUMBER = itertools.count()

pytestmark = pytest.mark.usefixtures("no_waiting")


def digests(images) -> list[str]:
    """What is stored, by an oracle of its own."""
    found = []
    for stored in images.opener.read(range(len(images))):
        assert isinstance(stored, bytes | np.ndarray), stored
        data = stored if isinstance(stored, bytes) else stored.tobytes()
        found.append(hashlib.sha256(data).hexdigest())
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    every = FILES | PACKED
    return {name: make(tmp_path_factory.mktemp(name)) for name, make in every.items()}


def kept_list(folder: Path) -> list[dict[str, str]]:
    with (folder / KEPT).open(encoding="utf-8", newline="") as file:
        return [{k: csv_text(v) for k, v in row.items()} for row in csv.DictReader(file)]


@pytest.mark.parametrize(("name", "how"), HOWS)
def test_a_result_holds_exactly_what_is_kept(name, how, made, tmp_path):
    """Ids, labels and bytes in order, for any choice of images; the source is not touched."""
    images = open_images(made[name], name="test")
    root = Path(str(images.opener.root)) if name in FILES else None
    before = {} if root is None else state(root)
    own, labels, ids = digests(images), images.labels, images.ids.to_pylist()

    @settings(max_examples=4)
    @given(st.sets(st.integers(0, len(images) - 1), min_size=1).map(sorted))
    def check(keep):
        out = tmp_path / f"out-{next(_NUMBER)}"
        result = written(out, piece(images, keep), how=how, about={"a": 1})
        listed = kept_list(out)
        assert [row["id"] for row in listed] == [ids[at] for at in keep]
        assert [row["set"] for row in listed] == ["test"] * len(keep)
        if name in PACKED and how == "manifest":
            assert result.sources == {}
            return
        again = open_images(result.sources["test"], name="test")
        found = dict(zip(again.ids.to_pylist(), digests(again), strict=True))
        assert [found[row["new_id"]] for row in listed] == [own[at] for at in keep]
        if name not in NUMBERED:
            assert again.ids.to_pylist() == [ids[at] for at in keep]
        wanted = None if labels is None else labels.take(pa.array(keep)).to_pylist()
        got = [None] * len(keep) if again.labels is None else again.labels.to_pylist()
        assert got == (wanted or [None] * len(keep))
        shutil.rmtree(out)

    check()
    if root is not None:
        assert state(root) == before
