"""Named files of the command line, and a leaderboard of errors that others can verify."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from impact_making import cifair, table_3

from refusals import refusal
from visleak.errors import UsageError, VisleakError
from visleak.impact.leaderboard import add_to
from visleak.impact.settings import named_files
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
    said = refusal(UsageError, named_files, "--predictions", ["lr=0.1.csv"])
    assert "0.1.csv does not exist; for the file lr=0.1.csv give ./lr=0.1.csv" in said
    folder = refusal(UsageError, named_files, "--predictions", [str(file.parent)])
    assert folder.endswith("is a folder; give a file")


LINKS = {
    "framework": "PyTorch",
    "code": "https://example.org/code",
    "weights": "https://example.org/weights.pth",
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"code": ""}, "an entry needs its code: give --code URL"),
        ({"weights": ""}, "give --weights URL"),
        ({"framework": " "}, "an entry needs a framework: give --framework NAME"),
        ({"weights": "javascript:alert(1)"}, "--weights must be an http"),
        ({"weights": "https://[x/"}, "--weights must be an http"),
    ],
)
def test_an_entry_that_cannot_be_verified_is_refused(tmp_path, changes, message):
    path = tmp_path / "leaderboard.json"
    assert message in refusal(UsageError, add_to, path, cifair(), "Plain-11", **LINKS | changes)
    assert not path.exists()


def test_only_one_model_with_fair_errors(tmp_path):
    path = tmp_path / "leaderboard.json"
    for result, model, words in (
        (cifair(), "", "one entry at a time: name one of the models Plain-11, "),
        (cifair(), "nobody", "no errors of a model 'nobody'; there are Plain-11"),
        (table_3(), "", "about errors on a fair test set: give --fair-predictions"),
    ):
        assert words in refusal(UsageError, add_to, path, result, model, **LINKS)


def test_errors_in_another_metric_are_not_ranked_among_those_in_accuracy(tmp_path):
    path = tmp_path / "leaderboard.json"
    made = cifair()
    (right,) = [gap for gap in made.gaps if gap.model == "Plain-11"]
    other = replace(right, metric="top-5", fair=Estimate(0.001))
    (entry,) = add_to(path, replace(made, gaps=(other, right)), **LINKS)
    assert (entry["test_set"], entry["images"]) == ("cifar10", 10_000)
    assert (entry["error_original"], entry["error_fair"]) == (0.0591, 0.0643)
    assert entry["relative_gap"] == pytest.approx(0.088, abs=5e-5)
    entries = add_to(path, made, "ResNeXt-29 (8x64d)", **LINKS)
    assert [each["error_fair"] for each in entries] == [0.0395, 0.0643]
    alone = replace(made, gaps=(other,))
    words = "about errors in accuracy; those of 'Plain-11' are in top-5"
    assert words in refusal(UsageError, add_to, path, alone, **LINKS)


def test_a_damaged_file_is_refused_and_left(tmp_path):
    path = tmp_path / "leaderboard.json"
    (entry,) = add_to(path, cifair(), "Plain-11", **LINKS)
    whole = {"schema": 1, "kind": "visleak leaderboard"}
    damaged = [(whole, "has no list of entries"), (whole | {"entries": [entry, 3]}, "in entry 2")]
    for key, value in (("error_fair", "low"), ("weights", "javascript:x")):
        damaged.append((whole | {"entries": [entry | {key: value}]}, "damaged in entry 1"))
    for content, message in damaged:
        text = json.dumps(content)
        path.write_text(text)
        with pytest.raises(VisleakError, match=message):
            add_to(path, cifair(), "WRN-28-10", **LINKS)
        assert path.read_text() == text
