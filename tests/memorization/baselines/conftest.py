"""A model whose D has a closed form, and what searches need of it."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch")

from linear_model import WordProposer, linear_model
from visleak.memorization.scores import TriggerScore
from visleak.memorization.settings import ScoreSettings


@pytest.fixture
def make_model():
    """Make such a model of a seed."""
    return linear_model


@pytest.fixture
def make_score():
    """Make D of a model."""

    def made(model: Any, **settings: Any) -> TriggerScore:
        return TriggerScore(model, ScoreSettings(**{"batch": 4, **settings}))

    return made


@pytest.fixture
def make_proposer():
    """Make proposals of a model's words."""
    return WordProposer
