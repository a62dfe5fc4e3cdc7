"""Where a list of prompts comes from: the result of visleak that its folder holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from visleak.errors import UsageError, VisleakError

#: How results of visleak call themselves.
OURS: Final = "visleak memorization "

#: A larger file is no result of ours.
MOST_BYTES: Final = 1 << 28


@dataclass(frozen=True)
class Provenance:
    """One file of prompts, and what made it.

    Attributes:
        file: its name, without folders.
        digest: SHA-256 of its bytes.
        verb: that wrote it, such as ``detect``; empty where nobody knows.
        model: what that was asked of, as plain data.
        settings: of the verb, as plain data.
    """

    file: str
    digest: str
    verb: str = ""
    model: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def provenance_of(file: Path) -> Provenance:
    """Return where a file of prompts comes from; of a file that visleak did not write, its digest.

    Raises:
        VisleakError: the file cannot be read.
    """
    try:
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise VisleakError(f"{file} cannot be read ({error.strerror})") from error
    for beside in sorted(file.parent.glob("*.json")):
        found = _result(beside)
        verb = str(found.get("kind", "")).removeprefix(OURS)
        # a folder holds one result, and its file is called as the verb that wrote it
        if found and beside.stem == verb:
            about = _table(found.get("about"))
            origin = _table(about.get("origin"))
            model = found.get("model", about.get("model", origin.get("model")))
            settings = found.get("settings", about.get("settings", about))
            return Provenance(file.name, digest, verb, _table(model), _table(settings))
    return Provenance(file.name, digest)


def model_of(origins: list[Provenance]) -> Mapping[str, Any]:
    """Return the one model that lists are about; nothing where none names one.

    Raises:
        UsageError: they are about several: a trigger prompt is one of one model.
    """
    models = {str(each.model.get("digest", each.model)): each for each in origins if each.model}
    if len(models) > 1:
        named = ", ".join(
            f"{each.file} ({str(each.model.get('name', '?'))[:60]})" for each in models.values()
        )
        raise UsageError(
            f"prompts are about different models: {named}; make a data set of each model"
        )
    return next(iter(models.values())).model if models else {}


def _result(path: Path) -> dict[str, Any]:
    """Return the content of a result of visleak; of any other file nothing."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return {}
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(content, dict) or not str(content.get("kind", "")).startswith(OURS):
        return {}
    return content


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
