"""Sources that fail, or change, at any read of an audit: no answer that is wrong."""

import contextlib
import itertools
from dataclasses import dataclass, replace

import cv2
import pytest
from frames import textured

from visleak import audit
from visleak.errors import VisleakError
from visleak.formats import open_images
from visleak.records import Opener, Unreadable

FAULTS = ("away from then on", "fails once", "another image", "cut short")


@dataclass
class Failing:
    """An opener; of all that share ``reads``, a list of their number, one read fails."""

    opener: Opener
    reads: list[int]
    fails_at: int
    fault: str

    def read(self, positions):
        for data in self.opener.read(positions):
            assert isinstance(data, bytes)
            at = len(self.reads)
            self.reads.append(at)
            due = at >= self.fails_at if self.fault == FAULTS[0] else at == self.fails_at
            spoilt = {
                "away from then on": Unreadable("missing"),
                "fails once": Unreadable("io-error", "the disk says no"),
                "another image": jpeg(99),
                "cut short": data[: len(data) // 2],
            }
            yield spoilt[self.fault] if due else data


def jpeg(seed, quality=92):
    return bytes(cv2.imencode(".jpg", textured(seed, 160), [cv2.IMWRITE_JPEG_QUALITY, quality])[1])


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Train images 0 and 1; a test image that is a copy of 0, and another one."""
    base = tmp_path_factory.mktemp("sets")
    for side, seeds, quality in (("train", (0, 1), 92), ("test", (0, 2), 60)):
        (base / side).mkdir()
        for seed in seeds:
            (base / side / f"{seed}.jpg").write_bytes(jpeg(seed, quality))
    return base


def leaks(result):
    rows = result.pairs(grade="near").to_pylist()
    return {(row["query"], row["reference"]) for row in rows if row["coverage"] != "within"}


TRUE = {("0.jpg", "0.jpg")}


def test_an_audit_of_a_source_that_was_away_is_not_finished(folders, tmp_path):
    """The training folder is unmounted after the first pass, and mounted again later."""
    train, away, out = folders / "train", folders / "away", tmp_path / "audit"

    def unmount(step, done, total):
        if step.startswith("comparing") and train.exists():
            train.rename(away)

    sources = [str(folders / "test"), str(train)]
    with pytest.raises(VisleakError, match=r"none of its 2 images could be read \(2 gone\)"):
        audit(*sources, out=out, cache=None, workers=1, progress=unmount)
    away.rename(train)
    assert leaks(audit(*sources, out=out, cache=None, workers=1)) == TRUE


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_at_any_read_gives_a_wrong_result(folders, fault):
    # every second read, from the first or the second on, until none fails
    for fails_at in itertools.count(FAULTS.index(fault) % 2, 2):
        reads = []
        test, train = (
            replace(images, opener=Failing(images.opener, reads, fails_at, fault))
            for images in (open_images(folders / name, name=name) for name in ("test", "train"))
        )
        # it refuses, or counts
        with contextlib.suppress(VisleakError):
            check(audit(test, train, cache=None, workers=1), f"{fault} at read {fails_at}")
        if len(reads) <= fails_at:
            break
    assert len(reads) > 3 * 2 * 2  # for fingerprints, local features and verification


def check(result, said):
    """Every leak is listed, or is of an unreadable image; rates exclude it."""
    away = {(each.set, each.id) for each in result.unreadable()}
    expected = {(q, r) for q, r in TRUE if ("test", q) not in away and ("train", r) not in away}
    found = leaks(result)
    # an image that was another one from the beginning is that one
    assert found <= TRUE, said
    if "another image at read" not in said or away:
        assert found == expected, said
    rate = result.rate()
    assert rate.total == 2 - len([side for side, _ in away if side == "test"]), said
    lost = {each.reason for each in result.unreadable()} & {"gone", "changed"}
    assert bool(lost) == bool(result.unfinished), said
    assert ("unfinished" in result.headline) == bool(result.unfinished), said
