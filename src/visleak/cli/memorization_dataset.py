"""``visleak memorization dataset``: verified trigger prompts as a data set, with a datasheet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from visleak.cli import edges
from visleak.cli.memorization_options import (
    FORMATS,
    Force,
    Json,
    Out,
    argument,
    option,
    refuse_other_kind,
)
from visleak.errors import UsageError

if TYPE_CHECKING:
    from visleak.memorization.prompt_files import PromptSet

RECORD: Final = "Who verified them"

PromptFiles = Annotated[
    list[Path] | None,
    argument(
        "PROMPTS",
        f"Lists of prompts: {FORMATS}. Equal prompts are joined, with all they name. None with"
        " --trace: the traced prompts.",
    ),
]
Column = Annotated[
    str | None, option("--column C", "Column of the prompts.", default="prompt, caption or text")
]
Traces = Annotated[
    list[Path] | None,
    option(
        "--trace DIR",
        "A result of visleak memorization trace: its verified images make their prompts"
        " verified, and name their sources. May be repeated.",
        RECORD,
    ),
]
VerifiedBy = Annotated[
    str | None,
    option(
        "--verified-by TEXT",
        "Who verified a list of others, and how: its prompts that name an image enter.",
        RECORD,
    ),
]
Unverified = Annotated[
    bool,
    option(
        "--unverified",
        "Include unverified candidates; the file name and the datasheet state it.",
        RECORD,
    ),
]


def dataset(
    prompts: PromptFiles = None,
    column: Column = None,
    trace: Traces = None,
    verified_by: VerifiedBy = None,
    unverified: Unverified = False,
    out: Out = Path("visleak-dataset"),
    json: Json = False,
    force: Force = False,
) -> None:
    """Write verified trigger prompts as a data set, with a datasheet and groups of shared images.

    Only prompts with a record of verification enter: a high D is none. No image is fetched or
    copied.
    """
    from visleak.memorization.prompt_files import (
        joined,
        prompts_of,
        provenance_of,
        read_prompts,
        traced,
        vouched,
        write_prompts,
    )
    from visleak.memorization.tracing import read_trace

    if not prompts and not trace:
        raise UsageError("dataset needs prompts: name a list of them, or --trace DIR")
    # what is quick to refuse comes first
    refuse_other_kind(out, "dataset")
    found = [read_trace(folder) for folder in trace or ()]
    lists = [read_prompts(path, column=column) for path in prompts or ()]
    merged = traced(joined([*lists, *map(prompts_of, found)]), *found)
    if verified_by is not None:
        merged = vouched(merged, verified_by)
    files = [*(prompts or ()), *(folder / "trace.json" for folder in trace or ())]
    made = write_prompts(
        merged,
        out,
        origins=[provenance_of(file) for file in files],
        unverified=unverified,
        force=force,
        say=edges.note,
    )
    _say(made, json=json)


def _say(made: PromptSet, *, json: bool) -> None:
    from visleak.memorization.prompt_files.dataset import headline

    if json:
        edges.say_bytes((made.folder / "dataset.json").read_bytes())
        return
    lines = [
        headline(made),
        *(f"  verified by {name}: {count:,}" for name, count in made.verified_by.items()),
        *(f"  left out, {reason}: {count:,}" for reason, count in made.left_out.items()),
        *(f"  {note}" for note in made.notes),
        str(made.folder),
    ]
    edges.say("".join(f"{edges.plain(line)}\n" for line in lines))
