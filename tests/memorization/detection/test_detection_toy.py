"""D of a model that was really trained, and really knows twelve pictures by heart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from visleak.diffusion import load_model
from visleak.memorization.detection import Analysis, detect, token_significance
from visleak.memorization.prompts import Prompts
from visleak.memorization.scores import TriggerScore
from visleak.memorization.settings import ScoreSettings


@pytest.mark.parametrize(("others", "least"), [("held_out", 0.95), ("hard", 0.85)])
def test_d_tells_what_was_learnt_by_heart(
    trained_toy: Path, tmp_path: Path, others: str, least: float
) -> None:
    world = json.loads((trained_toy / "world.json").read_text())
    model = load_model(str(trained_toy / "pipeline"), device="cpu", precision="fp32")
    score = TriggerScore(model, ScoreSettings(timestep=999))
    captions = tuple(each["caption"] for each in world["memorised"])
    found = detect(
        score,
        Prompts(captions, (True,) * len(captions)),
        tmp_path,
        general=Prompts(tuple(dict.fromkeys(world[others]))),
        analysis=Analysis(fpr=0.1),
    )
    assert found.separation is not None
    assert found.separation.auc.value >= least
    assert found.threshold is not None
    assert found.threshold.alarms <= 0.1 * found.threshold.negatives
    assert found.known_reached >= 8
    # one token per word in this world
    tokens = token_significance(score, captions[0])
    assert tokens.tokens == tuple(captions[0].split())
    assert min(tokens.values) > 0
