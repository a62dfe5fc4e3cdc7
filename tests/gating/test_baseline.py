"""Baselines: what is new, what may be one, what is said of one, and files of accepted pairs."""

import csv
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refusals import refusal
from toy_audit import World, digest, worlds
from visleak import verdicts
from visleak.errors import UsageError, VisleakError
from visleak.export import export
from visleak.gating import named, new_leaks, read_baseline
from visleak.gating.baseline import pair_line
from visleak.verdicts import Ledger, Verdict, judged_summary
from visleak.verdicts.overlay import COLUMNS, Level, read_accepted

A, B = "a" * 32, "b" * 32
HEADER = ",".join(COLUMNS)


@pytest.fixture
def world():
    """Return two test images that leak, one that does not, one blank."""
    return World(
        images={
            "test": [("=a()", 1, False), ("b", 2, False), ("c", 3, False), ("blank", 4, True)],
            "train": [("x", 1, False), ("y", 12, False), ("z", 13, False), ("blank", 4, False)],
        },
        pairs=[
            ("test", "=a()", "train", "x", 1.0, "exact"),
            ("test", "b", "train", "y", 0.8, "near"),
            ("test", "b", "train", "z", 0.7, "similar"),
            ("test", "c", "train", "z", 0.65, "different"),
            ("test", "blank", "train", "blank", 1.0, "exact"),
        ],
        comparisons=[("test", "train")],
    )


@pytest.fixture
def audited(world, tmp_path):
    """Return its audit folder."""
    return world.write(tmp_path / "audited")


def counts(folder, level, *sources):
    """Return how many images are new, and how many are known."""
    known = read_baseline(sources)
    (found,) = new_leaks(folder, judged_summary(folder), Level(level), known)
    return found.rate.count, found.known


def test_exported_pairs_are_accepted(audited, tmp_path):
    out = tmp_path / "accepted.csv"
    assert export(audited, "accepted", out) == (out,)
    with out.open(newline="") as lines:
        table = list(csv.DictReader(lines))
    listed = [(row["query"], row["reference"], row["grade"]) for row in table]
    assert listed == [("'=a()", "x", "exact"), ("b", "y", "near")]
    assert tuple(table[0]) == COLUMNS
    assert counts(audited, "near", out) == (0, 2)
    # accepted as near is not accepted as exact, nor is a pair accepted that is not listed
    assert counts(audited, "similar", out) == (1, 1)
    export(audited, "accepted", out, grade="exact", force=True)
    assert counts(audited, "near", out) == (1, 1)


def test_other_settings_of_an_audit_are_reported(world, tmp_path):
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


def test_the_worst_pair_of_each_image_is_named(audited):
    (found,) = new_leaks(audited, judged_summary(audited), Level("similar"))
    assert list(named(found, 10)) == [
        "test =a() = train x: exact, probability 1.000, similarity 1.000 (made)",
        "test b = train y: near, probability 0.900, similarity 0.800 (made)",
        "and 1 more pair",
    ]
    assert found.as_dict()["worst"][0]["query"] == "=a()"
    # names cannot break a line
    row = {"query_set": "test", "query": "a\x1b[31m\nb", "reference_set": "t", "reference": "r"}
    row |= {"grade": None, "degree": "soft", "probability": None, "similarity": None}
    message = pair_line({**row, "transform": None, "reason": None})
    assert message == r"test a\x1b[31m\nb = t r: soft"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "line 1: it has no column 'first'; its first line must be"),
        (f"first\n{A}\n", "line 1: it has no column 'second'"),
        (f"{HEADER}\n\n{A}\n", "line 3: second must be a content digest of 32 hex digits; got ''"),
        (f"{HEADER}\n{A},{B},alike\n", "line 2: grade must be one of exact, near"),
    ],
)
def test_damaged_files_are_refused_in_one_line(text, message, tmp_path):
    path = tmp_path / "accepted.csv"
    path.write_text(text)
    assert refusal(VisleakError, read_accepted, path).startswith(f"{path}, {message}")


def test_files_of_other_tools_are_read(tmp_path):
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
def test_no_file_does_worse_than_an_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "fuzzed.csv"
    path.write_bytes(data)
    message = ""
    try:
        assert all(len(digest) == 32 for key in read_accepted(path) for digest in key)
    except VisleakError as error:
        message = str(error)
    assert not message or message.startswith((f"{path}, line ", f"{path} cannot be read: "))


def test_vectors_cannot_be_accepted_by_content(world, tmp_path):
    images = {**world.images, "train": [(i, None, f) for i, _, f in world.images["train"]]}
    folder = replace(world, images=images).write(tmp_path / "a")
    message = refusal(VisleakError, export, folder, "accepted", tmp_path / "accepted.csv")
    assert "'=a()' and 'x' cannot be accepted by content: only vect" in message
    # the folder itself knows them by set and id
    assert counts(folder, "near", folder) == (0, 2)


