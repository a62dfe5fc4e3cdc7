"""``visleak memorization compare``: which search finds most memorized images at one cost?"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from visleak.cli import edges, options
from visleak.cli import memorization_compare_options as its
from visleak.cli import memorization_options as shared
from visleak.cli import memorization_search_options as own
from visleak.errors import UsageError

if TYPE_CHECKING:
    from visleak.memorization.baselines import TracedImages
    from visleak.memorization.baselines.causal import CausalLanguageModel
    from visleak.memorization.extraction import CopySimilarity, ExtractSettings
    from visleak.memorization.model import TokenModel
    from visleak.memorization.prompts import Prompts
    from visleak.memorization.search.proposals import Rules
    from visleak.records import AnySet


def compare(
    model: shared.ModelName,
    source: its.Sources,
    methods: its.Methods = "gibbs,random",
    lm: own.LanguageModel = None,
    causal_lm: its.CausalLanguageModel = None,
    prompts: its.PromptList = None,
    column: its.Column = None,
    length: its.Length = 8,
    candidates: its.CandidateCount = None,
    temperature: its.Temperature = None,
    iterations: its.Iterations = None,
    beams: its.Beams = 5,
    prefix: its.Prefix = None,
    stop_words: its.StopWords = None,
    banned: its.Banned = None,
    full_stop: its.FullStop = None,
    calls: its.Calls = None,
    seconds: its.Seconds = None,
    chains: its.Chains = 5,
    seeds: its.Seeds = 1,
    images: its.Images = None,
    steps: its.Steps = 50,
    guidance: its.Guidance = 7.5,
    similarity: its.Similarity = "builtin",
    eps: its.Eps = None,
    min_cluster: its.MinCluster = None,
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
    from visleak.cli.memorization_compare_view import say_comparison
    from visleak.cli.progress import bars
    from visleak.memorization.baselines import Contest, Means, load_searchers
    from visleak.memorization.baselines import compare as compared
    from visleak.memorization.search.presets import refuse_longer

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
    say_comparison(result, json=json)


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
