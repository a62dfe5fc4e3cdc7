"""Where verbs may write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from visleak.pipeline import folder as places


def refuse_inputs(summary: Mapping[str, Any], out: Path) -> None:
    """Refuse a place among the images of an audit's sets: what is read stays as it is.

    Args:
        summary: ``audit.json``.
        out: file or folder of a result, which need not be there.

    Raises:
        UsageError: it lies in a set, or a set in it.
    """
    sources = [(each["name"], each["source"]) for each in summary["sets"]]
    places.refuse_inputs(out, sources, Path(summary.get("opened_in", ".")))
