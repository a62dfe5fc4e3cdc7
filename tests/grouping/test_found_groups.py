"""Audits of divided recordings: inferred groups, and remedies by them."""

import csv
import io
import sys

import cv2
import numpy as np
import pytest
from PIL import Image

import visleak
from visleak.cli import main
from visleak.errors import UsageError
from visleak.integrity import check_audit
from visleak.remedy import purge, repair
from visleak.remedy.documents import purge_document
from visleak.remedy.graph import UnconfirmedGroups
from visleak.remedy.settings import PurgeSettings, RepairSettings
from visleak.report import write_report

RECORDINGS = (("a1", "train"), ("b2", ""), ("c3", ""), ("d4", "test"))
FRAMES = 24
FAST = {"verify": False, "candidates": "nearest", "workers": 1, "cache": None}


def tear(folder, count=9):
    """Write frames of a moving camera: recordings b, c on both sides, a in train, d in test."""
    for seed, (name, place) in enumerate(RECORDINGS):
        noise = np.random.default_rng(seed).integers(0, 256, (160, 400, 3)).astype(np.uint8)
        texture = cv2.GaussianBlur(noise, (0, 0), 6)
        texture = cv2.normalize(texture, None, 0, 255, cv2.NORM_MINMAX)
        for n in range(count):
            part = place or ("test" if 3 * n >= 2 * count else "train")
            (folder / part).mkdir(exist_ok=True)
            pixels = texture[20 : 20 + 96, 7 * n : 7 * n + 96]
            Image.fromarray(pixels).save(folder / part / f"drive-{name}_{10 * n:05}.png")
    return folder


@pytest.fixture(scope="module")
def torn(tmp_path_factory):
    return tear(tmp_path_factory.mktemp("torn"), FRAMES)


@pytest.fixture(scope="module")
def found(torn):
    return visleak.audit(torn, **FAST)


def test_recordings_are_inferred_from_names(found):
    (known,) = found.summary.grouping.believed
    assert (known.kind, known.groups, known.step, known.unit) == ("recordings", 4, 10, "frames")
    assert known.evidence.p < 0.001
    assert known.gap >= 10
    (one,) = known.shared
    assert (one.groups, one.queries, one.least) == (2, 16, 10)
    assert dict(one.named) == {"drive-b2": 8, "drive-c3": 8}
    assert [each.units for each in known.sides] == [3, 3]
    # every image is listed with its nearest training frame
    with (found.folder / "groups.csv").open(newline="") as lines:
        rows = {(row["set"], row["id"]): row for row in csv.DictReader(lines)}
    assert len(rows) == 4 * FRAMES
    last = rows["test", "drive-b2_00230.png"]
    assert (last["nearest"], last["distance"]) == ("drive-b2_00150.png", "80")
    assert rows["test", "drive-d4_00000.png"]["nearest"] == ""
    assert check_audit(found.folder).findings == ()
    # but the audit itself does not use them, nor advises a repair, which needs grades
    assert not found.summary.grouping.used
    assert all("group" not in total["rates"] for total in found.summary.as_dict()["totals"])
    assert found.images()["group"].null_count == 4 * FRAMES
    page = write_report(found.folder).read_text()
    assert "audit with --group" in page
    assert "split --repair" not in page


def test_group_auto_uses_inferred_groups(torn, tmp_path):
    sides = [
        visleak.open_images(torn / part, name=part, dataset="d", roles=(role,), group="auto")
        for part, role in (("test", "benchmark"), ("train", "training"))
    ]
    audit = visleak.audit(*sides, out=tmp_path / "auto", **FAST)
    assert audit.rate("group").count == 16
    assert audit.rate("recording").count >= 2
    (recordings,) = (each.recordings for each in audit.summary.comparisons if each.recordings)
    assert recordings.within == audit.summary.grouping.believed[0].gap
    assert visleak.audit(*sides, out=tmp_path / "auto", **FAST).reused


