"""A data set of prompts: a Parquet table, its datasheet, and a JSON file."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

import visleak
from visleak.documents import as_plain, digest_of
from visleak.memorization.prompt_files.reading import VERIFIED, VERIFIED_BY
from visleak.memorization.prompt_files.selection import (
    SHARE,
    TAU,
    Provenance,
    Selection,
    model_of,
    of_the_prompt,
    selected,
)
from visleak.memorization.prompts import Prompts
from visleak.quantities import counted
from visleak.reporting import Document, markdown
from visleak.reporting.markup import today
from visleak.stats.group_intervals import effective_groups
from visleak.storage import File, RunFolder

KIND: Final = "visleak memorization dataset"
#: The table, its name where it holds candidates, and the datasheet.
TABLE: Final = "prompts.parquet"
UNVERIFIED: Final = "prompts-unverified.parquet"
DATASHEET: Final = "datasheet.md"
#: Columns that are written as numbers, where all their cells are.
NUMBERS: Final = ("d_l2", "d_squared", "d_l2_error", "d_squared_error", "score", SHARE, TAU)


@dataclass(frozen=True)
class PromptSet:
    """What a folder of a data set of prompts holds."""

    folder: Path  #: with the table, ``datasheet.md`` and ``dataset.json``
    table: str  #: name of the table: ``prompts.parquet`` or ``prompts-unverified.parquet``
    prompts: int
    verified: int  #: how many of them are verified triggers
    verified_by: Mapping[str, int]  #: how many were verified, by whom
    labelled: int  #: how many have a label
    scored: int  #: how many have a D
    unnamed: int  #: how many name no image
    images: int  #: distinct names of memorized images; one image may have several
    groups: int  #: of prompts that share an image
    effective: float  #: number of groups of one size with the same information
    largest: int  #: prompts of the largest group
    words: tuple[int, int, int]  #: of a prompt: fewest, median, most
    other_letters: int  #: prompts with letters beyond ASCII
    candidates: int  #: there were before any were left out
    left_out: Mapping[str, int]  #: how many were left out, by reason
    model: Mapping[str, object]  #: of the prompts; empty if no list names one
    origins: tuple[Mapping[str, Any], ...]  #: files it was made of: name, sha256, command, settings
    notes: tuple[str, ...]  #: what a reader must know, one line each
    day: str  #: it was made, as ``YYYY-MM-DD``
    key: str = ""  #: of the request without the day


def read_prompt_set(folder: str | os.PathLike[str]) -> PromptSet:
    """Return the data set of prompts that a folder holds, without the prompts."""
    return RunFolder(folder, KIND).read(PromptSet, folder=Path(folder))


def write_prompts(
    prompts: Prompts,
    folder: str | os.PathLike[str],
    *,
    origins: Sequence[Provenance] = (),
    unverified: bool = False,
    force: bool = False,
    day: str = "",
    note: Callable[[str], None] | None = None,
) -> PromptSet:
    """Write prompts as a data set: ``prompts.parquet``, ``datasheet.md`` and ``dataset.json``.

    Only prompts with a record of verification enter (columns ``verified``, ``verified_by``). With
    ``unverified`` all candidates do, and the table is called ``prompts-unverified.parquet``. A
    finished result of the same request is returned as it is; ``force`` replaces another one.
    ``origins`` are the files that the prompts come from; ``day`` is today by default.

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
    request = [visleak.__version__, as_plain(prompts), [as_plain(each) for each in origins]]
    key = digest_of([*request, unverified, day])
    name, other = (UNVERIFIED, TABLE) if unverified else (TABLE, UNVERIFIED)
    known = run.reused(PromptSet, key, force=force, files=(name, DATASHEET), folder=run.path)
    if known is not None:
        if note is not None:
            note(f"{run.path} holds this very data set already; nothing was done again")
        return known
    chosen = selected(prompts, unverified=unverified)
    data = _described(chosen, run.path, name, origins, day or today(), key)
    with run.claimed():
        table = prompt_table(chosen.prompts)
        written: dict[str, File] = {name: table, other: None, DATASHEET: markdown(document(data))}
        run.finish(run.document(headline(data), data), written)
    return data


def prompt_table(prompts: Prompts) -> pa.Table:
    """Return prompts as a table that ``read_prompts`` reads, with their record."""
    count = len(prompts)
    nothing = ("",) * count
    verified, by = (prompts.columns.get(name, nothing) for name in (VERIFIED, VERIFIED_BY))
    images = [list(each) for each in prompts.sources or ((),) * count]
    columns = {
        "prompt": pa.array(prompts.texts, pa.string()),
        "label": pa.array(prompts.labels or (None,) * count, pa.bool_()),
        "sources": pa.array(images, pa.list_(pa.string())),
        "group": pa.array(prompts.groups()),
        VERIFIED: pa.array([cell == "true" for cell in verified], pa.bool_()),
        VERIFIED_BY: pa.array([cell or None for cell in by], pa.string()),
    }
    for name, cells in prompts.columns.items():
        if name not in columns and of_the_prompt(name):
            column = pa.array([cell or None for cell in cells], pa.string())
            # numbers, where all cells are
            with suppress(ValueError):
                if name in NUMBERS:
                    numbers = [float(cell) if cell else None for cell in cells]
                    column = pa.array(numbers, pa.float64())
            columns[name] = column
    return pa.table(columns)


