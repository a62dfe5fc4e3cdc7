"""Baselines: what may be one, what is said of one, and files of accepted pairs."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refusals import refusal
from toy_audit import World, digest
from visleak.errors import UsageError, VisleakError
from visleak.export import export
from visleak.gating import named, new_leaks, read_baseline
from visleak.gating.baseline import pair_line
from visleak.verdicts import Ledger, Verdict, judged_summary
from visleak.verdicts.overlay import COLUMNS, Level, read_accepted

A, B = "a" * 32, "b" * 32
HEADER = ",".join(COLUMNS)


def counts(folder: Path, level: str, *sources: Path) -> tuple[int, int]:
    """Return how many images are new, and how many are known."""
    known = read_baseline(sources)
    (found,) = new_leaks(folder, judged_summary(folder), Level(level), known)
    return found.rate.count, found.known


def test_exported_pairs_are_accepted(audited: Path, tmp_path: Path) -> None:
    out = tmp_path / "accepted.csv"
    assert export(audited, "accepted", out) == (out,)
    with out.open(newline="") as lines:
        table = list(csv.DictReader(lines))
    assert [(row["query"], row["reference"], row["grade"]) for row in table] == [
        ("a", "x", "exact"),
        ("b", "y", "near"),
    ]
    assert tuple(table[0]) == COLUMNS
    assert counts(audited, "near", out) == (0, 2)
    # accepted as near is not accepted as exact, nor is a pair accepted that is not listed
    assert counts(audited, "similar", out) == (1, 1)
    export(audited, "accepted", out, grade="exact", force=True)
    assert counts(audited, "near", out) == (1, 1)


def test_a_later_audit_may_know_a_pair_better(world: World, audited: Path, tmp_path: Path) -> None:
    later = replace(world, pairs=[*world.pairs[:3], ("test", "c", "train", "z", 0.65, "near")])
    folder = later.write(tmp_path / "later")
    assert counts(folder, "near", audited) == (1, 2)
    assert counts(folder, "exact", audited) == (0, 1)
    assert counts(audited, "similar", folder) == (0, 2)


def test_what_people_judged_weaker_is_no_news(world: World, audited: Path, tmp_path: Path) -> None:
    later = replace(world, pairs=[*world.pairs, ("test", "c", "train", "y", 0.7, "near")])
    folder = later.write(tmp_path / "later")
    assert counts(folder, "near", audited) == (1, 2)
    verdict = Verdict.of(str(digest(3)), str(digest(12)), "similar", "Ada")
    with Ledger(audited) as ledger:
        ledger.add(verdict)
    assert counts(folder, "near", audited) == (0, 3)
    assert counts(folder, "similar", audited) == (0, 3)  # listed now, as a person says
    with Ledger(audited) as ledger:
        ledger.add(replace(verdict, judgment="exact", reviewer="Ben"))
    assert counts(folder, "near", audited) == (1, 2)  # disputed: nobody knows


def test_changed_content_is_news(world: World, audited: Path, tmp_path: Path) -> None:
    """A file that was encoded again has another digest, so nobody knows it."""
    images = {**world.images, "test": [("a", 77, False), *world.images["test"][1:]]}
    folder = replace(world, images=images).write(tmp_path / "later")
    assert counts(folder, "near", audited) == (1, 1)


def test_renamed_images_are_known(world: World, audited: Path, tmp_path: Path) -> None:
    images = {
        "neu": [(f"{id_}2", content, flat) for id_, content, flat in world.images["test"]],
        "alt": world.images["train"],
    }
    pairs = [("neu", f"{q}2", "alt", r, s, g) for _, q, _, r, s, g in world.pairs]
    renamed = World(images, pairs, [("neu", "alt")])
    folder = renamed.write(tmp_path / "later")
    assert counts(folder, "near", audited) == (0, 2)


def test_a_repeat_is_not_known_as_a_leak(tmp_path: Path) -> None:
    """A copy within the test set that moves to the training set becomes a leak."""
    a, b, x = (("a", 1, False), ("b", 2, False), ("x", 9, False))
    repeat, leak = (("test", "a", name, "b", 0.8, "near") for name in ("test", "train"))
    both = [("test", "train"), ("test", "test")]
    before = World({"test": [a, b], "train": [x]}, [repeat], both).write(tmp_path / "before")
    after = World({"test": [a], "train": [x, b]}, [leak], both[:1]).write(tmp_path / "after")
    assert counts(after, "near", before) == (1, 0)


def test_several_baselines_add_up(world: World, audited: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "1.csv", tmp_path / "2.csv"
    first.write_text(f"{HEADER}\n{digest(1)},{digest(1)},exact,,,\n")
    second.write_text(f"first,second\n{digest(12)},{digest(2)}\n")
    assert counts(audited, "near", first) == (1, 1)
    assert counts(audited, "near", first, second) == (0, 2)
    # by degree, what is accepted is so whatever its grade; b and c are also alike to others
    assert counts(audited, "hard", second, first) == (0, 1)
    assert counts(audited, "soft", second, first) == (2, 1)


def test_other_settings_of_an_audit_are_reported(world: World, tmp_path: Path) -> None:
    grader = {"grader": {"digest": "other", "near_at": 0.5}}
    old = replace(world, encoder="phash", hard=None, soft=None, changes=grader)
    folder, new = old.write(tmp_path / "old"), world.write(tmp_path / "new")
    notes = list(read_baseline([folder]).notes(judged_summary(new), [Level("near"), Level("hard")]))
    assert [note.partition(";")[0] for note in notes] == [
        f"baseline {folder}: it has no degrees, so it knows no hard pairs",
        f"baseline {folder}: made with another encoder (phash, not builtin)",
        f"baseline {folder}: made with another grader (other, not g)",
    ]
    assert list(read_baseline([new]).notes(judged_summary(new), [Level("near")])) == []


def test_the_worst_pair_of_each_image_is_named(audited: Path) -> None:
    (found,) = new_leaks(audited, judged_summary(audited), Level("similar"))
    assert list(named(found, 10)) == [
        "test a = train x: exact, probability 1.000, similarity 1.000 (made)",
        "test b = train y: near, probability 0.900, similarity 0.800 (made)",
        "and 1 more pair",
    ]
    assert list(named(found, 1))[1:] == ["and 2 more pairs"]
    assert found.as_dict()["worst"][0]["query"] == "a"


def test_names_cannot_break_a_line() -> None:
    row = {"query_set": "test", "query": "a\x1b[31m\nb", "reference_set": "t", "reference": "r"}
    row |= {"grade": None, "degree": "soft", "probability": None, "similarity": None}
    message = pair_line({**row, "transform": None, "reason": None})
    assert message == r"test a\x1b[31m\nb = t r: soft"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: it has no column 'first'"),
        ("a,b\n1,2\n", "line 1: it has no column 'first'; its first line must be"),
        (f"first\n{A}\n", "line 1: it has no column 'second'"),
        (f"{HEADER}\n{A},short,near\n", "second must be a content digest of 32 hex digits; got 's"),
        (f"{HEADER}\n\n{A}\n", "line 3: second must be"),
        (f"{HEADER}\n{A},{B},alike\n", "line 2: grade must be one of exact, near"),
        (f"{HEADER}\n{A},{B}\x00,near\n", "line"),
    ],
)
def test_damaged_files_are_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "accepted.csv"
    path.write_text(text)
    line = refusal(VisleakError, read_accepted, path)
    assert line.startswith(f"{path}, line ")
    assert message in line


def test_files_of_other_tools_are_read(tmp_path: Path) -> None:
    """A byte order mark, Windows' line ends, other columns and order, quotes, upper case."""
    path = tmp_path / "accepted.csv"
    rows = ["note,second,grade,first", f'"=cmd()",{A.upper()},NEAR,{B}', f"x,{B},exact,{A}", ""]
    path.write_bytes("\r\n".join([*rows, f"'@y,'{A},,{A}", ""]).encode("utf-8-sig"))
    with pytest.raises(VisleakError, match=r"line 5: second must be a content digest"):
        read_accepted(path)
    path.write_bytes("\r\n".join([*rows, f"'@y,{A},,{A}", ""]).encode("utf-8-sig"))
    assert read_accepted(path) == {(A, B): "exact", (A, A): ""}


