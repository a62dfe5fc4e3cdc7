"""The audit itself, from two sides of images to graded comparisons."""

from visleak.pipeline.context import RunContext, silent
from visleak.pipeline.run import Outcome, run, stages

__all__ = ["Outcome", "RunContext", "run", "silent", "stages"]
