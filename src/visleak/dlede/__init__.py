"""D-LeDe: detect leakage by retraining (Babu et al. 2025).

Test images are leaked into training on purpose, a model is retrained, and the increase of its
scores shows whether the split leaked already. Four parts: ``draw`` (splits and which images leak),
``train`` (training runs and trainers), ``judge`` (from scores to a verdict), ``document``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from visleak.dlede.draw.recipes import split_by
    from visleak.dlede.draw.split import Split, split_of
    from visleak.dlede.protocol import forecast, judge_scores, run
    from visleak.dlede.results import DLeDeResult
    from visleak.dlede.settings import ControlSettings, DecisionSettings, Execution, Plan
    from visleak.dlede.train.trainer import (
        FunctionTrainer,
        Outcome,
        Trainer,
        TrainingFailed,
        TrainingTask,
    )
    from visleak.dlede.trainers import load_trainer

#: Public name -> its module, imported on use: settings are imported by the command line.
_MODULES: Final = {
    "ControlSettings": "settings",
    "DLeDeResult": "results",
    "DecisionSettings": "settings",
    "Execution": "settings",
    "FunctionTrainer": "train.trainer",
    "Outcome": "train.trainer",
    "Plan": "settings",
    "Split": "draw.split",
    "Trainer": "train.trainer",
    "TrainingFailed": "train.trainer",
    "TrainingTask": "train.trainer",
    "forecast": "protocol",
    "judge_scores": "protocol",
    "load_trainer": "trainers",
    "run": "protocol",
    "split_by": "draw.recipes",
    "split_of": "draw.split",
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


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
