"""Sources that fail, or change, at any read of an audit: no answer that is wrong."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from frames import textured
from PIL import Image

from visleak import audit
from visleak.auditing import Audit
from visleak.errors import VisleakError
from visleak.formats import open_images
from visleak.records import Bytes8, ImageSet, Opener, Unreadable

#: Images of either side.
COUNT = 2

FAULTS = ("away from then on", "fails once", "another image", "cut short")


@dataclass
class Reads:
    """Counts the reads of all openers that share it; one of them fails."""

    fails_at: int
    done: int = 0


@dataclass
class Failing:
    """An opener whose n-th read of an image fails in some way."""

    opener: Opener
    reads: Reads
    fault: str

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        for data in self.opener.read(positions):
            assert isinstance(data, bytes)
            at, first = self.reads.done, self.reads.fails_at
            self.reads.done += 1
            due = at >= first if self.fault == FAULTS[0] else at == first
            spoilt = {
                "away from then on": Unreadable("missing"),
                "fails once": Unreadable("io-error", "the disk says no"),
                "another image": jpeg(99),
                "cut short": data[: len(data) // 2],
            }
            yield spoilt[self.fault] if due else data


def jpeg(seed: int, quality: int = 92) -> bytes:
    out = io.BytesIO()
    Image.fromarray(textured(seed, 160)).save(out, "JPEG", quality=quality)
    return out.getvalue()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train images 0 and 1; a test image that is a copy of 0, and another one."""
    base = tmp_path_factory.mktemp("sets")
    for side, seeds, quality in (("train", (0, 1), 92), ("test", (0, 2), 60)):
        (base / side).mkdir()
        for seed in seeds:
            (base / side / f"{seed}.jpg").write_bytes(jpeg(seed, quality))
    return base


def sets_of(folders: Path, fails_at: int, fault: str) -> tuple[Reads, ImageSet, ImageSet]:
    reads = Reads(fails_at)
    test, train = (open_images(folders / name, name=name) for name in ("test", "train"))
    sets = (replace(s, opener=Failing(s.opener, reads, fault)) for s in (test, train))
    return reads, *sets


def leaks(result: Audit) -> set[tuple[str, str]]:
    rows = result.pairs(grade="near").to_pylist()
    return {(row["query"], row["reference"]) for row in rows if row["coverage"] != "within"}


TRUE = {("0.jpg", "0.jpg")}


def test_without_a_fault_the_copies_are_found(folders: Path) -> None:
    reads, test, train = sets_of(folders, 10**9, FAULTS[0])
    result = audit(test, train, cache=None, workers=1)
    assert leaks(result) == TRUE
    assert result.unfinished == 0
    assert reads.done > 3 * 2 * COUNT  # for fingerprints, local features and verification


def test_an_audit_of_a_source_that_was_away_is_not_finished(folders: Path, tmp_path: Path) -> None:
    """The training folder is unmounted after the first pass, and mounted again later."""
    train, away, out = folders / "train", folders / "away", tmp_path / "audit"

    def unmount(step: str, done: int, total: int) -> None:
        if step.startswith("comparing") and train.exists():
            train.rename(away)

    sources = [str(folders / "test"), str(train)]
    with pytest.raises(VisleakError, match=r"none of its 2 images could be read \(2 gone\)"):
        audit(*sources, out=out, cache=None, workers=1, progress=unmount)
    away.rename(train)
    assert leaks(audit(*sources, out=out, cache=None, workers=1)) == TRUE


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_at_any_read_gives_a_wrong_result(folders: Path, fault: str) -> None:
    # every second read, from the first or the second on
    fails_at, reads = FAULTS.index(fault) % 2, Reads(0)
    while fails_at == FAULTS.index(fault) % 2 or reads.done >= fails_at:
        reads, test, train = sets_of(folders, fails_at, fault)
        said = f"{fault} at read {fails_at}"
        # it refuses, or counts
        with contextlib.suppress(VisleakError):
            check(audit(test, train, cache=None, workers=1), said)
        fails_at += 2


def check(result: Audit, said: str) -> None:
    """Every leak is listed, or is of an unreadable image; rates exclude it."""
    away = {(each.set, each.id) for each in result.unreadable()}
    expected = {(q, r) for q, r in TRUE if ("test", q) not in away and ("train", r) not in away}
    found = leaks(result)
    # an image that was another one from the beginning is that one
    assert found <= TRUE, said
    if "another image at read" not in said or away:
        assert found == expected, said
    rate = result.rate()
    assert rate.total == COUNT - len([side for side, _ in away if side == "test"]), said
    lost = {each.reason for each in result.unreadable()} & {"gone", "changed"}
    assert bool(lost) == bool(result.unfinished), said
    assert ("unfinished" in result.headline) == bool(result.unfinished), said
