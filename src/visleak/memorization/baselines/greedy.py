"""Greedy: D of every prompt of a list, and the best of them.

The first baseline of table 2 (Hong et al. 2024): there, the 13 million prompts of DiffusionDB.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from visleak.errors import UsageError
from visleak.memorization.prompts import Prompts
from visleak.memorization.search.running import BANK, begun, draw_of, generator
from visleak.memorization.search.task import Candidate, Found, SearchTask

#: Prompts between two looks at the budget, unless a batch is larger.
BLOCK: Final = 256


class Greedy:
    """Score the prompts of a list in a seeded random order until the budget ends.

    All prompts meet the same noises. Where the budget holds the whole list, the order is of no
    account; where not, a random part is scored, and the result is not complete.

    Args:
        prompts: the list.
    """

    name = "greedy"

    def __init__(self, prompts: Prompts) -> None:
        if not len(prompts):
            raise UsageError("greedy needs prompts to score; the list holds none")
        self.prompts = prompts

    def about(self) -> dict[str, object]:
        """Return the list, by size and digest."""
        return {
            "prompts": len(self.prompts),
            "digest": _digest(self.prompts.texts),
            "order": "random",
        }

    def search(self, task: SearchTask) -> Found:
        """Return the ``chains`` best prompts (200 in the paper) as the best, one per chain.

        ``Candidate.step`` is the place of a prompt in the list.

        Raises:
            UsageError: the budget does not hold a single prompt.
        """
        noises = task.score.settings.noises
        with begun(self.name, self.about(), task, bank=max(BANK, task.chains)) as run:
            done = 0 if run.state is None else int(run.state["done"])
            total = self._affordable(task, noises)
            order = generator(task.seed, 0).permutation(len(self.prompts))
            block = max(BLOCK, task.score.settings.batch)
            while done < total and run.left() != 0:
                rows = [int(row) for row in order[done : min(done + block, total)]]
                texts = [self.prompts.texts[row] for row in rows]
                scores = task.score(texts, draw=draw_of(task.seed)).by(task.score.settings.norm)
                run.calls += noises * (len(rows) + (done == 0))
                run.add(
                    Candidate(text, float(score), step=row)
                    for text, score, row in zip(texts, scores, rows, strict=True)
                )
                done += len(rows)
                run.save({"done": done}, now=done == total)
                run.say(done, total)
            ranked = run.ranked({"done": done})[: task.chains]
            best = [
                Candidate(each.prompt, each.score, chain, each.step)
                for chain, each in enumerate(ranked)
            ]
            return run.found(best, {"done": done}, complete=done == len(self.prompts))

    def _affordable(self, task: SearchTask, noises: int) -> int:
        """Return how many prompts the budget holds beside the empty one."""
        calls = task.budget.calls
        if calls is None:
            return len(self.prompts)
        rows = calls // noises - 1
        if rows < 1:
            raise UsageError(
                f"a budget of {calls} calls scores no prompt: give at least {2 * noises}, one pass"
                " a noise for a prompt and one for the empty prompt"
            )
        return min(rows, len(self.prompts))


def _digest(texts: Sequence[str]) -> str:
    hasher = hashlib.blake2b(digest_size=16)
    for text in texts:
        data = text.encode("utf-8", "backslashreplace")
        hasher.update(len(data).to_bytes(8, "little") + data)
    return hasher.hexdigest()
