"""Duplicates of a set for other libraries: groups, splits and filters, a module per library.

Nothing is imported before use: pytest loads the plugin in every session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from visleak.lazy import on_use

if TYPE_CHECKING:
    from visleak.integrations import datasets, fiftyone, sklearn, torch, tracking
    from visleak.integrations.duplicates import divided, duplicate_groups, leaking_rows

__all__ = [
    "datasets",
    "divided",
    "duplicate_groups",
    "fiftyone",
    "leaking_rows",
    "sklearn",
    "torch",
    "tracking",
]

__getattr__, __dir__ = on_use(__name__)
