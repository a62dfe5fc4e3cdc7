"""``dlede.json``: what was found, for machines, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import visleak
from visleak.dlede.headline import headline
from visleak.dlede.results import DLeDe
from visleak.documents import as_plain, read_record

SCHEMA: Final = 1
KIND: Final = "visleak dlede"

#: The file.
RESULT: Final = "dlede.json"


def as_dict(result: DLeDe) -> dict[str, Any]:
    """Return the content of ``dlede.json``; what is not known is ``null``."""
    about = {
        "schema": SCHEMA,
        "kind": KIND,
        "visleak": visleak.__version__,
        "headline": headline(result),
    }
    content: dict[str, Any] = as_plain(result)
    return about | content


def read_dlede(folder: str | Path) -> DLeDe:
    """Return the result that a folder holds.

    Raises:
        VisleakError: there is none, it is damaged, or a newer visleak wrote it.
    """
    return read_record(DLeDe, Path(folder) / RESULT, KIND, SCHEMA)
