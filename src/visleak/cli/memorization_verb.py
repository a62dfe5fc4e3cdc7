"""``visleak memorization``: memorized training images of text-to-image models."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

import typer

from visleak.cli import edges
from visleak.cli.memorization_augment import augment
from visleak.cli.memorization_benchmark import benchmark
from visleak.cli.memorization_compare import compare
from visleak.cli.memorization_dataset import dataset
from visleak.cli.memorization_detect import detect
from visleak.cli.memorization_diversify import diversify
from visleak.cli.memorization_extract import extract
from visleak.cli.memorization_search import search
from visleak.cli.memorization_trace import trace

NOTICE: Final = (
    "visleak memorization is for models that you are authorised to audit, and for evaluating"
    " mitigations. Outputs may be copyrighted or personal images: keep them private, do not publish"
    " or train on them, and respect the licences of models and lists of prompts"
    " (docs/memorization.md, Responsible use). (Shown once.)"
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


memorization = typer.Typer(
    help="Memorized training images of text-to-image models.",
    rich_markup_mode="rich",
)


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


memorization.command(
    "detect",
    epilog="For example: visleak memorization detect --model sd-1.4/ --prompts SD1_final.csv"
    " --general captions_val2014.json -o detected",
)(detect)
memorization.command(
    "search",
    epilog="For example: visleak memorization search --model sd-1.4/ --banned own --calls 100000"
    " -o searched",
)(search)
memorization.command(
    "augment",
    epilog="For example: visleak memorization augment --model sd-1.4/ --triggers"
    " searched/prompts.parquet -o augmented",
)(augment)
memorization.command(
    "diversify",
    epilog="For example: visleak memorization diversify --model sd-1.4/ --prompts"
    " augmented/prompts.parquet --per-source -o diverse",
)(diversify)
memorization.command(
    "extract",
    epilog="For example: visleak memorization extract --model sd-1.4/"
    " --prompts searched/prompts.csv --similarity sscd:sscd_disc_large.torchscript.pt -o extracted",
)(extract)
memorization.command(
    "trace",
    epilog="For example: visleak memorization trace extracted --source laion=laion-subset/"
    " --similarity sscd:sscd_disc_large.torchscript.pt -o traced",
)(trace)
memorization.command(
    "compare",
    epilog="For example: visleak memorization compare --model sd-1.4/ --methods gibbs,random,greedy"
    " --prompts captions.txt --calls 100000 --source laion=laion-subset/ -o compared",
)(compare)
memorization.command(
    "dataset",
    epilog="For example: visleak memorization dataset diverse/prompts.parquet --trace traced"
    " -o triggers",
)(dataset)
memorization.command(
    "benchmark",
    epilog="For example: visleak memorization benchmark --model sd-1.4/ --triggers SD1_final.csv"
    " --references memorized/ --general captions_val2017.json --method rna:4 --method wen:3"
    " --similarity sscd:sscd_disc_large.torchscript.pt -o benchmark",
)(benchmark)
