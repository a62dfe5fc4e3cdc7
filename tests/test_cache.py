"""The cache under several processes, kills, damage and odd file systems."""

from __future__ import annotations

import functools
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from visleak import cache as module
from visleak.cache import FILE, Cache, default_folder
from visleak.errors import VisleakError

WRITER = """
import sys
from pathlib import Path
from visleak.cache import Cache

folder, me, batches = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with Cache(folder) as cache:
    print("open", flush=True)
    for batch in range(batches):
        keys = [b"%d-%d" % (batch, n) for n in range(50)]
        cache.put(b"maker", [(key, me.encode() * 40) for key in keys])
        assert len(cache.get(b"maker", keys)) == 50
"""


def writer(folder: Path, name: str, batches: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), name, str(batches)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def batches_in(cache: Cache) -> list[int]:
    """Return how many entries of each of the first thousand batches are there."""
    keys = [[b"%d-%d" % (batch, n) for n in range(50)] for batch in range(1000)]
    return [len(cache.get(b"maker", one)) for one in keys]


def test_what_was_put_comes_back(tmp_path: Path) -> None:
    """By maker and key, also after closing; unknown keys are left out."""
    with Cache(tmp_path / "deep" / "er") as cache:
        cache.put(b"a", [(b"k", b"1"), (b"", b""), (b"\x00\xff", bytes(range(256)))])
        cache.put(b"b", [(b"k", b"2")])
    with Cache(tmp_path / "deep" / "er") as cache:
        assert cache.get(b"a", [b"k", b"", b"\x00\xff", b"no"]) == {
            b"k": b"1",
            b"": b"",
            b"\x00\xff": bytes(range(256)),
        }
        assert cache.get(b"b", [b"k"]) == {b"k": b"2"}
        assert cache.get(b"c", [b"k"]) == {}
        assert cache.get(b"a", []) == {}


@pytest.mark.parametrize("count", [499, 500, 501, 2000])
def test_many_keys_at_once(tmp_path: Path, count: int) -> None:
    """More than SQLite takes in one statement; asked for twice, found once."""
    entries = [(n.to_bytes(4, "big"), b"v%d" % n) for n in range(count)]
    with Cache(tmp_path) as cache:
        cache.put(b"m", entries)
        keys = [key for key, _ in entries]
        assert cache.get(b"m", [*keys, *keys, b"none"]) == dict(entries)


def test_the_first_writer_of_a_key_wins(tmp_path: Path) -> None:
    """All write the same, so nothing need be rewritten."""
    with Cache(tmp_path) as one, Cache(tmp_path) as other:
        one.put(b"m", [(b"k", b"first")])
        other.put(b"m", [(b"k", b"second"), (b"l", b"new")])
        assert one.get(b"m", [b"k", b"l"]) == {b"k": b"first", b"l": b"new"}


def test_a_failing_put_leaves_nothing(tmp_path: Path) -> None:
    """One transaction: half a chunk would be taken for a whole one."""

    def entries():
        yield b"k", b"v"
        raise RuntimeError("the chunk broke")

    with Cache(tmp_path) as cache:
        with pytest.raises(RuntimeError, match="the chunk broke"):
            cache.put(b"m", entries())
        assert cache.get(b"m", [b"k"]) == {}


def test_several_processes_at_once(tmp_path: Path) -> None:
    """They open a fresh cache at the same moment and write the same keys; nobody fails."""
    for round_ in range(3):
        folder = tmp_path / str(round_)
        running = [writer(folder, name, 20) for name in "abc"]
        for process in running:
            _, said = process.communicate(timeout=60)
            assert (process.returncode, said) == (0, "")
        with Cache(folder) as cache:
            assert batches_in(cache) == [50] * 20 + [0] * 980


def test_a_kill_while_writing_leaves_a_readable_cache(tmp_path: Path) -> None:
    """Every chunk is there whole or not at all, and the next run writes on."""
    for wait in (0.02, 0.1):
        process = writer(tmp_path, "k", 10**6)
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        with Cache(tmp_path) as cache:
            assert set(batches_in(cache)) <= {0, 50}
            cache.put(b"m", [(b"after", b"1")])
            assert cache.get(b"m", [b"after"]) == {b"after": b"1"}


