"""What leaked images do to a score: with them, without them, and whether that is chance."""

from visleak.impact.checking import Check, check
from visleak.impact.measuring import impact
from visleak.impact.output import write
from visleak.impact.results import Impact
from visleak.impact.stored import read_impact

__all__ = ["Check", "Impact", "check", "impact", "read_impact", "write"]
