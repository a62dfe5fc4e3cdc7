"""ConZIC: the argmax of the weighted sum, step by step, against a loop that says it plainly."""

from __future__ import annotations

import numpy as np
import pytest

from visleak.memorization.search.driver import SearchTask, generator
from visleak.memorization.search.methods import Conzic, ConzicSettings


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
@pytest.mark.parametrize(("alpha", "beta"), [(0.02, 2.0), (50.0, 1.0), (1.0, 0.0)])
def test_every_step_takes_the_argmax(make_model, make_score, make_proposer, seed, alpha, beta):
    model = make_model(seed)
    proposer = make_proposer(model, seed)
    settings = ConzicSettings(4, 11, 5, alpha, beta, 0.7)
    found = Conzic(proposer, settings).search(SearchTask(make_score(model), chains=2))
    for chain, each in enumerate(found.best):
        order = generator(0, chain).permutation(4).tolist()
        visited = plain(model, proposer, settings, order)
        top = max(model.d(text) for text in visited)
        assert each.score == pytest.approx(top, rel=1e-5)
        assert each.prompt == visited[each.step]
    assert found.complete


def test_with_all_words_and_no_weight_of_the_model_it_climbs_to_a_local_optimum(
    make_model, make_score, make_proposer
):
    model = make_model(5)
    settings = ConzicSettings(3, 60, 99, alpha=0.0)
    found = Conzic(make_proposer(model), settings).search(SearchTask(make_score(model), chains=4))
    for each in found.best:
        words = each.prompt.split()
        for at in range(3):
            for word in model.words[1:]:
                other = " ".join([*words[:at], word, *words[at + 1 :]])
                assert model.d(other) <= each.score * (1 + 1e-5)
