"""How difficult each image of a test set is, from a file or from a probe that saw no copy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from visleak.errors import VisleakError
from visleak.impact.answer_columns import Answers, listed, numbers_of, quoted
from visleak.impact.answer_files import read_answers
from visleak.impact.answer_metrics import OTHERS
from visleak.impact.benchmark import Benchmark
from visleak.impact.matching import match
from visleak.impact.probe import probed
from visleak.impact.scores import Float64
from visleak.pipeline.workplace import Progress

#: What is written for the built-in probe instead of a file.
PROBE: Final = "probe"

#: The column of a file where none is named.
COLUMN: Final = "difficulty"

#: Share of the images whose difficulty must be known.
LEAST: Final = 0.5


@dataclass(frozen=True)
class Difficulty:
    """How difficult each image is.

    Attributes:
        values: ``float64`` (n,), by image: larger is harder; NaN where it is not known.
        source: where it comes from, in words.
    """

    values: Float64
    source: str


def difficulty_of(
    folder: Path, benchmark: Benchmark, asked: str, seed: int, progress: Progress
) -> Difficulty:
    """Return the difficulty that is asked for.

    Args:
        folder: the audit folder.
        benchmark: its test set.
        asked: :data:`PROBE`, or ``FILE[#COLUMN]``: a file of predictions with a column of numbers.
        seed: of the probe's folds.
        progress: is told what is done.

    Raises:
        UsageError: there is no such file; the probe needs pictures that are not on disk.
        VisleakError: the file has no such column or is of another set; the set has no labels.
    """
    if asked == PROBE:
        found = probed(folder, benchmark, seed, progress)
        return Difficulty(found.difficulty, found.about)
    return read_difficulty(asked, benchmark)


def read_difficulty(text: str, benchmark: Benchmark) -> Difficulty:
    """Return the difficulty that a column of a file gives, ``FILE[#COLUMN]``.

    Raises:
        UsageError: there is no such file.
        VisleakError: it has no such column, or is of another set.
    """
    path, column = _parted(text)
    file = read_answers(path)
    found = match(file.ids, benchmark, file.path)
    name = column or _only_column(file)
    if name not in file.columns:
        there = listed(file.columns) or "none"
        raise VisleakError(f"{file.path} has no column {quoted(name)}; it has {there}")
    numbers = numbers_of(file.columns[name])
    if isinstance(numbers, int):
        cell = quoted(file.columns[name][numbers].as_py())
        raise VisleakError(
            f"{file.path}: column {quoted(name)} must hold numbers, larger for harder images; row"
            f" {numbers} holds {cell}"
        )
    values = np.full(len(benchmark), np.nan)
    values[found.images] = numbers[found.rows]
    known = int((~np.isnan(values)).sum())
    if known < LEAST * len(benchmark):
        raise VisleakError(
            f"{file.path}: column {quoted(name)} gives the difficulty of {known:,} of the"
            f" {len(benchmark):,} images; {100 * LEAST:.0f} % are needed"
        )
    told = "" if known == len(benchmark) else f", known for {known:,} of {len(benchmark):,} images"
    return Difficulty(values, f"column {quoted(name)} of {Path(file.path).name}{told}")


def _parted(text: str) -> tuple[str, str]:
    """Return file and column; a file whose own name has the sign comes first.

    >>> _parted("losses.csv#loss"), _parted("losses.csv")
    (('losses.csv', 'loss'), ('losses.csv', ''))
    """
    path, sign, column = text.rpartition("#")
    return (path, column) if sign and path and not Path(text).exists() else (text, "")


def _only_column(file: Answers) -> str:
    """Return the column that holds the difficulty where the command line names none."""
    names = [
        name
        for name, column in file.columns.items()
        if name not in OTHERS and not isinstance(numbers_of(column), int)
    ]
    if COLUMN in names:
        return COLUMN
    if len(names) == 1:
        return names[0]
    raise VisleakError(
        f"{file.path} has no column `{COLUMN}`, and"
        f" {f'several columns of numbers: {listed(names)}' if names else 'no column of numbers'};"
        " name one, FILE#COLUMN"
    )
