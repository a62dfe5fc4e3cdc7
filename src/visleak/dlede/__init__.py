"""D-LeDe: detect leakage by retraining (Babu et al. 2025).

Test images are leaked into training on purpose, a model is retrained, and the increase of its
scores shows whether the split leaked already. Four parts: ``draw`` (splits and which images leak),
``train`` (training runs and trainers), ``judge`` (from scores to a verdict), ``document``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from visleak.lazy import on_use

if TYPE_CHECKING:
    from visleak.dlede.draw import Split, split_of
    from visleak.dlede.draw.recipes import split_by
    from visleak.dlede.protocol import forecast, judge_scores, run
    from visleak.dlede.results import DLeDeResult
    from visleak.dlede.settings import ControlSettings, DecisionSettings, Execution, Plan
    from visleak.dlede.train import FunctionTrainer, Outcome, Trainer, TrainingFailed, TrainingTask
    from visleak.dlede.trainers import load_trainer

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

__getattr__, __dir__ = on_use(__name__)
