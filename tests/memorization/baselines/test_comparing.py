"""The comparison: same budget, verified images only, resumable attempt by attempt."""

import json
import math
from dataclasses import replace

import pytest

from linear_model import linear_model
from visleak.errors import UsageError, VisleakError
from visleak.memorization.baselines import document
from visleak.memorization.baselines.document import (
    Attempt,
    Reproduction,
    Verified,
    mean_of,
    row_of,
    rows_of,
)
from visleak.memorization.baselines.run import Contest, candidates_of, compare, read_comparison
from visleak.memorization.search.driver import Candidate, Progress, SearchResult
from visleak.memorization.settings import Budget, ScoreSettings


@pytest.fixture(autouse=True)
def _no_figure(monkeypatch):
    """The figure has tests of its own, and takes most of the time."""
    monkeypatch.setattr(document, "discoveries", lambda _: {})


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
        self.asked.append((tuple(prompts), folder))
        (folder / "images").mkdir(parents=True, exist_ok=True)
        reproduced = [
            Reproduction(f"train/{number}.png", number, text)
            for text in prompts
            for number in self.known.get(text, ())
        ]
        clustered = tuple(text for text in prompts if text in self.known)
        return Verified(2 * len(prompts), clustered, tuple(reproduced), 20 * len(prompts), 2.0)


KNOWN = {"ant bee": [0], "cow dog": [1], "cow elk": [1], "fox": []}


@pytest.fixture
def contest():
    return Contest(linear_model(), ScoreSettings(), Budget(calls=100), 3, (0, 1))


def methods():
    return {
        "gibbs": Scripted("gibbs", ["ant bee", "cow dog", "cow elk"]),
        "pez": Scripted("pez", ["fox", "fox", "gnu"], 97),
    }


def test_every_method_gets_the_same_task(contest, tmp_path):
    made = methods()
    compare(contest, made, KnownTriggers(KNOWN), tmp_path)
    for searcher in made.values():
        assert [task.seed for task in searcher.tasks] == [0, 1]
        assert {task.budget for task in searcher.tasks} == {Budget(calls=100)}
        assert {task.chains for task in searcher.tasks} == {3}
        assert len({task.folder for task in searcher.tasks}) == 2


def test_only_distinct_verified_images_count(contest, tmp_path):
    result = compare(contest, methods(), KnownTriggers(KNOWN), tmp_path)
    gibbs, pez = rows_of(result)
    # two candidates reproduce one image; a cluster that nobody verified is none
    assert (gibbs.found.value, pez.found.value) == (2.0, 0.0)
    assert (gibbs.clustered.value, pez.clustered.value) == (3.0, 1.0)
    assert (gibbs.candidates, pez.candidates) == (3.0, 2.0)
    assert (gibbs.search_calls, gibbs.image_calls) == (90.0, 60.0)
    assert gibbs.calls_an_image == 150 / 2
    assert gibbs.seconds_an_image == 3.5 / 2
    assert math.isnan(pez.calls_an_image)
    assert not gibbs.complete


def test_candidates_are_scored_anew_under_other_noises(contest, tmp_path):
    result = compare(contest, methods(), KnownTriggers(KNOWN), tmp_path)
    model = linear_model()
    for each in result.attempts:
        by_hand = [model.d(candidate.prompt) for candidate in each.candidates]
        assert list(each.checked) == pytest.approx(by_hand, rel=1e-5)
        assert each.check_calls == 4 * (len(each.candidates) + 1)
        assert each.search_calls in (90, 97)


def test_images_are_made_in_the_order_of_the_fresh_score(contest, tmp_path):
    # what one noise flattered comes first of the search, and last here
    model = linear_model()
    worst_first = sorted(["ant bee", "cow dog", "cow elk"], key=model.d)
    made, verifier = {"gibbs": Scripted("gibbs", worst_first)}, KnownTriggers(KNOWN)
    result = compare(replace(contest, seeds=(0,)), made, verifier, tmp_path)
    (one,) = result.attempts
    assert [each.prompt for each in one.candidates] == worst_first[::-1]
    assert [each.score for each in one.candidates] == [0.0, 1.0, 2.0]
    assert list(one.checked) == sorted(one.checked, reverse=True)
    ((prompts, _),) = verifier.asked
    assert list(prompts) == worst_first[::-1]
    rows = (tmp_path / "candidates.csv").read_text().splitlines()
    assert [row.partition(",")[0] for row in rows[1:]] == worst_first[::-1]


def test_the_result_comes_back_from_its_file(contest, tmp_path):
    result = compare(contest, methods(), KnownTriggers(KNOWN), tmp_path)
    assert read_comparison(tmp_path) == result
    content = json.loads((tmp_path / "compare.json").read_text())
    assert content["headline"].startswith(
        "Gibbs (Algorithm 1) found 2 memorized images (75 passes each); PEZ found 0 memorized"
    )
    assert content["methods"][1]["calls_an_image"] is None


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


@pytest.mark.parametrize("dies_at", range(1, 5))
def test_a_comparison_that_was_stopped_goes_on(contest, tmp_path, monkeypatch, dies_at):
    straight = compare(contest, methods(), KnownTriggers(KNOWN), tmp_path / "straight")
    verifier = KnownTriggers(KNOWN)

    def verify(prompts, folder, progress):
        if len(verifier.asked) == dies_at - 1:
            raise KeyboardInterrupt
        return KnownTriggers.verify(verifier, prompts, folder, progress)

    monkeypatch.setattr(verifier, "verify", verify)
    with pytest.raises(KeyboardInterrupt):
        compare(contest, methods(), verifier, tmp_path / "stopped")
    assert not (tmp_path / "stopped" / "compare.json").exists()
    made = methods()
    result = compare(contest, made, KnownTriggers(KNOWN), tmp_path / "stopped")
    assert result.attempts == straight.attempts
    assert sum(len(searcher.tasks) for searcher in made.values()) == 4 - (dies_at - 1)


@pytest.mark.parametrize(
    ("budget", "told"), [(Budget(calls=100), (40, 100)), (Budget(seconds=9.0), (7, 0))]
)
def test_progress_of_a_search_is_that_of_its_budget(contest, tmp_path, budget, told):
    class Reporting(Scripted):
        def search(self, task):
            task.progress(Progress(7, None, 40, None))
            return super().search(task)

    heard = []
    compare(
        replace(contest, budget=budget, seeds=(0,)),
        {"gibbs": Reporting("gibbs", ["ant bee"])},
        KnownTriggers(KNOWN),
        tmp_path,
        progress=lambda *each: heard.append(each),
    )
    assert heard[0] == ("searching: gibbs, seed 0", *told)


def test_a_search_that_finds_nothing_makes_no_images(contest, tmp_path):
    verifier = KnownTriggers(KNOWN)
    result = compare(contest, {"none": Scripted("none", ["", " "])}, verifier, tmp_path)
    assert not verifier.asked
    (row,) = rows_of(result)
    assert row.found.value == 0
    assert math.isnan(row.best_d.value)


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
    content = json.loads(path.read_text())
    del content["candidates"]
    path.write_text(json.dumps(content))
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
