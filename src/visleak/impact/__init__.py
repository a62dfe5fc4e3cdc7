"""The impact of leaked images on scores: with them, without them, and whether it is significant."""

from visleak.impact.document import document, read_impact, write
from visleak.impact.results import Impact
from visleak.impact.run import Check, ImpactSettings, check, impact

__all__ = [
    "Check",
    "Impact",
    "ImpactSettings",
    "check",
    "document",
    "impact",
    "read_impact",
    "write",
]
