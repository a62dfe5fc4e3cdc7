"""The audit folder: whole files or none, refusals in one line, hostile names kept."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

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
    IMAGES_SCHEMA,
    PAIRS,
    PAIRS_SCHEMA,
    SCHEMA,
    UNREADABLE,
    AuditSummary,
    SetSummary,
    TotalSummary,
    csv_cell,
    csv_text,
    free_folder,
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


def one_line(read, path: Path) -> str:
    """Return why a file cannot be read, behind its name."""
    with pytest.raises(VisleakError) as caught:
        read(path)
    said = str(caught.value)
    assert said.startswith(f"{path} ")
    assert "\n" not in said
    return said.removeprefix(f"{path} ")


@pytest.mark.parametrize(
    "write",
    [
        lambda path: write_tables(path, SMALL, broken(table())),
        lambda path: write_csv(path, ("id",), broken(("a",))),
        lambda path: write_json(path, {"value": float("nan")}),
        lambda path: write_json(path, {"value": object()}),
    ],
    ids=["tables", "csv", "nan", "object"],
)
@pytest.mark.parametrize("before", [None, "old"])
def test_a_failing_write_changes_nothing(tmp_path: Path, write, before) -> None:
    path = tmp_path / "file"
    if before:
        path.write_text(before)
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        write(path)
    assert (path.read_text() if path.exists() else None) == before
    assert list(tmp_path.iterdir()) == ([path] if before else [])


def test_folders_are_made_and_files_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.txt"
    write_text(path, "one")
    write_text(path, "two")
    assert path.read_text() == "two"
    assert list(path.parent.iterdir()) == [path]


SLOW_WRITER = """
import sys, time
from pathlib import Path
from visleak.storage import replacing

with replacing(Path(sys.argv[1])) as beside, beside.open("w") as file:
    for line in range(10**6):
        file.write("new " * 1000)
        file.flush()
        if line == 3:
            print("writing", flush=True)
        time.sleep(0.001)
"""


def test_a_kill_in_the_middle_of_a_write_keeps_the_old_file(tmp_path: Path) -> None:
    """A half-written file never bears the final name; the next write is not in its way."""
    path = tmp_path / "audit.json"
    path.write_text("old")
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert path.read_text() == "old"
    write_text(path, "new")
    assert path.read_text() == "new"


READER = """
import sys
from pathlib import Path
from visleak.storage import write_text

while True:
    for letter in "ab":
        write_text(Path(sys.argv[1]), letter * 200_000)
