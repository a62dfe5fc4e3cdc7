"""``visleak memorization compare``: which search finds most memorized images at one cost?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from visleak.cli import edges, options
from visleak.cli import memorization_options as shared
from visleak.cli import memorization_search_options as own
from visleak.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from visleak.memorization.baselines import Comparison, TracedImages
    from visleak.memorization.baselines.causal import CausalLanguageModel
    from visleak.memorization.extraction import CopySimilarity, ExtractSettings
    from visleak.memorization.model import TokenModel
    from visleak.memorization.prompts import Prompts
    from visleak.memorization.search.proposals import Rules
    from visleak.records import AnySet

METHODS: Final = "The methods"
IMAGES: Final = "What counts as found"

#: Columns of the table that a screen has room for.
COLUMNS: Final = (0, 1, 2, 3, 4, 5, 7)


def compare(
    model: shared.ModelName,
    source: Annotated[
        list[str],
        typer.Option(
            "--source",
            metavar="[NAME=]S",
            rich_help_panel=IMAGES,
            help="Training images, any SOURCE: only what is verified there counts. May be"
            " repeated.",
        ),
    ],
    methods: Annotated[
        str,
        typer.Option(
            "--methods",
            metavar="M,..",
            rich_help_panel=METHODS,
            help="Of gibbs (Algorithm 1), random, greedy, conzic, zerocap, pez.",
        ),
    ] = "gibbs,random",
    lm: own.LanguageModel = None,
    causal_lm: Annotated[
        str | None,
        typer.Option(
            "--causal-lm",
            metavar="LM",
            rich_help_panel=METHODS,
            show_default=False,
            help="Causal language model of zerocap, such as hub:openai-community/gpt2-medium: a"
            " folder, or hub:OWNER/NAME.",
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            "--prompts",
            metavar="FILE",
            rich_help_panel=METHODS,
            show_default=False,
            help="The list that greedy scores.",
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            "--column",
            metavar="C",
            rich_help_panel=METHODS,
            show_default=False,
            help="Column of the prompts in FILE.  \\[default: prompt, caption or text]",
        ),
    ] = None,
    length: Annotated[
        int,
        typer.Option(
            "--length",
            metavar="N",
            min=1,
            rich_help_panel=METHODS,
            help="Words or tokens of a prompt.",
        ),
    ] = 8,
    candidates: Annotated[
        int | None,
        typer.Option(
            "--candidates",
            metavar="Q",
            min=1,
            rich_help_panel=METHODS,
            show_default=False,
            help="Words that are tried at a position.  \\[default: 200, zerocap 512]",
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature",
            metavar="K",
            rich_help_panel=METHODS,
            show_default=False,
            help="Of gibbs, softmax(D / K).  \\[default: 0.1 of the squared norm]",
        ),
    ] = None,
    iterations: Annotated[
        str | None,
        typer.Option(
            "--iterations",
            metavar="N",
            rich_help_panel=METHODS,
            show_default=False,
            help="Moves of a chain, or paper: the number each method has there.  \\[default: as"
            " many as the budget holds]",
        ),
    ] = None,
    beams: Annotated[
        int,
        typer.Option("--beams", metavar="N", rich_help_panel=METHODS, help="Of zerocap."),
    ] = 5,
    prefix: own.Prefix = None,
    stop_words: own.StopWords = None,
    banned: own.Banned = None,
    full_stop: own.FullStop = None,
    calls: Annotated[
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
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            metavar="S",
            rich_help_panel=own.SPENT,
            show_default=False,
            help="Seconds at most, each run of a method, without the checking of its candidates.",
        ),
    ] = None,
    chains: Annotated[
        int,
        typer.Option(
            "--chains",
            metavar="N",
            min=1,
            rich_help_panel=own.SPENT,
            help="Candidates of a method, at most (the paper: 200).",
        ),
    ] = 5,
    seeds: Annotated[
        int,
        typer.Option(
            "--seeds",
            metavar="N",
            min=1,
            rich_help_panel=own.SPENT,
            help="Runs of every method, with seeds from --seed on; two or more give intervals.",
        ),
    ] = 1,
    images: Annotated[
        int | None,
        typer.Option(
            "--images",
            metavar="N",
            rich_help_panel=IMAGES,
            show_default=False,
            help="Images a candidate.  \\[default: 100]",
        ),
    ] = None,
    steps: Annotated[
        int,
        typer.Option("--steps", metavar="N", rich_help_panel=IMAGES, help="Of the sampler."),
    ] = 50,
    guidance: Annotated[
        float,
        typer.Option("--guidance", metavar="G", rich_help_panel=IMAGES, help="1 is none."),
    ] = 7.5,
    similarity: Annotated[
        str,
        typer.Option(
            "--similarity",
            metavar="S",
            rich_help_panel=IMAGES,
            help="Clusters are made by builtin, sscd:FILE (MemBench), pixels or another encoder.",
        ),
    ] = "builtin",
    eps: Annotated[
        float | None,
        typer.Option(
            "--eps",
            metavar="E",
            rich_help_panel=IMAGES,
            show_default=False,
            help="DBSCAN: distance of neighbours.  \\[default: the similarity's own]",
        ),
    ] = None,
    min_cluster: Annotated[
        int | None,
        typer.Option(
            "--min-cluster",
            metavar="N",
            rich_help_panel=IMAGES,
            show_default=False,
            help="Least images of a cluster.  \\[default: 20]",
        ),
    ] = None,
    noises: shared.Noises = 1,
    timestep: shared.Timestep = "first",
    norm: shared.Norm = "squared",
    output: shared.Output = "raw",
    seed: shared.Seed = 0,
    device: shared.Device = "auto",
    precision: shared.Precision = "auto",
    batch: shared.Batch = None,
    workers: options.Workers = None,
    out: shared.Out = Path("visleak-compare"),
    json: shared.Json = False,
    force: shared.Force = False,
) -> None:
    """Let searches for trigger prompts spend the same budget, and count what they find.

    A candidate counts when its images replay a training image: images are made, clustered and
    looked up in the sources. High D alone is not memorization.
    """
    from visleak.cli.progress import bars
    from visleak.memorization.baselines import Contest, Means, load_searchers
    from visleak.memorization.baselines import compare as compared

    shared.refuse_other_kind(out, "compare")
    names = [name.strip() for name in methods.split(",")]
    rules = own.rules_of(_rules(), prefix, stop_words, banned, full_stop)
    budget = own.budget_of(calls, seconds)
    moves = _moves(iterations)
    listed = _listed(prompts, column, names)
    measure = _images(images, min_cluster, eps, similarity, seed)
    with bars() as progress, own.kept_if_interrupted(out):
        progress("loading the models", 0, 0)
        loaded = shared.model_of(model, device, precision)
        d = shared.settings_of(loaded, noises, timestep, norm, output, seed, batch)
        proposer = cache(lambda: own.language_model_of(lm, rules, loaded))
        means = Means(
            model=loaded,
            norm=d.norm,
            proposer=proposer,
            causal=None if causal_lm is None else _causal(causal_lm, loaded.device),
            prompts=listed,
            length=length,
            candidates=candidates,
            iterations=moves,
            temperature=temperature,
            beams=beams,
            prefix=prefix,
        )
        made = load_searchers(names, means)
        progress("loading the models", 1, 1)
        verifier = _verifier(
            loaded, _sets(source), measure, steps=steps, guidance=guidance, batch=batch,
            similarity=similarity, workers=workers,
        )  # fmt: skip
        result = compared(
            Contest(loaded, d, budget, chains, tuple(range(seed, seed + seeds))),
            made,
            verifier,
            out,
            force=force,
            progress=progress,
            say=edges.note,
        )
    _say(result, json=json)


def _rules() -> Rules:
    from visleak.memorization.search.presets import search_preset

    return search_preset("paper").rules


def _moves(text: str | None) -> int | Literal["budget"] | None:
    """Return what ``--iterations`` asks for.

    Raises:
        UsageError: it is no number.
    """
    if text is None:
        return "budget"
    if text == "paper":
        return None
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise UsageError(f"--iterations is a whole number from 1, or paper; got {text!r}")
    return int(text)


def _listed(path: Path | None, column: str | None, names: list[str]) -> Prompts | None:
    """Return the list that greedy scores.

    Raises:
        UsageError: it was given, and nobody reads it.
    """
    from visleak.memorization.prompt_files import read_prompts

    if path is None:
        if column is not None:
            raise UsageError("--column goes with --prompts FILE")
        return None
    if "greedy" not in names:
        raise UsageError("--prompts is for greedy; add greedy to --methods, or leave it out")
    return read_prompts(path, column=column)


def _images(
    images: int | None, least: int | None, eps: float | None, similarity: str, seed: int
) -> tuple[ExtractSettings, CopySimilarity]:
    """Return how images are clustered: settings and similarity."""
    from visleak.memorization.extraction import ExtractSettings, load_similarity

    settings = ExtractSettings.by("paper", images=images, min_cluster=least, eps=eps, seed=seed)
    return settings, load_similarity(similarity)


def _causal(text: str, device: str) -> Callable[[], CausalLanguageModel]:
    from visleak.memorization.baselines.causal import load_causal

    return lambda: load_causal(text, device=device)


def _sets(texts: list[str]) -> list[AnySet]:
    from visleak.cli.memorization_trace import training_sets

    return training_sets(texts)


def _verifier(
    model: TokenModel,
    sources: list[AnySet],
    measure: tuple[ExtractSettings, CopySimilarity],
    *,
    steps: int,
    guidance: float,
    batch: int | None,
    similarity: str,
    workers: int | None,
) -> TracedImages:
    """Return what makes images of candidates and looks for their sources."""
    from visleak.memorization.baselines import TracedImages
    from visleak.memorization.model import Sampling

    settings, loaded = measure
    # a trace is by the same network where clusters are, and else by the project's own fingerprint
    by = similarity if similarity.startswith("sscd:") else ""
    return TracedImages(
        model,
        sources,
        settings,
        Sampling(steps, guidance, batch or (32 if model.device.startswith("cuda") else 8)),
        loaded,
        {"similarity": by, "workers": workers},
    )


def _say(result: Comparison, *, json: bool) -> None:
    from visleak.cli.terminal import rendered
    from visleak.memorization.baselines.stored import RESULT

    if json:
        edges.say_bytes((result.folder / RESULT).read_bytes())
        return
    edges.say(rendered(_shown(result)))
    edges.say(f"{edges.plain(str(result.folder))}\n")


def _shown(result: Comparison) -> Iterator[RenderableType]:
    """Yield the summary and the table of methods."""
    from rich.table import Table
    from rich.text import Text

    from visleak.cli.edges import plain
    from visleak.memorization.baselines.headline import headline
    from visleak.memorization.baselines.tables import main_grid

    yield Text(plain(headline(result)), "bold")
    grid = main_grid(result)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for at in COLUMNS:
        table.add_column(grid.header[at], justify="right" if at else "left")
    for row in grid.rows:
        table.add_row(*(Text(plain(row[at])) for at in COLUMNS))
    yield table