def _described(
    chosen: Selection, folder: Path, table: str, origins: Sequence[Provenance], day: str, key: str
) -> PromptSet:
    prompts = chosen.prompts
    sizes = np.bincount(prompts.groups())
    words = sorted(len(text.split()) for text in prompts.texts)
    record = zip(prompts.columns[VERIFIED_BY], prompts.columns[VERIFIED], strict=True)
    by = Counter(name for name, true in record if true == "true")
    scores = [prompts.columns.get(name, ()) for name in ("d_l2", "d_squared")]
    return PromptSet(
        folder=folder,
        table=table,
        prompts=len(prompts),
        verified=by.total(),
        verified_by=dict(by.most_common()),
        labelled=sum(label is not None for label in prompts.labels),
        scored=max(sum(map(bool, cells)) for cells in scores),
        unnamed=sum(not images for images in prompts.sources or ((),) * len(prompts)),
        images=len({image for images in prompts.sources for image in images}),
        groups=len(sizes),
        effective=effective_groups(sizes),
        largest=int(sizes.max()),
        words=(words[0], math.ceil(np.median(words)), words[-1]),
        other_letters=sum(not text.isascii() for text in prompts.texts),
        candidates=chosen.candidates,
        left_out=chosen.left_out,
        model=model_of(origins),
        origins=tuple(
            {"file": o.file, "sha256": o.digest, "verb": o.verb, "settings": dict(o.settings)}
            for o in origins
        ),
        notes=prompts.notes,
        day=day,
        key=key,
    )


# -- the datasheet (Gebru et al. 2021) ------------------------------------------------------------


def headline(data: PromptSet) -> str:
    """Return what was written as one line."""
    unverified = data.prompts - data.verified
    text = counted(data.prompts, "candidate prompt" if unverified else "trigger prompt")
    if data.images:
        text += f" naming {counted(data.images, 'source')}"
    if data.groups < data.prompts:
        text += (
            f" in {counted(data.groups, 'group')} that share one (as good as {data.effective:.1f}"
            " of one size)"
        )
    if unverified:
        text += f"; {unverified:,} unverified"
    left = sum(data.left_out.values())
    return text + (f"; {left:,} of {data.candidates:,} left out" if left else "")


def document(data: PromptSet) -> Document:
    """Return the datasheet: what the data set holds, how it was made, what it is for."""
    unverified = data.prompts - data.verified
    title = "Unverified candidate prompts" if unverified else "Trigger prompts"
    lines = [f"{data.table}, made on {data.day} with visleak {visleak.__version__}"]
    if unverified:
        lines.append(
            f"{unverified:,} of {data.prompts:,} prompts are unverified: their images are not shown"
            " to be copies; they must not be counted as memorized"
        )
    return Document(
        title=f"Datasheet: {title}",
        headline=headline(data),
        lines=tuple(lines),
        notes=tuple(_facts(data)),
        reading=(
            "purpose: auditing the model for which the prompts reproduce training images, and"
            " evaluating mitigations; not for training generative models",
            "images are named, not included; addresses may no longer exist, and the images have"
            " owners and terms of their own",
            "no splits are recommended: prompts of one group, which are often variants of each"
            " other, belong to one part, and intervals draw on groups",
            "equal prompts were joined with all images they name; empty ones, and those labelled"
            " not memorized, were left out",
        ),
    )


def _facts(data: PromptSet) -> Iterator[str]:
    fewest, median, most = data.words
    words = f"{fewest:,} to {most:,} words, median {median:,}"
    if fewest == most:
        words = counted(most, "word")
    by = "; ".join(f"{count:,} by {name}" for name, count in data.verified_by.items())
    yield (
        f"prompts are texts given to {_model(data)}; they have {words}, and"
        f" {data.other_letters:,} have letters beyond ASCII"
    )
    yield (
        f"{data.verified:,} of {data.prompts:,} are verified triggers (verified, verified_by):"
        f" {by or 'none'}"
    )
    yield (
        f"{data.labelled:,} have a label, {data.scored:,} a D (d_l2, d_squared); {data.unnamed:,}"
        " name no memorized image"
    )
    yield (
        f"groups of prompts that share a memorized image: {data.groups:,}, the largest of"
        f" {counted(data.largest, 'prompt')}"
    )
    if left := "; ".join(f"{count:,} {reason}" for reason, count in data.left_out.items()):
        yield f"left out of {data.candidates:,} candidates: {left}"
    for origin in data.origins:
        verb = f"visleak memorization {origin['verb']}" if origin["verb"] else "another program"
        plain = [(k, v) for k, v in origin["settings"].items() if type(v) in (str, int, float)]
        settings = ", ".join(f"{key} {str(value)[:80]}" for key, value in plain[:30])
        made = f"from {origin['file']} ({verb}, SHA-256 {origin['sha256']})"
        yield f"{made} with {settings}" if settings else made
    yield from (f"of the lists: {note}" for note in data.notes)


def _model(data: PromptSet) -> str:
    if not data.model:
        return "a text-to-image model, which no list names"
    # a path of a machine is private
    name = str(data.model.get("name", "")).rstrip("/").rsplit("/", 1)[-1] or "a model"
    keys = ("family", "prediction", "precision", "digest")
    known = [f"{key} {data.model[key]}" for key in keys if isinstance(data.model.get(key), str)]
    return f"the model {name}" + (f" ({', '.join(known)})" if known else "")
