"""Remedies: datasets without leaks, planned first and written on request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from visleak.lazy import on_use

if TYPE_CHECKING:
    from visleak.remedy.manifest import undo
    from visleak.remedy.moves import repair
    from visleak.remedy.partition import split
    from visleak.remedy.removal import purge
    from visleak.remedy.settings import (
        PurgeSettings,
        RepairSettings,
        ReplaceSettings,
        SplitSettings,
    )
    from visleak.remedy.substitution import replace

__all__ = ["PurgeSettings", "RepairSettings", "ReplaceSettings", "SplitSettings", "purge", "repair"]
__all__ += ["replace", "split", "undo"]

__getattr__, __dir__ = on_use(__name__)
