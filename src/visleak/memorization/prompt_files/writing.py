"""Write a data set of prompts: a Parquet table, its datasheet, and a JSON file."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

import visleak
from visleak.documents import as_plain, digest_of
from visleak.memorization.prompt_files.choosing import Provenance, model_of
from visleak.memorization.prompt_files.datasheet import PromptSet, datasheet, known_answers
from visleak.memorization.prompt_files.reading import VERIFIED, VERIFIED_BY
from visleak.memorization.prompt_files.verifying import (
    NOISE,
    OF_THE_LIST,
    SHARE,
    TAU,
    Selected,
    selected,
)
from visleak.memorization.prompts import Prompts
from visleak.storage import File, RunFolder

KIND: Final = "visleak memorization dataset"

#: The table, and its name where it holds candidates.
TABLE: Final = "prompts.parquet"
UNVERIFIED: Final = "prompts-unverified.parquet"
DATASHEET: Final = "datasheet.md"


def headline(data: PromptSet) -> str:
    """Return what was written as one line that can be repeated."""
    some = f"{data.prompts:,} {'candidate' if data.verified < data.prompts else 'trigger'}"
    some += f" prompt{'s' * (data.prompts != 1)}"
    if data.images:
        some += f" naming {data.images:,} source{'s' * (data.images != 1)}"
    if data.groups < data.prompts:
        some += (
            f" in {data.groups:,} group{'s' * (data.groups != 1)} that share one (as good as"
            f" {data.effective:.1f} of one size)"
        )
    if data.verified < data.prompts:
        some += f"; {data.prompts - data.verified:,} unverified"
    left = sum(data.left_out.values())
    return some + (f"; {left:,} of {data.candidates:,} left out" if left else "")


def read_prompt_set(folder: str | os.PathLike[str]) -> PromptSet:
    """Return the data set of prompts that a folder holds, without the prompts.

    Raises:
        UsageError: there is none.
        VisleakError: it is damaged, or a newer visleak wrote it.
    """
    return RunFolder(folder, KIND).read(PromptSet, folder=Path(folder))


def request_key(
    prompts: Prompts,
    origins: Sequence[Provenance],
    answers: Mapping[int, str],
    *,
    unverified: bool,
    day: str,
) -> str:
    """Return the key of a request: of all that the files say, but the day where nobody named one.

    Args:
        prompts: the candidates.
        origins: files they come from.
        answers: of people, by number of question.
        unverified: whether candidates without a record are taken.
        day: that was asked for, or ``""``.
    """
    asked = [
        *(visleak.__version__, as_plain(prompts), [as_plain(each) for each in origins]),
        *({str(number): text for number, text in answers.items()}, unverified, day),
    ]
    return digest_of(asked)


#: Columns that are written as numbers, where all their cells are.
NUMBERS: Final = ("d_l2", "d_squared", "d_l2_error", "d_squared_error", "score", SHARE, TAU)


def write_prompts(
    prompts: Prompts,
    folder: str | os.PathLike[str],
    *,
    origins: Sequence[Provenance] = (),
    answers: Mapping[int, str] | None = None,
    unverified: bool = False,
    force: bool = False,
    day: str = "",
    say: Callable[[str], None] | None = None,
) -> PromptSet:
    """Write prompts as a data set: ``prompts.parquet``, ``datasheet.md`` and ``dataset.json``.

    Only prompts with a record of verification enter (columns ``verified``, ``verified_by``). With
    ``unverified`` all candidates do, and the table is called ``prompts-unverified.parquet``. What
    the folder holds is returned as it is where it was made by the same request.

    Args:
        prompts: the candidates.
        folder: need not be there.
        origins: files the prompts come from.
        answers: of people to questions of the datasheet, by number.
        unverified: take candidates without a record.
        force: replace another data set that is there.
        day: it is made; today by default.
        say: told in a line what was reused.

    Returns:
        What was written, or was there.

    Raises:
        UsageError: the folder holds another data set, or the lists are about several models.
        VisleakError: no prompt is left, or the folder cannot be written.

    >>> import tempfile
    >>> known = {"verified": ("true",), "verified_by": ("a look",)}
    >>> prompts = Prompts(("a red bag",), sources=(("bag.png",),), columns=known)
    >>> written = write_prompts(prompts, tempfile.mkdtemp())
    >>> written.table, written.images
    ('prompts.parquet', 1)
    """
    run = RunFolder(folder, KIND)
    key = request_key(prompts, origins, answers or {}, unverified=unverified, day=day)
    files = (UNVERIFIED if unverified else TABLE, DATASHEET)
    known = run.reused(PromptSet, key, force=force, files=files, folder=run.path)
    if known is not None:
        if say is not None:
            say(f"{run.path} holds this very data set already; nothing was done again")
        return known
    chosen = selected(prompts, unverified=unverified)
    data = _described(chosen, run.path, origins, day or datetime.now(UTC).date().isoformat())
    data = replace(
        data,
        table=UNVERIFIED if unverified else TABLE,
        answered=tuple(sorted({*(answers or {}), *known_answers(data)})),
        key=key,
    )
    with run.claimed():
        table = prompt_table(chosen.prompts)
        written: dict[str, File] = {
            TABLE: None if unverified else table,
            UNVERIFIED: table if unverified else None,
            DATASHEET: datasheet(data, answers or {}),
        }
        run.finish(run.document(headline(data), data), written)
    return data


def prompt_table(prompts: Prompts) -> pa.Table:
    """Return prompts as a table that :func:`read_prompts` reads.

    ``prompt, label, sources, group, verified, verified_by``, then what else is known of them.
    """
    count = len(prompts)
    record = {name: prompts.columns.get(name, ("",) * count) for name in (VERIFIED, VERIFIED_BY)}
    columns = {
        "prompt": pa.array(prompts.texts, pa.string()),
        "label": pa.array(prompts.labels or (None,) * count, pa.bool_()),
        "sources": pa.array(
            [list(images) for images in prompts.sources or ((),) * count], pa.list_(pa.string())
        ),
        "group": pa.array(prompts.groups()),
        VERIFIED: pa.array([cell == "true" for cell in record[VERIFIED]], pa.bool_()),
        VERIFIED_BY: pa.array([cell or None for cell in record[VERIFIED_BY]], pa.string()),
    }
    for name, cells in prompts.columns.items():
        if name not in columns and name not in OF_THE_LIST and not name.startswith(NOISE):
            columns[name] = _column_of(name, cells)
    return pa.table(columns)


def _column_of(name: str, cells: Sequence[str]) -> pa.Array:
    if name in NUMBERS:
        try:
            values = [float(cell) if cell else None for cell in cells]
        except ValueError:
            return pa.array([cell or None for cell in cells], pa.string())
        return pa.array(values, pa.float64())
    return pa.array([cell or None for cell in cells], pa.string())


def _described(
    chosen: Selected, folder: Path, origins: Sequence[Provenance], day: str
) -> PromptSet:
    prompts = chosen.prompts
    sizes = np.bincount(prompts.groups())
    words = sorted(len(text.split()) for text in prompts.texts)
    by = Counter(
        name
        for name, true in zip(prompts.columns[VERIFIED_BY], prompts.columns[VERIFIED], strict=True)
        if true == "true"
    )
    scores = [prompts.columns.get(name, ()) for name in ("d_l2", "d_squared")]
    return PromptSet(
        folder=folder,
        table=TABLE,
        prompts=len(prompts),
        verified=by.total(),
        verified_by=dict(by.most_common()),
        labelled=sum(label is not None for label in prompts.labels),
        scored=max(sum(map(bool, cells)) for cells in scores),
        unnamed=sum(not images for images in prompts.sources or ((),) * len(prompts)),
        images=len({image for images in prompts.sources for image in images}),
        groups=len(sizes),
        effective=float(sizes.sum() ** 2 / np.square(sizes.astype(np.float64)).sum()),
        largest=int(sizes.max()),
        words=(words[0], math.ceil(np.median(words)), words[-1]),
        other_letters=sum(not text.isascii() for text in prompts.texts),
        candidates=chosen.candidates,
        left_out=chosen.left_out,
        model=model_of(list(origins)),
        origins=tuple(_origin(each) for each in origins),
        notes=prompts.notes,
        answered=(),
        day=day,
    )


def _origin(each: Provenance) -> dict[str, Any]:
    return {
        "file": each.file,
        "sha256": each.digest,
        "verb": each.verb,
        "settings": dict(each.settings),
    }
