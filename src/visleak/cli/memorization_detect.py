"""``visleak memorization detect``: D of prompts, and which of them stand out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from visleak.cli import edges
from visleak.cli import memorization_options as shared
from visleak.cli.edges import plain
from visleak.cli.memorization_options import option

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from visleak.memorization.detection import Asked, Attribution, Detection
    from visleak.memorization.prompts import Prompts

#: Prompts that a screen has room for; files have all.
ROWS: Final = 10
LONGEST: Final = 70

#: From how much of the largest value on a token stands out.
STRONG: Final = 0.5


def shown(result: Detection) -> Iterator[RenderableType]:
    """Yield the parts of the summary."""
    from rich.text import Text

    from visleak.cli.terminal import plain_table
    from visleak.drawing import cut
    from visleak.memorization.detection.headline import headlines, name_of_d, number
    from visleak.memorization.detection.markup import about

    first, *apart = headlines(result)
    # nobody says that an unlabelled list is memorized: how far it lies from the ordinary prompts
    # is no result of its own, and stands with the note that says so
    aside = apart if result.separation is not None and result.separation.by == "lists" else []
    for line in (first, *(line for line in apart if line not in aside)):
        yield Text(plain(line), "bold")
    for line in about(result):
        yield Text(plain(line), "dim")
    yield Text()
    words = {True: "memorized", False: "not memorized", None: ""}
    labelled = any(each.label is not None for each in result.top)
    table = plain_table(*("prompt", "label")[: 1 + labelled], name_of_d(result.settings), numbers=1)
    for each in result.top[:ROWS]:
        label = [words[each.label]] if labelled else []
        table.add_row(cut(plain(each.prompt), LONGEST), *label, number(each.d))
    yield table
    if result.tokens:
        yield Text()
        by = result.tokens[0].method
        yield Text(f"tokens by {by}, those of at least half the largest value with it", "bold")
        yield from map(_tokens, result.tokens[:ROWS])
    yield Text()
    for line in (*aside, *result.notes):
        yield Text(plain(line), "dim")


def _tokens(each: Attribution) -> Text:
    """Return a prompt with its strong tokens in bold and with their value."""
    from rich.text import Text

    largest = max((abs(value) for value in each.values), default=0.0)
    line = Text()
    for token, value in zip(each.tokens, each.values, strict=True):
        strong = largest > 0 and abs(value) >= STRONG * largest
        text = plain(token)
        line.append(f"{text} ({value:.3g}) " if strong else f"{text} ", "bold" if strong else "")
    return line


LISTS: Final = "The prompts"
READING: Final = "What is made of the scores"


def detect(
    model: shared.ModelName,
    prompts: Annotated[
        Path,
        option(
            "--prompts FILE",
            f"The prompts: {shared.FORMATS}; a column label says which are memorized.",
            LISTS,
        ),
    ],
    general: Annotated[
        Path | None,
        option(
            "--general FILE",
            "Ordinary prompts, such as COCO's captions, in any of these formats: they set the"
            " threshold, and count as not memorized.",
            LISTS,
        ),
    ] = None,
    column: Annotated[
        str | None,
        option(
            "--column C", "Column of the prompts in FILE.", LISTS, default="prompt, caption or text"
        ),
    ] = None,
    general_column: Annotated[
        str | None, option("--general-column C", "The same in the file of --general.", LISTS)
    ] = None,
    fpr: Annotated[
        str,
        option("--fpr RATE", "Share of ordinary prompts that may reach the threshold.", READING),
    ] = "1%",
    bounded: Annotated[
        bool,
        option(
            "--bounded",
            "Not the share seen but its 95 % upper bound is at most RATE (1% needs 299"
            " ordinary prompts).",
            READING,
        ),
    ] = False,
    threshold: Annotated[
        float | None,
        option(
            "--threshold D",
            "A threshold that was set before, by the same model and settings.",
            READING,
        ),
    ] = None,
    tokens: Annotated[
        int,
        option(
            "--tokens K",
            "Say of the K prompts of the largest D what each token has to do with it.",
            READING,
            min=0,
        ),
    ] = 0,
    tokens_by: Annotated[
        str,
        option(
            "--tokens-by METHOD",
            "gradient (Wen et al. 2024), or leave-one-out (D without each word; any model).",
            READING,
        ),
    ] = "gradient",
    noises: shared.Noises = 1,
    timestep: shared.Timestep = "first",
    norm: shared.Norm = "l2",
    output: shared.Output = "raw",
    seed: shared.Seed = 0,
    device: shared.Device = "auto",
    precision: shared.Precision = "auto",
    batch: shared.Batch = None,
    out: shared.Out = Path("visleak-detect"),
    json: shared.Json = False,
    force: shared.Force = False,
) -> None:
    """Score prompts by D, and say which reach a threshold with a stated rate of false alarms.

    Writes tables sorted by D, figures and detect.json; a run that was ended goes on where it was.
    """
    from visleak.cli.progress import bars
    from visleak.memorization.detection import detect as detected
    from visleak.memorization.prompt_files import read_prompts
    from visleak.memorization.scores import TriggerScore

    shared.refuse_other_kind(out, "detect")
    asked = _asked(fpr, threshold, tokens, tokens_by, bounded=bounded)
    listed = read_prompts(prompts, column=column)
    ordinary = _general(general, general_column)
    with bars() as progress:
        progress("loading the model", 0, 0)
        loaded = shared.model_of(model, device, precision)
        settings = shared.settings_of(loaded, noises, timestep, norm, output, seed, batch)
        progress("loading the model", 1, 1)
        result = detected(
            TriggerScore(loaded, settings),
            listed,
            out,
            general=ordinary,
            asked=asked,
            force=force,
            progress=progress,
            say=edges.note,
        )
    _say(result, out, json=json)


def _asked(
    fpr: str, threshold: float | None, tokens: int, tokens_by: str, *, bounded: bool
) -> Asked:
    """Return what is made of the scores.

    Raises:
        UsageError: a value that cannot be.
    """
    from visleak.cli.gates import share_of
    from visleak.errors import UsageError
    from visleak.memorization.detection import Asked

    share = share_of(fpr)
    if share is None:
        raise UsageError(f"--fpr is a share from 0 to 1 or a percentage, such as 1%; got {fpr!r}")
    if threshold is not None and bounded:
        raise UsageError("--bounded sets a threshold by --fpr, --threshold gives one; choose one")
    return Asked(share, bounded, threshold, tokens, tokens_by)


def _general(path: Path | None, column: str | None) -> Prompts | None:
    from visleak.errors import UsageError, VisleakError
    from visleak.memorization.prompt_files import read_prompts

    if path is None:
        if column is not None:
            raise UsageError("--general-column goes with --general FILE")
        return None
    try:
        return read_prompts(path, column=column)
    except VisleakError as error:
        # the reader does not know that this file's column has an option of its own
        raise type(error)(str(error).replace("--column", "--general-column")) from error


def _say(result: Detection, out: Path, *, json: bool) -> None:
    from visleak.cli.terminal import rendered
    from visleak.memorization.detection.stored import RESULT

    if json:
        edges.say_bytes((out / RESULT).read_bytes())
        return
    edges.say(rendered(shown(result)))
    edges.say(f"{edges.plain(str(out))}\n")
