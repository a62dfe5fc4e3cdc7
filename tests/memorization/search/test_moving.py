"""Draws and probabilities of one move."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toy_prompt_models import FiveProposer, FiveWords
from visleak.memorization.scores import TriggerScore
from visleak.memorization.search.driver import SearchTask, begun, generator
from visleak.memorization.search.gibbs import Move, advance, boltzmann, draw_of
from visleak.memorization.settings import ScoreSettings

SCORES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20)


@given(SCORES, st.floats(1e-3, 1e3), st.floats(-1e3, 1e3))
def test_probabilities_are_a_distribution_in_the_order_of_scores(
    scores: list[float], temperature: float, shift: float
) -> None:
    values = np.array(scores)
    chances = boltzmann(values, temperature)
    assert chances.sum() == pytest.approx(1.0, abs=1e-12)
    assert (chances >= 0.0).all()
    order = np.argsort(values)
    assert (np.diff(chances[order]) >= -1e-15).all()
    # only differences of D count
    moved = boltzmann(values + shift, temperature)
    assert np.allclose(moved, chances, atol=1e-5)


def test_chains_of_a_step_share_its_prompts_and_noises() -> None:
    """Equal prompts of several chains are scored once, and so have equal D."""
    model = FiveWords(noisy=True)
    score = TriggerScore(model, ScoreSettings(norm="l2"))
    asked = [Move((0, 1), 0, 0.3), Move((2, 1), 0, 0.9), Move((0, 1), 1, 0.5)]
    with begun("moves", {}, SearchTask(score)) as run:
        made = advance(run, FiveProposer(), asked, 5, 0.5, 0)
        # nine prompts and the empty one
        assert model.rows == run.calls == 10
        alone = advance(run, FiveProposer(), asked[2:], 5, 0.5, 0)
    assert made is not None
    assert alone is not None
    assert made[0].scores.tolist() == made[1].scores.tolist()
    assert alone[0].scores.tolist() == made[2].scores.tolist()
    assert alone[0].state == made[2].state


def test_random_numbers_depend_on_seed_chain_and_step_alone() -> None:
    keys = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, "a", 0), (0, "b", 0)]
    first = [generator(*key).random() for key in keys]
    assert first == [generator(*key).random() for key in keys]
    assert len(set(first)) == len(keys)
    draws = {draw_of(seed, step) for seed in range(3) for step in range(5)}
    assert len(draws) == 15
