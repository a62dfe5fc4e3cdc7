"""Indexes of partitions on disk: built once, loaded by every later audit of the same files.

A file is named by what it was built from, the partition's stamp among it, so it never goes stale;
deleting it changes no answer. What cannot be read is built again. The folder is the program's own:
faiss reads its files without distrust.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from visleak.records import Int64, Partition
from visleak.search.faiss_index import DIGEST, Effort, Index, Layout, faiss
from visleak.search.hits import Wanted


@dataclass
class Shelved:
    """An index and what goes with it.

    Attributes:
        index: of the partition's rows.
        broken: ``int64`` (k,), ascending: rows without a direction (NaN, infinity, zeros).
        off: rows whose length is off.
        efforts: how hard to look, by question.
    """

    index: Index
    broken: Int64
    off: int
    efforts: dict[str, Effort] = field(default_factory=dict)


def question(wanted: Wanted) -> str:
    """Return the name of a question, for its effort."""
    return f"threshold {wanted.threshold}, best {wanted.best}"


class Shelf:
    """A folder of indexes.

    Args:
        folder: made if need be; ``None`` keeps nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def get(self, partition: Partition, layout: Layout) -> Shelved | None:
        """Return the index of a partition, ``None`` where there is none that can be read."""
        if self._folder is None:
            return None
        files = self._files(self._folder, partition, layout)
        try:
            about = json.loads(files[1].read_text(encoding="utf-8"))
            if files[0].stat().st_size != about["bytes"]:
                return None
            filled = faiss().read_index(str(files[0]))
            efforts = {name: Effort(**effort) for name, effort in about["efforts"].items()}
            broken = np.array(about["broken"], np.int64)
            index = Index(layout, filled, float(about["slack"]))
            found = Shelved(index, broken, int(about["off"]), efforts)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError):
            return None
        fits = (len(index), filled.d) == (partition.rows, layout.width)
        return found if fits else None

    def put(self, partition: Partition, layout: Layout, entry: Shelved) -> None:
        """Keep an index; the index first, so that what is described is there."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        stored, described = self._files(self._folder, partition, layout)
        size = stored.stat().st_size if self.get(partition, layout) else None
        if size is None:
            write = faiss().write_index
            size = _replace(stored, lambda beside: write(entry.index.filled, str(beside)))
        about = {
            "bytes": size,
            "slack": entry.index.slack,
            "off": entry.off,
            "efforts": {name: asdict(effort) for name, effort in entry.efforts.items()},
            "broken": entry.broken.tolist(),
        }
        _replace(described, lambda beside: beside.write_text(json.dumps(about), encoding="utf-8"))

    @staticmethod
    def _files(folder: Path, partition: Partition, layout: Layout) -> tuple[Path, Path]:
        """Return where the index is, and what is said of it."""
        version = faiss().__version__
        parts = (DIGEST, version, layout.key, layout.width, partition.rows, partition.stamp)
        name = hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()
        return folder / f"{name}.faiss", folder / f"{name}.json"


def _replace(path: Path, write: Callable[[Path], object]) -> int:
    """Write a file beside its name, flush and rename it; return its size."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write(beside)
        handle = os.open(beside, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    return path.stat().st_size
