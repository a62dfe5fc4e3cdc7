"""Audits of divided recordings: inferred groups, and remedies by them."""

from __future__ import annotations

import csv
import json
import os
import pty
import shutil
import subprocess
import sys
from contextlib import suppress

import cv2
import numpy as np
import pytest
from PIL import Image

import visleak
from visleak.errors import UsageError
from visleak.integrity import check_audit
from visleak.remedy import purge, repair
from visleak.remedy.documents import purge_document
from visleak.remedy.graph import UnconfirmedGroups
from visleak.remedy.settings import PurgeSettings, RepairSettings
from visleak.report import write_report

FRAMES = 24
FAST = {"verify": False, "candidates": "nearest", "workers": 1, "cache": None}


def frames_of(seed, count):
    """Frames of a camera that moves over a texture."""
    rng = np.random.default_rng(seed)
    texture = cv2.GaussianBlur(rng.integers(0, 256, (160, 400, 3)).astype(np.uint8), (0, 0), 6)
    texture = cv2.normalize(texture, None, 0, 255, cv2.NORM_MINMAX)
    return [texture[20 : 20 + 96, 7 * n : 7 * n + 96] for n in range(count)]


def tear(folder, count):
    """Write a split whose recordings b and c are on both sides; a is in train, d in test alone."""
    for name, place in (("a1", "train"), ("b2", "torn"), ("c3", "torn"), ("d4", "test")):
        for n, pixels in enumerate(frames_of(ord(name[0]), count)):
            part = place if place != "torn" else "test" if 3 * n >= 2 * count else "train"
            (folder / part).mkdir(exist_ok=True)
            Image.fromarray(pixels).save(folder / part / f"drive-{name}_{10 * n:05}.png")
    return folder


@pytest.fixture(scope="module")
def torn(tmp_path_factory):
    return tear(tmp_path_factory.mktemp("torn"), FRAMES)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """The same with few frames, whose pairs are verified sooner."""
    return tear(tmp_path_factory.mktemp("short"), 9)


@pytest.fixture(scope="module")
def found(torn, tmp_path_factory):
    return visleak.audit(torn, out=tmp_path_factory.mktemp("audits") / "plain", **FAST)


def test_recordings_are_inferred_from_names(found):
    (known,) = found.summary.grouping.believed
    assert (known.kind, known.groups, known.step, known.unit) == ("recordings", 4, 10, "frames")
    assert known.evidence.p < 0.001
    assert known.gap >= 10
    assert not found.summary.grouping.used
    (one,) = known.shared
    assert (one.groups, one.queries, one.least) == (2, 16, 10)
    assert dict(one.named) == {"drive-b2": 8, "drive-c3": 8}
    sides = {each.set: each for each in known.sides}
    assert (sides["test"].units, sides["train"].units) == (3, 3)
    assert sides["test"].span == 230 + 2 * 70


def test_every_image_is_listed_with_its_nearest_training_frame(found):
    with (found.folder / "groups.csv").open(newline="") as lines:
        rows = {(row["set"], row["id"]): row for row in csv.DictReader(lines)}
    assert len(rows) == 4 * FRAMES
    last = rows["test", "drive-b2_00230.png"]
    assert (last["nearest"], last["distance"]) == ("drive-b2_00150.png", "80")
    assert rows["test", "drive-d4_00000.png"]["nearest"] == ""
    assert check_audit(found.folder).findings == ()


def test_gates_and_rates_do_not_use_inferred_groups(found):
    content = json.loads((found.folder / "audit.json").read_text())
    assert all("group" not in total["rates"] for total in content["totals"])
    assert found.images()["group"].null_count == 4 * FRAMES


def test_a_repair_is_not_advised_without_grades(found):
    """It would be refused: pairs were not verified."""
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
    assert check_audit(audit.folder).findings == ()
    again = visleak.audit(*sides, out=tmp_path / "auto", **FAST)
    assert again.reused


