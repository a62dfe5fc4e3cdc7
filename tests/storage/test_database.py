"""Key-value files: whole batches, errors in one line."""

import functools
import sqlite3

import pytest

from refusals import refused
from visleak.errors import VisleakError
from visleak.storage import Database, KeyValueStore


def test_values_of_any_kind_come_back(tmp_path):
    values = {"a": 0.1 + 0.2, "b": "text \x00 日本", "c": b"\x00\xff", "d": None}
    with KeyValueStore(tmp_path / "s.sqlite", "numbers") as store:
        store.add(values)
    with KeyValueStore(tmp_path / "s.sqlite", "numbers") as store:
        assert store.known([*values, "e"]) == values
    assert [path.name for path in tmp_path.iterdir()] == ["s.sqlite"]


def test_what_is_present_stays_unless_replaced(tmp_path):
    with KeyValueStore(tmp_path / "s.sqlite", "numbers") as store:
        store.add({"a": 1.0})
        store.add({"a": 2.0, "b": 3.0})
        assert store.known(["a", "b"]) == {"a": 1.0, "b": 3.0}
        store.add({"a": 2.0}, replace=True)
        assert store.known(["a"]) == {"a": 2.0}
        # of a batch all or nothing, and thousands at once
        refused(VisleakError, "cannot be used", {"c": 1.0, "d": object()}, store.add)
        assert store.known(["c"]) == {}
        values = {f"k{number}": number for number in range(1203)}
        store.add(values)
        assert store.known(list(values)) == values


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
