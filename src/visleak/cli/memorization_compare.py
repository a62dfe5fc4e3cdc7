"""``visleak memorization compare``: which search finds most memorized images at one cost?"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from visleak.cli import edges, options
from visleak.cli import memorization_options as shared
from visleak.cli import memorization_search_options as own
from visleak.cli.memorization_options import FORMATS, option
from visleak.errors import UsageError

if TYPE_CHECKING:
    from visleak.memorization.baselines import TracedImages
    from visleak.memorization.baselines.zerocap import CausalLanguageModel
    from visleak.memorization.extraction import CopySimilarity, ExtractSettings
    from visleak.memorization.model import TokenModel
    from visleak.memorization.prompts import Prompts
    from visleak.records import AnySet

METHODS: Final = "The methods"
IMAGES: Final = "What counts as found"

Sources = Annotated[
    list[str],
    option(
        "--source [NAME=]S",
        "Training images, any SOURCE: only what is verified there counts. May be repeated.",
        IMAGES,
    ),
]
Methods = Annotated[
    str,
    option(
        "--methods M,..", "Of gibbs (Algorithm 1), random, greedy, conzic, zerocap, pez.", METHODS
    ),
]
CausalModelName = Annotated[
    str | None,
    option(
        "--causal-lm LM",
        "Causal language model of zerocap, such as hub:openai-community/gpt2-medium: a"
        " folder, or hub:OWNER/NAME.",
        METHODS,
    ),
]
PromptList = Annotated[
    Path | None, option("--prompts FILE", f"The list that greedy scores: {FORMATS}.", METHODS)
]
Column = Annotated[
    str | None,
    option(
        "--column C", "Column of the prompts in FILE.", METHODS, default="prompt, caption or text"
    ),
]
Length = Annotated[int, option("--length N", "Words or tokens of a prompt.", METHODS, min=1)]
CandidateCount = Annotated[
    int | None,
    option(
        "--candidates Q",
        "Words that are tried at a position.",
        METHODS,
        default="200, zerocap 512",
        min=1,
    ),
]
Temperature = Annotated[
    float | None,
    option(
        "--temperature K",
        "Of gibbs, softmax(D / K).  \\[default: 0.1 of the squared norm, for Stable"
        " Diffusion 1 alone]",
        METHODS,
    ),
]
Iterations = Annotated[
    str | None,
    option(
        "--iterations N",
        "Moves of a chain, or paper: the number each method has there.  \\[default: as"
        " many as the budget holds]",
        METHODS,
    ),
]
Beams = Annotated[int, option("--beams N", "Of zerocap.", METHODS)]
Calls = Annotated[
    int | None,
    option(
        "--calls N",
        "Passes of the diffusion network at most, each run of a method; those that make"
        " the images of its candidates are counted apart.",
        own.SPENT,
        min=1,
    ),
]
Seconds = Annotated[
    float | None,
    option(
        "--seconds S",
        "Seconds at most, each run of a method, without the checking of its candidates.",
        own.SPENT,
    ),
]
Chains = Annotated[
    int, option("--chains N", "Candidates of a method, at most (the paper: 200).", own.SPENT, min=1)
]
Seeds = Annotated[
    int,
    option(
        "--seeds N",
        "Runs of every method, with seeds from --seed on; two or more give intervals.",
        own.SPENT,
        min=1,
    ),
]
Images = Annotated[int | None, option("--images N", "Images a candidate.", IMAGES, default="100")]
Steps = Annotated[int, option("--steps N", "Of the sampler.", IMAGES)]
Guidance = Annotated[float, option("--guidance G", "1 is none.", IMAGES)]
Similarity = Annotated[
    str,
    option(
        "--similarity S",
        "Clusters are made by builtin, sscd:FILE (MemBench), pixels or another encoder.",
        IMAGES,
    ),
]
Eps = Annotated[
    float | None,
    option("--eps E", "DBSCAN: distance of neighbours.", IMAGES, default="the similarity's own"),
]
MinCluster = Annotated[
    int | None, option("--min-cluster N", "Least images of a cluster.", IMAGES, default="20")
]
Banned = Annotated[str | None, own.banned_option("none")]


def compare(
    model: shared.ModelName,
    source: Sources,
    methods: Methods = "gibbs,random",
    lm: own.LanguageModel = None,
    causal_lm: CausalModelName = None,
    prompts: PromptList = None,
    column: Column = None,
    length: Length = 8,
    candidates: CandidateCount = None,
    temperature: Temperature = None,
    iterations: Iterations = None,
    beams: Beams = 5,
    banned: Banned = None,
    calls: Calls = None,
    seconds: Seconds = None,
    chains: Chains = 5,
    seeds: Seeds = 1,
    images: Images = None,
    steps: Steps = 50,
    guidance: Guidance = 7.5,
    similarity: Similarity = "builtin",
    eps: Eps = None,
    min_cluster: MinCluster = None,
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
    from visleak.memorization.baselines.document import document
    from visleak.memorization.search.proposals import Rules
    from visleak.memorization.search.settings import refuse_longer

    shared.refuse_other_kind(out, "compare")
    names = [name.strip() for name in methods.split(",")]
    rules = Rules().banning(banned)
    budget = own.budget_of(calls, seconds)
    moves = _moves(iterations)
    listed = _listed(prompts, column, names)
    measure = _images(images, min_cluster, eps, similarity, seed)
    with bars() as progress, own.kept_if_interrupted(out):
        progress("loading the models", 0, 0)
        loaded = shared.model_of(model, device, precision)
        refuse_longer(loaded, length)
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
    columns = (
        *("method", "memorized images", "candidates with a cluster", "passes of the search"),
        *("passes of the images", "passes per image", "best D"),
    )
    shared.say_result(document(result), result.folder / "compare.json", json=json, columns=columns)


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
    from visleak.memorization.baselines.zerocap import load_causal

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
