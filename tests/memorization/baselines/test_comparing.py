"""The comparison: same budget, verified images only, resumable attempt by attempt."""

import csv
import json
import math
from dataclasses import replace

import pytest

from linear_model import linear_model
from visleak.errors import UsageError, VisleakError
from visleak.memorization.baselines.document import (
    Attempt,
    Reproduction,
    Verified,
    document,
    mean_of,
    row_of,
    rows_of,
)
from visleak.memorization.baselines.run import Contest, candidates_of, compare, read_comparison
from visleak.memorization.prompt_files import read_prompts
from visleak.memorization.search.driver import Candidate, SearchResult
from visleak.memorization.settings import Budget, ScoreSettings
from visleak.reporting import markdown


class Scripted:
    """A search that finds what it is told, and remembers its tasks."""

    def __init__(self, name, prompts, calls=90):
        self.name, self.prompts, self.calls, self.tasks = name, prompts, calls, []

    def about(self):
        return {"prompts": list(self.prompts)}

    def search(self, task):
        self.tasks.append(task)
        best = [Candidate(text, 2.0 - at, at) for at, text in enumerate(self.prompts)]
        return SearchResult(
            self.name, self.about(), tuple(best), (), self.calls, 1.5, task.seed != 1
        )


class KnownTriggers:
    """Verifies the prompts that it knows; ten passes per image of two per prompt."""

    def __init__(self, known):
        self.known, self.asked = known, []

    def about(self):
        return {"known": self.known}

    def verify(self, prompts, folder, progress):
        self.asked.append(tuple(prompts))
        reproduced = [
            Reproduction(f"train/{number}.png", number, text)
            for text in prompts
            for number in self.known.get(text, ())
        ]
        clustered = tuple(text for text in prompts if text in self.known)
        return Verified(2 * len(prompts), clustered, tuple(reproduced), 20 * len(prompts), 2.0)


HOSTILE = "=cmd() <img src=x onerror=alert(1)> | $x_1$ \\input{a}"
KNOWN = {"ant bee": [0], "cow dog": [1], "cow elk": [1], "fox": [], HOSTILE: [2]}


@pytest.fixture
def contest():
    return Contest(linear_model(), ScoreSettings(), Budget(calls=100), 3, (0, 1))


def methods():
    return {
        "gibbs": Scripted("gibbs", ["ant bee", "cow dog", "cow elk"]),
        "pez": Scripted("pez", ["fox", "fox", "gnu"], 97),
    }


def test_only_distinct_verified_images_count(contest, tmp_path):
    made = methods()
    result = compare(contest, made, KnownTriggers(KNOWN), tmp_path)
    for searcher in made.values():
        assert [task.seed for task in searcher.tasks] == [0, 1]
        assert {(task.budget, task.chains) for task in searcher.tasks} == {(Budget(calls=100), 3)}
        assert len({task.folder for task in searcher.tasks}) == 2
    gibbs, pez = rows_of(result)
    # two candidates reproduce one image; a cluster that nobody verified is none
    assert (gibbs.found.value, pez.found.value) == (2.0, 0.0)
    assert (gibbs.clustered.value, pez.clustered.value) == (3.0, 1.0)
    assert (gibbs.candidates, pez.candidates) == (3.0, 2.0)
    assert (gibbs.search_calls, gibbs.image_calls) == (90.0, 60.0)
    assert gibbs.calls_per_image == 150 / 2
    assert gibbs.seconds_per_image == 3.5 / 2
    assert math.isnan(pez.calls_per_image)
    assert not gibbs.complete
    assert read_comparison(tmp_path) == result
    content = json.loads((tmp_path / "compare.json").read_text())
    assert content["headline"].startswith(
        "Gibbs (Algorithm 1) found 2 memorized images (75 passes each); PEZ found 0 memorized"
    )
    assert content["methods"][1]["calls_per_image"] is None


def test_more_seeds_and_methods_run_only_what_is_new(contest, tmp_path):
    compare(contest, methods(), KnownTriggers(KNOWN), tmp_path)
    made = {**methods(), "random": Scripted("random", ["ant"])}
    wider = replace(contest, seeds=(0, 1, 2))
    with pytest.raises(UsageError, match=r"holds a result already .*--force replaces it and"):
        compare(wider, made, KnownTriggers(KNOWN), tmp_path)
    result = compare(wider, made, KnownTriggers(KNOWN), tmp_path, force=True)
    assert [task.seed for task in made["gibbs"].tasks] == [2]
    assert [task.seed for task in made["random"].tasks] == [0, 1, 2]
    assert result.methods == ("gibbs", "pez", "random")
    assert result.seeds == (0, 1, 2)


