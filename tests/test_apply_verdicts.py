"""An audit with verdicts of people applied; the folder stays as it is."""

import gc

import numpy as np
import pytest

import visleak
from toy_audit import Image, Pair, digest_of, split_audit
from visleak.errors import UsageError, VisleakError
from visleak.verdicts import Ledger, Verdict

TEST = [Image("a"), Image("b"), Image("c")]
TRAIN = [Image("t"), Image("u")]
PAIRS = [Pair("a", "t", "near"), Pair("b", "u", "different", 0.7)]


def verdict(query, reference, judgment):
    pair = digest_of("test", TEST[query]), digest_of("train", TRAIN[reference])
    return Verdict.of(*pair, judgment, "Ada")


@pytest.fixture
def folder(tmp_path):
    return split_audit(tmp_path / "audit", TEST, TRAIN, PAIRS)


def contents(folder):
    """Return the files, but for those that SQLite keeps beside one that is being read."""
    own = (path for path in folder.iterdir() if not path.name.endswith(("-shm", "-wal")))
    return {path.name: path.read_bytes() for path in own}


def test_verdicts_of_the_folder(folder):
    with Ledger(folder) as ledger:
        ledger.add(verdict(0, 0, "different"), verdict(1, 1, "near"), verdict(2, 0, "exact"))
    before = contents(folder)
    audit = visleak.Audit(folder)
    judged = visleak.apply_verdicts(audit)
    assert (audit.judged, judged.judged) == (False, True)
    assert audit.rate().count == 1
    assert audit.pairs(grade="near")["query"].to_pylist() == ["a"]
    assert "machine_grade" not in audit.pairs().column_names
    assert judged.headline.startswith("2 of 3 test images")
    assert (judged.rate().count, judged.rate("exact").count) == (2, 1)
    near = judged.pairs(grade="near").to_pylist()
    assert [(row["query"], row["machine_grade"]) for row in near] == [
        ("b", "different"),
        ("c", None),
    ]
    assert judged.summary.as_dict()["review"]["judged"] == 3
    assert contents(folder) == before


def test_verdicts_given_are_not_kept(folder, tmp_path):
    audit = visleak.Audit(folder)
    verdicts = [verdict(0, 0, "different")]
    assert visleak.apply_verdicts(audit, verdicts).rate().count == 0
    path = tmp_path / "list.csv"
    path.write_text("TestID,TrainID,Judgment\nb,u,1\n")
    assert visleak.apply_verdicts(audit, str(path)).rate().count == 2
    other = split_audit(tmp_path / "other", TEST, TRAIN)
    with Ledger(other) as ledger:
        ledger.add(*verdicts)
    for place in (other, other / "verdicts.csv"):
        assert visleak.apply_verdicts(audit, place).rate().count == 0
    assert visleak.apply_verdicts(audit).rate().count == 1
    assert not (folder / "verdicts.sqlite").exists()
    path.write_text("TestID,TrainID,Judgment\nb,u,9\n")
    with pytest.raises(VisleakError, match="line 2: Judgment must be"):
        visleak.apply_verdicts(audit, path)
    with pytest.raises(UsageError, match="is not a file"):
        visleak.apply_verdicts(audit, tmp_path / "gone.csv")


def test_an_audit_of_its_own_folder_lives_as_long_as_its_copy():
    rng = np.random.default_rng(1)
    pictures = [rng.integers(0, 255, (32, 32, 3), np.uint8) for _ in range(2)]
    judged = visleak.apply_verdicts(visleak.audit(pictures, pictures, cache=None, workers=1))
    gc.collect()
    assert judged.pairs(grade="exact").num_rows == 2
    folder = judged.folder
    del judged
    gc.collect()
    assert not folder.exists()
