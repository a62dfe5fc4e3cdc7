"""Where verbs may write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from visleak.errors import UsageError


def refuse_folder(path: Path | None) -> None:
    """Refuse a folder where a file is to be written.

    Raises:
        UsageError: the path is a folder.
    """
    if path is not None and path.is_dir():
        raise UsageError(f"the output {path} is a folder; choose a file with -o FILE")


def refuse_inputs(summary: Mapping[str, Any], out: Path) -> None:
    """Refuse a folder within the images of an audit's sets: what is read stays as it is.

    Args:
        summary: ``audit.json``.
        out: folder of a result, which need not be there.

    Raises:
        UsageError: it lies in a set that is a folder.
    """
    base = Path(summary.get("opened_in", "."))
    for each in summary["sets"]:
        folder = base / each["source"]
        # a set given in memory has no source
        inside = each["source"] and folder.is_dir()
        if inside and out.resolve().is_relative_to(folder.resolve()):
            raise UsageError(
                f"output {out} lies among the images of {each['name']!r}, which are only read;"
                " choose another folder with -o DIR"
            )