def test_what_is_no_baseline_is_refused(audited, tmp_path):
    (tmp_path / "empty").mkdir()
    for name, words in (("none", "does not exist; give"), ("empty", "holds no finished audit")):
        assert words in refusal(UsageError, read_baseline, [tmp_path / name])
    (audited / "pairs.parquet").write_bytes(b"PAR1")
    assert "pairs.parquet cannot be read" in refusal(VisleakError, read_baseline, [audited])
    (audited / "audit.json").write_text("{")
    assert "audit.json is damaged" in refusal(VisleakError, read_baseline, [audited])


ORDER = ("exact", "near", "similar", "different")
DEGREES = ("hard", "soft")
LEVELS = ("exact", "near", "similar", "hard", "soft")


def scale(level):
    return ("degree", DEGREES) if level in DEGREES else ("grade", ORDER)


class Plain:
    """An audit or a baseline as dictionaries."""

    def __init__(self, world, folder):
        self.world = world
        self.rows = verdicts.judged_pairs(folder).to_pylist()
        self.people = {
            frozenset(key): verdict.grade
            for key, verdict in verdicts.consensus_of(verdicts.read_verdicts(folder)).items()
            if verdict.grade
        }
        self.content = {
            (name, id_): digest(content) or f"{name}/{id_}"
            for name, own in world.images.items()
            for id_, content, _ in own
        }

    def key(self, row):
        ends = ("query", "reference")
        return frozenset(self.content[row[f"{end}_set"], row[end]] for end in ends)

    def kind(self, row):
        """Whether a pair is a repeat of a set that is compared with others too."""
        inside = row["coverage"] == "within"
        return inside and any(q != r for q, r in self.world.comparisons if q == row["query_set"])


def known(new, row, level, old, accepted):
    column, names = scale(level)
    at_level = names[: names.index(level) + 1]
    key = new.key(row)
    grade = accepted.get(key)
    if grade is not None and (grade == "" or level in DEGREES or grade in at_level):
        return True
    strong = at_level if column == "grade" else ORDER[:2]
    if old.people.get(key, strong[0]) not in strong:
        return True
    return any(
        old.key(other) == key and other[column] in at_level and old.kind(other) == new.kind(row)
        for other in old.rows
    )


def judge(drawn, world, folder):
    contents = sorted({d for own in world.images.values() for _, d, _ in own if d is not None})
    if not contents:
        return
    with Ledger(folder) as ledger:
        for _ in range(drawn.draw(st.integers(0, 3))):
            left, right = (str(digest(drawn.draw(st.sampled_from(contents)))) for _ in range(2))
            grade, reviewer = drawn.draw(st.sampled_from(ORDER)), drawn.draw(st.sampled_from("AB"))
            ledger.add(Verdict.of(left, right, grade, reviewer))


def accepted_files(drawn, root):
    """Write two files of accepted pairs of any contents; return them and what they accept."""
    numbers, order = st.integers(0, 9), ["", *ORDER]
    rows = st.tuples(numbers, numbers, st.sampled_from(order))
    listed = drawn.draw(st.lists(rows, max_size=4))
    lines = [f"{digest(a)},{digest(b)},{grade},q,r,why" for a, b, grade in listed]
    paths = [root / "1.csv", root / "2.csv"]
    for at, path in enumerate(paths):
        path.write_text("\n".join([",".join(COLUMNS), *lines[at::2], ""]))
    best = {}
    for a, b, grade in listed:
        key = frozenset((str(digest(a)), str(digest(b))))
        best[key] = min(best.get(key, grade), grade, key=order.index)
    return paths, best


@settings(max_examples=40)
@given(worlds(), worlds(), st.data(), st.sampled_from(LEVELS))
def test_what_is_new(world, old, drawn, level):
    column, names = scale(level)
    at_level = set(names[: names.index(level) + 1])
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        folders = [world.write(root / "new"), old.write(root / "old")]
        for folder, each in zip(folders, (world, old), strict=True):
            judge(drawn, each, folder)
        paths, accepted = accepted_files(drawn, root)
        baseline = read_baseline([folders[1], *paths])
        summary = judged_summary(folders[0])
        (found,) = new_leaks(folders[0], summary, Level(level), baseline)
        mine, theirs = (Plain(w, f) for w, f in zip((world, old), folders, strict=True))
        every = world.leaking(mine.rows, "test", at_level)
        fresh = [row for row in mine.rows if not known(mine, row, level, theirs, accepted)]
        new = world.leaking(fresh, "test", at_level)
        assert (found.rate.count, found.known) == (len(new), len(every - new))
        assert found.rate.total == len(world.images["test"])
        assert set(found.pairs["query"].to_pylist()) | _others(found.pairs, world) == new
        assert all(row[column] in at_level for row in found.pairs.to_pylist())


def _others(pairs, world):
    """Return the references of repeats, where a set was compared with itself only."""
    alone = all(query == reference for query, reference in world.comparisons)
    return set(pairs["reference"].to_pylist()) if alone else set()
