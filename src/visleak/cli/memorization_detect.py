"""``visleak memorization detect``: D of prompts, and which of them stand out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from visleak.cli import edges
from visleak.cli import memorization_options as shared

if TYPE_CHECKING:
    from visleak.memorization.detection import Asked, Detection
    from visleak.memorization.prompts import Prompts

LISTS: Final = "The prompts"
READING: Final = "What is made of the scores"


def detect(
    model: shared.ModelName,
    prompts: Annotated[
        Path,
        typer.Option(
            "--prompts",
            metavar="FILE",
            rich_help_panel=LISTS,
            help=f"The prompts: {shared.FORMATS}; a column label says which are memorized.",
        ),
    ],
    general: Annotated[
        Path | None,
        typer.Option(
            "--general",
            metavar="FILE",
            rich_help_panel=LISTS,
            show_default=False,
            help="Ordinary prompts, such as COCO's captions, in any of these formats: they set the"
            " threshold, and count as not memorized.",
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            "--column",
            metavar="C",
            rich_help_panel=LISTS,
            show_default=False,
            help="Column of the prompts in FILE.  \\[default: prompt, caption or text]",
        ),
    ] = None,
    general_column: Annotated[
        str | None,
        typer.Option(
            "--general-column",
            metavar="C",
            rich_help_panel=LISTS,
            show_default=False,
            help="The same in the file of --general.",
        ),
    ] = None,
    fpr: Annotated[
        str,
        typer.Option(
            "--fpr",
            metavar="RATE",
            rich_help_panel=READING,
            help="Share of ordinary prompts that may reach the threshold.",
        ),
    ] = "1%",
    bounded: Annotated[
        bool,
        typer.Option(
            "--bounded",
            rich_help_panel=READING,
            help="Not the share seen but its 95 % upper bound is at most RATE (1% needs 299"
            " ordinary prompts).",
        ),
    ] = False,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold",
            metavar="D",
            rich_help_panel=READING,
            show_default=False,
            help="A threshold that was set before, by the same model and settings.",
        ),
    ] = None,
    tokens: Annotated[
        int,
        typer.Option(
            "--tokens",
            metavar="K",
            min=0,
            rich_help_panel=READING,
            help="Say of the K prompts of the largest D what each token has to do with it.",
        ),
    ] = 0,
    tokens_by: Annotated[
        str,
        typer.Option(
            "--tokens-by",
            metavar="METHOD",
            rich_help_panel=READING,
            help="gradient (Wen et al. 2024), or leave-one-out (D without each word; any model).",
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
    from visleak.cli.memorization_detect_view import shown
    from visleak.cli.terminal import rendered
    from visleak.memorization.detection.stored import RESULT

    if json:
        edges.say_bytes((out / RESULT).read_bytes())
        return
    edges.say(rendered(shown(result)))
    edges.say(f"{edges.plain(str(out))}\n")
