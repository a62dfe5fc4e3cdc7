"""The interface of trainers, and training runs: images and seed, outcome, and files."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from visleak.dlede.draw import Draw, Split, joined
from visleak.dlede.judge import mean_interval
from visleak.dlede.judge.scores import Scores, lower_is_better
from visleak.dlede.results import Gain
from visleak.documents import as_plain, from_plain, read_document
from visleak.errors import VisleakError, explaining
from visleak.formats import Boxes
from visleak.formats.boxes import joined_boxes
from visleak.progress import Progress
from visleak.quantities import is_share_name
from visleak.records import Bool, Float64, ImageSet
from visleak.storage import write_json, write_tables, write_text


class TrainingFailed(VisleakError):
    """A training run has no result; the message is one line, the log holds the details."""


@dataclass(frozen=True)
class TrainingTask:
    """One training run to carry out. Picklable."""

    split: Split  # the original sets. The test set is always evaluated as a whole.
    draw: Draw  # rows of both that are trained on
    step: int  # percent of the test images that leak
    repetition: int  # number of the chain, from 1
    seed: int  # of the trainer; the same for all steps of a repetition
    epochs: int | None = None  # requested; ``None`` for the trainer's default

    @property
    def train(self) -> ImageSet:
        """The images to train on: those kept, then those leaked.

        If an id is in both sets, the leaked image's is prefixed with its set's name.
        """
        return joined(self.split.train, self.draw.kept, self.split.test, self.draw.leaked)

    @property
    def boxes(self) -> Boxes | None:
        """The annotated objects of the images to train on, in their order."""
        train, test = self.split.train_boxes, self.split.test_boxes
        if train is None or test is None:
            return None
        return joined_boxes(train.taken(self.draw.kept), test.taken(self.draw.leaked))

    @property
    def test(self) -> ImageSet:
        """The images to evaluate on."""
        return self.split.test


@dataclass(frozen=True)
class Outcome:
    """The outcome of a training run.

    Raises:
        TrainingFailed: there is no metric, or one is not finite or not in its range.
    """

    # name to value over the whole test set, finite. Shares are in [0, 1], such as ``precision``,
    # ``recall``, ``f1``, ``map50``, ``map50_95``, ``accuracy``.
    metrics: Mapping[str, float]
    # metric to ``float64`` (test images,): the value of each image, NaN if it has none
    images: Mapping[str, Float64] = field(default_factory=dict)
    # details of the training, such as ``{"epochs": 100}``; plain JSON
    about: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.metrics:
            raise TrainingFailed("the training run has no result: there are no metrics")
        for name, value in self.metrics.items():
            if not np.isfinite(value):
                raise TrainingFailed(f"the training run has no result: {name} is not finite")
            # a curve that mixes both units would look like a jump of the score
            if is_share_name(name) and not -1e-6 <= value <= 1.0 + 1e-6:
                hint = "; divide percent by 100" if 1.0 < value <= 100.0 else ""
                raise TrainingFailed(f"{name} must be a share from 0 to 1, got {value:g}{hint}")


class PreparedTrainer(Protocol):
    """A trainer prepared for a split. Picklable: runs execute in processes of their own."""

    def train(self, task: TrainingTask, folder: Path) -> Outcome:
        """Train in an empty folder and evaluate; any exception counts as a failed run."""
        ...


class Trainer(Protocol):
    """Trains a model and evaluates it.

    Attributes:
        name: on the command line.
        decides: the metrics that decide by default, of those that the outcomes have. Empty: all.
        lower: metrics for which lower is better.
    """

    name: str
    decides: Sequence[str]
    lower: Sequence[str]

    def about(self) -> Mapping[str, object]:
        """Return everything but images and seed that changes its results, as plain JSON."""
        ...

    def prepare(self, split: Split, folder: Path, progress: Progress) -> PreparedTrainer:
        """Check the split before anything is trained, and prepare what all runs share.

        Args:
            split: the split.
            folder: for prepared files, kept while runs execute.
            progress: called with the progress.

        Raises:
            VisleakError: the split cannot be trained on; one line, with what to do.
        """
        ...


class FunctionTrainer:
    """Trains by a function from a task to metrics over the whole test set.

    ``task.train`` and ``task.test`` are image sets whose opener reads the images; ``task.boxes``
    and ``task.split.test_boxes`` are their objects; ``task.seed`` is the seed to use. A function of
    a module can train in several processes, one defined inside another only in this process.

    >>> def most_frequent(task):
    ...     labels = task.train.labels.to_pylist()
    ...     guess = max(sorted(set(labels)), key=labels.count)
    ...     return {"accuracy": task.test.labels.to_pylist().count(guess) / len(task.test)}
    >>> trainer = FunctionTrainer(most_frequent, "most-frequent", decides=("accuracy",))

    Args:
        function: from a task to metrics, or to an :class:`Outcome` with values of single images.
        name: of the trainer.
        decides: the metrics that decide; empty for all.
        lower: metrics for which lower is better.
        about: what changes its results, as plain JSON: runs on disk are reused while it is the
            same, so change it with the function.
    """

    def __init__(
        self,
        function: Callable[[TrainingTask], Mapping[str, float] | Outcome],
        name: str,
        decides: Sequence[str] = (),
        lower: Sequence[str] = (),
        about: Mapping[str, object] | None = None,
    ) -> None:
        self.function, self.name = function, name
        self.decides, self.lower = decides, lower
        self._about = dict(about or {})

    def about(self) -> Mapping[str, object]:
        """Return the given mapping."""
        return self._about

    def prepare(self, split: Split, folder: Path, progress: Progress) -> PreparedTrainer:
        """Return itself; nothing needs preparation."""
        return self

    def train(self, task: TrainingTask, folder: Path) -> Outcome:
        """Call the function."""
        returned: object = self.function(task)
        if isinstance(returned, Outcome):
            return returned
        if not isinstance(returned, Mapping):
            raise TrainingFailed(
                f"the function returned {type(returned).__name__}; it must return metrics, such as"
                ' {"accuracy": 0.9}, or an Outcome'
            )
        return Outcome(dict(_metric(*item) for item in returned.items()))


def _metric(name: object, value: object) -> tuple[str, float]:
    if not isinstance(name, str):
        raise TrainingFailed(f"the function named a metric {name!r}; names must be strings")
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
        raise TrainingFailed(
            f"the function returned {type(value).__name__} for {name!r}; metrics must be numbers"
        )
    try:
        return name, float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise TrainingFailed(f"the function returned no number for {name!r}: {error}") from error


# -- training runs on disk: one file each, written atomically when the run has finished -----------

# ``runs/step-010/repetition-03.json`` holds the metrics; the log and, if the trainer provides them,
# the values of single images are next to it.


KIND: Final = "visleak dlede training"
SCHEMA: Final = 1
#: The log of a run in its working folder; it is kept, the rest is removed after a success.
LOG: Final = "log.txt"
PREFIX: Final = "metric:"  # prefix of the columns of single images that hold metrics

#: Leaked test images, and the values of each metric.
ImageValues = tuple[Bool, Mapping[str, Float64]]


@dataclass(frozen=True)
class Run:
    """A training run with a result."""

    step: int  # percent of the test images that leaked
    repetition: int  # number of its chain
    key: str  # of everything that its result depends on
    metrics: Mapping[str, float]  # metrics, about: of its outcome
    about: Mapping[str, object]
    seconds: float  # duration, evaluation included
    attempts: int = 1  # 1, or 2 if it failed once


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files of one training run."""

    folder: Path  # of all runs, runs
    step: int  # step, repetition: of this one
    repetition: int

    def _named(self, suffix: str) -> Path:
        name = f"repetition-{self.repetition:02d}{suffix}"
        return self.folder / f"step-{self.step:03d}" / name

    @property
    def result(self) -> Path:
        """Its metrics; present when it has finished."""
        return self._named(".json")

    @property
    def images(self) -> Path:
        """The values of single images, if the trainer provides them."""
        return self._named(".parquet")

    @property
    def log(self) -> Path:
        """Its output."""
        return self._named(".log")

    @property
    def work(self) -> Path:
        """Its working folder; it remains after a failure."""
        return self._named(".work")

    def clear(self) -> Path:
        """Return the working folder, empty."""
        with explaining(f"{self.work} cannot be created", OSError):
            if self.work.exists():
                shutil.rmtree(self.work)
            self.work.mkdir(parents=True)
        return self.work

    def keep_log(self, otherwise: str = "") -> None:
        """Move the log out of the working folder; without one, write another text."""
        log = self.work / LOG
        if log.is_file() and log.stat().st_size:
            log.replace(self.log)
        elif otherwise:
            write_text(self.log, f"it printed nothing; {otherwise}\n")
        else:
            self.log.unlink(missing_ok=True)


