"""What a search may still spend, and whether its settings and D are on one scale."""

from __future__ import annotations

import time

from visleak.errors import UsageError
from visleak.memorization.scores import Norm, TriggerScore
from visleak.memorization.search.ledger import Ledger
from visleak.memorization.search.moving import cost
from visleak.memorization.search.task import SearchTask


class Spending:
    """Keeps a search within its budget: a unit of work is begun only if it is paid for whole.

    Args:
        task: with budget and D.
        ledger: knows what was spent by earlier runs too.
    """

    def __init__(self, task: SearchTask, ledger: Ledger) -> None:
        self._budget = task.budget
        self._noises = task.score.settings.noises
        self._ledger = ledger
        self._began = time.perf_counter() - ledger.seconds

    def left(self) -> int | None:
        """Return how many prompts one more unit may score; ``None`` is any number."""
        seconds, calls = self._budget.seconds, self._budget.calls
        if seconds is not None and time.perf_counter() - self._began >= seconds:
            return 0
        if calls is None:
            return None
        return max(0, (calls - self._ledger.calls) // self._noises - 1)

    def pays(self, prompts: int) -> bool:
        """Whether a unit that scores ``prompts`` prompts is still paid for.

        Raises:
            UsageError: it is the first unit: the budget pays for nothing at all.
        """
        left = self.left()
        paid = left is None or left >= prompts
        if not paid and self._ledger.state is None:
            raise UsageError(
                f"the budget does not pay for the first step, which scores {prompts:,} prompts in"
                f" {cost(prompts, self._noises):,} passes of the network; give more, or take fewer"
                " chains or candidates"
            )
        return paid


def check_norm(norm: Norm, score: TriggerScore) -> None:
    """Refuse settings whose K and kappa are on another scale than D.

    Raises:
        UsageError: it is so.
    """
    if norm != score.settings.norm:
        raise UsageError(
            f"temperature and kappa of these settings are on the {norm} scale, and D is on the"
            f" {score.settings.norm} one; no K of the one is a K of the other: give both the same"
            " norm"
        )
