"""The audit folder: whole files or none, refusals in one line, hostile names kept."""

import csv
import os
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusals import refused
from visleak.errors import UsageError, VisleakError
from visleak.rates import Rate
from visleak.records import Problem
from visleak.storage import (
    AUDIT,
    PAIRS,
    PAIRS_SCHEMA,
    UNREADABLE,
    AuditSummary,
    SetSummary,
    TotalSummary,
    csv_cell,
    csv_text,
    open_rows,
    read_problems,
    read_summary,
    read_table,
    replacing,
    write_csv,
    write_json,
    write_problems,
    write_tables,
    write_text,
)

SMALL = pa.schema([("id", pa.string()), ("value", pa.float32())])


def table(count=5, start=0):
    ids = [f"i{n}" for n in range(start, start + count)]
    return pa.table({"id": ids, "value": np.arange(count, dtype=np.float32)}, SMALL)


def broken(first):
    yield first
    raise RuntimeError("broke")


def nothing(path):
    with replacing(path):
        pass


@pytest.mark.parametrize(
    "write",
    [
        lambda path: write_tables(path, SMALL, broken(table())),
        lambda path: write_csv(path, ("id",), broken(("a",))),
        lambda path: write_json(path, {"value": float("nan")}),
        nothing,
    ],
    ids=["tables", "csv", "nan", "nothing"],
)
def test_a_failing_write_changes_nothing(tmp_path, write):
    path = tmp_path / "file"
    for before in (None, "old"):
        if before:
            path.write_text(before)
        with pytest.raises((RuntimeError, ValueError, FileNotFoundError)):
            write(path)
        assert (path.read_text() if path.exists() else None) == before
        assert list(tmp_path.iterdir()) == ([path] if before else [])


READER = """
import sys
from pathlib import Path
from visleak.storage import write_text

while True:
    for letter in "ab":
        write_text(Path(sys.argv[1]), letter * 200_000)
"""


def test_a_reader_never_sees_half_a_file(tmp_path):
    path = tmp_path / "file"
    write_text(path, "a" * 200_000)
    process = subprocess.Popen([sys.executable, "-c", READER, str(path)])
    try:
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            assert path.read_text() in ("a" * 200_000, "b" * 200_000)
    finally:
        process.kill()
        process.wait()
    assert path.read_text() in ("a" * 200_000, "b" * 200_000)


def test_tables_are_row_groups_of_one_file(tmp_path):
    path = tmp_path / "t.parquet"
    wide = pa.table({"id": pa.array(["x"]), "value": pa.array([2], pa.int64())})
    assert write_tables(path, SMALL, [table(), table(3, 5), wide]) == 9
    assert pq.ParquetFile(path).num_row_groups == 3
    got = read_table(tmp_path, "t.parquet")
    assert got.equals(pa.concat_tables([table(), table(3, 5), wide.cast(SMALL)]))
    assert read_table(tmp_path, "t.parquet", ["value"]).column_names == ["value"]
    assert write_tables(path, PAIRS_SCHEMA, []) == 0
    assert read_table(tmp_path, "t.parquet").schema.equals(PAIRS_SCHEMA)


@pytest.mark.parametrize("content", [b"", b"words " * 50, "cut", None])
def test_a_damaged_or_missing_table_is_one_line(tmp_path, content):
    path = tmp_path / PAIRS
    write_tables(path, SMALL, [table()])
    if content is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-30] if content == "cut" else content)
    words = rf"^{path} cannot be read \(.*run the audit again with --force$"
    refused(VisleakError, words, tmp_path, read_table, name=path.name)


def test_the_summary_comes_back(tmp_path):
    odd = SetSummary("\u00e9\u2028\x00", "\udce9.png", ("<img src=x>",), options={"a": "b"})
    rates = {"hard": Rate.of(1, 3), "soft": Rate.of(0, 0), "near": None}
    value = AuditSummary(sets=(odd,), totals=(TotalSummary("t", "one", rates),))
    value.save(tmp_path)
    back = read_summary(tmp_path)
    assert replace(back, digest=None).as_dict() == value.as_dict()
    assert back.digest is not None
    assert back.sets == value.sets
    assert back.totals[0].rates["hard"] == rates["hard"]
    assert "\u00e9" in (tmp_path / AUDIT).read_text("utf-8")


