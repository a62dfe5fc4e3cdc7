"""The best prompts of a list: those of the highest D, those that reached what was asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from visleak.errors import UsageError, VisleakError
from visleak.memorization.prompt_files.cells import label_of
from visleak.memorization.prompt_files.provenance import Provenance, provenance_of
from visleak.memorization.prompts import Prompts

#: Columns of D, the norm itself first; a table of ``search`` or ``augment`` has one of them.
SCORES: Final = ("d_l2", "d_squared")

#: Column of a table of ``detect``: whether a prompt reached the threshold.
REACHED: Final = "reached"


@dataclass(frozen=True, slots=True)
class Choice:
    """Which prompts of a list are taken.

    Attributes:
        top: so many of the highest D; ``None`` takes all.
        reached: only those that reached kappa (of ``search`` and ``augment``) or the threshold (of
            ``detect``).
    """

    top: int | None = None
    reached: bool = False

    def __post_init__(self) -> None:
        if self.top is not None and self.top < 1:
            raise UsageError(f"--top is at least 1; got {self.top}")


def chosen(prompts: Prompts, file: Path, choice: Choice) -> Prompts:
    """Return the prompts of a list that a choice takes; a note says how many of how many.

    Args:
        prompts: as they were read.
        file: that they were read from; the result beside it names kappa, and the norm of D.
        choice: which are taken.

    Returns:
        With ``top`` by D, highest first, ties by text; else in their order.

    Raises:
        UsageError: nobody knows the D of the prompts, or what they had to reach.
        VisleakError: no prompt is left, or a D is no number.
    """
    if choice == Choice():
        return prompts
    made_by = provenance_of(file)
    taken, said = prompts, []
    if choice.reached:
        taken, what = _reached(taken, file, made_by)
        said.append(f"reached {what}")
    if choice.top is not None:
        name = _column(taken, made_by)
        if name is None:
            raise UsageError(
                f"--top needs a D of each prompt, and {file} has no column {' or '.join(SCORES)};"
                " score it with visleak memorization detect and give its scores.parquet"
            )
        taken = _top(taken, name, choice.top)
        said.append(f"have the highest {name}")
    note = f"{len(taken):,} of {len(prompts):,} prompts are taken, which {' and '.join(said)}"
    return replace(taken, notes=(*prompts.notes, note))


def kept(prompts: Prompts, rows: Sequence[int]) -> Prompts:
    """Return some prompts of a list, in the order of their numbers.

    >>> kept(Prompts(("a", "b"), columns={"n": ("1", "2")}), [1]).columns
    {'n': ('2',)}
    """
    return replace(
        prompts,
        texts=tuple(prompts.texts[row] for row in rows),
        labels=tuple(prompts.labels[row] for row in rows) if prompts.labels else (),
        sources=tuple(prompts.sources[row] for row in rows) if prompts.sources else (),
        columns={
            name: tuple(column[row] for row in rows) if column else ()
            for name, column in prompts.columns.items()
        },
    )


def _column(prompts: Prompts, made_by: Provenance) -> str | None:
    """Return the column of D, by the norm of the result where a table has both; or ``None``."""
    there = [name for name in SCORES if any(prompts.columns.get(name, ()))]
    own = f"d_{made_by.settings.get('norm')}"
    return own if own in there else next(iter(there), None)


def _top(prompts: Prompts, name: str, count: int) -> Prompts:
    """Return the prompts of the highest D; one without is taken last.

    Raises:
        VisleakError: a D is no number.
    """
    scores = []
    for number, cell in enumerate(prompts.columns[name], 1):
        scores.append(_number(cell, f"{prompts.origin}, prompt {number:,}, {name}"))
    order = sorted(range(len(scores)), key=lambda row: (-scores[row], prompts.texts[row]))
    return kept(prompts, order[:count])


def _number(cell: str, where: str) -> float:
    try:
        value = float(cell) if cell else -math.inf
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise VisleakError(f"{where}: a D is a number; got {cell[:40]!r}")
    return value


def _reached(prompts: Prompts, file: Path, made_by: Provenance) -> tuple[Prompts, str]:
    """Return the prompts that reached what was asked for, and what that was.

    Raises:
        UsageError: nobody knows.
        VisleakError: none did.
    """
    kappa, cells = _kappa(made_by.settings), prompts.columns.get(REACHED, ())
    name = _column(prompts, made_by)
    if made_by.verb in ("search", "augment") and kappa is not None and name is not None:
        what = f"kappa {kappa:g} ({name})"
        rows = [
            row
            for row, cell in enumerate(prompts.columns[name])
            if _number(cell, f"{prompts.origin}, prompt {row + 1:,}, {name}") >= kappa
        ]
    elif any(cells):
        what = "the threshold of detect"
        where = f"{prompts.origin}, column {REACHED}"
        rows = [row for row, cell in enumerate(cells) if label_of(cell, where)]
    else:
        raise UsageError(
            "--reached needs a list that visleak memorization search or augment wrote with a kappa,"
            f" or detect with a threshold; {file} is none: take the best with --top N, or all"
        )
    if not rows:
        raise VisleakError(
            f"none of {len(prompts):,} prompts of {file} reached {what}; take the best with --top N"
        )
    return kept(prompts, rows), what


def _kappa(settings: Mapping[str, Any]) -> float | None:
    kappa = settings.get("kappa")
    number = isinstance(kappa, int | float) and not isinstance(kappa, bool)
    return float(kappa) if number and kappa is not None else None
