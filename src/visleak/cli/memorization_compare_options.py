"""Options of ``visleak memorization compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from visleak.cli import memorization_search_options as own
from visleak.cli.memorization_options import FORMATS

METHODS: Final = "The methods"
IMAGES: Final = "What counts as found"

#: Whose rules of proposals are taken; this verb has no presets of its own.
_PAPER: Final = "as --preset paper of search"

Sources = Annotated[
    list[str],
    typer.Option(
        "--source",
        metavar="[NAME=]S",
        rich_help_panel=IMAGES,
        help="Training images, any SOURCE: only what is verified there counts. May be repeated.",
    ),
]
Methods = Annotated[
    str,
    typer.Option(
        "--methods",
        metavar="M,..",
        rich_help_panel=METHODS,
        help="Of gibbs (Algorithm 1), random, greedy, conzic, zerocap, pez.",
    ),
]
CausalLanguageModel = Annotated[
    str | None,
    typer.Option(
        "--causal-lm",
        metavar="LM",
        rich_help_panel=METHODS,
        show_default=False,
        help="Causal language model of zerocap, such as hub:openai-community/gpt2-medium: a"
        " folder, or hub:OWNER/NAME.",
    ),
]
PromptList = Annotated[
    Path | None,
    typer.Option(
        "--prompts",
        metavar="FILE",
        rich_help_panel=METHODS,
        show_default=False,
        help=f"The list that greedy scores: {FORMATS}.",
    ),
]
Column = Annotated[
    str | None,
    typer.Option(
        "--column",
        metavar="C",
        rich_help_panel=METHODS,
        show_default=False,
        help="Column of the prompts in FILE.  \\[default: prompt, caption or text]",
    ),
]
Length = Annotated[
    int,
    typer.Option(
        "--length",
        metavar="N",
        min=1,
        rich_help_panel=METHODS,
        help="Words or tokens of a prompt.",
    ),
]
CandidateCount = Annotated[
    int | None,
    typer.Option(
        "--candidates",
        metavar="Q",
        min=1,
        rich_help_panel=METHODS,
        show_default=False,
        help="Words that are tried at a position.  \\[default: 200, zerocap 512]",
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        "--temperature",
        metavar="K",
        rich_help_panel=METHODS,
        show_default=False,
        help="Of gibbs, softmax(D / K).  \\[default: 0.1 of the squared norm, for Stable"
        " Diffusion 1 alone]",
    ),
]
Iterations = Annotated[
    str | None,
    typer.Option(
        "--iterations",
        metavar="N",
        rich_help_panel=METHODS,
        show_default=False,
        help="Moves of a chain, or paper: the number each method has there.  \\[default: as"
        " many as the budget holds]",
    ),
]
Beams = Annotated[
    int,
    typer.Option("--beams", metavar="N", rich_help_panel=METHODS, help="Of zerocap."),
]
Calls = Annotated[
    int | None,
    typer.Option(
        "--calls",
        metavar="N",
        min=1,
        rich_help_panel=own.SPENT,
        show_default=False,
        help="Passes of the diffusion network at most, each run of a method; those that make"
        " the images of its candidates are counted apart.",
    ),
]
Seconds = Annotated[
    float | None,
    typer.Option(
        "--seconds",
        metavar="S",
        rich_help_panel=own.SPENT,
        show_default=False,
        help="Seconds at most, each run of a method, without the checking of its candidates.",
    ),
]
Chains = Annotated[
    int,
    typer.Option(
        "--chains",
        metavar="N",
        min=1,
        rich_help_panel=own.SPENT,
        help="Candidates of a method, at most (the paper: 200).",
    ),
]
Seeds = Annotated[
    int,
    typer.Option(
        "--seeds",
        metavar="N",
        min=1,
        rich_help_panel=own.SPENT,
        help="Runs of every method, with seeds from --seed on; two or more give intervals.",
    ),
]
Images = Annotated[
    int | None,
    typer.Option(
        "--images",
        metavar="N",
        rich_help_panel=IMAGES,
        show_default=False,
        help="Images a candidate.  \\[default: 100]",
    ),
]
Steps = Annotated[
    int,
    typer.Option("--steps", metavar="N", rich_help_panel=IMAGES, help="Of the sampler."),
]
Guidance = Annotated[
    float,
    typer.Option("--guidance", metavar="G", rich_help_panel=IMAGES, help="1 is none."),
]
Similarity = Annotated[
    str,
    typer.Option(
        "--similarity",
        metavar="S",
        rich_help_panel=IMAGES,
        help="Clusters are made by builtin, sscd:FILE (MemBench), pixels or another encoder.",
    ),
]
Eps = Annotated[
    float | None,
    typer.Option(
        "--eps",
        metavar="E",
        rich_help_panel=IMAGES,
        show_default=False,
        help="DBSCAN: distance of neighbours.  \\[default: the similarity's own]",
    ),
]
MinCluster = Annotated[
    int | None,
    typer.Option(
        "--min-cluster",
        metavar="N",
        rich_help_panel=IMAGES,
        show_default=False,
        help="Least images of a cluster.  \\[default: 20]",
    ),
]
Prefix = Annotated[
    str | None, own.prefix_option(f"none, {_PAPER}; zerocap Image of a, as its authors")
]
StopWords = Annotated[str | None, own.stop_words_option(f"none, {_PAPER}")]
Banned = Annotated[str | None, own.banned_option(f"none, {_PAPER}")]
FullStop = Annotated[str | None, own.full_stop_option(f"anywhere, {_PAPER}")]
