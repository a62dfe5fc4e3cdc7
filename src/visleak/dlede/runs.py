"""The trainings of a curve on disk: one file each, written in one step when it has ended.

``runs/step-010/repetition-03.json`` holds the metrics; beside it lie the log and, where the
trainer gives them, the values of single images.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from visleak.dlede.lesson import Draw, Outcome, TrainingFailed
from visleak.dlede.scores import Scores, less_is_better
from visleak.documents import read_document
from visleak.errors import VisleakError
from visleak.records import Bool, Float64, ImageSet
from visleak.storage import write_json, write_tables, write_text

KIND: Final = "visleak dlede training"
SCHEMA: Final = 1

#: What a training writes into its folder for people; kept, the rest goes after a success.
LOG: Final = "log.txt"


@dataclass(frozen=True)
class Run:
    """A training that came to a result.

    Attributes:
        step: percent of the test images that leaked.
        repetition: number of its chain.
        key: of all that its result depends on.
        outcome: what it came to; without the values of single images when read again.
        seconds: that it took, evaluation included.
        attempts: 1, or 2 where it failed once.
    """

    step: int
    repetition: int
    key: str
    outcome: Outcome
    seconds: float
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where the files of one training lie.

    Attributes:
        folder: of the trainings, ``runs``.
        step, repetition: which one.
    """

    folder: Path
    step: int
    repetition: int

    @property
    def result(self) -> Path:
        """Its metrics; there when it has ended well."""
        return self._named(".json")

    @property
    def images(self) -> Path:
        """The values of single images, if the trainer gives any."""
        return self._named(".parquet")

    @property
    def log(self) -> Path:
        """What it said."""
        return self._named(".log")

    @property
    def work(self) -> Path:
        """The folder it may write to; left behind by a training that failed."""
        return self._named(".work")

    def _named(self, suffix: str) -> Path:
        step = self.folder / f"step-{self.step:03d}"
        return step / f"repetition-{self.repetition:02d}{suffix}"

    def clear(self) -> Path:
        """Return the folder to work in, empty.

        Raises:
            VisleakError: it cannot be made.
        """
        try:
            if self.work.exists():
                shutil.rmtree(self.work)
            self.work.mkdir(parents=True)
        except OSError as error:
            raise VisleakError(f"{self.work} cannot be made anew: {error}") from error
        return self.work

    def keep_log(self, otherwise: str = "") -> None:
        """Take the log out of the working folder; where there is none, write what else is known."""
        log = self.work / LOG
        if log.is_file() and log.stat().st_size:
            log.replace(self.log)
        elif otherwise:
            write_text(self.log, f"it printed nothing; {otherwise}\n")
        else:
            self.log.unlink(missing_ok=True)


def write_run(place: Place, run: Run, test: ImageSet, draw: Draw) -> None:
    """Write a training's files, its result last; what else lay in its folder goes.

    Raises:
        VisleakError: the disk refuses.
    """
    try:
        place.images.unlink(missing_ok=True)
        if run.outcome.images:
            _write_images(place.images, run.outcome, test, draw)
        if place.work.exists():
            place.keep_log()
        write_json(place.result, _as_dict(run))
        shutil.rmtree(place.work, ignore_errors=True)
    except OSError as error:
        raise VisleakError(f"{place.result} cannot be written: {error}") from error


def _as_dict(run: Run) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "key": run.key,
        "step": run.step,
        "repetition": run.repetition,
        "metrics": {name: float(value) for name, value in run.outcome.metrics.items()},
        "about": dict(run.outcome.about),
        "seconds": run.seconds,
        "attempts": run.attempts,
    }


def _write_images(path: Path, outcome: Outcome, test: ImageSet, draw: Draw) -> None:
    leaked = np.zeros(len(test), np.bool_)
    leaked[draw.leaked] = True
    columns: dict[str, Any] = {"id": test.ids, "leaked": pa.array(leaked)}
    for name, values in outcome.images.items():
        if len(values) != len(test):
            raise TrainingFailed(
                f"the trainer gave {len(values):,} values of {name!r} for {len(test):,} images"
            )
        column = np.asarray(values, np.float64)
        columns[f"metric:{name}"] = pa.array(column, mask=np.isnan(column))
    table = pa.table(columns)
    write_tables(path, table.schema, [table])


def read_run(place: Place) -> Run | None:
    """Return a training that has ended, ``None`` where there is none.

    Raises:
        VisleakError: its file is damaged, or a newer visleak wrote it.
    """
    if not place.result.is_file():
        return None
    hint = "delete it to train again"
    content = read_document(place.result, KIND, SCHEMA, hint)
    try:
        outcome = Outcome(
            {str(name): float(value) for name, value in content["metrics"].items()},
            about=dict(content["about"]),
        )
        return Run(
            int(content["step"]),
            int(content["repetition"]),
            str(content["key"]),
            outcome,
            float(content["seconds"]),
            int(content["attempts"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, VisleakError) as error:
        raise VisleakError(f"{place.result} is damaged ({error}); {hint}") from error


def read_images(place: Place) -> tuple[Bool, dict[str, Float64]]:
    """Return which test images leaked, (n,), and the values of each metric, (n,); NaN unknown.

    Both are empty where the trainer gives no values of single images.

    Raises:
        VisleakError: the file is damaged.
    """
    if not place.images.is_file():
        return np.zeros(0, np.bool_), {}
    try:
        table = pq.read_table(place.images)
        leaked = np.asarray(table["leaked"].to_numpy(), np.bool_)
        values = {
            name.removeprefix("metric:"): np.asarray(
                table[name].to_numpy(zero_copy_only=False), np.float64
            )
            for name in table.column_names
            if name.startswith("metric:")
        }
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        raise VisleakError(
            f"{place.images} is damaged ({error}); delete {place.result} to train again"
        ) from error
    return leaked, values


def scores_of(
    runs: Iterable[Run], steps: Sequence[int], repetitions: Sequence[int], lower: Iterable[str] = ()
) -> Scores:
    """Return the metrics that all trainings have, as one array; NaN where one is missing.

    Args:
        runs: the trainings.
        steps, repetitions: that were asked for.
        lower: metrics of which less is better.
    """
    found = list(runs)
    shared = [
        name
        for name in (found[0].outcome.metrics if found else ())
        if all(name in run.outcome.metrics for run in found)
    ]
    values = np.full((len(shared), len(repetitions), len(steps)), np.nan)
    places = {number: row for row, number in enumerate(repetitions)}
    columns = {step: column for column, step in enumerate(steps)}
    for run in found:
        if run.repetition in places and run.step in columns:
            at = places[run.repetition], columns[run.step]
            values[:, at[0], at[1]] = [run.outcome.metrics[name] for name in shared]
    less = less_is_better(shared, lower)
    return Scores(tuple(shared), tuple(steps), tuple(repetitions), values, less)