def test_purge_removes_groups_on_both_sides(found):
    with pytest.raises(UnconfirmedGroups, match="--yes"):
        purge(found, PurgeSettings(degree="hard", group="auto"))
    (test,) = purge(found, PurgeSettings(degree="hard", group="auto", yes=True)).sets
    gone = {each.id for each in test.removed if each.why == "group"}
    assert {name[6:8] for name in gone} == {"b2", "c3"}
    chosen = PurgeSettings(degree="hard", group="auto", yes=True, remove_from="train")
    (train,) = purge(found, chosen).sets
    assert sum(each.why == "group" for each in train.removed) == 32
    # what is recommended for the other side counts the groups, too
    for settings in (chosen, PurgeSettings(degree="hard", group="auto", yes=True)):
        assert f"drop {len(train.removed)} of" in purge(found, settings).advice.why


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
    expected = {n for n in range(160, 240, 10) if n - 150 <= most}
    if side == "train":
        expected = {n for n in range(0, 160, 10) if 160 - n <= most}
    assert frames == expected
    page = purge_document(result, found.summary, None)
    assert [each.name for each in page.figures] == (["decay-0"] if gap == "auto" else [])
    assert any(fact.name == "frame gap" for fact in page.facts)


def test_invalid_gaps_are_refused():
    with pytest.raises(UsageError, match="max-frame-gap"):
        PurgeSettings(group="auto", max_frame_gap="far")
    with pytest.raises(UsageError, match="needs --group"):
        PurgeSettings(max_frame_gap="auto")


def typed(command, answer, folder):
    """Run a command in a pseudo-terminal, answer its question, and return what it shows."""
    main, side = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "visleak", *command],
        stdin=side, stdout=side, stderr=side, cwd=folder, env={**os.environ, "TERM": "dumb"},
    ) as process:  # fmt: skip
        os.close(side)
        shown = b""
        with suppress(OSError):  # which ends a pseudo-terminal
            while part := os.read(main, 1 << 16):
                shown += part
                if b"[y/N]" in part:
                    os.write(main, answer.encode() + b"\n")
    os.close(main)
    return process.returncode, shown.decode()


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 2)])
def test_a_person_confirms_groups_at_a_terminal(found, tmp_path, answer, code):
    command = ["purge", str(found.folder), "--degree", "hard", "--group", "auto"]
    returned, shown = typed([*command, "--remove-from", "test"], answer, tmp_path)
    assert "believed:" in shown
    assert "Use these groups?" in shown
    assert ("would be removed" in shown) == (answer == "y")
    assert returned == code
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_new_split_by_groups_that_are_found(short, tmp_path):
    """At a terminal after confirmation, elsewhere with --yes: no recording is divided."""
    (tmp_path / "all").mkdir()
    for file in short.glob("t*/*.png"):
        shutil.copy(file, tmp_path / "all")
    command = ["split", "all", "--ratios", "train=0.75,test=0.25", "--group", "auto"]
    returned, shown = typed([*command, "-o", "asked"], "y", tmp_path)
    assert returned == 0, shown
    assert "Use these groups?" in shown
    plain = [sys.executable, "-m", "visleak", *command]
    refused = subprocess.run(
        [*plain, "-o", "no"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    again = [*plain, "-o", "given", "--yes", "--audit", "asked/audit"]
    subprocess.run(again, cwd=tmp_path, check=True, capture_output=True)
    for name in ("asked", "given"):
        with (tmp_path / name / "assignment.csv").open(newline="") as lines:
            parts = {(row["id"][:8], row["part"]) for row in csv.DictReader(lines)}
        assert len(parts) == 4, name


def test_groups_that_were_not_found_are_refused(tmp_path):
    rng = np.random.default_rng(3)
    for part in ("train", "test"):
        (tmp_path / "data" / part).mkdir(parents=True)
        for n in range(8):
            noise = rng.integers(0, 256, (40, 40, 3)).astype(np.uint8)
            Image.fromarray(noise).save(tmp_path / "data" / part / f"{rng.bytes(4).hex()}{n}.png")
    audit = visleak.audit(tmp_path / "data", out=tmp_path / "audit", **FAST)
    with pytest.raises(UsageError, match="found no groups"):
        purge(audit, PurgeSettings(degree="hard", group="auto", yes=True))


@pytest.mark.slow
def test_repair_unites_the_recordings_that_were_found(short, tmp_path):
    audit = visleak.audit(short, out=tmp_path / "audit", workers=1, cache=None)
    assert "split --repair" in write_report(audit.folder).read_text()
    with pytest.raises(UnconfirmedGroups):
        repair(audit.folder, RepairSettings(group="auto"), out=tmp_path / "split")
    chosen = RepairSettings(group="auto", yes=True)
    repair(audit.folder, chosen, out=tmp_path / "split", workers=1, cache=None)
    with (tmp_path / "split" / "assignment.csv").open(newline="") as lines:
        parts = {(row["id"][:8], row["part"]) for row in csv.DictReader(lines)}
    assert len(parts) == 4
