"""``dataset.json``: a data set of prompts for machines, and back."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, get_type_hints

import visleak
from visleak.documents import as_plain, digest_of, from_plain, read_document
from visleak.errors import VisleakError
from visleak.memorization.prompt_files.provenance import Provenance
from visleak.memorization.prompt_files.records import PromptSet
from visleak.memorization.prompts import Prompts

SCHEMA: Final = 1
KIND: Final = "visleak memorization dataset"

#: The files; ``RESULT`` is written last.
RESULT: Final = "dataset.json"
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


def as_dict(data: PromptSet) -> dict[str, Any]:
    """Return the content of ``dataset.json``."""
    content: dict[str, Any] = as_plain(data)
    del content["folder"]
    about = {"schema": SCHEMA, "kind": KIND, "visleak": visleak.__version__}
    return about | {"headline": headline(data)} | content


def read_prompt_set(folder: str | os.PathLike[str]) -> PromptSet:
    """Return the data set of prompts that a folder holds, without the prompts.

    Raises:
        VisleakError: there is none, it is damaged, or a newer visleak wrote it.
    """
    path = Path(folder) / RESULT
    content = read_document(path, KIND, SCHEMA, f"it is no result of `{KIND}`")
    kinds = get_type_hints(PromptSet)
    # where a folder lies is not written into it; the first ones had no key
    known = {"key": "", **content}
    try:
        values = {
            each.name: from_plain(kinds[each.name], known[each.name])
            for each in fields(PromptSet)
            if each.name != "folder"
        }
    except (KeyError, TypeError, ValueError) as error:
        raise VisleakError(
            f"{path} is damaged ({error}); run visleak memorization dataset again with --force"
        ) from error
    return PromptSet(folder=Path(folder), **values)


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


def finished(folder: Path, key: str) -> PromptSet | None:
    """Return the data set of a request, if a folder holds it with all its files."""
    try:
        found = read_prompt_set(folder)
    except VisleakError:
        # none, damaged, or another file of that name: whether it may be replaced is another matter
        return None
    whole = all((folder / name).is_file() for name in (found.table, DATASHEET))
    return found if found.key == key and whole else None
