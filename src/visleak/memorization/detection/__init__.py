"""Detection: which prompts of a list have a D so large that they may replay training images?"""

from visleak.memorization.detection.attribution import leave_one_out, token_significance
from visleak.memorization.detection.results import Attribution, Detection
from visleak.memorization.detection.run import Asked, detect
from visleak.memorization.detection.stored import read_detection
from visleak.memorization.detection.thresholds import threshold_at

__all__ = [
    "Asked",
    "Attribution",
    "Detection",
    "detect",
    "leave_one_out",
    "read_detection",
    "threshold_at",
    "token_significance",
]
