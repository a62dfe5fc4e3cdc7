"""Files that go away while an audit runs: the command says so, and ends with 1."""

import json

import numpy as np
import pytest
from calling import run
from PIL import Image

from visleak.formats import files
from visleak.pipeline.run import Comparer
from visleak.records import Unreadable


@pytest.fixture
def folder(tmp_path):
    """Two test images, one of which is a copy of the training image."""
    named = ((0, "train/a.png", "test/a.jpg"), (1, "test/b.jpg"), (2, "train/b.png", "train/c.png"))
    for seed, *names in named:
        coarse = np.random.default_rng(seed).integers(0, 256, (9, 9, 3), dtype=np.uint8)
        for name in names:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            Image.fromarray(coarse).resize((120, 120)).save(tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("verb", ["audit --test", "memorization trace --no-layouts"])
def test_a_file_that_went_away_is_no_clean_result(folder, monkeypatch, verb):
    """No gate passes; when the file is back, the same command does what is missing."""
    audited = verb.startswith("audit")
    command = [*verb.split(), folder / "test", "--train" if audited else "--source"]
    command += [folder / "train", "-o", folder / "audit", "--cache", "off", "--workers", 1]
    gates = ["--fail-on", "unreadable=100%", "--fail-on", "near" if audited else "memorized"]
    file, find = folder / "train" / "a.png", Comparer.candidates

    def without(self, *given):
        if file.exists():
            file.rename(folder / "a.png")
        return find(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(Comparer, "candidates", without)
        ran = run(*command, *gates)
    assert ran.code == 1
    assert "unfinished" in (ran.out if audited else ran.err)
    assert not audited or "train a.png (gone, missing" in ran.err
    (folder / "a.png").rename(file)
    ran = run(*command, code=0)
    assert "unfinished" not in ran.out
    assert "reused" not in ran.err
    assert ("reused" in run(*command, *gates, code=3).err) == audited


@pytest.mark.parametrize("verb", ["audit", "encode"])
def test_a_result_without_an_image_is_not_reused_when_the_image_is_back(folder, monkeypatch, verb):
    given = ["--test", folder / "test", "--train"] if verb == "audit" else []
    command = [verb, *given, folder / "train", "-o", folder / "out", "--cache", "off"]
    read = files.read_file
    away = Unreadable("io-error", "the disk does not answer")
    with monkeypatch.context() as patched:
        patched.setattr(files, "read_file", lambda path: away if b"a.png" in path else read(path))
        ran = run(*command, "--workers", 1, code=0)
        assert "unreadable" in ran.out or ran.out.startswith("2 vectors")
        assert "reused" in run(*command, "--workers", 1).err
    ran = run(*command, "--workers", 1)
    assert "reused" not in ran.err
    assert ran.out.startswith("1 of 2 test images" if verb == "audit" else "3 vectors")
    assert "reused" in run(*command, "--workers", 1).err


def test_a_table_with_a_flipped_bit_is_not_read(folder):
    """Pages have checksums; names, dictionaries and statistics of a file have none."""
    audit = folder / "audit"
    command = ["audit", "--test", folder / "test", "--train", folder / "train", "-o", audit]
    assert run(*command, "--cache", "off", "--workers", 1).code == 0
    whole = (audit / "pairs.parquet").read_bytes()
    for place in range(4, len(whole) - 8, len(whole) // 12):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        (audit / "pairs.parquet").write_bytes(damaged)
        ran = run("export", audit, "--format", "csv", "-o", folder / "pairs.csv", code=1)
        assert str(audit / "pairs.parquet") in ran.err
        assert "defect" not in ran.err
        assert not (folder / "pairs.csv").exists()
    ran = run("purge", audit, "--remove-from", "test", code=1)
    assert "is not the file that the audit wrote" in ran.err
    # no gate passes by a damaged summary: it is not reused
    stored = (audit / "audit.json").read_text()
    (audit / "audit.json").write_text(stored.replace('"count": 1', '"count": 0'))
    assert "reused" not in run(*command, "--cache", "off", "--fail-on", "near", code=3).err


@pytest.mark.parametrize("verb", ["purge", "dlede"])
def test_an_unfinished_audit_is_marked_or_refused(folder, verb):
    audit = folder / "audit"
    sides = f"--test {folder}/test --train {folder}/train"
    assert run(f"audit {sides} -o {audit} --cache off --workers 1").code == 0
    content = json.loads((audit / "audit.json").read_text())
    assert content["unfinished"] == 0
    (audit / "audit.json").write_text(json.dumps(content | {"unfinished": 1}))
    command, code = f"purge {audit} --remove-from test", 0
    if verb == "dlede":
        trainer = "--trainer 'command:true {train} {test} {out} {seed}' --steps 50,100"
        command, code = f"dlede {sides} --audit {audit} {trainer} -o {folder}/out", 1
    assert "is unfinished: 1 image could not be read again" in run(command, code=code).err