"""


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
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


def test_tables_are_row_groups_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    wide = pa.table({"id": pa.array(["x"]), "value": pa.array([2], pa.int64())})
    assert write_tables(path, SMALL, [table(), table(3, 5), wide]) == 9
    assert pq.ParquetFile(path).num_row_groups == 3
    got = read_table(tmp_path, "t.parquet")
    assert got.equals(pa.concat_tables([table(), table(3, 5), wide.cast(SMALL)]))
    assert read_table(tmp_path, "t.parquet", ["value"]).column_names == ["value"]


@pytest.mark.parametrize("schema", [PAIRS_SCHEMA, IMAGES_SCHEMA])
def test_a_table_without_rows_has_its_columns(tmp_path: Path, schema) -> None:
    assert write_tables(tmp_path / PAIRS, schema, []) == 0
    got = read_table(tmp_path, PAIRS)
    assert got.schema.equals(schema)
    assert got.num_rows == 0


def test_the_bytes_depend_on_the_tables_alone(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path += sys.argv[2:]; from pathlib import Path;"
        "from test_files import *; write_tables(Path(sys.argv[1]), SMALL, [table(), table(3)])"
    )
    there, here = tmp_path / "there", tmp_path / "here"
    folders = map(str, Path(__file__).parents[:2])
    subprocess.run([sys.executable, "-c", script, str(there), *folders], check=True)
    write_tables(here, SMALL, [table(), table(3)])
    assert here.read_bytes() == there.read_bytes()


@pytest.mark.parametrize("content", [b"", b"PAR1", b"words " * 50, "cut", None])
def test_a_damaged_or_missing_table_is_one_line(tmp_path: Path, content) -> None:
    path = tmp_path / PAIRS
    write_tables(path, SMALL, [table()])
    if content is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-30] if content == "cut" else content)
    said = one_line(lambda path: read_table(tmp_path, path.name), path)
    assert said.startswith("cannot be read (")
    assert said.endswith("run the audit again")


def test_the_summary_comes_back(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    "content",
    [
        {"sets": None},
        {"comparisons": [3]},
        {"totals": [{"rates": {"hard": {"count": 1}}}]},
        {"settings": {"views": "some"}},
        {"headline": 4},
    ],
)
def test_a_summary_of_another_form_is_refused(tmp_path: Path, content: dict[str, object]) -> None:
    """Wrong types never reach a reader."""
    write_json(tmp_path / AUDIT, {"schema": SCHEMA, **content})
    refused(VisleakError, "is damaged", tmp_path, read_summary)


def test_no_finished_audit(tmp_path: Path) -> None:
    refused(UsageError, r"holds no finished audit .*run `visleak audit`", tmp_path, read_summary)


def test_a_place_near_an_audit_is_answered_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "audit"
    folder.mkdir(parents=True)
    for name in (AUDIT, "report.html"):
        (folder / name).write_text("{}")
        refused(UsageError, f"give its folder, {folder}$", folder / name, read_summary)
    refused(UsageError, f"did you mean {folder}", folder.parent, read_summary)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / AUDIT
    write_json(path, {"schema": SCHEMA + 1})
    refused(VisleakError, f"schema {SCHEMA + 1}, .*upgrade visleak", tmp_path, read_summary)
    write_json(path, {"schema": SCHEMA - 1})
    assert read_summary(tmp_path).schema == SCHEMA - 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is damaged (Expecting value"),
        (b'{"schema": 1', "is damaged (Expecting ',' delimiter"),
        (b"\xff\xfe\x00", "is damaged ('utf-8' codec can't decode"),
        (b"[" * 100_000, "is damaged ("),
        *((text, "is not an audit's summary") for text in (b"[1]", b'{"schema": "1"}', b"{}")),
    ],
)
def test_a_damaged_summary_is_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / AUDIT).write_bytes(content)
    line = one_line(lambda path: read_summary(path.parent), tmp_path / AUDIT)
    assert line.startswith(said)
    assert line.endswith("run the audit again")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_is_a_formula(start: str) -> None:
    assert csv_cell(start + "cmd|' /C calc'!A0") == f"'{start}cmd|' /C calc'!A0"
    assert csv_cell(start) == "'" + start


@given(st.text() | st.text("'=+-@\t\rx", max_size=6))
def test_quoting_is_undone(text: str) -> None:
    cell = csv_cell(text)
    assert csv_text(cell) == text
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))


HOSTILE = [
    "=HYPERLINK(1).png",
    "'=1.png",
    "-.png",
    'a"b,c;d.png',
    "two\nlines\r\nthree\r.png",
    "<img src=x onerror=alert(1)>.png",
    "\u202egnp.exe",
    "nul\x00.png",
    "  spaces  ",
    "",
]


def test_problems_come_back(tmp_path: Path) -> None:
    problems = [Problem("s", name, name, "corrupt", name) for name in HOSTILE]
    path = tmp_path / UNREADABLE
    write_problems(path, problems)
    assert read_problems(path) == tuple(sorted(problems, key=lambda p: p.id))


@given(st.lists(st.text(st.characters(codec="utf-8")), max_size=5))
def test_any_text_comes_back(tmp_path_factory, texts: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / UNREADABLE
    problems = tuple(Problem("s", text, text, "empty", text) for text in sorted(texts))
    write_problems(path, problems)
    assert read_problems(path) == problems


def test_names_that_are_not_utf8_are_escaped(tmp_path: Path) -> None:
    """A Latin-1 file name has lone surrogates in Python: they are written out, never a crash."""
    name = os.fsdecode(b"caf\xe9.png")
    assert name == "caf\udce9.png"
    write_problems(tmp_path / UNREADABLE, [Problem("s", name, name, "missing", "")])
    (got,) = read_problems(tmp_path / UNREADABLE)
    assert (got.id, got.locator) == (r"caf\udce9.png",) * 2


def test_no_problems_leave_the_header(tmp_path: Path) -> None:
    """An empty file would look like one that was not written."""
    write_problems(tmp_path / UNREADABLE, [])
    assert (tmp_path / UNREADABLE).read_text() == "set,id,locator,reason,detail\n"
    assert read_problems(tmp_path / UNREADABLE) == ()


def test_any_reader_of_csv_agrees(tmp_path: Path) -> None:
    write_csv(tmp_path / "f.csv", ("a", "b"), [("1,2", 'say "hi"'), ("=x", "y\nz")])
    with (tmp_path / "f.csv").open(newline="") as lines:
        assert list(csv.reader(lines)) == [["a", "b"], ["1,2", 'say "hi"'], ["'=x", "y\nz"]]


@pytest.mark.parametrize("content", [b"\xff\xfe", b"set,id\nx,y\n", b"other\n1\n", b""])
def test_a_damaged_list_of_problems_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / UNREADABLE
    path.write_bytes(content)
    assert one_line(read_problems, path).startswith("cannot be read (")


def test_tables_that_people_write(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("id; Name \r\n1;'=a\r\n\r\n2\r\n".encode("utf-16"))
    with open_rows(path, padded=True) as rows:
        assert list(rows) == [{"id": "1", "Name": "=a"}, {"id": "2", "Name": ""}]
    with pytest.raises(VisleakError, match="line 4: 1 cells under 2 columns"), open_rows(path) as r:
        list(r)
    with pytest.raises(VisleakError, match="no column 'x'; it has id, Name"), open_rows(path) as r:
        r.need(("id", "x"))
    for content, words in (
        (b'a\n"b', "line 2: unexpected end"),
        (b"\xff\xfe\n", "cannot be read: "),
    ):
        path.write_bytes(content)
        with pytest.raises(VisleakError, match=f"{path}.* ?{words}"), open_rows(path) as r:
            list(r)


def test_json_is_indented_text(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"b": [1], "a": None})
    assert (tmp_path / "a.json").read_text() == json.dumps({"b": [1], "a": None}, indent=1) + "\n"


def test_replacing_cleans_up_when_nothing_was_written(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "x"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_result_is_not_replaced_in_silence(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{}")
    said = r"holds a result already \(result\.json\); choose another folder with -o DIR, or --force"
    with pytest.raises(UsageError, match=said):
        free_folder(tmp_path, "result.json")
    assert free_folder(tmp_path, "result.json", force=True) == tmp_path
    assert free_folder(tmp_path / "new", "result.json") == tmp_path / "new"
    with pytest.raises(UsageError, match=r"^output .* is a file; choose a folder with -o DIR$"):
        free_folder(tmp_path / "result.json", "result.json")