def write_run(
    files: RunFiles, run: Run, images: Mapping[str, Float64], test: ImageSet, draw: Draw
) -> None:
    """Write the files of a run, its result last, and remove its working folder."""
    with explaining(f"{files.result} cannot be written", OSError):
        files.images.unlink(missing_ok=True)
        if images:
            table = _image_table(images, test, draw)
            write_tables(files.images, table.schema, [table])
        if files.work.exists():
            files.keep_log()
        write_json(files.result, {"schema": SCHEMA, "kind": KIND, **as_plain(run)})
        shutil.rmtree(files.work, ignore_errors=True)


def _image_table(images: Mapping[str, Float64], test: ImageSet, draw: Draw) -> pa.Table:
    leaked = np.isin(np.arange(len(test)), draw.leaked)
    columns: dict[str, object] = {"id": test.ids, "leaked": pa.array(leaked)}
    for name, values in images.items():
        if len(values) != len(test):
            raise TrainingFailed(
                f"the trainer returned {len(values):,} values of {name!r} for {len(test):,} images"
            )
        column = np.asarray(values, np.float64)
        columns[PREFIX + name] = pa.array(column, mask=np.isnan(column))
    return pa.table(columns)


def read_run(files: RunFiles) -> Run | None:
    """Return a finished training run, ``None`` if there is none."""
    if not files.result.is_file():
        return None
    hint = "delete it to train again"
    content = read_document(files.result, KIND, SCHEMA, hint)
    try:
        run: Run = from_plain(Run, content)
        Outcome(run.metrics)
    except (KeyError, TypeError, ValueError, VisleakError) as error:
        raise VisleakError(f"{files.result} is damaged ({error}); {hint}") from error
    return run


