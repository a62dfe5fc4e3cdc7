"""D-LeDe: detect leakage by retraining (Babu et al. 2025).

Test images are leaked into training on purpose, a model is retrained, and the increase of its
scores shows whether the split leaked already. Four parts: ``draw`` (splits and which images leak),
``train`` (training runs and trainers), ``judge`` (from scores to a verdict), ``document``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from visleak.lazy import on_use

if TYPE_CHECKING:
    from visleak.dlede.draw import Split, split_of
    from visleak.dlede.draw.recipes import split_by
    from visleak.dlede.protocol import forecast, judge_scores, run
    from visleak.dlede.results import DLeDeResult
    from visleak.dlede.settings import ControlSettings, DecisionSettings, Execution, Plan
    from visleak.dlede.train import (
        FunctionTrainer,
        Outcome,
        Trainer,
        TrainingFailed,
        TrainingTask,
    )
    from visleak.dlede.trainers import load_trainer

#: Public name -> its module, imported on use: settings are imported by the command line.
_HOMES: Final = {
    name: f"visleak.dlede.{module}"
    for module, names in {
        "draw": ("Split", "split_of"),
        "draw.recipes": ("split_by",),
        "protocol": ("forecast", "judge_scores", "run"),
        "results": ("DLeDeResult",),
        "settings": ("ControlSettings", "DecisionSettings", "Execution", "Plan"),
        "train": ("FunctionTrainer", "Outcome", "Trainer", "TrainingFailed", "TrainingTask"),
        "trainers": ("load_trainer",),
    }.items()
    for name in names
}

__all__ = [
    "ControlSettings",
    "DLeDeResult",
    "DecisionSettings",
    "Execution",
    "FunctionTrainer",
    "Outcome",
    "Plan",
    "Split",
    "Trainer",
    "TrainingFailed",
    "TrainingTask",
    "forecast",
    "judge_scores",
    "load_trainer",
    "run",
    "split_by",
    "split_of",
]

__getattr__, __dir__ = on_use(__name__, _HOMES)
