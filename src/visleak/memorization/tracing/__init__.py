"""Who is the source of a generated image?"""

from visleak.memorization.tracing.records import Match, Original, Replication, Trace
from visleak.memorization.tracing.run import trace
from visleak.memorization.tracing.services import Service, load_service
from visleak.memorization.tracing.sources import Answer, Hit, ImageSource, PromptSource
from visleak.memorization.tracing.stored import read_trace

__all__ = [
    "Answer",
    "Hit",
    "ImageSource",
    "Match",
    "Original",
    "PromptSource",
    "Replication",
    "Service",
    "Trace",
    "load_service",
    "read_trace",
    "trace",
]
