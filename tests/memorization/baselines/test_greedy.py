"""Greedy: the best prompts of a list, whatever the batch, the budget or a kill."""

from __future__ import annotations

import itertools

import pytest

from visleak.errors import UsageError, VisleakError
from visleak.memorization.prompts import Prompts
from visleak.memorization.search import methods
from visleak.memorization.search.driver import FILE, SearchTask
from visleak.memorization.search.methods import Greedy
from visleak.memorization.settings import Budget

TEXTS = tuple(
    " ".join(two) for two in itertools.permutations(("ant", "bee", "cow", "dog", "elk"), 2)
)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(methods, "LISTED", 4)


def test_the_best_of_the_list_are_those_of_brute_force(make_model, make_score):
    model = make_model()
    score = make_score(model)
    found = Greedy(Prompts(TEXTS)).search(SearchTask(score, chains=5))
    by_hand = sorted((model.d(text) for text in TEXTS), reverse=True)
    assert [each.score for each in found.best] == pytest.approx(by_hand[:5], rel=1e-5)
    assert [model.d(each.prompt) for each in found.best] == pytest.approx(by_hand[:5], rel=1e-5)
    assert [each.chain for each in found.best] == [0, 1, 2, 3, 4]
    assert all(TEXTS[each.step] == each.prompt for each in found.best)
    assert found.complete
    assert {each.prompt for each in found.bank} == set(TEXTS)


def test_errors(make_model, make_score, tmp_path):
    with pytest.raises(UsageError, match="greedy needs prompts to score; the list holds none"):
        Greedy(Prompts(()))
    task = SearchTask(make_score(make_model(), noises=2), budget=Budget(calls=3))
    with pytest.raises(UsageError, match="a budget of 3 calls scores no prompt: give at least 4"):
        Greedy(Prompts(TEXTS)).search(task)
    with pytest.raises(UsageError, match="chains must be at least 1; got 0"):
        Greedy(Prompts(TEXTS)).search(SearchTask(make_score(make_model()), chains=0))
    task = SearchTask(make_score(make_model()), folder=tmp_path)
    Greedy(Prompts(TEXTS)).search(task)
    for damage in (b"PK\x03\x04 no database" * 99, b"not a database at all" * 99):
        (tmp_path / FILE).write_bytes(damage)
        with pytest.raises(VisleakError, match=r"cannot be used .* remove the file"):
            Greedy(Prompts(TEXTS)).search(task)
