"""Scores of many prompts, block by block on disk: a killed run resumes at the last one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Final
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from visleak.memorization.detection.records import NOISE, Throughput
from visleak.memorization.scores import Scores, TriggerScore
from visleak.storage import replacing

Float64 = npt.NDArray[np.float64]
Progress = Callable[[str, int, int], None]

#: At least this many prompts a block, in whole batches.
BLOCK: Final = 256

#: How the folders of unfinished scores begin.
UNFINISHED: Final = "unfinished-"

#: What is told while scores are made.
STEP: Final = "scoring prompts"


@dataclass(frozen=True)
class Known:
    """Scores that are there already, of the same model and settings.

    Attributes:
        squared: by prompt, (noises,).
    """

    squared: Mapping[str, Float64] = field(default_factory=dict)


@dataclass(frozen=True)
class _Block:
    start: int
    squared: Float64
    passes: int
    seconds: float


def scored(
    score: TriggerScore,
    texts: Sequence[str],
    folder: Path,
    key: str,
    known: Known | None = None,
    progress: Progress | None = None,
) -> tuple[Scores, Throughput]:
    """Return the scores of prompts, and what they cost.

    Args:
        score: how.
        texts: the prompts, none twice.
        folder: blocks are kept in a folder of it, which :func:`forget` removes.
        key: of what the scores depend on, but for the prompts.
        known: scores that need not be made again.
        progress: called with how many prompts are done.
    """
    known = known or Known()
    squared = np.full((len(texts), score.settings.noises), np.nan)
    for row, text in enumerate(texts):
        if text in known.squared:
            squared[row] = known.squared[text]
    rows = np.flatnonzero(np.isnan(squared).any(1))
    wanted = [texts[row] for row in rows.tolist()]
    place = folder / f"{UNFINISHED}{_name(key, wanted)}"
    found = list(_stored(place, len(wanted), score.settings.noises))
    done = np.zeros(len(wanted), np.bool_)
    for block in found:
        done[block.start : block.start + len(block.squared)] = True
    _tell(progress, int(done.sum()), len(wanted))
    for start, stop in _left(done, _size(score.settings.batch)):
        block = _made(score, wanted, start, stop)
        _write(place, block)
        found.append(block)
        done[start:stop] = True
        _tell(progress, int(done.sum()), len(wanted))
    for block in found:
        squared[rows[block.start : block.start + len(block.squared)]] = block.squared
    cost = Throughput(
        len(wanted),
        sum(block.passes for block in found),
        sum(block.seconds for block in found),
        len(texts) - len(wanted),
    )
    return Scores(np.sqrt(squared), squared), cost


def forget(folder: Path) -> None:
    """Remove blocks that are no longer needed."""
    for place in folder.glob(f"{UNFINISHED}*"):
        shutil.rmtree(place, ignore_errors=True)


def _tell(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None and total:
        progress(STEP, done, total)


def _name(key: str, texts: Sequence[str]) -> str:
    digest = blake2b(key.encode(), digest_size=8)
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()


def _size(batch: int) -> int:
    """Return how many prompts a block has: whole batches, so that none is cut short."""
    return -(-BLOCK // batch) * batch


def _left(done: npt.NDArray[np.bool_], size: int) -> Iterator[tuple[int, int]]:
    """Yield the stretches that are not done, none longer than a block."""
    edges = np.flatnonzero(np.diff(np.concatenate([[True], done, [True]]).astype(np.int8)))
    for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        for start in range(begin, end, size):
            yield start, min(start + size, end)


def _made(score: TriggerScore, texts: Sequence[str], start: int, stop: int) -> _Block:
    passes, seconds = score.calls, score.seconds
    squared = score(texts[start:stop]).squared
    return _Block(start, squared, score.calls - passes, score.seconds - seconds)


def _write(place: Path, block: _Block) -> None:
    with replacing(place / f"{block.start:09d}.npz") as beside, beside.open("wb") as file:
        np.savez(
            file,
            squared=block.squared,
            passes=np.int64(block.passes),
            seconds=np.float64(block.seconds),
        )


def _stored(place: Path, total: int, noises: int) -> Iterator[_Block]:
    """Yield the blocks of an earlier run; what is damaged is made again."""
    done = 0
    for path in sorted(place.glob("[0-9]*.npz")):
        try:
            # opened here, for numpy leaves a damaged one open
            with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
                block = _Block(
                    int(path.stem),
                    np.asarray(held["squared"], np.float64),
                    int(held["passes"]),
                    float(held["seconds"]),
                )
        except (OSError, ValueError, KeyError, BadZipFile, EOFError):
            continue
        rows = len(block.squared) if block.squared.ndim == 2 else 0
        if (
            done <= block.start < block.start + rows <= total
            and block.squared.shape[1] == noises
            and np.isfinite(block.squared).all()
        ):
            done = block.start + rows
            yield block


def known_scores(folder: Path, noises: int) -> Known:
    """Return the scores in the tables of a folder; none where a table is damaged."""
    names = [f"{NOISE}{number + 1}" for number in range(noises)]
    found: dict[str, npt.NDArray[np.float64]] = {}
    for table in ("scores", "general"):
        path = folder / f"{table}.parquet"
        if not path.is_file():
            continue
        try:
            columns = pq.read_table(path, columns=["prompt", *names])
        except (OSError, pa.ArrowException):
            return Known()
        values = np.column_stack([columns[name].to_numpy() for name in names])
        found.update(zip(columns["prompt"].to_pylist(), values, strict=True))
    return Known(found)
