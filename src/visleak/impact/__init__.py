"""What leaked images do to a score: with them, without them, and whether that is chance."""

from visleak.impact.measuring import impact
from visleak.impact.results import Impact

__all__ = ["Impact", "impact"]
