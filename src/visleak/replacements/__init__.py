"""Replacements for duplicates in a test set: candidates of a pool, and decisions about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from visleak.lazy import on_use

if TYPE_CHECKING:
    from visleak.replacements.candidates import Candidate, SimilarImage, distance
    from visleak.replacements.decisions import AlreadyDecided, Decision, Decisions
    from visleak.replacements.duplicates import Duplicate, Duplicates, Leak, find_duplicates
    from visleak.replacements.opening import open_selection
    from visleak.replacements.selection import ClassCount, NotEligible, Offer, Selection
    from visleak.replacements.settings import SelectionSettings

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

#: Module -> public names, imported on first use.
_NAMES: Final = {
    "decisions": ("AlreadyDecided", "Decision", "Decisions"),
    "duplicates": ("Duplicate", "Duplicates", "Leak", "find_duplicates"),
    "opening": ("open_selection",),
    "candidates": ("Candidate", "SimilarImage", "distance"),
    "selection": ("ClassCount", "NotEligible", "Offer", "Selection"),
    "settings": ("SelectionSettings",),
}

__getattr__, __dir__ = on_use(
    __name__,
    {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names},
)
