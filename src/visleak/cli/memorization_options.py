"""The options that the verbs of ``visleak memorization`` share, and what they make of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from visleak.cli import edges
from visleak.errors import UsageError

if TYPE_CHECKING:
    from visleak.memorization.model import TokenModel
    from visleak.memorization.scores import ScoreSettings
    from visleak.reporting import Document

MODEL: Final = "The model"
SCORE: Final = "What D is made of"
OUT: Final = "What comes out"

#: Files of prompts, as `read_prompts` takes them; named here, for help must not load pyarrow.
FORMATS: Final = ".csv, .tsv, .txt, .jsonl, .json, .parquet or .pickle"

#: Verbs whose results are folders; their tables share names, so that each needs its own.
VERBS: Final = (
    *("detect", "search", "augment", "diversify", "extract", "trace", "compare", "dataset"),
    "benchmark",
)


def option(text: str, help_: str, panel: str | None = None, default: str = "", **more: Any) -> Any:
    """Return an option.

    Args:
        text: its names and what stands for its value, such as ``-o --out DIR``.
        help_: what it is.
        panel: of the help that lists it.
        default: what holds without it, where its value cannot say so.
        more: as of ``typer.Option``.
    """
    names = [word for word in text.split() if word.startswith("-")]
    value = " ".join(word for word in text.split() if not word.startswith("-")) or None
    if default:
        help_ = f"{help_}  \\[default: {default}]"
    return typer.Option(*names, metavar=value, rich_help_panel=panel, help=help_, **more)


def argument(metavar: str, help_: str) -> Any:
    """Return an argument without a default."""
    return typer.Argument(metavar=metavar, help=help_, show_default=False)


def checked_timestep(value: str | None) -> str | None:
    """Return ``--timestep`` as it came, if it can be one.

    Raises:
        UsageError: it is neither ``first`` nor a whole number.
    """
    # before a model is loaded, which may take minutes
    if value not in (None, "first") and not (value.isascii() and value.isdecimal()):
        raise UsageError(f"--timestep is first or a whole number, such as 999; got {value!r}")
    return value


def checked_norm(value: str | None) -> str | None:
    """Return ``--norm`` as it came, if there is such a norm.

    Raises:
        UsageError: there is none.
    """
    if value not in (None, "l2", "squared"):
        raise UsageError(f"--norm is l2 or squared; got {value!r}")
    return value


def _output(value: str | None) -> str | None:
    if value not in (None, "raw", "epsilon"):
        raise UsageError(f"--output is raw or epsilon; got {value!r}")
    return value


ModelName = Annotated[
    str,
    option(
        "--model M",
        "A pipeline of diffusers: a folder, or hub:OWNER/NAME, which is fetched once.",
        MODEL,
    ),
]
Device = Annotated[str, option("--device D", "auto, cpu, cuda, cuda:N or mps.", MODEL)]
Precision = Annotated[
    str, option("--precision P", "auto (fp16 on a GPU, else fp32), fp32, fp16 or bf16.", MODEL)
]
Batch = Annotated[
    int | None,
    option("--batch N", "Rows a call of the network.", MODEL, default="16, on a GPU 128", min=1),
]
Noises = Annotated[
    int,
    option(
        "--noises N",
        "Noises D is averaged over; each costs one pass per prompt, plus one.",
        SCORE,
        min=1,
    ),
]
Timestep = Annotated[
    str,
    option(
        "--timestep T",
        "first: the sampler's first step (the paper); or a number, such as 999 (the authors'"
        " search code).",
        SCORE,
        callback=checked_timestep,
    ),
]
Norm = Annotated[
    str,
    option(
        "--norm NORM",
        "Which is called D: l2 (equation 4) or squared (the authors' code); both are written.",
        SCORE,
        callback=checked_norm,
    ),
]
Output = Annotated[
    str,
    option(
        "--output O",
        "raw: the network's output; epsilon: the noise it stands for (v-prediction).",
        SCORE,
        callback=_output,
    ),
]
Seed = Annotated[int, option("--seed N", "Of everything random.", min=0)]
Out = Annotated[Path, option("-o --out DIR", "Folder of the result.", OUT)]
Json = Annotated[bool, option("--json", "Print the result's JSON and nothing else.", OUT)]
Force = Annotated[
    bool, option("--force", "Write over another result of the same kind in DIR.", OUT)
]


def refuse_other_kind(out: Path, verb: str) -> None:
    """Refuse a folder that holds the result of another verb, some of whose files would be replaced.

    Raises:
        UsageError: it does.
    """
    for other in VERBS:
        if other != verb and (out / f"{other}.json").is_file():
            raise UsageError(
                f"{out} holds a result of visleak memorization {other}, whose tables would be"
                " replaced; choose another folder with -o DIR"
            )


def say_result(
    document: Document, file: Path, *, json: bool, columns: Sequence[str] = (), **table: Any
) -> None:
    """Print a result: the bytes of its file, or its summary and the folder.

    Args:
        document: of the result.
        file: its JSON.
        json: print the file.
        columns: of the table that are shown.
        table: as of :func:`visleak.reporting.terminal`.
    """
    from visleak.cli.terminal import rendered
    from visleak.reporting import terminal

    if json:
        edges.say_bytes(file.read_bytes())
        return
    edges.say(rendered(terminal(document, columns=columns, **table)))
    edges.say(f"{edges.plain(str(file.parent))}\n")


def model_of(name: str, device: str, precision: str) -> TokenModel:
    """Return the model that ``--model``, ``--device`` and ``--precision`` name."""
    from visleak.memorization.models import load_model

    return load_model(name, device=device, precision=precision)


def settings_of(
    model: TokenModel,
    noises: int,
    timestep: str,
    norm: str,
    output: str,
    seed: int,
    batch: int | None,
) -> ScoreSettings:
    """Return what the options of D say, each checked as it was read.

    Raises:
        UsageError: a timestep that the model does not have.
    """
    from visleak.memorization.scores import ScoreSettings

    trained = model.about().get("train_timesteps")
    if timestep != "first" and isinstance(trained, int):
        # the times of a flow run to the number itself, steps are counted from 0
        most = trained if model.prediction == "flow" else trained - 1
        if int(timestep) > most:
            raise UsageError(f"--timestep is at most {most:,} for this model; got {timestep}")
    return ScoreSettings(
        noises=noises,
        timestep="first" if timestep == "first" else int(timestep),
        output="epsilon" if output == "epsilon" else "raw",
        norm="squared" if norm == "squared" else "l2",
        seed=seed,
        batch=batch or (128 if model.device.startswith("cuda") else 16),
    )