def read_images(files: RunFiles) -> ImageValues:
    """Return which test images leaked, (n,), and the values of each metric, if there are any."""
    if not files.images.is_file():
        return np.zeros(0, np.bool_), {}
    damage = f"{files.images} is damaged; delete {files.result} to train again"
    with explaining(damage, OSError, KeyError, ValueError, pa.ArrowException):
        table = pq.read_table(files.images)
        leaked = np.asarray(table["leaked"].to_numpy(), np.bool_)
        columns = [name for name in table.column_names if name.startswith(PREFIX)]
        values = (table[name].to_numpy(zero_copy_only=False) for name in columns)
        names = (name.removeprefix(PREFIX) for name in columns)
        found = zip(names, values, strict=True)
        return leaked, {name: column.astype(np.float64) for name, column in found}


def scores_of(
    runs: Sequence[Run], steps: Sequence[int], repetitions: Sequence[int], lower: Iterable[str] = ()
) -> Scores:
    """Return the metrics that all runs have, as one array; NaN for missing runs."""
    names = list(runs[0].metrics) if runs else []
    shared = tuple(name for name in names if all(name in run.metrics for run in runs))
    values = np.full((len(shared), len(repetitions), len(steps)), np.nan)
    for run in runs:
        if run.repetition in repetitions and run.step in steps:
            at = repetitions.index(run.repetition), steps.index(run.step)
            values[:, *at] = [run.metrics[name] for name in shared]
    return Scores(shared, tuple(steps), tuple(repetitions), values, lower_is_better(shared, lower))


def gains_of(runs: Sequence[Run], folder: Path, lower: frozenset[str]) -> tuple[Gain, ...]:
    """Return the gains of leaked test images, and of the others, at every step.

    Curves rise because leaked images are memorized, because similar ones are recognized better, or
    because the training set has changed; this separates the first from the others: each test image
    is compared with itself at step 0, where it had not leaked.
    """
    known: dict[tuple[int, int], ImageValues] = {}
    for run in runs:
        leaked, values = read_images(RunFiles(folder, run.step, run.repetition))
        if values:
            known[run.step, run.repetition] = leaked, values
    steps = sorted({step for step, _ in known if step})
    names = sorted({name for _, values in known.values() for name in values})
    found = (_gain(known, name, step, name in lower) for name in names for step in steps)
    return tuple(gain for gain in found if gain is not None)


def _gain(
    known: Mapping[tuple[int, int], ImageValues], metric: str, step: int, lower: bool
) -> Gain | None:
    """Return the gains at one step over the chains that have both it and step 0."""
    gains, counts = [], []
    for (other, repetition), (leaked, values) in known.items():
        before = known.get((0, repetition))
        if other != step or before is None or metric not in values or metric not in before[1]:
            continue
        change = (values[metric] - before[1][metric]) * (-1.0 if lower else 1.0)
        defined = ~np.isnan(change)
        gains.append([_mean(change[defined & leaked]), _mean(change[defined & ~leaked])])
        counts.append(int(leaked.sum()))
    if not gains:
        return None
    of_leaked, of_others = map(mean_interval, np.asarray(gains, np.float64).T)
    return Gain(metric, step, float(np.mean(counts)), of_leaked, of_others)


def _mean(values: Float64) -> float:
    return float(values.mean()) if len(values) else math.nan
