"""``visleak memorization``: the group, and the options that its commands share."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from visleak.cli import edges
from visleak.cli.command import Call, Reply
from visleak.errors import UsageError
from visleak.options import OUTPUT, Options, Printed, Replaced, option

if TYPE_CHECKING:
    from visleak.memorization.model import TokenModel
    from visleak.memorization.prompts import Prompts
    from visleak.memorization.scores import ScoreSettings
    from visleak.reporting import Document

MODEL: Final = "Model"
PROMPTS: Final = "Prompts"
SCORE: Final = "Trigger score D"
IMAGES: Final = "Images"

#: Files of prompts, as `read_prompts` takes them; named here, for help must not load pyarrow.
FORMATS: Final = ".csv, .tsv, .txt, .jsonl, .json, .parquet or .pickle"

#: Commands whose results are folders; their tables share names, so that each needs its own.
COMMANDS: Final = (
    *("detect", "search", "augment", "diversify", "extract", "trace", "compare", "dataset"),
    "benchmark",
)

NOTICE: Final = (
    "visleak memorization is for models that you are authorised to audit, and for evaluating"
    " mitigations. Outputs may be copyrighted or personal images: keep them private, do not publish"
    " or train on them, and respect the licences of models and lists of prompts"
    " (docs/memorization.md, Responsible use). (Shown once.)"
)

_PIPELINE: Final = "A diffusers pipeline: a folder, or hub:OWNER/NAME, which is fetched once."


@dataclass(frozen=True)
class Device(Options):
    """Where a model runs."""

    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.", metavar="DEVICE", panel=MODEL)
    precision: str = option(
        "auto",
        "Default: fp16 on a GPU, else fp32.",
        panel=MODEL,
        choices=("auto", "fp32", "fp16", "bf16"),
    )

    def load(self, name: str, call: Call) -> TokenModel:
        """Return the model of a name."""
        from visleak.memorization import models

        call.progress("loading the model", 0, 0)
        loaded = models.load_model(name, device=self.device, precision=self.precision)
        call.progress("loading the model", 1, 1)
        return loaded


@dataclass(frozen=True)
class Model(Device):
    """The diffusion model."""

    model: str = option(..., _PIPELINE, metavar="MODEL", panel=MODEL)

    def loaded(self, call: Call) -> TokenModel:
        """Return the model."""
        return self.load(self.model, call)


@dataclass(frozen=True)
class OptionalModel(Device):
    """The diffusion model of a command that may do without."""

    model: str | None = option(None, _PIPELINE, metavar="MODEL", panel=MODEL)


def timestep(text: str) -> str:
    """Return a timestep as it came.

    Raises:
        UsageError: it is neither ``first`` nor a whole number.
    """
    if text != "first" and not (text.isascii() and text.isdecimal()):
        raise UsageError(f"--timestep is first or a whole number, such as 999; got {text!r}")
    return text


@dataclass(frozen=True)
class Score(Options):
    """Settings of D, where no preset has its own timestep and norm."""

    noises: int = option(
        1,
        "Noises D is averaged over; each costs one pass per prompt, plus one.",
        metavar="N",
        panel=SCORE,
        least=1,
    )
    timestep: str | None = option(
        None,
        "first: the sampler's first step (the paper); or a number, such as 999 (the authors'"
        " search code). Default: by preset, else first.",
        metavar="first|N",
        panel=SCORE,
        parse=timestep,
    )
    norm: str | None = option(
        None,
        "Which is called D: l2 (equation 4) or squared (the authors' code). Default: squared for"
        " searches, whose constants are on that scale; else l2.",
        panel=SCORE,
        choices=("l2", "squared"),
    )
    score_output: str = option(
        "raw",
        "raw: the network's output; epsilon: the noise it stands for (v-prediction).",
        panel=SCORE,
        choices=("raw", "epsilon"),
    )
    seed: int = option(0, "Of all random numbers.", metavar="N", least=0)
    batch: int | None = option(
        None, "Rows per call of the network. Default: 16, on a GPU 128.", metavar="N", least=1
    )

    def settings(self, model: TokenModel, norm: str, usual: int | str = "first") -> ScoreSettings:
        """Return the settings of D.

        Args:
            model: whose D it is.
            norm: where none was given.
            usual: timestep where none was given.

        Raises:
            UsageError: the model was not trained on the timestep.
        """
        from visleak.memorization.scores import ScoreSettings

        given = self.timestep or str(usual)
        trained = model.about().get("train_timesteps")
        if given != "first" and isinstance(trained, int):
            # the times of a flow run to the number itself, steps are counted from 0
            most = trained if model.prediction == "flow" else trained - 1
            if int(given) > most:
                raise UsageError(f"--timestep is at most {most:,} for this model; got {given}")
        return ScoreSettings(
            noises=self.noises,
            timestep="first" if given == "first" else int(given),
            output="epsilon" if self.score_output == "epsilon" else "raw",
            norm="squared" if (self.norm or norm) == "squared" else "l2",
            seed=self.seed,
            batch=self.batch or (128 if model.device.startswith("cuda") else 16),
        )


@dataclass(frozen=True)
class Result(Printed, Replaced):
    """The folder of a result."""

    out: Path | None = option(
        None,
        "Folder of the result. Default: visleak- and the name of the command.",
        "--output -o",
        metavar="DIR",
        panel=OUTPUT,
    )

    def folder(self, command: str) -> Path:
        """Return the folder.

        Raises:
            UsageError: it holds the result of another command, some of whose files would be
                replaced.
        """
        out = self.out or Path(f"visleak-{command}")
        for other in COMMANDS:
            if other != command and (out / f"{other}.json").is_file():
                raise UsageError(
                    f"{out} holds a result of visleak memorization {other}, whose tables would be"
                    " replaced; choose another folder with -o DIR"
                )
        return out


def column_option(file: str, flags: str = "") -> Any:
    """Return an option for the column of the prompts in a file."""
    return option(
        None,
        f"Column of the prompts in {file}. Default: prompt, caption or text.",
        flags,
        metavar="COLUMN",
        panel=PROMPTS,
    )


@dataclass(frozen=True)
class General(Options):
    """A list of ordinary prompts."""

    general: Path | None = option(
        None,
        "Ordinary prompts, such as COCO's captions, in any of these formats: they set the"
        " threshold of detect, and are the cost of a mitigation.",
        metavar="FILE",
        panel=PROMPTS,
    )
    general_column: str | None = column_option("the file of --general")

    def read(self) -> Prompts | None:
        """Return the prompts.

        Raises:
            UsageError: a column was given without its file.
        """
        from visleak.errors import VisleakError
        from visleak.memorization.prompt_files import read_prompts

        if self.general is None:
            if self.general_column is not None:
                raise UsageError("--general-column goes with --general FILE")
            return None
        try:
            return read_prompts(self.general, column=self.general_column)
        except VisleakError as error:
            # the reader does not know that this file's column has an option of its own
            raise type(error)(str(error).replace("--column", "--general-column")) from error


def reply(
    document: Document,
    file: Path,
    *,
    notes: tuple[str, ...] = (),
    more: tuple[Any, ...] = (),
    **table: Any,
) -> Reply:
    """Return the reply of a command: the summary of its result and the folder, or its JSON.

    Args:
        document: of the result.
        file: its JSON.
        notes: lines for stderr.
        more: lines after the folder.
        table: as of :func:`visleak.reporting.terminal`.
    """
    from visleak.reporting import terminal

    shown = (*terminal(document, **table), str(file.parent), *more)
    return Reply(shown, content=file, notes=notes)


memorization = typer.Typer(
    help="Memorized training images of text-to-image models.",
    rich_markup_mode="rich",
)


def say_once() -> None:
    """Print the notice once per user; a file in the cache folder records it."""
    from visleak.cache import default_folder

    folder = default_folder()
    shown = folder / "memorization-notice-1" if folder else None
    if shown is not None and shown.exists():
        return
    edges.note(NOTICE)
    if shown is not None:
        # a folder that cannot be written: the notice is shown again
        with suppress(OSError):
            shown.parent.mkdir(parents=True, exist_ok=True)
            shown.touch()


@memorization.callback(invoke_without_command=True)
def _memorization(context: typer.Context) -> None:
    # see evaluate_verb: waiting threads of torch spin on the cores that others need
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if context.invoked_subcommand is None:
        edges.say(context.get_help() + "\n")
        return
    # a request for help is not a run
    if not {"--help", "-h"} & set(context.obj or ()):
        say_once()
