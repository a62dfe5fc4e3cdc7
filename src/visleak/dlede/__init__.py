"""D-LeDe: does retraining betray the leak? (Babu et al. 2025).

Test images are leaked into training on purpose, a model is trained again, and the rise of its
scores tells whether the split leaked already.
"""

from visleak.dlede.asking import Extras, Verdict, Works
from visleak.dlede.lesson import Lesson, Outcome, Split, Trainer, TrainingFailed
from visleak.dlede.measuring import dlede, forecast, judge_scores
from visleak.dlede.opening import split_by, split_of
from visleak.dlede.plan import Plan
from visleak.dlede.results import DLeDe
from visleak.dlede.trainers import load_trainer

__all__ = [
    "DLeDe",
    "Extras",
    "Lesson",
    "Outcome",
    "Plan",
    "Split",
    "Trainer",
    "TrainingFailed",
    "Verdict",
    "Works",
    "dlede",
    "forecast",
    "judge_scores",
    "load_trainer",
    "split_by",
    "split_of",
]
