"""The impact of leaked images on scores: with them, without them, and whether it is significant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from visleak.lazy import on_use

if TYPE_CHECKING:
    from visleak.impact.document import read_impact, write
    from visleak.impact.results import Impact
    from visleak.impact.run import Check, check, impact
    from visleak.impact.settings import ImpactSettings

__all__ = ["Check", "Impact", "ImpactSettings", "check", "impact", "read_impact", "write"]

__getattr__, __dir__ = on_use(__name__)
