"""Greedy and ConZIC against brute force."""

import itertools

import numpy as np
import pytest

from linear_model import WordProposer, linear_model, score_of
from visleak.errors import UsageError
from visleak.memorization.prompts import Prompts
from visleak.memorization.search import methods
from visleak.memorization.search.driver import SearchTask, generator
from visleak.memorization.search.methods import Conzic, ConzicSettings, Greedy
from visleak.memorization.settings import Budget

TEXTS = tuple(
    " ".join(two) for two in itertools.permutations(("ant", "bee", "cow", "dog", "elk"), 2)
)


def test_the_best_of_the_list_are_those_of_brute_force(monkeypatch):
    monkeypatch.setattr(methods, "LISTED", 4)
    model = linear_model()
    found = Greedy(Prompts(TEXTS)).search(SearchTask(score_of(model), chains=5))
    by_hand = sorted((model.d(text) for text in TEXTS), reverse=True)
    assert [each.score for each in found.best] == pytest.approx(by_hand[:5], rel=1e-5)
    assert [model.d(each.prompt) for each in found.best] == pytest.approx(by_hand[:5], rel=1e-5)
    assert all(TEXTS[each.step] == each.prompt for each in found.best)
    assert {each.prompt for each in found.bank} == set(TEXTS)


def test_errors():
    with pytest.raises(UsageError, match="greedy needs prompts to score; the list holds none"):
        Greedy(Prompts(()))
    task = SearchTask(score_of(linear_model(), noises=2), budget=Budget(calls=3))
    with pytest.raises(UsageError, match="a budget of 3 calls scores no prompt: give at least 4"):
        Greedy(Prompts(TEXTS)).search(task)
    with pytest.raises(UsageError, match="chains must be at least 1; got 0"):
        Greedy(Prompts(TEXTS)).search(SearchTask(score_of(linear_model()), chains=0))


def plain(model, proposer, settings, order):
    """One chain of a model without a wobble, literally."""
    state, visited = [0] * settings.length, []
    for step in range(settings.iterations):
        at = order[step % len(order)]
        chances = proposer.chances[at]
        top = sorted(range(len(chances)), key=lambda word: -chances[word])[: settings.candidates]
        raised = np.array([chances[word] for word in top]) ** (1 / settings.lm_temperature)
        fluent = raised / raised.sum()
        sums = []
        for word, chance in zip(top, fluent, strict=True):
            tried = [*state[:at], word + 1, *state[at + 1 :]]
            d = model.d(model.prompt_of([each for each in tried if each]))
            sums.append(settings.alpha * chance + settings.beta * d)
        state[at] = top[int(np.argmax(sums))] + 1
        visited.append(model.prompt_of([each for each in state if each]))
    return visited


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("alpha", "beta"), [(0.02, 2.0), (50.0, 1.0), (1.0, 0.0), (0.0, 2.0)])
def test_every_step_of_conzic_takes_the_argmax(seed, alpha, beta):
    model = linear_model(seed)
    proposer = WordProposer(model, seed)
    settings = ConzicSettings(4, 11, 5, alpha, beta, 0.7)
    found = Conzic(proposer, settings).search(SearchTask(score_of(model), chains=2))
    for chain, each in enumerate(found.best):
        order = generator(0, chain).permutation(4).tolist()
        visited = plain(model, proposer, settings, order)
        top = max(model.d(text) for text in visited)
        assert each.score == pytest.approx(top, rel=1e-5)
        assert each.prompt == visited[each.step]
    assert found.complete
