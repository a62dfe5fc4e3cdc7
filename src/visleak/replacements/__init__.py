"""Replacements for test images that leak: who can be one, and what was decided about them."""

from visleak.replacements.candidates import Candidate, Near, distance
from visleak.replacements.decisions import Decision, Decisions, Taken
from visleak.replacements.duplicates import Duplicate, Duplicates, Leak, find_duplicates
from visleak.replacements.opening import Asked, open_selection
from visleak.replacements.selection import ClassCount, NotEligible, Offer, Selection

__all__ = [
    "Asked",
    "Candidate",
    "ClassCount",
    "Decision",
    "Decisions",
    "Duplicate",
    "Duplicates",
    "Leak",
    "Near",
    "NotEligible",
    "Offer",
    "Selection",
    "Taken",
    "distance",
    "find_duplicates",
    "open_selection",
]
