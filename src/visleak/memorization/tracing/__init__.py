"""Tracing: which training images generated images are copies of."""

from visleak.memorization.tracing.document import Trace
from visleak.memorization.tracing.run import read_trace, trace

__all__ = ["Trace", "read_trace", "trace"]
