"""A folder that may hold the result that is asked for, a part of it, or another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from visleak.documents import digest_of
from visleak.memorization.search import output
from visleak.memorization.search.resuming import calls_so_far, forget_other
from visleak.store import free_folder

Say = Callable[[str], None]


def known_result(
    folder: Path,
    verb: str,
    key: Mapping[str, object],
    budget: Any,
    *,
    force: bool,
    say: Say | None,
) -> dict[str, Any] | None:
    """Return the result that a folder holds already; make room for another where that is allowed.

    Raises:
        UsageError: it holds another result, or the state of another search.
        VisleakError: a run is at it, or a file is damaged.
    """
    tell = say or (lambda line: None)
    name = output.result_name(verb)
    digest = digest_of(key)
    same = False
    if folder.is_dir() and (folder / name).is_file():
        held = output.read_result(folder, verb)
        same = held.get("key") == digest
        if same and (held.get("complete", True) or held.get("budget") == budget):
            tell(f"{folder} holds this very result already; nothing was done again")
            return held
    if not same:
        free_folder(folder, name, force=force)
    if force:
        forget_other(folder, key)
    calls = calls_so_far(folder, key)
    if calls is not None:
        far = "as far as its budget went" if same else "unfinished"
        tell(f"{folder} holds this search, {far}: it goes on from {calls:,} passes")
    return None
