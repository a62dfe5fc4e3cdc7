"""``visleak evaluate``: the ready-made evaluators, each a verb of its own below it."""

from __future__ import annotations

import typer

from visleak.cli.classify_verb import classify

evaluate = typer.Typer(
    help="Let a model answer on a test set; the file of its answers is for visleak impact.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
evaluate.command(
    "classify",
    epilog="For example: visleak evaluate classify test/ --model hf:microsoft/resnet-50"
    " -o resnet-50.parquet",
)(classify)
