"""The cache under several processes, kills, damage and odd file systems."""

import functools
import os
import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from visleak.storage.cache import Cache, default_folder, file_in

WRITER = """
import sys
from pathlib import Path
from visleak.storage.cache import Cache

with Cache(Path(sys.argv[1])) as cache:
    print("open", flush=True)
    for batch in range(10**6):
        cache.put(b"maker", [(b"%d-%d" % (batch, n), b"k" * 40) for n in range(50)])
"""


def test_what_was_put_comes_back(tmp_path):
    """The first writer of a key wins."""
    folder = tmp_path / "deep" / "er"
    entries = {b"k": b"1", b"": b"", b"\x00\xff": bytes(range(256))}
    with Cache(folder) as one, Cache(folder) as other:
        one.put(b"a", entries.items())
        other.put(b"a", [(b"k", b"second")])
        other.put(b"b", [(b"k", b"2")])
    with Cache(folder) as cache:
        assert cache.get(b"a", [*entries, b"no"]) == entries
        assert cache.get(b"b", [b"k"]) == {b"k": b"2"}
        assert cache.get(b"c", [b"k"]) == {}
        assert cache.get(b"a", []) == {}


def test_a_failing_put_leaves_nothing(tmp_path):
    """One transaction: half a chunk would be taken for a whole one."""

    def entries():
        yield b"k", b"v"
        raise RuntimeError("the chunk broke")

    with Cache(tmp_path) as cache:
        with pytest.raises(RuntimeError, match="the chunk broke"):
            cache.put(b"m", entries())
        assert cache.get(b"m", [b"k"]) == {}


def test_a_kill_while_writing_leaves_a_readable_cache(tmp_path):
    for wait in (0.02, 0.1):
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "open\n"
            time.sleep(wait)
            process.kill()
        with Cache(tmp_path) as cache:
            for batch in range(1000):
                keys = [b"%d-%d" % (batch, n) for n in range(50)]
                assert len(cache.get(b"maker", keys)) in (0, 50)
            cache.put(b"m", [(b"after", b"1")])
            assert cache.get(b"m", [b"after"]) == {b"after": b"1"}


@pytest.mark.parametrize("content", [b"not a database at all, only text " * 99, os.urandom(8192)])
def test_a_damaged_file_is_set_aside(tmp_path, content):
    messages = []
    damaged = file_in(tmp_path)
    damaged.write_bytes(content)
    with Cache(tmp_path, messages.append) as cache:
        cache.put(b"m", [(b"k", b"v")])
        assert cache.get(b"m", [b"k"]) == {b"k": b"v"}
    assert damaged.with_suffix(".damaged").read_bytes() == content
    (message,) = messages
    assert str(damaged) in message
    assert "\n" not in message


def filled(folder):
    values = random.Random(0).randbytes
    entries = {b"%05d" % n: values(200) for n in range(3000)}
    with Cache(folder) as cache:
        cache.put(b"m", entries.items())
    return entries


def test_damage_found_while_reading_begins_a_new_file(tmp_path):
    """Pages may rot behind a good header; other processes go on, and nothing wrong comes back."""
    entries, messages = filled(tmp_path), []
    path = file_in(tmp_path)
    whole = bytearray(path.read_bytes())
    whole[8192:] = os.urandom(len(whole) - 8192)
    with Cache(tmp_path, messages.append) as cache, Cache(tmp_path) as other:
        path.write_bytes(whole)
        found = cache.get(b"m", list(entries))
        assert found.items() <= entries.items()
        assert other.get(b"m", list(entries)).items() <= entries.items()
        cache.put(b"m", entries.items())
        assert cache.get(b"m", list(entries)) == entries
    assert len(messages) <= 1
    with Cache(tmp_path) as cache:
        assert cache.get(b"m", list(entries)) == entries


def test_no_flipped_bit_comes_back(tmp_path):
    entries = filled(tmp_path)
    path = file_in(tmp_path)
    whole = path.read_bytes()
    rng = random.Random(1)
    missing = 0
    for at in [*range(0, 120, 12), *(rng.randrange(len(whole)) for _ in range(40))]:
        spoilt = bytearray(whole)
        spoilt[at] ^= 1 << rng.randrange(8)
        for left in tmp_path.iterdir():
            left.unlink()
        path.write_bytes(spoilt)
        with Cache(tmp_path) as cache:
            found = cache.get(b"m", list(entries))
            assert found.items() <= entries.items(), at
            missing += len(found) < len(entries)
            cache.put(b"m", [each for each in entries.items() if each[0] not in found])
        with Cache(tmp_path) as cache:
            assert cache.get(b"m", list(entries)).items() <= entries.items(), at
    assert missing > 12


def test_a_folder_that_cannot_be_used_costs_nothing_but_time(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "other").mkdir()
    file_in(tmp_path / "other").mkdir()
    for folder in (tmp_path / "file" / "cache", tmp_path / "other"):
        messages = []
        with Cache(folder, messages.append) as cache:
            assert not cache.usable
            cache.put(b"m", [(b"k", b"v")])
            assert cache.get(b"m", [b"k"]) == {}
        (message,) = messages
        assert str(folder) in message
        assert "\n" not in message


class Full(sqlite3.Connection):
    """A disk that is full."""

    def executemany(self, statement, values):
        raise sqlite3.OperationalError("database or disk is full")


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Full))
    messages = []
    with Cache(tmp_path, messages.append) as cache:
        for _ in range(2):
            cache.put(b"m", [(b"k", b"v")])
        assert not cache.usable
    (message,) = messages
    assert "database or disk is full" in message


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"VISLEAK_CACHE": "/here", "XDG_CACHE_HOME": "/there"}, "/here"),
        ("linux", {"XDG_CACHE_HOME": "/there"}, "/there/visleak"),
        ("linux", {}, "/home/ann/.cache/visleak"),
        ("darwin", {}, "/home/ann/Library/Caches/visleak"),
    ],
)
def test_the_default_folder(monkeypatch, platform, variables, expected):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("HOME", "/home/ann")
    for name in ("VISLEAK_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, variables.get(name, ""))
    assert default_folder() == Path(expected)
    for name in ("VISLEAK_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError("no home directory")))
    assert default_folder() is None
