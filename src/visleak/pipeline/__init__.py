"""The main job, from two sets of images to a finished comparison."""

from visleak.pipeline.run import Outcome, run
from visleak.pipeline.workplace import Workplace, silent, timed

__all__ = ["Outcome", "Workplace", "run", "silent", "timed"]
