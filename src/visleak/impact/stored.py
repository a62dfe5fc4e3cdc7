"""``impact.json``: what was found, for machines, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import visleak
from visleak.documents import as_plain, read_record
from visleak.impact.headline import headlines
from visleak.impact.results import Impact

SCHEMA: Final = 1
KIND: Final = "visleak impact"

#: The file.
RESULT: Final = "impact.json"


def as_dict(result: Impact) -> dict[str, Any]:
    """Return the content of ``impact.json``; what is not known is ``null``."""
    about = {
        "schema": SCHEMA,
        "kind": KIND,
        "visleak": visleak.__version__,
        "headline": "; ".join(headlines(result)),
    }
    content: dict[str, Any] = as_plain(result)
    return about | content


def read_impact(folder: str | Path) -> Impact:
    """Return the impact that a folder holds.

    Raises:
        VisleakError: there is none, it is damaged, or a newer visleak wrote it.
    """
    return read_record(Impact, Path(folder) / RESULT, KIND, SCHEMA)
