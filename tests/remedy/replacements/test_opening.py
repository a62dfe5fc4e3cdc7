"""Audits and pools that cannot be used are refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import visleak
from planted_pool import plant, png, scene, store
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images
from visleak.remedy.selection import _encoder_name


def test_pools_that_cannot_be_used(planted, opened, tmp_path):
    for number in range(2):
        store(tmp_path / "pool", f"lorry/{number}.png", png(scene(6000 + number)))
    with pytest.raises(UsageError, match=r"are of cat, dog, the pool has lorry; choose its column"):
        opened(tmp_path / "pool")
    with pytest.raises(VisleakError, match=r"can be used: 13 are in the audit already, 0 are bl"):
        opened(planted / "train")
    np.save(tmp_path / "emb.npy", np.eye(4, dtype=np.float32))
    with pytest.raises(UsageError, match=r"set of embeddings|no images|does not exist"):
        opened(f"emb:{tmp_path}?encoder=builtin")


def test_the_file_of_an_encoder_is_found_from_anywhere(tmp_path, monkeypatch):
    """An audit has its path relative to the folder of the run."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.onnx").touch()
    name = "onnx:models/a.onnx?prep=b.json"
    assert _encoder_name(name, tmp_path) == f"onnx:{tmp_path}/models/a.onnx?prep=b.json"
    monkeypatch.chdir(tmp_path)
    assert _encoder_name(name, tmp_path / "elsewhere") == name


@pytest.mark.parametrize(
    ("changed", "asked", "said"),
    [
        ({"grader": None}, {}, "audited without verification, so no pair has a grade"),
        ({"settings": {"sample": 5}}, {}, "an audit of a sample of 5 images; replacing duplicates"),
        ({"encoder": {"digest": "0" * 32}}, {}, r"encoder builtin has digest .* 000000000000;"),
        ({}, {"set_name": "val"}, "set must be one of test; got 'val'"),
    ],
)
def test_audits_that_cannot_be_used(opened, folder, changed, asked, said):
    content = json.loads((folder / "audit.json").read_text())
    for name, value in changed.items():
        content[name] = content[name] | value if value else value
    (folder / "audit.json").write_text(json.dumps(content))
    with pytest.raises(VisleakError, match=said):
        opened(**asked)


def test_several_test_sets(planted, opened, tmp_path):
    sets = [open_images(planted / "test", name=name) for name in ("one", "two")]
    visleak.audit(sets, planted / "train", out=tmp_path / "two", workers=1, cache=planted / "cache")
    with pytest.raises(UsageError, match="one, two; one is replaced at a time: choose it with"):
        opened(at=tmp_path / "two")
    selection = opened(at=tmp_path / "two", set_name="two")
    assert (selection.test_set, len(selection.duplicates.images)) == ("two", 5)


def test_images_that_changed_since(opened, tmp_path):
    root = plant(tmp_path / "own", fresh=2)
    visleak.audit(root / "test", root / "train", out=root / "audit", workers=1, cache=None)
    store(root / "train", "cat/01.png", png(scene(1)))
    (root / "train" / "cat" / "02.png").unlink()
    with pytest.raises(VisleakError, match=r"2 images of set 'train' .* changed since the audit"):
        opened(root / "pool", at=root / "audit")


@pytest.mark.parametrize("side", ["test", "train"])
def test_images_that_are_not_in_the_audit(opened, tmp_path, side):
    """Added later or repaired, they may be copies."""
    root = plant(tmp_path / "own", fresh=2)
    repaired, content = root / side / "cat" / "later.png", png(scene(1))
    repaired.write_text("<html>")
    visleak.audit(root / "test", root / "train", out=root / "audit", workers=1, cache=None)
    opened(root / "pool", at=root / "audit")
    repaired.write_bytes(content)
    for name in ("later.png", "renamed.png"):
        repaired = repaired.rename(repaired.with_name(name))
        with pytest.raises(VisleakError, match=rf"1 image of set '{side}' .* not in the audit"):
            opened(root / "pool", at=root / "audit")


def test_a_pool_may_have_the_name_of_a_set(planted, opened, tmp_path):
    shutil.copytree(planted / "test", tmp_path / "pool-set")
    sets = [open_images(tmp_path / "pool-set", name="pool")]
    visleak.audit(sets, planted / "train", out=tmp_path / "a", workers=1, cache=planted / "cache")
    selection = opened(at=tmp_path / "a")
    assert selection.pool.fingerprints.set == "pool+"
    assert len(selection.duplicates.images) == 5
