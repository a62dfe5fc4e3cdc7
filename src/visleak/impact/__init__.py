"""The impact of leaked images on scores: with them, without them, and whether it is significant."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from visleak.impact.document import read_impact, write
    from visleak.impact.results import Impact
    from visleak.impact.run import Check, check, impact
    from visleak.impact.settings import ImpactSettings

__all__ = [
    "Check",
    "Impact",
    "ImpactSettings",
    "check",
    "impact",
    "read_impact",
    "write",
]

#: Public name -> module, imported on first use: the command line only needs the settings.
_HOMES: Final = {
    "Check": "visleak.impact.run",
    "Impact": "visleak.impact.results",
    "ImpactSettings": "visleak.impact.settings",
    "check": "visleak.impact.run",
    "impact": "visleak.impact.run",
    "read_impact": "visleak.impact.document",
    "write": "visleak.impact.document",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'visleak.impact' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
