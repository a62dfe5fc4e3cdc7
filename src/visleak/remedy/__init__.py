"""Remedies: data sets without leaks, planned first and written only when asked."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'visleak.remedy' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
