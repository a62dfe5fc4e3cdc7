"""Where a list of prompts comes from, and its best prompts: by D, or above a threshold."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from visleak.errors import UsageError, VisleakError
from visleak.memorization.prompt_files.reading import label_of
from visleak.memorization.prompts import Prompts, PromptScores

#: How results of visleak call themselves.
OURS: Final = "visleak memorization "

#: A larger file is no result of ours.
MOST_BYTES: Final = 1 << 28


@dataclass(frozen=True)
class Provenance:
    """One file of prompts, and what made it.

    Attributes:
        file: its name, without folders.
        digest: SHA-256 of its bytes.
        verb: that wrote it, such as ``detect``; empty where nobody knows.
        model: what that was asked of, as plain data.
        settings: of the verb, as plain data.
    """

    file: str
    digest: str
    verb: str = ""
    model: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def provenance_of(file: Path) -> Provenance:
    """Return where a file of prompts comes from; of a file that visleak did not write, its digest.

    Raises:
        VisleakError: the file cannot be read.
    """
    try:
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise VisleakError(f"{file} cannot be read ({error.strerror})") from error
    for beside in sorted(file.parent.glob("*.json")):
        found = _result(beside)
        verb = str(found.get("kind", "")).removeprefix(OURS)
        # a folder holds one result, and its file is called as the verb that wrote it
        if found and beside.stem == verb:
            about = _table(found.get("about"))
            origin = _table(about.get("origin"))
            model = found.get("model", about.get("model", origin.get("model")))
            settings = found.get("settings", about.get("settings", about))
            return Provenance(file.name, digest, verb, _table(model), _table(settings))
    return Provenance(file.name, digest)


def model_of(origins: list[Provenance]) -> Mapping[str, Any]:
    """Return the one model that lists are about; nothing where none names one.

    Raises:
        UsageError: they are about several: a trigger prompt is one of one model.
    """
    models = {str(each.model.get("digest", each.model)): each for each in origins if each.model}
    if len(models) > 1:
        named = ", ".join(
            f"{each.file} ({str(each.model.get('name', '?'))[:60]})" for each in models.values()
        )
        raise UsageError(
            f"prompts are about different models: {named}; make a data set of each model"
        )
    return next(iter(models.values())).model if models else {}


def _result(path: Path) -> dict[str, Any]:
    """Return the content of a result of visleak; of any other file nothing."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return {}
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(content, dict) or not str(content.get("kind", "")).startswith(OURS):
        return {}
    return content


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


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


def scores_of(prompts: Prompts, file: Path) -> PromptScores | None:
    """Return D of the prompts of a list, with the threshold that the list or its result names.

    Args:
        prompts: of the list.
        file: that they were read from; the result beside it names kappa, and the norm of D.

    Returns:
        ``None`` where the list has no D.

    Raises:
        VisleakError: a D is no number.
    """
    made_by = provenance_of(file)
    name = _column(prompts, made_by)
    if name is None:
        return None
    rows = enumerate(prompts.columns[name], 1)
    scores = [_number(cell, f"{prompts.origin}, prompt {row:,}, {name}") for row, cell in rows]
    values = {text: d for text, d in zip(prompts.texts, scores, strict=True) if math.isfinite(d)}
    if _kappa_of(made_by) is None and not any(prompts.columns.get(REACHED, ())):
        return PromptScores(name, values)
    taken, what = _reaching(prompts, made_by)
    return PromptScores(name, values, frozenset(prompts.texts[row] for row in taken), what)


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
    known = _kappa_of(made_by) is not None and _column(prompts, made_by) is not None
    if not known and not any(prompts.columns.get(REACHED, ())):
        raise UsageError(
            "--reached needs a list that visleak memorization search or augment wrote with a kappa,"
            f" or detect with a threshold; {file} is none: take the best with --top N, or all"
        )
    rows, what = _reaching(prompts, made_by)
    if not rows:
        raise VisleakError(
            f"none of {len(prompts):,} prompts of {file} reached {what}; take the best with --top N"
        )
    return kept(prompts, rows), what


def _reaching(prompts: Prompts, made_by: Provenance) -> tuple[list[int], str]:
    """Return the rows that reached kappa, or the threshold of ``detect``, and which of the two."""
    kappa, name = _kappa_of(made_by), _column(prompts, made_by)
    if kappa is not None and name is not None:
        rows = [
            row
            for row, cell in enumerate(prompts.columns[name])
            if _number(cell, f"{prompts.origin}, prompt {row + 1:,}, {name}") >= kappa
        ]
        return rows, f"kappa {kappa:g} ({name})"
    where = f"{prompts.origin}, column {REACHED}"
    cells = prompts.columns.get(REACHED, ())
    rows = [row for row, cell in enumerate(cells) if label_of(cell, where)]
    return rows, "the threshold of detect"


def _kappa_of(made_by: Provenance) -> float | None:
    """Return kappa of a list that ``search`` or ``augment`` wrote; ``None`` of any other."""
    if made_by.verb not in ("search", "augment"):
        return None
    kappa = made_by.settings.get("kappa")
    number = isinstance(kappa, int | float) and not isinstance(kappa, bool)
    return float(kappa) if number and kappa is not None else None
