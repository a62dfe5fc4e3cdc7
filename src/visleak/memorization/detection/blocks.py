"""Scores of many prompts, block by block on disk: a killed run resumes at the last one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from visleak.documents import digest_of
from visleak.memorization.detection.records import NOISE, Throughput
from visleak.memorization.scores import Scores, TriggerScore
from visleak.storage import KeyValueStore

Float64 = npt.NDArray[np.float64]
Progress = Callable[[str, int, int], None]

#: At least this many prompts per block, in whole batches, so that none is cut short.
BLOCK: Final = 256

#: Scores of an unfinished run.
UNFINISHED: Final = "unfinished-scores.sqlite"

#: Name of the step.
STEP: Final = "scoring prompts"


def scored(
    score: TriggerScore,
    texts: Sequence[str],
    folder: Path,
    key: str,
    known: Mapping[str, Float64] | None = None,
    progress: Progress | None = None,
) -> tuple[Scores, Throughput]:
    """Return the scores of prompts, and what they cost."""
    squared = {text: row for text, row in (known or {}).items() if text in set(texts)}
    wanted = [text for text in texts if text not in squared]
    cost = np.zeros(2)
    if wanted:
        with KeyValueStore(folder / UNFINISHED, "scores") as store:
            made = _made(score, wanted, store, key, progress)
        squared |= {text: row[:-2] for text, row in made.items()}
        cost = np.sum([row[-2:] for row in made.values()], axis=0)
    table = np.array([squared[text] for text in texts]).reshape(len(texts), -1)
    paid = Throughput(len(wanted), round(float(cost[0])), float(cost[1]), len(texts) - len(wanted))
    return Scores(np.sqrt(table), table), paid


def _made(
    score: TriggerScore,
    texts: Sequence[str],
    store: KeyValueStore,
    key: str,
    progress: Progress | None,
) -> dict[str, Float64]:
    """Return squared scores, passes and seconds of each prompt, (noises + 2,)."""
    keys = {text: digest_of([key, text]) for text in texts}
    held = store.known(list(keys.values()))
    rows = {text: np.frombuffer(held[at], "<f8") for text, at in keys.items() if at in held}
    width = score.settings.noises + 2
    found = {t: row for t, row in rows.items() if len(row) == width and np.isfinite(row).all()}
    missing = [text for text in texts if text not in found]
    size = -(-BLOCK // score.settings.batch) * score.settings.batch
    tell = progress or (lambda step, done, total: None)
    tell(STEP, len(found), len(texts))
    for start in range(0, len(missing), size):
        block = missing[start : start + size]
        passes, seconds = score.calls, score.seconds
        squared = score(block).squared
        paid = np.array([score.calls - passes, score.seconds - seconds]) / len(block)
        made = {t: np.concatenate([row, paid]) for t, row in zip(block, squared, strict=True)}
        data = {keys[text]: row.astype("<f8").tobytes() for text, row in made.items()}
        store.add(data, replace=True)
        found |= made
        tell(STEP, len(found), len(texts))
    return found


def forget(folder: Path) -> None:
    """Remove scores that are no longer needed."""
    for path in folder.glob(f"{UNFINISHED}*"):
        path.unlink(missing_ok=True)


def known_scores(folder: Path, noises: int) -> dict[str, Float64]:
    """Return the scores in the tables of a folder; none where a table is damaged."""
    names = [f"{NOISE}{number + 1}" for number in range(noises)]
    found: dict[str, Float64] = {}
    for table in ("scores", "general"):
        path = folder / f"{table}.parquet"
        if not path.is_file():
            continue
        try:
            columns = pq.read_table(path, columns=["prompt", *names])
        except (OSError, pa.ArrowException):
            return {}
        values = np.column_stack([columns[name].to_numpy() for name in names])
        found.update(zip(columns["prompt"].to_pylist(), values, strict=True))
    return found
