"""Algorithm 1 against a chain worked out by brute force, and what it does about rounds."""

import dataclasses
import json
import sqlite3
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from toy_prompt_models import (
    WORDS,
    FiveProposer,
    FiveWords,
    all_states,
    brute_matrix,
    brute_transition,
    d_of,
    task,
    text_of,
)
from visleak.errors import UsageError
from visleak.memorization.search.driver import FILE, begun
from visleak.memorization.search.gibbs import (
    GibbsSearch,
    GibbsSettings,
    Move,
    advance,
    boltzmann,
)
from visleak.memorization.search.methods import RandomSettings, RandomWords
from visleak.memorization.settings import Budget

SETTINGS = GibbsSettings(
    length=3, iterations=8, candidates=5, temperature=0.5, kappa=None, norm="l2"
)


def walks_in(folder):
    """Return where the chains of a search stand, after how many moves, and whether at an end."""
    with sqlite3.connect(folder / FILE) as db:
        (text,) = db.execute("SELECT value FROM about WHERE name = 'state'").fetchone()
    return json.loads(text)["state"]


def sampled(state, position, count, temperature):
    """Return the probabilities that the sampler itself draws from."""
    with begun("moves", {}, task()) as run:
        made = advance(run, FiveProposer(), [Move(state, position, 0.5)], count, temperature, 0)
    chances = boltzmann(made[0].scores, temperature)
    return dict(zip(made[0].states, chances.tolist(), strict=True))


@pytest.mark.parametrize("count", [5, 3])
@pytest.mark.parametrize("temperature", [0.1, 0.5, 50.0])
def test_a_move_has_the_probabilities_of_equations_7_to_9(count, temperature):
    """T_i to 1e-12, for every state and position, masks among them."""
    for state in all_states(2, masks=True):
        for position in range(2):
            wanted = brute_transition(FiveProposer(), state, position, count, temperature)
            found = sampled(state, position, count, temperature)
            assert found.keys() == wanted.keys()
            for target, chance in wanted.items():
                assert found[target] == pytest.approx(chance, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(("steps", "count"), [(3, 5), (3, 3)])
def test_chains_are_distributed_as_the_brute_force_chain(tmp_path, steps, count):
    """Chi-square: 2,000 chains after so many moves, against powers of T from n masks."""
    settings, chains = (
        dataclasses.replace(SETTINGS, length=2, iterations=steps, candidates=count),
        2000,
    )
    GibbsSearch(FiveProposer(), settings).search(task(chains=chains, seed=5, folder=tmp_path))
    states, matrix = brute_matrix(FiveProposer(), 2, count, settings.temperature)
    start = np.zeros(len(states))
    start[states.index((len(WORDS), len(WORDS)))] = 1.0
    expected = start @ np.linalg.matrix_power(matrix, steps) * chains
    seen = Counter(tuple(state) for state, *_ in walks_in(tmp_path))
    observed = np.array([seen[state] for state in states], float)
    assert observed[expected == 0.0].sum() == 0
    # states that are expected less than five times are one
    enough = expected >= 5.0
    merged = [np.append(each[enough], each[~enough].sum()) for each in (observed, expected)]
    keep = merged[1] > 0.0
    assert chisquare(merged[0][keep], merged[1][keep]).pvalue > 0.01


def test_the_code_answers_with_the_best_scored_and_the_paper_with_the_best_visited():
    visited, scored = (
        GibbsSearch(
            FiveProposer(), dataclasses.replace(SETTINGS, preset=preset, temperature=5.0)
        ).search(task(chains=1))
        for preset in ("paper", "official-code")
    )
    assert scored.best[0].score == scored.bank[0].score
    assert visited.best[0].score < visited.bank[0].score


def test_rounds_begin_from_masks_until_kappa(tmp_path):
    """As printed: an outer round is run whole, and the next one restarts from p^0."""
    high = sorted(d_of(text_of(state)) for state in all_states(3))[-6]
    settings = dataclasses.replace(SETTINGS, kappa=high, rounds=None, iterations=3)
    found = GibbsSearch(FiveProposer(), settings).search(
        task(chains=4, budget=Budget(calls=100_000), folder=tmp_path)
    )
    assert found.complete
    assert all(each.score >= high for each in found.best)
    steps = [walk[1] for walk in walks_in(tmp_path)]
    assert all(number % settings.iterations == 0 for number in steps)
    assert max(steps) > settings.iterations
    # no kappa is reached
    limited = dataclasses.replace(SETTINGS, kappa=9.0, rounds=2)
    found = GibbsSearch(FiveProposer(), limited).search(task(model := FiveWords(), chains=2))
    assert found.complete
    assert found.calls == model.rows <= 2 * 8 * (2 * 5 + 1)
    with pytest.raises(UsageError, match="nothing ends the search gibbs"):
        GibbsSearch(FiveProposer(), dataclasses.replace(limited, rounds=None)).search(task())
    with pytest.raises(UsageError, match="on the squared scale, and D is on the l2 one"):
        GibbsSearch(FiveProposer(), GibbsSettings(length=3)).search(task())


def test_words_are_drawn_uniformly_among_those_allowed():
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
