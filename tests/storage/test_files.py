"""The audit folder: whole files or none, refusals in one line, hostile names kept."""

import csv
import os
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusals import refused
from visleak import storage
from visleak.errors import UsageError, VisleakError
from visleak.rates import Rate
from visleak.records import Problem
from visleak.storage import AUDIT, UNREADABLE, open_rows, read_summary

SMALL = pa.schema([("id", pa.string()), ("value", pa.float32())])


def table(count=5, start=0):
    ids = [f"i{n}" for n in range(start, start + count)]
    return pa.table({"id": ids, "value": np.arange(count, dtype=np.float32)}, SMALL)


def broken(first):
    yield first
    raise RuntimeError("broke")


def nothing(path):
    with storage.replacing(path):
        pass


@pytest.mark.parametrize(
    "write",
    [
        lambda path: storage.write_tables(path, SMALL, broken(table())),
        lambda path: storage.write_csv(path, ("id",), broken(("a",))),
        lambda path: storage.write_json(path, {"value": float("nan")}),
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


def test_tables_are_row_groups_of_one_file(tmp_path):
    path = tmp_path / "t.parquet"
    wide = pa.table({"id": pa.array(["x"]), "value": pa.array([2], pa.int64())})
    assert storage.write_tables(path, SMALL, [table(), table(3, 5), wide]) == 9
    assert pq.ParquetFile(path).num_row_groups == 3
    got = storage.read_table(tmp_path, "t.parquet")
    assert got.equals(pa.concat_tables([table(), table(3, 5), wide.cast(SMALL)]))
    assert storage.read_table(tmp_path, "t.parquet", ["value"]).column_names == ["value"]
    assert storage.write_tables(path, storage.PAIRS_SCHEMA, []) == 0
    assert storage.read_table(tmp_path, "t.parquet").schema.equals(storage.PAIRS_SCHEMA)


@pytest.mark.parametrize("content", [b"", b"words " * 50, "cut", None])
def test_a_damaged_or_missing_table_is_one_line(tmp_path, content):
    path = tmp_path / storage.PAIRS
    storage.write_tables(path, SMALL, [table()])
    if content is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-30] if content == "cut" else content)
    words = rf"^{path} cannot be read \(.*run the audit again with --force$"
    refused(VisleakError, words, tmp_path, storage.read_table, name=path.name)


def test_the_summary_comes_back(tmp_path):
    odd = storage.SetSummary("\u00e9\u2028\x00", "\udce9.png", ("<img src=x>",), options={"a": "b"})
    rates = {"hard": Rate.of(1, 3), "soft": Rate.of(0, 0), "near": None}
    value = storage.AuditSummary(sets=(odd,), totals=(storage.TotalSummary("t", "one", rates),))
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
        (b'{"schema": 1, "sets": null}', "is damaged"),
        (b'{"schema": 1, "comparisons": [3]}', "is damaged"),
        (b'{"schema": 1, "totals": [{"rates": {"hard": {"count": 1}}}]}', "is damaged"),
        (b'{"schema": 1, "settings": {"views": "some"}}', "is damaged"),
        (b'{"schema": 3}', "schema 3, .*upgrade visleak"),
    ],
)
def test_a_damaged_summary_is_one_line(tmp_path, content, said):
    """Wrong types never reach a reader."""
    (tmp_path / AUDIT).write_bytes(content)
    refused(VisleakError, f"^{tmp_path / AUDIT} .*{said}", tmp_path, read_summary)


@given(st.text() | st.text("'=+-@\t\rx", max_size=6))
def test_quoting_is_undone(text):
    cell = storage.csv_cell(text)
    assert storage.csv_text(cell) == text
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))


@given(st.lists(st.text(st.characters(codec="utf-8")) | st.text("'=-\r\n\0,\" x"), max_size=5))
def test_any_text_comes_back(tmp_path_factory, texts):
    path = tmp_path_factory.getbasetemp() / UNREADABLE
    problems = tuple(Problem("s", text, text, "empty", text) for text in sorted(texts))
    storage.write_problems(path, problems)
    assert storage.read_problems(path) == problems


def test_names_that_are_not_utf8_are_escaped(tmp_path):
    """A Latin-1 file name has lone surrogates in Python: they are written out, never a crash."""
    name = os.fsdecode(b"caf\xe9.png")
    assert name == "caf\udce9.png"
    storage.write_problems(tmp_path / UNREADABLE, [Problem("s", name, name, "missing", "")])
    (got,) = storage.read_problems(tmp_path / UNREADABLE)
    assert (got.id, got.locator) == (r"caf\udce9.png",) * 2


def test_any_reader_of_csv_agrees(tmp_path):
    storage.write_csv(tmp_path / "f.csv", ("a", "b"), [("1,2", 'say "hi"'), ("=x", "y\nz")])
    with (tmp_path / "f.csv").open(newline="") as lines:
        assert list(csv.reader(lines)) == [["a", "b"], ["1,2", 'say "hi"'], ["'=x", "y\nz"]]
    storage.write_problems(tmp_path / UNREADABLE, [])
    # an empty file would look like one that was not written
    assert (tmp_path / UNREADABLE).read_text() == "set,id,locator,reason,detail\n"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"set,id\nx,y\n", b""])
def test_a_damaged_list_of_problems_is_one_line(tmp_path, content):
    path = tmp_path / UNREADABLE
    path.write_bytes(content)
    refused(VisleakError, rf"^{path} cannot be read \(", path, storage.read_problems)


def rows_of(path, need=(), **options):
    with open_rows(path, **options) as rows:
        rows.need(need)
        return list(rows)


def test_tables_that_people_write(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("id; Name \r\n1;'=a\r\n\r\n2\r\n".encode("utf-16"))
    assert rows_of(path, padded=True) == [{"id": "1", "Name": "=a"}, {"id": "2", "Name": ""}]
    refused(VisleakError, "line 4: 1 cells under 2 columns", path, rows_of)
    refused(VisleakError, "no column 'x'; it has id, Name", path, rows_of, need=("id", "x"))
    refused(VisleakError, f"^{tmp_path} cannot be read: Is a directory$", tmp_path, rows_of)
    path.write_bytes(b'a\n"b')
    refused(VisleakError, f"{path}, line 2: unexpected", path, rows_of)
