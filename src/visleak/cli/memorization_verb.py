"""``visleak memorization``: does a text-to-image model replay its training images?"""

from __future__ import annotations

import os

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

memorization = typer.Typer(
    help="Which prompts make a text-to-image model replay its training images?",
    rich_markup_mode="rich",
)


@memorization.callback(invoke_without_command=True)
def _memorization(context: typer.Context) -> None:
    # see evaluate_verb: waiting threads of torch spin on the cores that others need
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if context.invoked_subcommand is None:
        edges.say(context.get_help() + "\n")
        return
    from visleak.cli.memorization_notice import say_once

    # who asks how to call a verb has not called it
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
    " --answers answers.toml -o triggers",
)(dataset)
memorization.command(
    "benchmark",
    epilog="For example: visleak memorization benchmark --model sd-1.4/ --triggers SD1_final.csv"
    " --references memorized/ --general captions_val2017.json --method rna:4 --method wen:3"
    " --similarity sscd:sscd_disc_large.torchscript.pt -o benchmark",
)(benchmark)
