"""Where verbs may write."""

from __future__ import annotations

from pathlib import Path

from visleak.errors import UsageError


def refuse_folder(path: Path | None) -> None:
    """Refuse a folder where a file is to be written.

    Raises:
        UsageError: the path is a folder.
    """
    if path is not None and path.is_dir():
        raise UsageError(f"the output {path} is a folder; choose a file with -o FILE")
