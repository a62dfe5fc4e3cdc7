"""Strings of random words within a budget."""

from __future__ import annotations

from collections import Counter
from typing import Any

from scipy.stats import chisquare

from toy_prompt_models import WORDS, FiveProposer, FiveWords, d_of
from visleak.memorization.scores import TriggerScore
from visleak.memorization.search.driver import SearchTask
from visleak.memorization.search.methods import RandomSettings, RandomWords
from visleak.memorization.settings import Budget, ScoreSettings


def task(model: FiveWords | None = None, **given: Any) -> SearchTask:
    return SearchTask(TriggerScore(model or FiveWords(), ScoreSettings(norm="l2")), **given)


def test_words_are_drawn_uniformly_among_those_allowed() -> None:
    proposer = FiveProposer()
    proposer.banned = (1,)
    model = FiveWords()
    search = RandomWords(proposer, RandomSettings(length=1, prompts=1))
    told = Counter()
    for seed in range(400):
        (best,) = search.search(task(model, seed=seed)).best
        told[best.prompt] += 1
    assert "bee" not in told
    assert chisquare(list(told.values())).pvalue > 0.01
    assert len(told) == len(WORDS) - 1


def test_each_chain_has_an_equal_share_and_keeps_its_best() -> None:
    model = FiveWords()
    found = RandomWords(FiveProposer(), RandomSettings(length=4)).search(
        task(model, chains=3, budget=Budget(calls=500))
    )
    assert found.calls == model.rows <= 500
    assert found.complete
    assert [each.chain for each in found.best] == [0, 1, 2]
    bank = {each.prompt: each.score for each in found.bank}
    assert bank.keys() == set(model.asked) - {""}
    assert max(each.score for each in found.best) == max(bank.values())
    assert all(each.score == d_of(each.prompt) for each in found.best)
    assert all(len(each.prompt.split()) == 4 for each in found.bank)
