"""Searches on a diffusion model that was really trained, and a real language model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from visleak.diffusion import load_model
from visleak.memorization.scores import TriggerScore
from visleak.memorization.search import (
    AugmentSettings,
    Budget,
    GibbsSearch,
    GibbsSettings,
    RandomSettings,
    RandomWords,
    Rules,
    SearchTask,
    augment,
    diversify,
    load_language_model,
)
from visleak.memorization.settings import ScoreSettings

SETTINGS = GibbsSettings(
    length=6, iterations=8, candidates=130, temperature=0.05, kappa=None, norm="l2"
)


@pytest.fixture(scope="module")
def world(trained_toy: Path) -> dict[str, Any]:
    read = json.loads((trained_toy / "world.json").read_text())
    return {
        **read,
        "model": load_model(str(trained_toy / "pipeline"), device="cpu"),
        "lm": load_language_model(
            str(trained_toy / "mlm"), rules=Rules(banned=tuple(read["colours"]))
        ),
    }


def task(world: dict[str, Any], **given: Any) -> SearchTask:
    settings = ScoreSettings(timestep=999, norm="l2")
    return SearchTask(TriggerScore(world["model"], settings), **given)


def test_both_methods_find_higher_d_than_ordinary_captions_have(world: dict[str, Any]) -> None:
    """From masks, and colours banned; on this toy one trigger word is nearly enough for both."""
    general = TriggerScore(world["model"], ScoreSettings(timestep=999))(world["held_out"][:100])
    found = GibbsSearch(world["lm"], SETTINGS).search(task(world, chains=2))
    budget = Budget(calls=found.calls)
    blind = RandomWords(world["lm"], RandomSettings(6)).search(task(world, chains=2, budget=budget))
    assert blind.calls <= found.calls
    for each in (found, blind):
        assert min(candidate.score for candidate in each.best) > np.quantile(general.d_l2, 0.95)
        words = {word for candidate in each.bank for word in candidate.prompt.split()}
        assert words.isdisjoint(world["colours"])


def test_a_known_trigger_is_multiplied_and_spread(world: dict[str, Any]) -> None:
    trigger = world["memorised"][0]["caption"]
    score = TriggerScore(world["model"], ScoreSettings(timestep=999, norm="l2"))
    general = score(world["held_out"][:100]).d_l2
    settings = AugmentSettings(
        iterations=6,
        candidates=12,
        temperature=0.1,
        kappa=float(np.quantile(general, 0.95)),
        top=40,
        norm="l2",
    )
    made = augment(task(world), world["lm"], [trigger], settings)
    (only,) = made.triggers
    assert only.above >= 10
    assert len(only.prompts) == min(40, only.scored)
    texts = [each.prompt for each in only.prompts]
    picks = diversify(world["model"], texts, 6, seed=1)
    close, spread = (
        [pick.closeness for pick in diversify(world["model"], texts[:6], 6)[1:]],
        [pick.closeness for pick in picks[1:]],
    )
    assert np.mean([each or 0.0 for each in spread]) <= np.mean([each or 0.0 for each in close])
