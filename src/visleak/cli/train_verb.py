"""``visleak train-encoder``: an encoder that has learnt a set's own pictures."""

from __future__ import annotations

import json as js
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visleak.cli import edges, options

if TYPE_CHECKING:
    from visleak.training import TrainedEncoder


def train_encoder(
    source: options.Collection,
    out: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel=options.OUT,
            help="The ONNX file; a json of the same name stands beside it.",
        ),
    ] = Path("model.onnx"),
    test: Annotated[
        str | None,
        typer.Option(
            "--test",
            metavar="[NAME=]S",
            rich_help_panel=options.SETS,
            help="Set whose accuracy is reported; by default a tenth of the other is held out.",
        ),
    ] = None,
    label: options.Label = None,
    group: options.Group = None,
    labels: Annotated[
        str,
        typer.Option(
            "--labels",
            metavar="auto|none",
            rich_help_panel=options.HOW,
            help="Learn the classes where there are labels, or never: then two changed views of a"
            " picture are told from all others.",
        ),
    ] = "auto",
    epochs: Annotated[
        int | None,
        typer.Option(
            "--epochs",
            metavar="N",
            rich_help_panel=options.HOW,
            help="Passes over the set; by default as many as make 300,000 views of pictures (3 to"
            " 100), minutes on a processor.",
        ),
    ] = None,
    schedule: Annotated[
        str,
        typer.Option(
            "--schedule",
            metavar="short|paper",
            rich_help_panel=options.HOW,
            help="One cycle of the learning rate, or the five of Barz and Denzler with warm"
            " restarts: 372 epochs.",
        ),
    ] = "short",
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            metavar="N",
            rich_help_panel=options.HOW,
            help="Pictures a step; by default 128 (without labels 256), fewer of a small set.",
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            metavar="K",
            rich_help_panel=options.HOW,
            help="Seed of weights, order and changes, and of what is held out.",
        ),
    ] = 0,
    network: Annotated[
        str,
        typer.Option(
            "--network",
            metavar="auto|plain-11|resnet",
            rich_help_panel=options.HOW,
            help="By default plain-11 for pictures of up to 48 pixels, else a small residual one.",
        ),
    ] = "auto",
    size: Annotated[
        int | None,
        typer.Option(
            "--size",
            metavar="N",
            rich_help_panel=options.HOW,
            help="Side in pixels that pictures are resized to; by default 32 or their own for"
            " plain-11, 128 for resnet.",
        ),
    ] = None,
    precision: Annotated[
        str,
        typer.Option(
            "--precision",
            metavar="auto|fp32|bf16",
            rich_help_panel=options.HOW,
            help="Arithmetic of the training; by default bf16 where the machine has instructions"
            " for it. What is written is fp32.",
        ),
    ] = "auto",
    device: Annotated[
        str,
        typer.Option(
            "--device",
            metavar="auto|cpu|cuda|..",
            rich_help_panel=options.HOW,
            help="Where it is trained; by default on a GPU if there is one.",
        ),
    ] = "auto",
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            metavar="N",
            min=1,
            rich_help_panel=options.HOW,
            help="Threads of the processor; by default one for each core. Another number changes"
            " the last bits of the weights.",
        ),
    ] = None,
    json: Annotated[
        bool,
        typer.Option(
            "--json", rich_help_panel=options.OUT, help="Print the record instead of the summary."
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", rich_help_panel=options.OUT, help="Replace a model that is there."),
    ] = False,
) -> None:
    """Train an encoder on a set's own pictures, for --encoder onnx:FILE.

    A training that was stopped goes on where it was. See docs/encoders.md.
    """
    from visleak.cli import sets
    from visleak.cli.progress import bars
    from visleak.pipeline.folder import refuse_inputs
    from visleak.training import EncoderSettings, checkpoint_path
    from visleak.training import train_encoder as trained

    settings = EncoderSettings(epochs, batch, size, seed, labels, network, schedule, precision)
    columns = sets.Columns(None, label, group)
    try:
        with bars() as progress:
            progress("listing images", 0, 0)
            images = sets.one(source, columns)
            asked = None if test is None else sets.one(test, columns)
            read = [images] if asked is None else [images, asked]
            refuse_inputs(out, [(each.name, each.source) for each in read], Path())
            progress("listing images", 1, 1)
            made = trained(
                images,
                out,
                test=asked,
                settings=settings,
                device=device,
                threads=threads,
                progress=progress,
                notify=edges.note,
                force=force,
            )
    except KeyboardInterrupt as error:
        word, code = edges.verdict(error)
        if not checkpoint_path(out).exists():
            raise
        kept = f"what was learnt is kept in {checkpoint_path(out)}"
        raise edges.Stopped(f"{word}; {kept}, and the same command goes on from there", code) from (
            error
        )
    if json:
        edges.say(js.dumps(made.record, indent=1) + "\n")
        return
    edges.say("".join(f"{edges.plain(line)}\n" for line in _summary(made)))


#: How scores are called.
_SCORES = {
    "accuracy": "accuracy",
    "views": "two views of a picture found among all",
    "20 nearest": "accuracy of the 20 nearest",
}


def _summary(made: TrainedEncoder) -> list[str]:
    record, plan = made.record, made.record["plan"]
    what = f"{plan['classes']:,} classes" if plan["classes"] else "telling pictures apart"
    lines = [
        f"{plan['network']} at {plan['side']} pixels: {what}, learnt from"
        f" {plan['pictures']:,} pictures of {record['set']} in {plan['epochs']:,}"
        f" epoch{'' if plan['epochs'] == 1 else 's'}"
    ]
    asked = record["test"] or "what was held out"
    lines += [f"  {_SCORES.get(name, name)}, {asked}: {r}" for name, r in made.scores.items()]
    if not made.scores:
        lines.append("  nothing could be held out: give --test SET to learn how well it does")
    return [*lines, f"{made.model}, {made.recipe}", f"use it with --encoder onnx:{made.model}"]
