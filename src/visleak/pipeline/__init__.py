"""The main job, from two sets of images to a finished comparison."""

from visleak.pipeline.context import RunContext, silent, timed
from visleak.pipeline.run import Outcome, run

__all__ = ["Outcome", "RunContext", "run", "silent", "timed"]
