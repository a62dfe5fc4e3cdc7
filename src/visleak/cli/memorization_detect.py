"""``visleak memorization detect``: D of prompts, and which of them stand out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from visleak.cli import edges
from visleak.cli import memorization_options as shared
from visleak.cli.memorization_options import option

if TYPE_CHECKING:
    from visleak.memorization.detection import Analysis
    from visleak.memorization.prompts import Prompts

LISTS: Final = "The prompts"
READING: Final = "Analysis of the scores"


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
    """Score prompts by D, and report which reach a threshold with a stated rate of false alarms.

    Writes tables sorted by D, figures and detect.json. An interrupted run resumes.
    """
    from visleak.cli.progress import bars
    from visleak.memorization.detection import detect as detected
    from visleak.memorization.detection.document import document
    from visleak.memorization.prompt_files import read_prompts
    from visleak.memorization.scores import TriggerScore

    shared.refuse_other_kind(out, "detect")
    analysis = _analysis(fpr, threshold, tokens, tokens_by, bounded=bounded)
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
            analysis=analysis,
            force=force,
            progress=progress,
            say=edges.note,
        )
    shared.say_result(document(result), out / "detect.json", json=json)


def _analysis(
    fpr: str, threshold: float | None, tokens: int, tokens_by: str, *, bounded: bool
) -> Analysis:
    """Return the analysis of the scores.

    Raises:
        UsageError: a value that cannot be.
    """
    from visleak.cli.gates import share_of
    from visleak.errors import UsageError
    from visleak.memorization.detection import Analysis

    share = share_of(fpr)
    if share is None:
        raise UsageError(f"--fpr is a share from 0 to 1 or a percentage, such as 1%; got {fpr!r}")
    if threshold is not None and bounded:
        raise UsageError("--bounded sets a threshold by --fpr, --threshold gives one; choose one")
    return Analysis(share, bounded, threshold, tokens, tokens_by)


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
