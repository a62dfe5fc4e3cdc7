"""Whether the trainings were long enough: some of them again, with more epochs.

Babu et al. trained 100 epochs at every step, and 500 at most of them once, which moved their
scores by less than .01 (section 8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from visleak.dlede.courses import Course, Trained
from visleak.dlede.results import Convergence
from visleak.errors import UsageError

#: Folder of the longer trainings.
LONGER: Final = "longer"


def longer(course: Course, factor: int, deciding: Sequence[int]) -> Course:
    """Return the course of the trainings that are done again: the first chain, longer.

    Args:
        course: the course that is checked.
        factor: of the epochs, 2 or more.
        deciding: the steps that are decided by; the first and the last are trained again.

    Raises:
        UsageError: the factor is too small, or nobody knows how many epochs are usual.
    """
    if factor < 2:
        raise UsageError(f"the check of convergence trains 2 or more times as long; got {factor}")
    usual = usual_epochs(course)
    if usual is None:
        raise UsageError(
            "the check of convergence trains longer, and how long is usual is not known: give"
            " --epochs N, and {epochs} in the command"
        )
    steps = (deciding[0], deciding[-1])
    plan = replace(course.plan, steps=steps, repetitions=1, epochs=usual * factor)
    return Course(
        course.split,
        plan,
        course.trainer,
        course.folder.parent / LONGER,
        course.drawing,
        course.about,
    )


def usual_epochs(course: Course) -> int | None:
    """Return how many epochs a training has, ``None`` if neither plan nor trainer tells."""
    if course.plan.epochs is not None:
        return course.plan.epochs
    told = course.about["trainer"].get("epochs")
    return told if isinstance(told, int) else None


def convergence_of(usual: Trained, more: Trained) -> Convergence:
    """Return the scores of the same trainings with the usual number of epochs and with more."""
    epochs = usual_epochs(usual.course), more.course.plan.epochs
    rows = []
    for step in more.scores.steps:
        for metric in more.scores.metrics:
            if metric not in usual.scores.metrics:
                continue
            column = more.scores.steps.index(step), usual.scores.steps.index(step)
            pair = usual.scores.of(metric)[0, column[1]], more.scores.of(metric)[0, column[0]]
            if np.isfinite(pair).all():
                rows.append(
                    {
                        "step": step,
                        "metric": metric,
                        "usual": float(pair[0]),
                        "longer": float(pair[1]),
                        "repetitions": 1,
                    }
                )
    return Convergence((epochs[0] or 0, epochs[1] or 0), tuple(rows))
