"""Detection: prompts whose D is so large that they may reproduce training images."""

from visleak.memorization.detection.records import Detection
from visleak.memorization.detection.run import (
    detect,
    leave_one_out,
    read_detection,
    token_significance,
)
from visleak.memorization.settings import Analysis

__all__ = [
    "Analysis",
    "Detection",
    "detect",
    "leave_one_out",
    "read_detection",
    "token_significance",
]