def test_without_a_finished_audit_the_nearest_one_is_named(tmp_path):
    refused(UsageError, r"holds no finished audit .*run `visleak audit`", tmp_path, read_summary)
    folder = tmp_path / "data" / "audit"
    folder.mkdir(parents=True)
    for name in (AUDIT, "report.html"):
        (folder / name).write_text("{}")
        refused(UsageError, f"give its folder, {folder}$", folder / name, read_summary)
    refused(UsageError, f"did you mean {folder}", folder.parent, read_summary)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"schema": 1', r"is damaged \(Expecting ',' delimiter.*again with --force$"),
        (b"\xff\xfe\x00", r"is damaged \('utf-8' codec can't decode"),
        (b"[" * 100_000, r"is damaged \("),
        (b'{"schema": "1"}', "is not an audit's summary"),
        (b'{"schema": 1, "comparisons": [3]}', "is damaged"),
        (b'{"schema": 1, "totals": [{"rates": {"hard": {"count": 1}}}]}', "is damaged"),
        (b'{"schema": 1, "settings": {"views": "some"}}', "is damaged"),
        (b'{"schema": 2}', "schema 2, .*upgrade visleak"),
    ],
)
def test_a_damaged_summary_is_one_line(tmp_path, content, said):
    """Wrong types never reach a reader."""
    (tmp_path / AUDIT).write_bytes(content)
    refused(VisleakError, f"^{tmp_path / AUDIT} .*{said}", tmp_path, read_summary)


@given(st.text() | st.text("'=+-@\t\rx", max_size=6))
def test_quoting_is_undone(text):
    cell = csv_cell(text)
    assert csv_text(cell) == text
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))


@given(st.lists(st.text(st.characters(codec="utf-8")) | st.text("'=-\r\n\0,\" x"), max_size=5))
def test_any_text_comes_back(tmp_path_factory, texts):
    path = tmp_path_factory.getbasetemp() / UNREADABLE
    problems = tuple(Problem("s", text, text, "empty", text) for text in sorted(texts))
    write_problems(path, problems)
    assert read_problems(path) == problems


def test_names_that_are_not_utf8_are_escaped(tmp_path):
    """A Latin-1 file name has lone surrogates in Python: they are written out, never a crash."""
    name = os.fsdecode(b"caf\xe9.png")
    assert name == "caf\udce9.png"
    write_problems(tmp_path / UNREADABLE, [Problem("s", name, name, "missing", "")])
    (got,) = read_problems(tmp_path / UNREADABLE)
    assert (got.id, got.locator) == (r"caf\udce9.png",) * 2


def test_any_reader_of_csv_agrees(tmp_path):
    write_csv(tmp_path / "f.csv", ("a", "b"), [("1,2", 'say "hi"'), ("=x", "y\nz")])
    with (tmp_path / "f.csv").open(newline="") as lines:
        assert list(csv.reader(lines)) == [["a", "b"], ["1,2", 'say "hi"'], ["'=x", "y\nz"]]
    write_problems(tmp_path / UNREADABLE, [])
    # an empty file would look like one that was not written
    assert (tmp_path / UNREADABLE).read_text() == "set,id,locator,reason,detail\n"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"set,id\nx,y\n", b""])
def test_a_damaged_list_of_problems_is_one_line(tmp_path, content):
    path = tmp_path / UNREADABLE
    path.write_bytes(content)
    refused(VisleakError, rf"^{path} cannot be read \(", path, read_problems)


def test_tables_that_people_write(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("id; Name \r\n1;'=a\r\n\r\n2\r\n".encode("utf-16"))
    with open_rows(path, padded=True) as rows:
        assert list(rows) == [{"id": "1", "Name": "=a"}, {"id": "2", "Name": ""}]
    with pytest.raises(VisleakError, match="line 4: 1 cells under 2 columns"), open_rows(path) as r:
        list(r)
    with pytest.raises(VisleakError, match="no column 'x'; it has id, Name"), open_rows(path) as r:
        r.need(("id", "x"))
    named_once = f"^{tmp_path} cannot be read: Is a directory$"
    with pytest.raises(VisleakError, match=named_once), open_rows(tmp_path):
        pass
    path.write_bytes(b'a\n"b')
    with pytest.raises(VisleakError, match=f"{path}, line 2: unexpected"), open_rows(path) as r:
        list(r)
