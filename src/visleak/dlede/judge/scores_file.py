"""Scores of training runs made elsewhere, or published: a CSV or TSV file."""

from __future__ import annotations

import csv
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from visleak.delimited import opened_table
from visleak.dlede.judge.scores import Scores, is_share_name, lower_is_better
from visleak.errors import UsageError, VisleakError
from visleak.storage import csv_text

#: Columns that are not metrics.
STEP: Final = "step"
REPETITION: Final = "repetition"
SECONDS: Final = "seconds"

#: Larger files are not lists of training runs.
LIMIT: Final = 10 << 20


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of the file: its number, and its cells by column."""

    path: Path
    line: int
    cells: dict[str, str]

    def fault(self, column: str, words: str) -> VisleakError:
        return VisleakError(f"{self.path}, line {self.line}, column {_told(column)}: {words}")

    def whole(self, column: str, least: int, most: int | None = None) -> int:
        """Return a whole number, written with or without a percent sign or a decimal 0."""
        text = self.cells[column].strip()
        number = _number(text.removesuffix("%"))
        top = math.inf if most is None else most
        if number is None or not least <= number <= top or number != int(number):
            allowed = f" from {least} to {most}" if most is not None else f", {least} or more"
            raise self.fault(
                column, f"must be a whole number{allowed}; got {_told(text) or 'nothing'}"
            )
        return int(number)

    def score(self, column: str) -> float:
        """Return a value as it is written, a hundredth of one with a percent sign; NaN of none."""
        text = self.cells[column].strip()
        if not text or text.lower() == "nan":
            return math.nan
        number = _number(text.removesuffix("%"))
        if number is None:
            raise self.fault(
                column,
                f"must be a number such as 0.486 or 48.6%; got {_told(text)}; remove the column"
                " if it is not a metric",
            )
        return number / 100.0 if text.endswith("%") else number


def read_scores(path: str | os.PathLike[str], *, lower: Sequence[str] = ()) -> Scores:
    """Read a file of scores.

    Each row is a training run, or the published mean of several. ``step``: percent of the test
    images that leak; ``repetition`` numbers the chains, and without it there is one; ``seconds``
    is not read; all other columns are metrics. Values with a percent sign are read as shares, and
    so are those above 1 of metrics that are shares by their name; others are taken as they are. An
    empty cell is a missing run.

    Args:
        path: a CSV file with a header; a TSV file if its name ends so.
        lower: metrics of which less is better.

    Raises:
        UsageError: there is no such file, or it has no metric that ``lower`` names.
        VisleakError: it is not such a table; the message says which line and column.
    """
    file = Path(path)
    rows = list(_rows(file))
    header = list(rows[0].cells)
    metrics = tuple(name for name in header if name not in (STEP, REPETITION, SECONDS))
    unknown = [name for name in lower if name not in metrics]
    if unknown:
        raise UsageError(f"{file} has no metric {unknown[0]!r}; it has {', '.join(metrics)}")
    found: dict[tuple[int, int], _Row] = {}
    for row in rows:
        step = row.whole(STEP, 0, 100)
        repetition = row.whole(REPETITION, 0) if REPETITION in header else 1
        other = found.setdefault((repetition, step), row)
        if other is not row:
            raise _twice(row, other, REPETITION in header)
    steps = sorted({step for _, step in found})
    _check_steps(file, steps)
    repetitions = sorted({repetition for repetition, _ in found})
    values = np.full((len(metrics), len(repetitions), len(steps)), np.nan)
    for (repetition, step), row in found.items():
        place = repetitions.index(repetition), steps.index(step)
        values[:, *place] = [row.score(metric) for metric in metrics]
    for name, column in zip(metrics, values, strict=True):
        if not np.isfinite(column).any():
            raise VisleakError(f"{file}, column {_told(name)} has no values; remove it")
    rescaled = tuple(name for name in metrics if _is_percent(name, found.values()))
    values[[metrics.index(name) for name in rescaled]] /= 100.0
    less = lower_is_better(metrics, lower)
    return Scores(metrics, tuple(steps), tuple(repetitions), values, less, rescaled)


def _is_percent(metric: str, rows: Iterable[_Row]) -> bool:
    """Whether a column of a metric that is a share holds percent without a sign.

    Raises:
        VisleakError: it holds both, or what is neither.
    """
    if not is_share_name(metric):
        return False
    known = [(value, row) for row in rows if not math.isnan(value := row.score(metric))]
    for value, row in known:
        if not 0.0 <= value <= 100.0:
            raise row.fault(metric, f"must be a share from 0 to 1 or a percentage; got {value:g}")
    large = next((each for each in known if each[0] > 1.0), None)
    small = next((each for each in known if 0.0 < each[0] <= 1.0), None)
    if large and small:
        raise large[1].fault(
            metric,
            f"{large[0]:g} is a percentage, and {small[0]:g} in line {small[1].line} a share; write"
            " percentages with a percent sign",
        )
    return large is not None


def _rows(path: Path) -> Iterator[_Row]:
    """Yield the lines below the header; there is one at least."""
    header, count = None, 0
    for line, cells in _lines(path):
        if header is None:
            header = _header(path, cells)
        elif len(cells) != len(header):
            raise VisleakError(
                f"{path}, line {line} has {len(cells):,} cells, the header has {len(header):,}"
            )
        else:
            count += 1
            yield _Row(path, line, dict(zip(header, map(csv_text, cells), strict=True)))
    if not count:
        what = "is empty" if header is None else "has no rows below its header"
        raise VisleakError(
            f"{path} {what}: a file of scores has a column step, perhaps repetition, and metrics"
        )


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of each line that is not empty."""
    if not path.is_file():
        raise UsageError(f"there is no file of scores {path}")
    if path.stat().st_size > LIMIT:
        raise VisleakError(f"{path} has more than {LIMIT >> 20} MiB, too much for a list of scores")
    try:
        with opened_table(path) as (lines, delimiter):
            reader = csv.reader(lines, delimiter=delimiter, strict=True)
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    yield reader.line_num, cells
    except (OSError, ValueError, csv.Error) as error:
        message = " ".join(str(error).split())[:200]
        raise VisleakError(f"{path} cannot be read as CSV: {message}") from error


