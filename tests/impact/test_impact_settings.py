"""Named files of the command line, and a leaderboard of errors that others can verify."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from impact_making import cifair, table_2

from visleak.errors import UsageError, VisleakError
from visleak.impact.leaderboard import add_to, read_leaderboard
from visleak.impact.settings import fair_files, named_files
from visleak.stats.bootstrap import Estimate


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "lr=0.1.csv"
    path.write_text("")
    return path


def test_a_name_ends_at_the_first_sign_without_a_slash(file):
    assert named_files("--predictions", [f"a={file}"]) == {"a": file}
    assert named_files("--predictions", [str(file)]) == {"lr=0.1": file}
    assert named_files("--predictions", ["./lr=0.1.csv"]) == {"lr=0.1": Path("lr=0.1.csv")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr=0.1.csv", "--subset: 0.1.csv does not exist; for the file lr=0.1.csv give"),
        ("=none.csv", "--subset is NAME=FILE with no part empty; got '=none.csv'"),
        ("a=", "--subset is NAME=FILE with no part empty; got 'a='"),
        ("", "--subset is NAME=FILE with no part empty; got ''"),
    ],
)
def test_what_is_neither_is_refused(file, text, message):
    with pytest.raises(UsageError) as refused:
        named_files("--subset", [text], "subset", needs_name=True)
    assert message in str(refused.value)


def test_what_is_there_but_no_file_is_not_called_missing():
    with pytest.raises(UsageError, match=r"^--predictions: /dev/null is no plain file; give a"):
        named_files("--predictions", ["a=/dev/null"])


def test_one_fair_file_is_of_the_one_model(file):
    one = {"a": Path("a.csv")}
    assert fair_files([str(file)], one) == {"a": file}
    assert fair_files([f"a={file}"], one) == {"a": file}
    for texts, models in (([f"b={file}"], one), ([str(file)], one | {"b": Path("b.csv")})):
        with pytest.raises(UsageError, match=r"which has no --predictions; models are 'a'"):
            fair_files(texts, models)


LINKS = {
    "framework": "PyTorch",
    "code": "https://example.org/code",
    "weights": "https://example.org/weights.pth",
}


def test_entries_stand_by_their_fair_error(tmp_path):
    path = tmp_path / "leaderboard.json"
    for model in ("Plain-11", "ResNeXt-29 (8x64d)", "WRN-28-10"):
        add_to(path, cifair(), model, **LINKS, date="2020-06-01")
    entries = read_leaderboard(path)
    assert [(e["model"], e["error_fair"]) for e in entries] == [
        ("ResNeXt-29 (8x64d)", 0.0395), ("WRN-28-10", 0.0425), ("Plain-11", 0.0643),
    ]  # fmt: skip
    first = entries[0]
    assert first["relative_gap"] == pytest.approx(0.1096, abs=5e-5)
    assert (first["test_set"], first["images"], first["date"]) == ("cifar10", 10_000, "2020-06-01")
    assert not list(tmp_path.glob("*.part"))


def test_the_same_model_on_the_same_set_is_replaced(tmp_path):
    path = tmp_path / "leaderboard.json"
    add_to(path, cifair(), "Plain-11", **LINKS)
    newer = LINKS | {"weights": "https://example.org/other.pth"}
    (entry,) = add_to(path, cifair(), "Plain-11", **newer)
    assert entry["weights"] == "https://example.org/other.pth"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", entry["date"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": ""}, r"an entry without weights cannot be verified: give --weights URL"),
        ({"code": ""}, r"an entry needs its code: give --code URL"),
        ({"framework": " "}, r"an entry needs a framework: give --framework NAME"),
        ({"code": "my repository"}, r"--code must be an http or https URL; got 'my rep"),
        ({"weights": "javascript:alert(1)"}, r"--weights must be an http"),
        ({"weights": "https://a.org/<b>"}, r"--weights must be an http"),
        ({"weights": "https://[x/"}, r"--weights must be an http"),
    ],
)
def test_an_entry_that_cannot_be_verified_is_refused(tmp_path, changes, message):
    path = tmp_path / "leaderboard.json"
    with pytest.raises(UsageError, match=message) as refused:
        add_to(path, cifair(), "Plain-11", **(LINKS | changes))
    assert "\n" not in str(refused.value)
    assert not path.exists()


def test_only_one_model_with_fair_errors(tmp_path):
    path = tmp_path / "leaderboard.json"
    with pytest.raises(UsageError, match=r"one entry at a time: name one of the models Plain-11, "):
        add_to(path, cifair(), **LINKS)
    with pytest.raises(UsageError, match=r"no errors of a model 'nobody'; there are Plain-11"):
        add_to(path, cifair(), "nobody", **LINKS)
    with pytest.raises(
        UsageError, match=r"about errors on a fair test set: give --fair-predictions"
    ):
        add_to(path, table_2(), **LINKS)


def test_errors_in_another_metric_are_not_ranked_among_those_in_accuracy(tmp_path):
    path = tmp_path / "leaderboard.json"
    made = cifair()
    (right,) = [gap for gap in made.gaps if gap.model == "Plain-11"]
    other = replace(right, metric="top-5", fair=Estimate(0.001))
    (entry,) = add_to(path, replace(made, gaps=(other, right)), **LINKS)
    assert entry["error_fair"] == 0.0643
    with pytest.raises(
        UsageError,
        match=r"^a leaderboard is about errors in accuracy; those of 'Plain-11' are in top-5: give",
    ):
        add_to(path, replace(made, gaps=(other,)), **LINKS)


def test_a_damaged_file_is_refused_and_left(tmp_path):
    path = tmp_path / "leaderboard.json"
    (entry,) = add_to(path, cifair(), "Plain-11", **LINKS)
    whole = {"schema": 1, "kind": "visleak leaderboard"}
    damaged = [(whole, "has no list of entries"), (whole | {"entries": [entry, 3]}, "in entry 2")]
    for key, value in (("error_fair", "low"), ("weights", "javascript:x"), ("model", None)):
        damaged.append((whole | {"entries": [entry | {key: value}]}, "damaged in entry 1"))
    for content, message in damaged:
        text = json.dumps(content)
        path.write_text(text)
        with pytest.raises(VisleakError, match=message):
            add_to(path, cifair(), "WRN-28-10", **LINKS)
        assert path.read_text() == text
