"""Whose a folder of embeddings is: new, begun by the same job, finished, or somebody else's."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from visleak.embedding.shards import NOTES
from visleak.errors import UsageError
from visleak.images.embedding_manifest import KIND, MANIFEST, SCHEMA, TEXTS, UNFINISHED, VECTORS
from visleak.storage import UNREADABLE, remove_unfinished, write_json


def manifest_of(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a finished folder, ``None`` if there is none."""
    with contextlib.suppress(OSError, ValueError):
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if isinstance(content, dict) and content.get("kind") == KIND:
            return content
    return None


def claim(folder: Path, key: str | None, *, force: bool) -> bool:
    """Make a folder ready for a job; return whether it is done already.

    Args:
        folder: the folder, locked.
        key: digest of everything the job depends on; ``None`` if unknowable.
        force: replace what another job wrote.

    Raises:
        UsageError: the folder holds another set, or one of another encoder.
    """
    for place in (VECTORS, TEXTS):
        remove_unfinished(folder / place)
    manifest = manifest_of(folder)
    begun = (folder / UNFINISHED).is_file()
    if manifest is not None or begun:
        there = manifest.get("key") if manifest is not None else _key_begun(folder)
        same = key is not None and there == key
        if not same and not force:
            raise UsageError(
                f"{folder} holds embeddings of another set, encoder or layout; choose another"
                " folder with -o DIR, or replace them with --force"
            )
        if same and manifest is not None and not force:
            return True
        if not same or force:
            _clear(folder)
    write_json(folder / UNFINISHED, {"kind": KIND, "schema": SCHEMA, "key": key})
    return False


def _key_begun(folder: Path) -> str | None:
    """Return the key of a folder that was begun."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((folder / UNFINISHED).read_text(encoding="utf-8"))["key"])
    return None


def _clear(folder: Path) -> None:
    """Remove what an earlier run wrote, and nothing else."""
    vectors, texts = f"{VECTORS}/{VECTORS}_*.npy", f"{TEXTS}/{TEXTS}_*.parquet"
    for pattern in (MANIFEST, NOTES, UNREADABLE, vectors, texts):
        for path in list(folder.glob(pattern)):
            path.unlink()


def tidy(folder: Path) -> None:
    """Remove what is only needed while a folder is written."""
    for leftover in (folder / UNFINISHED, *folder.glob(NOTES)):
        leftover.unlink(missing_ok=True)
