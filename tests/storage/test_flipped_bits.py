"""One bit of a database flips: what is read is as it was, or the file is refused in one line."""

import random
import sqlite3

import pytest

from refusals import refused
from visleak.errors import VisleakError
from visleak.remedy.pool import Decision, Decisions
from visleak.storage import KeyValueStore
from visleak.verdicts import Ledger, Verdict, read_verdicts

#: Positions per file. Of verdicts every bit was tried once, of the others every fifth.
FLIPS = 60

VALUES = {"a": 1.5, "b": "text", "c": b"\x00\xff", "d": None}


def digest(number):
    return f"{number:032x}"


def judge(folder):
    with Ledger(folder) as ledger:
        for number in range(4):
            judgment = ("near", "different")[number % 2]
            ledger.add(Verdict.of(digest(number), digest(number + 9), judgment, "Ada"))
        ledger.undo("Ada")
        ledger.add(Verdict.of(digest(1), digest(10), "exact", "Ben", similarity=0.75))
    (folder / "verdicts.csv").unlink()
    return folder / "verdicts.sqlite"


def judged_again(folder):
    with Ledger(folder) as ledger:
        return ledger.standing()


def decide(folder):
    with Decisions(folder) as decisions:
        for number in range(3):
            pool, test = digest(number), digest(number + 9)
            given = ("test", "a.png", "b.png", "cat", "Ada", "person")
            decisions.reject(Decision("rejected", test, 0, pool, *given))
        decisions.undo("Ada")
    (folder / "replacements.csv").unlink()
    return folder / "replacements.sqlite"


def decided(folder):
    with Decisions(folder) as decisions:
        return decisions.all()


def measure(folder):
    with KeyValueStore(folder / "numbers.sqlite", "numbers") as store:
        store.add(VALUES)
    return folder / "numbers.sqlite"


def measured(folder):
    with KeyValueStore(folder / "numbers.sqlite", "numbers") as store:
        # a value that is not found is computed again
        return {**VALUES, **store.known(list(VALUES))}


@pytest.mark.parametrize(
    ("make", "read"),
    [(judge, read_verdicts), (judge, judged_again), (decide, decided), (measure, measured)],
    ids=["verdicts", "review", "replacements", "numbers"],
)
def test_no_flipped_bit_changes_what_is_read(tmp_path, make, read):
    file = make(tmp_path)
    data, whole = file.read_bytes(), read(tmp_path)
    held = [place for place, byte in enumerate(data) if byte]
    pick, refused = random.Random(7), list[str]()
    for _ in range(FLIPS):
        damaged = bytearray(data)
        damaged[pick.choice(held)] ^= 1 << pick.randrange(8)
        for left in tmp_path.iterdir():
            left.unlink()
        file.write_bytes(damaged)
        try:
            assert read(tmp_path) == whole
        except VisleakError as error:
            refused.append(str(error))
    assert len(refused) > FLIPS / 2
    assert all(str(file) in message for message in refused)


def test_a_ledger_of_an_earlier_version_is_read_and_taken_over(tmp_path):
    file = judge(tmp_path)
    whole = read_verdicts(tmp_path)
    with sqlite3.connect(file) as db:
        db.execute("ALTER TABLE verdicts DROP COLUMN digest")
    assert read_verdicts(tmp_path) == whole
    with Ledger(tmp_path) as ledger:
        assert ledger.standing() == whole
    with sqlite3.connect(file) as db:
        db.execute("UPDATE verdicts SET judgment = 'similar' WHERE number = 1")
    refused(VisleakError, r"verdicts\.sqlite cannot be read .* changed", tmp_path, read_verdicts)
