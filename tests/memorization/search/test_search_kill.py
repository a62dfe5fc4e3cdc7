"""A search whose process is killed at any moment ends with identical results."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from toy_prompt_models import FiveProposer, FiveWords
from visleak.memorization.scores import TriggerScore
from visleak.memorization.search.driver import SearchTask
from visleak.memorization.search.gibbs import GibbsSearch, GibbsSettings
from visleak.memorization.settings import ScoreSettings

SETTINGS = GibbsSettings(
    length=6, iterations=3000, candidates=5, temperature=0.3, kappa=None, norm="l2", keep=50
)

#: Searches in a folder, with nothing of the test but its world.
SCRIPT = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from toy_prompt_models import FiveProposer, FiveWords
from visleak.memorization.scores import TriggerScore
from visleak.memorization.settings import ScoreSettings
from visleak.memorization.search.gibbs import GibbsSearch, GibbsSettings
from visleak.memorization.search.driver import SearchTask
settings = GibbsSettings(
    length=6, iterations=3000, candidates=5, temperature=0.3, kappa=None, norm="l2", keep=50
)
score = TriggerScore(FiveWords(noisy=True), ScoreSettings(norm="l2"))
say = lambda progress: print(progress.done, flush=True)
task = SearchTask(score, 2, 9, folder=Path(sys.argv[1]), say=say)
GibbsSearch(FiveProposer(), settings).search(task)
"""


@pytest.mark.slow
def test_a_killed_search_goes_on_to_identical_results(tmp_path: Path) -> None:
    """SIGKILL three times in the middle, a run in this process to the end; against no kill."""
    kept = tmp_path / "kept"
    # of 6,000 steps
    for steps in (700, 1500, 2300):
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(kept), str(Path(__file__).parents[2])],
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= steps:
                break
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert process.returncode == -signal.SIGKILL
    told: list[int] = []
    search = GibbsSearch(FiveProposer(), SETTINGS)

    def task(folder: Path | None) -> SearchTask:
        score = TriggerScore(FiveWords(noisy=True), ScoreSettings(norm="l2"))
        return SearchTask(score, 2, 9, folder=folder, say=lambda p: told.append(p.done))

    found = search.search(task(kept))
    # what the killed runs did was not done again
    assert told[0] > 2300
    whole = search.search(task(None))
    assert dataclasses.replace(found, seconds=0.0) == dataclasses.replace(whole, seconds=0.0)
    assert found.complete
