"""How well an encoder finds changed copies, and thresholds with a stated error rate."""

from visleak.robustness.experiment import robustness
from visleak.robustness.thresholding import calibrate

__all__ = ["calibrate", "robustness"]