def test_purge_removes_groups_on_both_sides(found):
    for wrong in ({"group": "auto", "max_frame_gap": "far"}, {"max_frame_gap": "auto"}):
        with pytest.raises(UsageError, match="--max-frame-gap"):
            PurgeSettings(**wrong)
    with pytest.raises(UnconfirmedGroups, match="--yes"):
        purge(found, PurgeSettings(degree="hard", group="auto"))
    test, train = (
        purge(found, PurgeSettings(degree="hard", group="auto", yes=True, remove_from=side))
        for side in ("test", "train")
    )
    gone = {each.id[6:8] for each in test.sets[0].removed if each.why == "group"}
    assert gone == {"b2", "c3"}
    assert sum(each.why == "group" for each in train.sets[0].removed) == 32
    # what is recommended for the other side counts the groups, too
    for plan in (test, train):
        assert f"drop {len(train.sets[0].removed)} of" in plan.advice.why


@pytest.mark.parametrize("side", ["test", "train"])
@pytest.mark.parametrize("gap", ["auto", "30"])
def test_purge_removes_frames_up_to_a_gap(found, side, gap):
    """Frames 0 to 150 of a divided recording are in train, 160 to 230 in test."""
    (known,) = found.summary.grouping.believed
    chosen = {"degree": "hard", "group": "auto", "yes": True}
    result = purge(found, PurgeSettings(**chosen, remove_from=side, max_frame_gap=gap))
    (plan,) = result.sets
    frames = {int(each.id[-9:-4]) for each in plan.removed if each.why == "group"}
    most = known.gap if gap == "auto" else 30
    gaps = {n: n - 150 if side == "test" else 160 - n for n in range(0, 240, 10)}
    assert frames == {n for n, apart in gaps.items() if 0 < apart <= most}
    page = purge_document(result, found.summary, None)
    assert [each.name for each in page.figures] == (["decay-0"] if gap == "auto" else [])
    assert any(fact.name == "frame gap" for fact in page.facts)


def ran(*command):
    """Run a command; return its exit code."""
    with pytest.raises(SystemExit) as ended:
        main([str(each) for each in command])
    return ended.value.code


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 2)])
def test_a_person_confirms_groups_at_a_terminal(found, monkeypatch, capsys, answer, code):
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{answer}\n"))
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    command = ("purge", found.folder, "--degree", "hard", "--group", "auto")
    assert ran(*command, "--remove-from", "test") == code
    shown = capsys.readouterr()
    assert "believed:" in shown.err
    assert "Use these groups?" in shown.err
    assert ("would be removed" in shown.out) == (answer == "y")


def parts_of(split):
    """Return the recordings of a split, each with its part."""
    with (split / "assignment.csv").open(newline="") as lines:
        return {(row["id"][:8], row["part"]) for row in csv.DictReader(lines)}


@pytest.mark.slow
def test_a_new_split_by_groups_that_are_found(tmp_path, capsys):
    """No recording is divided."""
    (tmp_path / "all").mkdir()
    for file in tear(tmp_path).glob("t*/*.png"):
        file.rename(tmp_path / "all" / file.name)
    new = tmp_path / "new"
    command = ("split", tmp_path / "all", "--ratios", "train=0.75,test=0.25", "--group", "auto")
    assert ran(*command, "-o", new, "--yes") == 0
    assert len(parts_of(new)) == 4
    assert ran(*command, "-o", tmp_path / "no", "--audit", new / "audit") == 2
    assert "--yes" in capsys.readouterr().err


def test_groups_that_were_not_found_are_refused():
    noise = np.random.default_rng(3).integers(0, 256, (16, 40, 40, 3)).astype(np.uint8)
    audit = visleak.audit(list(noise[:8]), list(noise[8:]), **FAST)
    with pytest.raises(UsageError, match="found no groups"):
        purge(audit, PurgeSettings(degree="hard", group="auto", yes=True))


@pytest.mark.slow
def test_repair_unites_the_recordings_that_were_found(tmp_path):
    (tmp_path / "torn").mkdir()
    audit = visleak.audit(tear(tmp_path / "torn"), workers=1, cache=None)
    assert "split --repair" in write_report(audit.folder).read_text()
    with pytest.raises(UnconfirmedGroups):
        repair(audit.folder, RepairSettings(group="auto"), out=tmp_path / "split")
    chosen = RepairSettings(group="auto", yes=True)
    repair(audit.folder, chosen, out=tmp_path / "split", workers=1, cache=None)
    assert len(parts_of(tmp_path / "split")) == 4
