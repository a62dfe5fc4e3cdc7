"""Tracing: which training images generated images are copies of."""

from visleak.memorization.tracing.document import Answer, Hit, Match, Original, Replication, Trace
from visleak.memorization.tracing.run import read_trace, trace

__all__ = ["Answer", "Hit", "Match", "Original", "Replication", "Trace", "read_trace", "trace"]
