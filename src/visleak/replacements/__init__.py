"""Replacements for test images that leak: who can be one, and what was decided about them."""

from visleak.replacements.decisions import AlreadyDecided, Decision, Decisions
from visleak.replacements.duplicates import Duplicate, Duplicates, Leak, find_duplicates
from visleak.replacements.opening import SelectionSettings, open_selection
from visleak.replacements.pool import Candidate, SimilarImage, distance
from visleak.replacements.selection import ClassCount, NotEligible, Offer, Selection

__all__ = [
    "AlreadyDecided",
    "Candidate",
    "ClassCount",
    "Decision",
    "Decisions",
    "Duplicate",
    "Duplicates",
    "Leak",
    "NotEligible",
    "Offer",
    "Selection",
    "SelectionSettings",
    "SimilarImage",
    "distance",
    "find_duplicates",
    "open_selection",
]
