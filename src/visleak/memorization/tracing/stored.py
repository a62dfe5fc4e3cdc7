"""``trace.json``: what was found, for machines, and back."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from visleak.documents import as_plain, from_plain, read_document
from visleak.errors import UsageError, VisleakError
from visleak.memorization.recall import recall_of
from visleak.memorization.tracing.headline import compares_pictures, headline
from visleak.memorization.tracing.records import Match, Original, Replication, Trace

SCHEMA: Final = 1
KIND: Final = "visleak memorization trace"

#: The file, written last.
RESULT: Final = "trace.json"

_HINT: Final = "it is no result of visleak memorization trace"


def as_dict(result: Trace) -> dict[str, Any]:
    """Return the content of ``trace.json``; what is not known is ``null``."""
    about = {"schema": SCHEMA, "kind": KIND, "headline": headline(result)}
    content: dict[str, Any] = as_plain(result)
    del content["folder"]
    similarity = str(result.about.get("similarity"))
    found = recall_of(similarity, "trace") if compares_pictures(result) else None
    return about | content | {"recall": None if found is None else found.as_dict()}


def read_trace(folder: str | os.PathLike[str]) -> Trace:
    """Return the result that a folder holds.

    Raises:
        UsageError: there is none.
        VisleakError: it is damaged, or a newer visleak wrote it.
    """
    path = Path(folder) / RESULT
    if not path.is_file():
        raise UsageError(
            f"{os.fspath(folder)} holds no finished trace (no {RESULT}); run `visleak memorization"
            " trace` first"
        )
    content = read_document(path, KIND, SCHEMA, _HINT)
    try:
        low_to_high = from_plain(tuple[float, float, float], content["share"])
        empty = Trace(Path(folder), {}, (), 0, 0.0, low_to_high)
        return replace(
            empty,
            about=from_plain(dict[str, Any], content["about"]),
            matches=from_plain(tuple[Match, ...], content["matches"]),
            memorized=from_plain(int, content["memorized"]),
            tau=from_plain(float, content["tau"]),
            originals=from_plain(tuple[Original, ...], content["originals"]),
            prompts=from_plain(tuple[Replication, ...], content["prompts"]),
            notes=from_plain(tuple[str, ...], content["notes"]),
            key=from_plain(str, content["key"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise VisleakError(
            f"{path} is damaged ({error}); run visleak memorization trace again"
        ) from error


def key_in(folder: Path) -> str | None:
    """Return the key of the trace that a folder holds; ``None`` if there is none."""
    path = folder / RESULT
    if not path.is_file():
        return None
    return str(read_document(path, KIND, SCHEMA, _HINT).get("key"))
