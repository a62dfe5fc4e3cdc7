"""The file in which a search keeps where it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from visleak.errors import UsageError
from visleak.memorization.search.driver import (
    FILE,
    Candidate,
    Ledger,
    ScoredCandidate,
    calls_so_far,
)
from visleak.storage import claimed

KEY = {"seed": 1, "settings": {"length": 3}}


def fill(ledger: Ledger, *scores: float) -> None:
    rows = [Candidate(f"prompt {score}", score, 0, 1) for score in scores]
    calls, seconds = ledger.calls + len(rows) + 1, ledger.seconds + 0.5
    ledger.save({"step": len(rows)}, rows, calls=calls, seconds=seconds)


def test_a_prompt_scored_again_keeps_its_mean_and_where_it_was_highest() -> None:
    with Ledger(None, KEY) as ledger:
        for step, score in enumerate((1.0, 3.0, 2.0, 3.0)):
            ledger.save(
                step, [ScoredCandidate("a", score, step, step, 4 - step)], calls=1, seconds=0.0
            )
        (held,) = ledger.best()
    assert (held.mean, held.best, held.times) == (2.25, 3.0, 4)
    assert (held.chain, held.step, held.changed) == (1, 1, 1)


def test_the_state_of_another_search_is_refused_and_forgotten_when_asked(tmp_path: Path) -> None:
    with claimed(tmp_path):  # as every search does
        pass
    with Ledger(tmp_path, KEY) as ledger:
        fill(ledger, 0.1)
    other = {"seed": 1, "settings": {"length": 4}}
    with pytest.raises(UsageError, match=r"is of another search \(other length\); choose another"):
        Ledger(tmp_path, other)
    assert calls_so_far(tmp_path, KEY, force=True) == 2
    with Ledger(tmp_path, KEY) as ledger:
        assert ledger.count() == 1
    assert calls_so_far(tmp_path, other, force=True) is None
    assert not (tmp_path / FILE).exists()
    (tmp_path / FILE).write_bytes(b"no database at all" * 100)
    assert calls_so_far(tmp_path, other, force=True) is None
    assert not (tmp_path / FILE).exists()


def test_how_far_a_search_is_can_be_asked_without_going_on(tmp_path: Path) -> None:
    with claimed(tmp_path):  # as every search does
        pass
    assert calls_so_far(tmp_path, KEY) is None
    with Ledger(tmp_path, KEY):
        # opened, and nothing done
        pass
    assert calls_so_far(tmp_path, KEY) is None
    with Ledger(tmp_path, KEY) as ledger:
        fill(ledger, 0.1, 0.2)
    assert calls_so_far(tmp_path, KEY) == 3
    with pytest.raises(UsageError, match=r"is of another search \(other seed\)"):
        calls_so_far(tmp_path, {**KEY, "seed": 2})