@pytest.mark.parametrize("content", [b"not a database at all, only text " * 99, os.urandom(8192)])
def test_a_damaged_file_is_set_aside(tmp_path: Path, content: bytes) -> None:
    """Nothing in it is unique: go on with a new one, and keep the old for whoever wonders."""
    (tmp_path / FILE).write_bytes(content)
    with Cache(tmp_path) as cache:
        cache.put(b"m", [(b"k", b"v")])
        assert cache.get(b"m", [b"k"]) == {b"k": b"v"}
    assert (tmp_path / FILE).with_suffix(".damaged").read_bytes() == content


def test_damage_found_while_reading_says_what_to_do(tmp_path: Path) -> None:
    """Pages may rot behind a good header: one line instead of a trace."""
    with Cache(tmp_path) as cache:
        values = random.Random(0).randbytes
        cache.put(b"m", [(b"%05d" % n, values(200)) for n in range(3000)])
    path = tmp_path / FILE
    whole = bytearray(path.read_bytes())
    whole[8192:] = os.urandom(len(whole) - 8192)
    path.write_bytes(whole)
    with Cache(tmp_path) as cache, pytest.raises(VisleakError) as caught:
        cache.get(b"m", [b"%05d" % n for n in range(3000)])
    said = str(caught.value)
    assert said.startswith(f"the cache {path} cannot be used (")
    assert said.endswith("delete it (no answer changes), or go without: --cache off")
    assert "\n" not in said


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """A read-only home, a file in the way: one line with the ways out."""
    (tmp_path / "file").write_text("")
    with pytest.raises(VisleakError) as caught:
        Cache(tmp_path / "file" / "cache")
    said = str(caught.value)
    assert said.startswith(f"the cache folder {tmp_path / 'file' / 'cache'} cannot be used (")
    assert said.endswith(
        "choose another with --cache DIR or VISLEAK_CACHE, or go without: --cache off"
    )
    assert caught.value.exit_code == 1


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """SQLite's own words are kept in the line."""
    (tmp_path / FILE).mkdir()
    with pytest.raises(VisleakError, match=r"cannot be used \(unable to open database file\)"):
        Cache(tmp_path)


class Refusing(sqlite3.Connection):
    """A file system without shared memory."""

    def execute(self, statement, *values):
        if "journal_mode" in statement:
            raise sqlite3.OperationalError("locking protocol")
        return super().execute(statement, *values)


def test_works_where_the_write_ahead_log_is_refused(tmp_path: Path, monkeypatch) -> None:
    """Network file systems refuse it; the plain journal is safe too."""
    connect = functools.partial(sqlite3.connect, factory=Refusing)
    monkeypatch.setattr(module.sqlite3, "connect", connect)
    with Cache(tmp_path) as cache:
        cache.put(b"m", [(b"k", b"v")])
        assert cache.get(b"m", [b"k"]) == {b"k": b"v"}
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


class Full(sqlite3.Connection):
    """A disk that is full."""

    def executemany(self, statement, values):
        raise sqlite3.OperationalError("database or disk is full")


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch) -> None:
    """It ends the run with exit code 1, not with a trace."""
    monkeypatch.setattr(module.sqlite3, "connect", functools.partial(sqlite3.connect, factory=Full))
    with Cache(tmp_path) as cache, pytest.raises(VisleakError, match="database or disk is full"):
        cache.put(b"m", [(b"k", b"v")])


def test_deleting_the_file_is_allowed(tmp_path: Path) -> None:
    """It only costs time."""
    with Cache(tmp_path) as cache:
        cache.put(b"m", [(b"k", b"v")])
    for path in tmp_path.iterdir():
        path.unlink()
    with Cache(tmp_path) as cache:
        assert cache.get(b"m", [b"k"]) == {}


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"VISLEAK_CACHE": "/here", "XDG_CACHE_HOME": "/there"}, "/here"),
        ("linux", {"XDG_CACHE_HOME": "/there"}, "/there/visleak"),
        ("linux", {}, "/home/ann/.cache/visleak"),
        ("linux", {"VISLEAK_CACHE": "", "XDG_CACHE_HOME": ""}, "/home/ann/.cache/visleak"),
        ("darwin", {}, "/home/ann/Library/Caches/visleak"),
        ("darwin", {"VISLEAK_CACHE": "/here"}, "/here"),
    ],
)
def test_the_default_folder(monkeypatch, platform, variables, expected) -> None:
    """The variable, else where the system keeps caches."""
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("HOME", "/home/ann")
    for name in ("VISLEAK_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert default_folder() == Path(expected)
