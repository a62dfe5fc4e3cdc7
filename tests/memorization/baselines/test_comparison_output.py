"""Tables and figure of a comparison: what they say, and that hostile texts stay texts."""

import csv
from dataclasses import replace

import pytest

from visleak.memorization.baselines.document import (
    Attempt,
    Comparison,
    Reproduction,
    Verified,
    document,
    files,
    headline,
    methods,
)
from visleak.memorization.baselines.run import KIND
from visleak.memorization.prompt_files import read_prompts
from visleak.memorization.search.driver import Candidate
from visleak.reporting import markdown
from visleak.storage import RunFolder

pytestmark = pytest.mark.usefixtures("drawn_figures")

HOSTILE = "=cmd() <img src=x onerror=alert(1)> | $x_1$ \\input{a}"


def attempt(method, seed, found, best=2.0):
    texts = [HOSTILE, *(f"{method} {each}" for each in range(3))]
    reproduced = tuple(
        Reproduction(f"train/{each}.png", each, texts[each]) for each in range(found)
    )
    candidates = tuple(Candidate(text, best - at) for at, text in enumerate(texts))
    verified = Verified(400, tuple(texts[:found]), reproduced, 4000, 20.0)
    return Attempt(
        method, seed, {}, candidates, (best, 1.0, 0.8, 0.6), True, 9000 + seed, 10.0, 20, verified
    )


@pytest.fixture
def result(tmp_path):
    return Comparison(
        model={"name": "toy"},
        score={"norm": "l2"},
        norm="l2",
        budget={"calls": 9000, "seconds": None},
        chains=4,
        seeds=(0, 1),
        verification={},
        attempts=tuple(
            attempt(method, seed, found + seed)
            for seed in (0, 1)
            for method, found in (("gibbs", 2), ("random", 1), ("pez", 0))
        ),
        folder=tmp_path,
        key="k",
    )


def write(result):
    run = RunFolder(result.folder, KIND)
    run.finish(run.document(headline(result), result), files(result))


def test_files_are_written_and_hostile_prompts_stay_texts(result):
    write(result)
    folder = result.folder
    names = {each.name for each in folder.iterdir()}
    assert names == {
        *("compare.json", "compare.csv", "compare.md", "compare.tex", "candidates.csv"),
        *("compare.svg", "compare.png"),
    }
    assert "<img" not in (folder / "compare.md").read_text().replace("\\<img", "")
    assert "\\input{" not in (folder / "compare.tex").read_text()
    with (folder / "candidates.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 24
    assert rows[0]["prompt"] == "'" + HOSTILE
    assert (rows[0]["memorized"], rows[0]["reference"]) == ("yes", "train/0.png")
    assert (rows[3]["memorized"], rows[3]["clustered"]) == ("no", "no")
    with (folder / "compare.csv").open(newline="") as lines:
        found = list(csv.DictReader(lines))
    assert [row["method"] for row in found] == ["gibbs", "random", "pez"]
    assert found[0]["found"] == "2.5"


def test_candidates_are_a_list_of_prompts_for_other_verbs(result, tmp_path):
    one = replace(result, attempts=result.attempts[:1], folder=tmp_path / "one")
    write(one)
    listed = read_prompts(tmp_path / "one" / "candidates.csv")
    assert set(listed.texts) == {each.prompt for each in one.attempts[0].candidates}


def test_nothing_found_is_a_table_without_images(result):
    none = replace(result, attempts=tuple(attempt("pez", seed, 0) for seed in (0, 1)))
    assert "Memorized images found" not in markdown(document(none))
    assert methods(none).grid().bold == frozenset()
    assert "PEZ found 0 memorized images: at most 9,000 passes" in markdown(document(none))
