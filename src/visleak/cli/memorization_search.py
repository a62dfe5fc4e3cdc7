"""``visleak memorization search``: trigger prompts from nothing but masks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from visleak.cli import edges
from visleak.cli import memorization_options as shared
from visleak.cli import memorization_search_options as own
from visleak.cli.memorization_options import option
from visleak.errors import UsageError

if TYPE_CHECKING:
    from visleak.memorization.search.driver import Searcher
    from visleak.memorization.search.proposals import Proposer
    from visleak.memorization.search.settings import GibbsSettings


def search(
    model: shared.ModelName,
    lm: own.LanguageModel = None,
    preset: Annotated[
        str,
        option(
            "--preset P",
            "paper or official-code: where they differ is in docs/memorization.md.",
            own.SEARCH,
        ),
    ] = "paper",
    method: Annotated[
        str,
        option(
            "--method M",
            "gibbs (Algorithm 1), or random: strings of random words at the same cost.",
            own.SEARCH,
        ),
    ] = "gibbs",
    chains: Annotated[
        int,
        option(
            "--chains N",
            "Independent chains, which share passes of the network (the paper: 200).",
            own.SEARCH,
            min=1,
        ),
    ] = 5,
    length: Annotated[
        int | None, option("--length N", "Word pieces of a prompt.", own.SEARCH, default="8", min=1)
    ] = None,
    iterations: own.Iterations = None,
    candidates: own.CandidateCount = None,
    temperature: own.Temperature = None,
    kappa: Annotated[
        str | None,
        option(
            "--kappa D",
            "A chain ends after a round whose best has it; none: after one round. On the scale"
            " of D of the model, as --temperature.",
            own.SEARCH,
            default="by preset; paper 5",
        ),
    ] = None,
    rounds: Annotated[
        str | None,
        option(
            "--rounds N",
            "Rounds of a chain at most; none: until kappa or the budget.  \\[default: by"
            " preset; paper 10]",
            own.SEARCH,
        ),
    ] = None,
    banned: own.Banned = None,
    keep: Annotated[
        int,
        option("--keep N", "Prompts in bank.parquet, those of the highest D.", shared.OUT, min=1),
    ] = 1000,
    calls: own.Calls = None,
    seconds: own.Seconds = None,
    noises: shared.Noises = 1,
    timestep: own.Timestep = None,
    norm: own.Norm = None,
    output: shared.Output = "raw",
    seed: shared.Seed = 0,
    device: shared.Device = "auto",
    precision: shared.Precision = "auto",
    batch: shared.Batch = None,
    out: shared.Out = Path("visleak-search"),
    json: shared.Json = False,
    force: shared.Force = False,
) -> None:
    """Search for prompts of high D, word by word, from nothing but masks (Algorithm 1).

    Writes search.json, the best prompt of each chain, and a bank. An interrupted search
    resumes; so does one that its budget ended, with a larger one.
    """
    from visleak.cli.progress import bars
    from visleak.memorization.model import version_of
    from visleak.memorization.scores import TriggerScore
    from visleak.memorization.search.driver import SearchTask
    from visleak.memorization.search.run import document, search_into
    from visleak.memorization.search.settings import (
        about_preset,
        refuse_longer,
        refuse_other_scale,
        rules_of,
        search_preset,
        timestep_of,
        version_of_preset,
    )

    shared.refuse_other_kind(out, "search")
    chosen = search_preset(preset)
    if method == "gibbs":
        own.refuse_other_norm(norm, chosen.norm, temperature=temperature, kappa=kappa)
    changes: dict[str, Any] = {
        "length": length,
        "iterations": iterations,
        "candidates": candidates,
        "temperature": temperature,
        "norm": norm,
        "keep": keep,
    }
    settings = _settings(chosen, changes, kappa, rounds)
    constants = {"temperature": temperature, "kappa": kappa}
    given = {name for name, value in constants.items() if value is not None}
    rules = rules_of(preset).banning(banned)
    budget = own.budget_of(calls, seconds)
    with bars() as progress, own.kept_if_interrupted(out):
        progress("loading the models", 0, 0)
        loaded = shared.model_of(model, device, precision)
        if method == "gibbs":
            refuse_other_scale(loaded, chosen, given)
        fits = version_of(loaded) == version_of_preset(preset) and settings.norm == chosen.norm
        refuse_longer(loaded, settings.length)
        asked = str(timestep_of(preset)) if timestep is None else timestep
        d = shared.settings_of(loaded, noises, asked, settings.norm, output, seed, batch)
        proposer = own.language_model_of(lm, rules, loaded)
        progress("loading the models", 1, 1)
        found = search_into(
            _searcher(method, proposer, settings),
            SearchTask(
                TriggerScore(loaded, d),
                chains=chains,
                seed=seed,
                budget=budget,
                say=own.told(progress, "searching", calls),
            ),
            out,
            kappa=_counted(settings, method, kappa, fits=fits),
            about=about_preset(chosen, settings, rules, d.timestep),
            force=force,
            say=edges.note,
        )
    shared.say_result(document("search", found), out / "search.json", json=json, rows=20)


def _settings(
    preset: GibbsSettings, changes: dict[str, Any], kappa: str | None, rounds: str | None
) -> GibbsSettings:
    """Return a preset's settings with what was asked for instead.

    Raises:
        UsageError: a value that cannot be.
    """
    from dataclasses import replace

    given = {name: value for name, value in changes.items() if value is not None}
    if kappa is not None:
        given["kappa"] = None if kappa == "none" else _number("--kappa", kappa)
    if rounds is not None:
        if rounds != "none" and not (rounds.isascii() and rounds.isdecimal()):
            raise UsageError(f"--rounds is a whole number, or none; got {rounds!r}")
        given["rounds"] = None if rounds == "none" else int(rounds)
    return replace(preset, **given)


def _counted(
    settings: GibbsSettings, method: str, kappa: str | None, *, fits: bool
) -> float | None:
    """Return the kappa that chains are counted by; ``None`` counts none.

    Random words need no kappa, so the preset's is left out where it is on another scale.
    """
    if method == "random" and kappa is None and not fits:
        edges.note("the preset's kappa is on another scale of D: chains are not counted by it")
        return None
    return settings.kappa


def _number(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise UsageError(f"{option} is a number, or none; got {text!r}")
    return value


def _searcher(method: str, proposer: Proposer, settings: GibbsSettings) -> Searcher:
    from visleak.memorization.search.gibbs import GibbsSearch
    from visleak.memorization.search.lists import RandomSettings, RandomWords

    if method == "gibbs":
        return GibbsSearch(proposer, settings)
    if method == "random":
        return RandomWords(proposer, RandomSettings(settings.length, keep=settings.keep))
    raise UsageError(
        f"--method is gibbs or random; got {method!r}; visleak memorization compare knows more"
    )