def _header(path: Path, cells: Sequence[str]) -> list[str]:
    names = [csv_text(cell).strip() for cell in cells]
    known = (STEP, REPETITION, SECONDS)
    header = [name.lower() if name.lower() in known else name for name in names]
    name, times = Counter(header).most_common(1)[0]
    there = ", ".join(map(_told, header[:8]))
    if times > 1:
        raise VisleakError(f"{path} has more than one column {_told(name)}; keep one")
    if "" in header:
        raise VisleakError(f"{path} has a column without a name; name it or remove it")
    odd = [name for name in header if not name.isprintable()]
    if odd:
        raise VisleakError(f"{path} has a column {_told(odd[0])}; name it by letters in one line")
    if STEP not in header:
        mark = "tabs" if path.suffix.lower() == ".tsv" else "commas"
        raise VisleakError(
            f"{path} has no column step, the percent of the test images that leak; its columns,"
            f" parted by {mark}, are {there}"
        )
    if not set(header) - set(known):
        raise VisleakError(f"{path} has no metric beside {there}; add a column such as map50")
    return header


def _twice(row: _Row, other: _Row, numbered: bool) -> VisleakError:
    step = row.whole(STEP, 0, 100)
    if numbered:
        which = f"step {step} of repetition {row.whole(REPETITION, 0)}"
        return row.fault(STEP, f"{which} stands in line {other.line} already; keep one")
    return row.fault(
        STEP,
        f"step {step} stands in line {other.line} already; number its repetitions in a column"
        f" {REPETITION}",
    )


def _check_steps(path: Path, steps: Sequence[int]) -> None:
    told = ", ".join(map(str, steps))
    if steps[0] != 0:
        raise VisleakError(
            f"{path} has no step 0, the run without leaks on purpose; its steps are {told}"
        )
    if len(steps) < 2:
        raise VisleakError(f"{path} has only step {told}; at least one with leaks is needed, too")


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    # only Python reads 1_0 as 10
    return number if math.isfinite(number) and "_" not in text else None


def _told(text: str) -> str:
    """Return a text of the file in one line, cut where it is long."""
    shown = text if len(text) <= 40 else f"{text[:39]}…"
    return repr(shown) if text else ""
