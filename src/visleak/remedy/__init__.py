"""Remedies: data sets without leaks, planned first and written only when asked."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from visleak.remedy.splitting import split

__all__ = ["split"]

#: Public name -> module, imported on first use.
_HOMES: Final = {
    "split": "visleak.remedy.splitting",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'visleak.remedy' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
