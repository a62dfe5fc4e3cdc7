"""Remedies: data sets without leaks, planned first and written only when asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from visleak.lazy import on_use

if TYPE_CHECKING:
    from visleak.remedy.fixing import fix
    from visleak.remedy.purging import purge
    from visleak.remedy.replacing import replace
    from visleak.remedy.splitting import split
    from visleak.remedy.undoing import undo

__all__ = ["fix", "purge", "replace", "split", "undo"]

#: Public name -> module, imported on first use.
_HOMES: Final = {
    "fix": "visleak.remedy.fixing",
    "purge": "visleak.remedy.purging",
    "split": "visleak.remedy.splitting",
    "replace": "visleak.remedy.replacing",
    "undo": "visleak.remedy.undoing",
}

__getattr__, __dir__ = on_use(__name__, _HOMES)