@settings(max_examples=200)
@given(st.binary(max_size=200) | st.text(max_size=80).map(lambda t: f"{HEADER}\n{t}".encode()))
def test_no_file_does_worse_than_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.csv"
    path.write_bytes(data)
    message = ""
    try:
        assert all(len(digest) == 32 for key in read_accepted(path) for digest in key)
    except VisleakError as error:
        message = str(error)
    assert not message or message.startswith((f"{path}, line ", f"{path} cannot be read: "))


def test_formulas_are_no_formulas(world: World, tmp_path: Path) -> None:
    images = {**world.images, "test": [("=cmd()", 1, False)]}
    pairs = [("test", "=cmd()", "train", "x", 1.0, "exact")]
    folder = replace(world, images=images, pairs=pairs).write(tmp_path / "a")
    (out,) = export(folder, "accepted", tmp_path / "accepted.csv")
    assert ",'=cmd(),x," in out.read_text()
    assert counts(folder, "near", out) == (0, 1)


def test_vectors_cannot_be_accepted_by_content(world: World, tmp_path: Path) -> None:
    images = {**world.images, "train": [(i, None, f) for i, _, f in world.images["train"]]}
    folder = replace(world, images=images).write(tmp_path / "a")
    with pytest.raises(VisleakError, match="'a' and 'x' cannot be accepted by content: only vect"):
        export(folder, "accepted", tmp_path / "accepted.csv")
    # the folder itself knows them by set and id
    assert counts(folder, "near", folder) == (0, 2)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("none", UsageError, r"the baseline .*none does not exist; give an audit folder or a file"),
        ("empty", UsageError, r"the baseline .*empty holds no finished audit \(no audit.json\)"),
        ("damaged", VisleakError, r"audit.json is damaged .*; run the audit again"),
        ("tables", VisleakError, r"pairs.parquet cannot be read .*; run the audit again"),
    ],
)
def test_what_is_no_baseline_is_refused(
    name: str, kind: type[VisleakError], message: str, world: World, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    for made in ("damaged", "tables"):
        world.write(tmp_path / made)
    (tmp_path / "damaged" / "audit.json").write_text("{")
    (tmp_path / "tables" / "pairs.parquet").write_bytes(b"PAR1")
    assert re.search(message, refusal(kind, read_baseline, [tmp_path / name]))
