"""The digest of a pipeline: of every file that its images depend on, and of how it is run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from visleak.memorization.models.files import files_of
from visleak.memorization.models.layout import Plan, read_json

#: Grows when the same files come to give other images or scores.
VERSION: Final = 1

#: What libraries note in a configuration and networks do not depend on.
_NOTES: Final = frozenset({"name_or_path", "transformers_version", "torch_dtype", "dtype"})

_BLOCK: Final = 1 << 22


def pipeline_digest(
    name: str, folder: Path, plan: Plan, half: bool, about: Mapping[str, Any]
) -> str:
    """Return 32 hexadecimal digits; the folder's place and name are no part of them.

    Weights are read once, as a stream.

    Args:
        name: of the model, for messages.
        folder: of the pipeline.
        plan: which parts are loaded.
        half: as :func:`visleak.memorization.models.files.weights_of`.
        about: everything else that images depend on, as plain values.

    Raises:
        VisleakError: a file is damaged.
    """
    hasher = hashlib.blake2b(digest_size=16)
    start = {"version": VERSION, "pipeline": plan.pipeline, "settings": dict(plan.settings)}
    hasher.update(json.dumps([start, dict(about)], sort_keys=True).encode())
    for part in sorted(plan.parts, key=lambda part: part.name):
        inside = folder / part.name
        for file in files_of(part, [each.name for each in inside.iterdir()], half):
            hasher.update(json.dumps([part.name, part.kind, file]).encode())
            hasher.update(_file_digest(name, inside / file))
    return hasher.hexdigest()


def _file_digest(name: str, file: Path) -> bytes:
    hasher = hashlib.blake2b(digest_size=16)
    if file.name.endswith("config.json"):
        content = plain(read_json(name, file))
        return hashlib.blake2b(json.dumps(content, sort_keys=True).encode()).digest()
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            hasher.update(block)
    return hasher.digest()


def plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without the libraries' own notes.

    >>> plain({"_diffusers_version": "0.30", "beta_start": 0.1})
    {'beta_start': 0.1}
    """
    return {
        key: value for key, value in config.items() if not key.startswith("_") and key not in _NOTES
    }
