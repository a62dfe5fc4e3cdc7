"""The main job, from two sets of images to a finished comparison."""

from visleak.pipeline.run import Outcome, run, timed
from visleak.pipeline.workplace import Workplace, silent

__all__ = ["Outcome", "Workplace", "run", "silent", "timed"]
