"""The audit itself, from two sides of images to graded comparisons."""

from visleak.pipeline.context import RunContext
from visleak.pipeline.run import Outcome, run, stages
from visleak.progress import silent

__all__ = ["Outcome", "RunContext", "run", "silent", "stages"]
