"""Json files that say what they are, and in which layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from visleak.errors import VisleakError


def read_document(
    path: Path, kind: str, schema: int, hint: str, key: str = "kind"
) -> dict[str, Any]:
    """Return the content of a json file of a kind.

    Args:
        path: the file.
        kind: what it says it is.
        schema: the newest layout that can be read; the oldest is 1.
        hint: what to do if it is another file.
        key: under which it says so.

    Raises:
        VisleakError: it cannot be read, is of another kind, or of a newer visleak.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise VisleakError(f"{path} cannot be read ({error})") from error
    if not isinstance(content, dict) or content.get(key) != kind:
        raise VisleakError(f'{path} does not say "{key}": "{kind}"; {hint}')
    found = content.get("schema")
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= schema:
        raise VisleakError(
            f"{path} has layout {found!r}, this visleak reads up to {schema}; use a newer one"
        )
    return content
