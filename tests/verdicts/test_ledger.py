"""The ledger: durable, undone in batches, safe under threads, processes and kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.errors import VisleakError
from visleak.records import GRADES
from visleak.storage.database import EVERY
from visleak.verdicts import Ledger, Verdict, read_verdicts
from visleak.verdicts.ledger import PLAIN, read_plain, write_plain


def digest(number: int) -> str:
    return f"{number:032x}"


def said(number: int, judgment: str = "near", reviewer: str = "Ada", **about: object) -> Verdict:
    return Verdict.of(digest(number), digest(number + 1), judgment, reviewer, **about)


def test_a_verdict_is_on_disk_when_add_returns(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        ledger.add(said(1))
        # another process would see it now, though the plain copy is not due yet
        assert read_verdicts(tmp_path) == ledger.standing()
        assert not (tmp_path / PLAIN).exists()
    assert read_plain(tmp_path / PLAIN) == read_verdicts(tmp_path)


def test_the_plain_copy_is_written_every_twenty(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        for number in range(19):
            ledger.add(said(number))
        assert not (tmp_path / PLAIN).exists()
        ledger.add(said(19))
        assert len(read_plain(tmp_path / PLAIN)) == 20


def test_undo_brings_back_what_stood_before(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        ledger.add(said(1, "near"))
        ledger.add(said(1, "different"))
        assert [v.judgment for v in ledger.standing()] == ["different"]
        assert [v.judgment for v in ledger.undo("Ada")] == ["different"]
        assert [v.judgment for v in ledger.standing()] == ["near"]
        ledger.undo("Ada")
        assert ledger.undo("Ada") == () == ledger.standing()
    assert read_plain(tmp_path / PLAIN) == ()


def test_undo_takes_back_a_whole_batch_and_nobody_elses(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        ledger.add(said(1, reviewer="Ben"))
        ledger.add(said(2), said(3))
        ledger.add(said(4, reviewer="Ben"))
        assert len(ledger.undo("Ada")) == 2
        assert {v.reviewer for v in ledger.standing()} == {"Ben"}


@given(st.lists(st.tuples(st.sampled_from(["Ada", "Ben", "undo Ada"]), st.integers(0, 3),
                          st.sampled_from(GRADES)), max_size=12))  # fmt: skip
def test_standing_equals_a_plain_history(steps: list[tuple[str, int, str]]) -> None:
    import tempfile

    history: list[Verdict] = []
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder)) as ledger:
        for who, number, judgment in steps:
            if who == "undo Ada":
                ledger.undo("Ada")
                mine = [index for index, v in enumerate(history) if v.reviewer == "Ada"]
                history = [v for index, v in enumerate(history) if [index] != mine[-1:]]
            else:
                history.append(said(number, judgment, who))
                ledger.add(history[-1])
        last = {(v.reviewer, v.key): v for v in history}
        assert {(v.reviewer, v.key): v for v in ledger.standing()} == last


def test_a_kill_loses_no_verdict_that_was_said(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from visleak.verdicts import Ledger, Verdict\n"
        "ledger = Ledger(Path(sys.argv[1]))\n"
        "for n in range(100000):\n"
        "    ledger.add(Verdict.of(f'{n:032x}', f'{n + 1:032x}', 'near', 'Ada'))\n"
        "    print(n, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for _ in range(31):
        process.stdout.readline()
    time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    rest = process.stdout.read().split()
    process.wait()
    process.stdout.close()
    told = int(rest[-1]) + 1 if rest else 31
    assert len(read_verdicts(tmp_path)) >= told
    with Ledger(tmp_path) as ledger:
        ledger.add(said(500_000))
    assert len(read_plain(tmp_path / PLAIN)) > told


def test_a_folder_with_the_plain_copy_alone_begins_with_it(tmp_path: Path) -> None:
    write_plain(tmp_path / PLAIN, [said(1), said(2, "exact", "Ben", similarity=0.5)])
    with Ledger(tmp_path) as ledger:
        ledger.add(said(3))
        assert len(ledger.standing()) == 3
    assert len(read_plain(tmp_path / PLAIN)) == 3


@given(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
    st.none() | st.floats(-1, 1),
)
def test_the_plain_copy_keeps_every_character(name: str, similarity: float | None) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / PLAIN
        verdict = said(1, query=name, reference=f"={name}", similarity=similarity)
        write_plain(path, [verdict])
        assert read_plain(path) == (verdict,)


def test_damage_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / PLAIN
    write_plain(path, [said(1), said(2)])
    path.write_text(path.read_text().replace(f"{digest(2)},{digest(3)},near", "x,y,near"))
    with pytest.raises(VisleakError, match=r"verdicts\.csv, line 3: .* got 'x'"):
        read_verdicts(tmp_path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(VisleakError, match="has no column 'first'"):
        read_verdicts(tmp_path)


def test_the_copy_does_not_stand_for_a_damaged_file(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        ledger.add(*map(said, range(EVERY)))
        ledger.add(said(EVERY))
        # a kill here leaves a copy without the last verdict
        assert (len(read_verdicts(tmp_path)), len(read_plain(tmp_path / PLAIN))) == (21, 20)
    for name in ("verdicts.sqlite-wal", "verdicts.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "verdicts.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(VisleakError, match=r"cannot be read .* may lack the last 19"):
        read_verdicts(tmp_path)
    with pytest.raises(VisleakError, match=r"cannot be used .* resume from verdicts\.csv"):
        Ledger(tmp_path)
    (tmp_path / "verdicts.sqlite").unlink()
    assert len(read_verdicts(tmp_path)) == 21


def test_a_kill_before_the_first_table_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "verdicts.sqlite").touch()
    assert read_verdicts(tmp_path) == ()
    write_plain(tmp_path / PLAIN, [said(1)])
    assert read_verdicts(tmp_path) == (said(1, time=read_verdicts(tmp_path)[0].time),)
    with Ledger(tmp_path) as ledger:
        assert len(ledger.standing()) == 1


def test_reading_leaves_no_file_behind(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        ledger.add(said(1))
        with Ledger(tmp_path) as other:
            other.add(said(2))
        # the other one closed first, and left this one its log
        ledger.add(said(3))
    assert len(read_verdicts(tmp_path)) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["verdicts.csv", "verdicts.sqlite"]
