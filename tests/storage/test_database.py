"""Key-value files: whole batches, errors in one line."""

import functools
import random
import sqlite3

import pytest

from refusals import refused
from visleak.errors import VisleakError
from visleak.remedy.pool import Decision, Decisions
from visleak.storage import Database, KeyValueStore
from visleak.verdicts import Ledger, Verdict, read_verdicts


def test_what_is_present_stays_unless_replaced(tmp_path):
    with KeyValueStore(tmp_path / "s.sqlite", "numbers") as store:
        store.add({"a": 0.1 + 0.2, "b": "text \x00 日本"})
        store.add({"a": 2.0, "c": 3.0})
        assert store.known(["a", "b", "c"]) == {"a": 0.1 + 0.2, "b": "text \x00 日本", "c": 3.0}
        store.add({"a": 2.0}, replace=True)
        assert store.known(["a"]) == {"a": 2.0}
        # of a batch all or nothing, and thousands at once
        refused(VisleakError, "cannot be used", {"d": 1.0, "e": object()}, store.add)
        assert store.known(["d"]) == {}
        values = {f"k{number}": number for number in range(1203)}
        store.add(values)
        assert store.known(list(values)) == values
    assert [path.name for path in tmp_path.iterdir()] == ["s.sqlite"]


def test_a_full_disk_and_a_damaged_file_are_one_line(tmp_path):
    path = tmp_path / "d.sqlite"
    with Database(path, "CREATE TABLE t (n)", "remove it") as db:
        ((pages,),) = db.select("PRAGMA page_count")
        list(db.select(f"PRAGMA max_page_count = {pages}"))
        with pytest.raises(VisleakError, match=r"full.*remove it"), db.writing() as connection:
            connection.executemany("INSERT INTO t (n) VALUES (?)", [("x" * 5000,)] * 100)
        assert list(db.select("SELECT count(*) FROM t")) == [(0,)]
    path.write_bytes(b"no database at all" * 100)
    words = rf"^{path} cannot be used \(file is not a database\); .*remove it$"
    refused(VisleakError, words, path, Database, tables="CREATE TABLE t (n)", hint="remove it")


def test_two_processes_may_write(tmp_path):
    path = tmp_path / "s.sqlite"
    with KeyValueStore(path, "numbers") as one, KeyValueStore(path, "numbers") as other:
        one.add({"a": 1.0})
        other.add({"b": 2.0})
        assert one.known(["a", "b"]) == other.known(["a", "b"]) == {"a": 1.0, "b": 2.0}
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


class Refusing(sqlite3.Connection):
    """A file system without shared memory."""

    def execute(self, sql, *values):
        if "journal_mode" in sql:
            raise sqlite3.OperationalError("locking protocol")
        return super().execute(sql, *values)


def test_works_where_the_write_ahead_log_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Refusing))
    with Database(tmp_path / "d", "CREATE TABLE t (a)", "", log=True) as database:
        with database.writing() as db:
            db.execute("INSERT INTO t (a) VALUES (1)")
        assert list(database.select("SELECT a FROM t")) == [(1,)]
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


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
    [(judge, read_verdicts), (decide, decided), (measure, measured)],
    ids=["verdicts", "replacements", "numbers"],
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
