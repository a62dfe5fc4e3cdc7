"""Former place of the folder of the cache, for commands that are not converted yet."""

from __future__ import annotations

from pathlib import Path

from visleak.cache import NO_FOLDER, default_folder
from visleak.cli import edges


def cache_folder(text: str | None) -> Path | None:
    """Return the folder of the cache, ``None`` for none."""
    if text == "off":
        return None
    folder = Path(text) if text else default_folder()
    if folder is None:
        edges.complain(NO_FOLDER)
    return folder
