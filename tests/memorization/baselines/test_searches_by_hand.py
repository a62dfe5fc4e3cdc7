"""Greedy, ConZIC and PEZ against brute force, finite differences and torch."""

import itertools

import numpy as np
import pytest
import torch

from linear_model import WordProposer, linear_model, score_of
from visleak.errors import UsageError
from visleak.memorization.baselines.gradients import (
    Moments,
    Pez,
    PezSettings,
    Vocabulary,
    adamw,
    ascent,
)
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


def test_lists_that_greedy_cannot_score():
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


@pytest.mark.parametrize("norm", ["l2", "squared"])
@pytest.mark.parametrize("noises", [1, 3])
def test_the_gradient_of_pez_is_that_of_finite_differences(norm, noises):
    model = linear_model(2, wobble=0.4)
    model.table, model.weight = model.table.double(), model.weight.double()
    score = score_of(model, norm=norm, noises=noises, batch=2)
    vocabulary = Vocabulary(model)
    ids = torch.tensor([[1, 2, 3], [4, 4, 5], [6, 7, 8]])
    values, slopes = ascent(score, vocabulary, ids, 5)
    by_text = score([model.prompt_of(row) for row in ids.tolist()], draw=5).by(norm)
    assert values == pytest.approx(list(by_text), rel=1e-9)

    def d(embeddings):
        total = 0.0
        for noise, empty in score.noises(5):
            squared = score.squared_distance(model.encode_embeddings(embeddings), noise, empty)
            total = total + (squared if norm == "squared" else squared.sqrt())
        return (total / noises).detach()

    start, step = model.table[ids], 1e-6
    for token, axis in itertools.product(range(3), range(4)):
        nudge = torch.zeros_like(start)
        nudge[:, token, axis] = step
        slope = (d(start + nudge) - d(start - nudge)) / (2 * step)
        assert slopes[:, token, axis].tolist() == pytest.approx(slope.tolist(), rel=1e-4, abs=1e-5)


def test_adamw_is_that_of_torch():
    source = torch.Generator().manual_seed(0)
    start = torch.randn((3, 2, 4), generator=source)
    theirs = start.clone().requires_grad_(True)
    optimizer = torch.optim.AdamW([theirs], lr=0.1, weight_decay=0.1)
    ours = Moments(start, torch.zeros_like(start), torch.zeros_like(start))
    for step in range(1, 30):
        gradient = torch.randn((3, 2, 4), generator=source)
        theirs.grad = gradient.clone()
        optimizer.step()
        ours = adamw(ours, gradient, step, 0.1, 0.1)
    assert torch.allclose(ours.soft, theirs.detach(), rtol=1e-5, atol=1e-6)


def test_pez_reaches_the_best_prompt_of_a_linear_model():
    hits = 0
    for seed in range(5):
        model = linear_model(seed)
        best = max(
            model.d(" ".join(words))
            for words in itertools.combinations_with_replacement(model.words[1:], 3)
        )
        settings = PezSettings(length=3, iterations=100)
        found = Pez(model, settings).search(SearchTask(score_of(model), chains=6, seed=seed))
        top = max(each.score for each in found.best)
        assert top <= best * (1 + 1e-5)
        assert model.d(found.bank[0].prompt) == pytest.approx(top, rel=1e-5)
        hits += top == pytest.approx(best, rel=1e-5)
    assert hits == 5


def test_settings_of_pez_that_cannot_be():
    with pytest.raises(UsageError, match="length 13 of pez is more than the 12 tokens that linear"):
        Pez(linear_model(), PezSettings(length=13))
    with pytest.raises(UsageError, match="decay must be below 1 / rate"):
        PezSettings(rate=2.0, decay=0.5)
