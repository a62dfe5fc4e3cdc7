"""Blocks of scores: a run that is killed resumes, and ends with the same numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from closed_form import ClosedForm
from visleak.memorization.detection.run import BLOCK, SCORES, scored
from visleak.memorization.scores import TriggerScore
from visleak.memorization.settings import ScoreSettings
from visleak.storage import KeyValueStore

TEXTS = tuple(f"prompt {number / 100}" for number in range(3 * BLOCK + 17))


def score(fail_after: int | None = None, batch: int = 32) -> TriggerScore:
    return TriggerScore(ClosedForm(fail_after), ScoreSettings(noises=2, batch=batch))


def test_the_scores_are_those_without_blocks(tmp_path: Path) -> None:
    made = score()
    found, cost = scored(made, TEXTS, tmp_path, "key")
    whole = score()(TEXTS)
    assert (found.squared == whole.squared).all()
    assert (found.l2 == whole.l2).all()
    # the empty prompt once a noise, however many blocks there are
    assert cost.passes == made.calls == 2 * (len(TEXTS) + 1)
    assert (cost.prompts, cost.reused) == (len(TEXTS), 0)
    assert cost.seconds == pytest.approx(made.seconds)
    assert cost.prompts_per_second == pytest.approx(len(TEXTS) / cost.seconds)
    assert cost.passes_per_second == pytest.approx(cost.passes / cost.seconds)


@pytest.mark.parametrize("rows", [1, 100, 2 * BLOCK + 70, 4 * BLOCK + 10, 6 * BLOCK + 20])
def test_a_kill_loses_a_block_at_most_and_changes_nothing(tmp_path: Path, rows: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        scored(score(fail_after=rows), TEXTS, tmp_path, "key")
    again = score()
    told: list[tuple[str, int, int]] = []
    found, cost = scored(again, TEXTS, tmp_path, "key", progress=lambda *said: told.append(said))
    assert (found.squared == score()(TEXTS).squared).all()
    # two passes per prompt; the block that was not finished is made again
    kept = (rows - 2) // (2 * BLOCK) * BLOCK if rows > 2 else 0
    assert again.calls == 2 * (len(TEXTS) - kept + 1)
    assert told[0] == ("scoring prompts", kept, len(TEXTS))
    assert told[-1] == ("scoring prompts", len(TEXTS), len(TEXTS))
    # what the first run paid for blocks that count is counted too
    assert cost.passes == 2 * (len(TEXTS) + 1 + bool(kept))


@pytest.mark.parametrize("damage", [b"", b"\0" * 8, np.full(4, np.nan).tobytes()])
def test_a_damaged_score_is_made_again(tmp_path: Path, damage: bytes) -> None:
    scored(score(), TEXTS, tmp_path, "key")
    with KeyValueStore(tmp_path / SCORES, "scores") as store:
        rows = list(store.select("SELECT key FROM entries"))[:5]
        store.add({key: damage for (key,) in rows}, replace=True)
    again = score()
    found, _ = scored(again, TEXTS, tmp_path, "key")
    assert again.calls == 2 * 6
    np.testing.assert_allclose(found.squared, score()(TEXTS).squared, rtol=1e-6)
