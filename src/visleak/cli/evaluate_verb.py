"""``visleak evaluate``: the ready-made evaluators, each a verb of its own below it."""

from __future__ import annotations

import os

import typer

from visleak.cli import edges
from visleak.cli.classify_verb import classify
from visleak.cli.retrieve_verb import retrieve
from visleak.cli.zeroshot_verb import zeroshot

evaluate = typer.Typer(
    help="Let a model answer on a test set; the file of its answers is for visleak impact.",
    rich_markup_mode="rich",
)


@evaluate.callback(invoke_without_command=True)
def _evaluate(context: typer.Context) -> None:
    # waiting threads of torch spin on the cores that the workers need: measured, two to four times
    # slower where others work, too; it is read once, when torch is imported
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if context.invoked_subcommand is None:
        edges.say(context.get_help() + "\n")


evaluate.command(
    "classify",
    epilog="For example: visleak evaluate classify test/ --model hf:microsoft/resnet-50"
    " -o resnet-50.parquet",
)(classify)
evaluate.command(
    "zeroshot",
    epilog="For example: visleak evaluate zeroshot val/ --model clip --classes names.tsv"
    " --templates openai -o clip.parquet",
)(zeroshot)
evaluate.command(
    "retrieve",
    epilog="For example: visleak evaluate retrieve flickr30k-images/ --model clip"
    " --captions dataset_flickr30k.json -o clip.parquet",
)(retrieve)