def test_a_comparison_that_was_stopped_goes_on(contest, tmp_path, monkeypatch):
    straight = compare(contest, methods(), KnownTriggers(KNOWN), tmp_path / "straight")
    with monkeypatch.context() as patch:
        whole, verified = KnownTriggers.verify, []

        def verify(*given):
            if len(verified) == 2:
                raise KeyboardInterrupt
            verified.append(given)
            return whole(*given)

        patch.setattr(KnownTriggers, "verify", verify)
        with pytest.raises(KeyboardInterrupt):
            compare(contest, methods(), KnownTriggers(KNOWN), tmp_path / "stopped")
    assert not (tmp_path / "stopped" / "compare.json").exists()
    made = methods()
    result = compare(contest, made, KnownTriggers(KNOWN), tmp_path / "stopped")
    assert result.attempts == straight.attempts
    assert sum(len(searcher.tasks) for searcher in made.values()) == 4 - 2


def test_a_search_that_finds_nothing_makes_no_images(contest, tmp_path):
    verifier = KnownTriggers(KNOWN)
    result = compare(contest, {"none": Scripted("none", ["", " "])}, verifier, tmp_path)
    assert not verifier.asked
    (row,) = rows_of(result)
    assert row.found.value == 0
    assert math.isnan(row.best_d.value)
    assert "Memorized images found" not in markdown(document(result))


def test_errors(contest, tmp_path):
    with pytest.raises(UsageError, match="there is no method to compare; give at least one"):
        compare(contest, {}, KnownTriggers(KNOWN), tmp_path)
    with pytest.raises(UsageError, match=r"seeds must be one number or several different; got \(1"):
        replace(contest, seeds=(1, 1))
    with pytest.raises(UsageError, match="chains must be at least 1; got 0"):
        replace(contest, chains=0)
    compare(contest, methods(), KnownTriggers(KNOWN), tmp_path)
    (tmp_path / "compare.json").write_text("{")
    with pytest.raises(VisleakError, match=r"compare\.json cannot be read"):
        compare(contest, methods(), KnownTriggers(KNOWN), tmp_path)
    (tmp_path / "compare.json").unlink()
    path = tmp_path / "pez" / "seed-1" / "attempt.json"
    path.write_text(path.read_text().replace('"candidates"', '"others"'))
    with pytest.raises(VisleakError, match=r"attempt\.json is damaged"):
        compare(contest, methods(), KnownTriggers(KNOWN), tmp_path)


def attempt(found, calls=10, checked=(1.0,), seed=0):
    reproduced = tuple(Reproduction(f"train/{each}", each, f"p{each}") for each in range(found))
    candidates = tuple(Candidate(f"p{each}", 1.0) for each in range(4))
    verified = Verified(8, (), reproduced, 40, 1.0)
    return Attempt("gibbs", seed, {}, candidates, checked, True, calls, 1.0, 0, verified)


def test_discoveries_come_at_the_cost_of_search_and_images_so_far():
    one = attempt(2, calls=100)
    # four candidates share forty passes; the first two reproduce an image each
    assert one.discoveries() == [(0.0, 0), (110.0, 1), (120.0, 2), (140.0, 2)]
    assert attempt(0).discoveries() == [(0.0, 0), (50.0, 0)]


def test_intervals_are_over_seeds_and_candidates_the_different_best_prompts():
    row = row_of("gibbs", [attempt(0), attempt(1, seed=1), attempt(2, seed=2)])
    assert row.found.value == 1.0
    # Student's t of 2 degrees of freedom: 4.3027 / sqrt(3)
    assert row.found.high - 1.0 == pytest.approx(4.30265 / math.sqrt(3), rel=1e-5)
    assert math.isnan(row_of("gibbs", [attempt(1)]).found.low)
    assert math.isnan(mean_of([math.nan]).value)
    best = (Candidate("b", 1.0), Candidate("", 9.0), Candidate("a", 1.0), Candidate("b", 3.0, 2))
    found = candidates_of(SearchResult("m", {}, best, (), 0, 0.0))
    assert found == (Candidate("b", 3.0, 2), Candidate("a", 1.0))


def test_files_are_lists_of_prompts_and_hostile_ones_stay_texts(contest, tmp_path, drawn_figures):
    made = {"pez": Scripted("pez", [HOSTILE, "ant"])}
    result = compare(replace(contest, seeds=(0,)), made, KnownTriggers(KNOWN), tmp_path)
    names = ("csv", "md", "tex", "svg", "png", "json")
    assert {f"compare.{ending}" for ending in names} <= {each.name for each in tmp_path.iterdir()}
    assert "<img" not in (tmp_path / "compare.md").read_text().replace("\\<img", "")
    assert "\\input{" not in (tmp_path / "compare.tex").read_text()
    with (tmp_path / "candidates.csv").open(newline="") as lines:
        rows = {row["prompt"]: row for row in csv.DictReader(lines)}
    hostile, ant = rows["'" + HOSTILE], rows["ant"]
    assert (hostile["memorized"], hostile["reference"]) == ("yes", "train/2.png")
    assert (ant["memorized"], ant["clustered"]) == ("no", "no")
    assert set(read_prompts(tmp_path / "candidates.csv").texts) == {HOSTILE, "ant"}
    assert "Memorized images found" in markdown(document(result))
