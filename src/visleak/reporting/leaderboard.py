"""Leaderboards: a JSON file of entries that results are added to, best first."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from visleak.documents import read_entries
from visleak.storage import write_json

Entry: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """A kind of leaderboard."""

    kind: str
    identity: tuple[str, ...]
    place: Callable[[Entry], tuple[object, ...]]  # sorts the entries, the best first
    is_entry: Callable[[object], bool]
    schema: int = 1

    def read(self, path: str | os.PathLike[str]) -> list[Entry]:
        """Return the entries of a file, the best first."""
        return sorted(
            read_entries(Path(path), self.kind, self.schema, self.is_entry), key=self.place
        )

    def add(self, path: str | os.PathLike[str], new: Iterable[Entry]) -> list[Entry]:
        """Add entries to a file, which need not exist, and return all of them, the best first.

        Entries of the same identity are replaced.
        """
        file = Path(path)
        others = self.read(file) if file.exists() else []
        entries = {self._identity(each): each for each in (*others, *new)}
        ordered = sorted(entries.values(), key=self.place)
        write_json(file, {"schema": self.schema, "kind": self.kind, "entries": ordered})
        return ordered

    def _identity(self, entry: Entry) -> tuple[object, ...]:
        return tuple(entry[key] for key in self.identity)


def today() -> str:
    """Return today's date in UTC, such as ``2026-01-31``."""
    return datetime.now(UTC).date().isoformat()
