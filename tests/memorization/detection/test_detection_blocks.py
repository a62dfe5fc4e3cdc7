"""Blocks of scores: a run that is killed goes on, and ends with the same numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from closed_form import ClosedForm
from hypothesis import given
from hypothesis import strategies as st

from visleak.memorization.detection import blocks
from visleak.memorization.detection.blocks import BLOCK, Known, forget, scored
from visleak.memorization.scores import TriggerScore
from visleak.memorization.settings import ScoreSettings

TEXTS = tuple(f"prompt {number / 100}" for number in range(3 * BLOCK + 17))
SETTINGS = ScoreSettings(noises=2, batch=32)


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
    assert told[0] == (blocks.STEP, kept, len(TEXTS))
    assert told[-1] == (blocks.STEP, len(TEXTS), len(TEXTS))
    # what the first run paid for blocks that count is counted too
    assert cost.passes == 2 * (len(TEXTS) + 1 + bool(kept))


def test_another_batch_takes_over_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        scored(score(fail_after=2 * BLOCK + 70), TEXTS, tmp_path, "key")
    again = score(batch=24)
    found, _ = scored(again, TEXTS, tmp_path, "key")
    assert again.calls == 2 * (len(TEXTS) - BLOCK + 1)
    np.testing.assert_allclose(found.squared, score()(TEXTS).squared, rtol=1e-5)


@pytest.mark.parametrize("other", ["key", "texts"])
def test_scores_of_another_key_or_list_are_not_taken(tmp_path: Path, other: str) -> None:
    scored(score(), TEXTS[:300], tmp_path, "key")
    again = score()
    texts = TEXTS[:300] if other == "key" else (*TEXTS[:299], "new")
    scored(again, texts, tmp_path, "other" if other == "key" else "key")
    assert again.calls == 2 * 301


@pytest.mark.parametrize("damage", ["empty", "half", "text", "short", "nan"])
def test_a_damaged_block_is_made_again(tmp_path: Path, damage: str) -> None:
    scored(score(), TEXTS, tmp_path, "key")
    file = sorted(tmp_path.glob("unfinished-*/*.npz"))[1]
    data = file.read_bytes()
    if damage in ("short", "nan"):
        columns = 1 if damage == "short" else 2
        with file.open("wb") as out:
            np.savez(out, squared=np.full((BLOCK, columns), np.nan), passes=1, seconds=1.0)
    else:
        file.write_bytes({"empty": b"", "half": data[: len(data) // 2], "text": b"hello"}[damage])
    again = score()
    found, _ = scored(again, TEXTS, tmp_path, "key")
    assert again.calls == 2 * (BLOCK + 1)
    assert (found.squared == score()(TEXTS).squared).all()


def test_blocks_that_overlap_count_once(tmp_path: Path) -> None:
    scored(score(), TEXTS, tmp_path, "key")
    first, *_ = sorted(tmp_path.glob("unfinished-*/*.npz"))
    first.with_name("000000005.npz").write_bytes(first.read_bytes())
    found, _ = scored(score(), TEXTS, tmp_path, "key")
    assert (found.squared == score()(TEXTS).squared).all()


def test_what_is_known_is_not_made_again(tmp_path: Path) -> None:
    whole = score()(TEXTS[:10]).squared
    known = Known({TEXTS[row]: whole[row] for row in (1, 4, 7)})
    made = score()
    found, cost = scored(made, TEXTS[:10], tmp_path, "key", known)
    assert made.calls == 2 * 8
    assert (cost.prompts, cost.reused) == (7, 3)
    np.testing.assert_allclose(found.squared, whole, rtol=1e-5)
    assert (found.squared[[1, 4, 7]] == whole[[1, 4, 7]]).all()


def test_all_known_costs_nothing(tmp_path: Path) -> None:
    whole = score()(TEXTS[:5]).squared
    made = score()
    _, cost = scored(made, TEXTS[:5], tmp_path, "k", Known(dict(zip(TEXTS, whole, strict=False))))
    assert (made.calls, cost.prompts, cost.prompts_per_second) == (0, 0, 0.0)


def test_forgetting_leaves_everything_else(tmp_path: Path) -> None:
    scored(score(), TEXTS[:5], tmp_path, "key")
    (tmp_path / "scores.csv").write_text("kept")
    forget(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["scores.csv"]


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 9))
def test_stretches_cover_what_is_left_once(done: list[bool], size: int) -> None:
    found = list(blocks._left(np.array(done, np.bool_), size))
    rows = [row for start, stop in found for row in range(start, stop)]
    assert rows == [row for row, known in enumerate(done) if not known]
    assert all(0 < stop - start <= size for start, stop in found)


def test_blocks_are_whole_batches() -> None:
    assert [blocks._size(batch) for batch in (1, 16, 100, 256, 300)] == [256, 256, 300, 256, 300]
