"""Whose state a folder holds: that of this very search, of another one, or none."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from visleak.errors import VisleakError
from visleak.memorization.search.ledger import FILE, Ledger
from visleak.memorization.search.task import SearchTask
from visleak.pipeline.folder import claimed


def key_of(task: SearchTask, method: str, about: Mapping[str, object]) -> dict[str, object]:
    """Return everything that a search's prompts depend on but its budget, as plain data."""
    key = {
        "method": method,
        "settings": dict(about),
        "score": task.score.settings.about(),
        "model": task.score.model.digest,
        "precision": task.score.model.precision,
        "chains": task.chains,
        "seed": task.seed,
    }
    plain: dict[str, object] = json.loads(json.dumps(key, sort_keys=True))
    return plain


def forget_other(folder: Path, key: Mapping[str, object]) -> None:
    """Remove the state of another search from a folder; that of this one stays.

    Raises:
        VisleakError: a run is at it.
    """
    path = folder / FILE
    if not path.exists():
        return
    with claimed(folder):
        try:
            Ledger(folder, key).close()
        except VisleakError:
            # of another search, or damaged
            for ending in ("", "-wal", "-shm"):
                path.with_name(path.name + ending).unlink(missing_ok=True)


@contextmanager
def opened(task: SearchTask, method: str, about: Mapping[str, object]) -> Iterator[Ledger]:
    """Hold the ledger of a search: that of an earlier run where there is one.

    Args:
        task: names model, score, chains, seed and folder; its budget is not part of the key, so
            that a search may go on with a larger one.
        method: its name.
        about: its settings.

    Raises:
        UsageError: the folder holds the state of another search.
        VisleakError: another run is at it, or the disk refuses.
    """
    key = key_of(task, method, about)
    with contextlib.ExitStack() as stack:
        if task.folder is not None:
            stack.enter_context(claimed(task.folder))
        yield stack.enter_context(Ledger(task.folder, key))


def calls_so_far(folder: Path, key: Mapping[str, object]) -> int | None:
    """Return the passes that a search in a folder has cost so far; ``None`` if it has not begun.

    Raises:
        UsageError: the folder holds the state of another search.
        VisleakError: a run is at it, or the file is damaged.
    """
    if not (folder / FILE).exists():
        return None
    with claimed(folder), Ledger(folder, key) as ledger:
        return None if ledger.state is None else ledger.calls
