"""What every search promises: cost, budget, independent chains, the same end after a kill."""

import pytest

from linear_model import WordProposer, linear_model, score_of
from visleak.errors import UsageError
from visleak.memorization.baselines.gradients import Pez, PezSettings, Zerocap, ZerocapSettings
from visleak.memorization.prompts import Prompts
from visleak.memorization.search import methods
from visleak.memorization.search.driver import SearchTask
from visleak.memorization.search.gibbs import GibbsSearch
from visleak.memorization.search.methods import (
    Conzic,
    ConzicSettings,
    Greedy,
    RandomSettings,
    RandomWords,
)
from visleak.memorization.settings import Budget, GibbsSettings

SEARCHES = ("gibbs", "random", "greedy", "conzic", "zerocap", "pez")

#: Units of work that a search does here where nothing else ends it.
UNITS = {"gibbs": 9, "random": 40, "conzic": 9, "pez": 25}
LISTED = tuple(f"{a} {b}" for a in ("ant", "bee", "cow", "dog") for b in ("elk", "fox", "gnu"))
GIBBS = GibbsSettings(
    length=3, candidates=5, temperature=0.5, kappa=None, rounds=1, norm="l2", keep=50
)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(methods, "LISTED", 4)


@pytest.fixture
def search(request, language):
    """Run a search, with a model of its own."""

    def ran(name, *, chains=3, endless=False, dies_at=None, noises=1, **given):
        model = linear_model(1, wobble=0.5)
        model.dies_at = dies_at
        units = None if endless else UNITS.get(name)
        proposer = WordProposer(model)
        gibbs = dict(vars(GIBBS)) | {"iterations": units or 10**9}
        made = {
            "gibbs": lambda: GibbsSearch(proposer, GibbsSettings(**gibbs)),
            "random": lambda: RandomWords(proposer, RandomSettings(3, units, keep=9)),
            "greedy": lambda: Greedy(Prompts(LISTED)),
            "conzic": lambda: Conzic(proposer, ConzicSettings(4, units, 5)),
            "zerocap": lambda: Zerocap(
                language, ZerocapSettings(4, 3, prefix="", end="", steps=2, top=6)
            ),
            "pez": lambda: Pez(model, PezSettings(length=3, iterations=units)),
        }
        task = SearchTask(score_of(model, noises=noises), chains, 2, **given)
        return made[name]().search(task), model, task

    return ran


@pytest.mark.parametrize("name", SEARCHES)
def test_passes_are_those_of_the_network(search, name):
    found, model, task = search(name, noises=2)
    assert task.score.calls == model.passes
    # a pass with its gradient counts as two
    assert found.calls == model.passes + (2 * 3 * UNITS["pez"] if name == "pez" else 0)
    assert found.complete
    assert [each.chain for each in found.best] == [0, 1, 2]


@pytest.mark.parametrize("calls", [29, 60, 75, 100])
@pytest.mark.parametrize("name", [each for each in SEARCHES if each != "zerocap"])
def test_a_budget_is_never_overdrawn(search, name, calls):
    found, model, _ = search(name, endless=True, chains=2, budget=Budget(calls=calls))
    assert model.passes <= found.calls <= calls
    assert found.complete == (name == "random" or (name == "greedy" and calls > len(LISTED)))


@pytest.mark.parametrize("name", SEARCHES)
def test_nothing_is_scored_when_time_is_up(search, name):
    found, model, _ = search(name, budget=Budget(seconds=1e-9))
    assert (found.calls, model.passes, found.complete) == (0, 0, False)
    assert not any(each.prompt for each in found.best)


@pytest.mark.parametrize("name", [each for each in SEARCHES if each != "greedy"])
def test_a_chain_is_the_same_alone_and_among_others(search, name):
    few, many = (search(name, chains=chains)[0].best for chains in (2, 5))
    assert [each.prompt for each in few] == [each.prompt for each in many[:2]]
    assert len({each.prompt for each in many}) > 1


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_that_was_stopped_ends_the_same(search, name, tmp_path):
    budget = Budget(calls=170 if name == "zerocap" else 10_000)
    straight, model, _ = search(name, budget=budget)
    for part in (0.04, 0.3, 0.6):
        with pytest.raises(KeyboardInterrupt):
            search(name, budget=budget, folder=tmp_path, dies_at=max(2, int(part * model.passes)))
    found, *_ = search(name, budget=budget, folder=tmp_path)
    assert (found.best, found.bank, found.calls) == (straight.best, straight.bank, straight.calls)
    assert found.complete == straight.complete
    again, untouched, _ = search(name, budget=budget, folder=tmp_path, dies_at=1)
    assert (again.best, again.calls, untouched.passes) == (straight.best, straight.calls, 0)


@pytest.mark.parametrize("name", [each for each in UNITS if each != "gibbs"])
def test_a_search_that_nothing_ends_is_refused(search, name):
    with pytest.raises(UsageError, match=f"nothing ends the search {name}"):
        search(name, endless=True)


@pytest.mark.parametrize("name", [each for each in SEARCHES if each != "greedy"])
def test_a_budget_that_holds_no_step_is_refused(search, name):
    with pytest.raises(UsageError, match=f"calls holds no step of {name}, which costs"):
        search(name, chains=3, budget=Budget(calls=3))
