"""``visleak memorization augment``: many prompts out of known triggers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from visleak.cli import edges
from visleak.cli import memorization_options as shared
from visleak.cli import memorization_search_options as own
from visleak.cli.memorization_options import option


def augment(
    model: shared.ModelName,
    triggers: Annotated[
        Path,
        option(
            "--triggers FILE",
            f"The prompts to begin with: {shared.FORMATS}, such as prompts.parquet of a search.",
            own.SEARCH,
        ),
    ],
    column: Annotated[
        str | None,
        option(
            "--column C",
            "Column of the prompts in FILE.",
            own.SEARCH,
            default="prompt, caption or text",
        ),
    ] = None,
    lm: own.LanguageModel = None,
    preset: Annotated[
        str,
        option(
            "--preset P",
            "paper (SD1), paper-sd2 or official-code: see docs/memorization.md.",
            own.SEARCH,
        ),
    ] = "paper",
    iterations: own.Iterations = None,
    candidates: own.CandidateCount = None,
    temperature: own.Temperature = None,
    kappa: Annotated[
        float | None,
        option(
            "--kappa D",
            "A chain that stays below it is broken off.",
            own.SEARCH,
            default="by preset; paper 3",
        ),
    ] = None,
    patience: Annotated[
        int | None,
        option(
            "--patience S",
            "Moves in a row that may end below kappa.",
            own.SEARCH,
            default="3",
            min=1,
        ),
    ] = None,
    repeats: Annotated[
        int | None,
        option(
            "--repeats N",
            "Runs of all chains for each trigger.",
            own.SEARCH,
            default="by preset; paper 1",
            min=1,
        ),
    ] = None,
    top: Annotated[
        int | None,
        option(
            "--top T",
            "Prompts kept of each trigger.",
            shared.OUT,
            default="by preset; paper 100",
            min=1,
        ),
    ] = None,
    floor: Annotated[
        float | None,
        option(
            "--floor D",
            "Drop prompts with a mean D below.",
            shared.OUT,
            default="by preset; paper none",
        ),
    ] = None,
    banned: own.Banned = None,
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
    out: shared.Out = Path("visleak-augment"),
    json: shared.Json = False,
    force: shared.Force = False,
) -> None:
    """Change known triggers word by word into many others of high D (Algorithm 2).

    Writes augment.json, the best prompts of each trigger, and the bank of all that were scored.
    """
    from dataclasses import replace

    from visleak.cli.progress import bars
    from visleak.memorization.prompt_files import read_prompts
    from visleak.memorization.scores import TriggerScore
    from visleak.memorization.search.driver import SearchTask
    from visleak.memorization.search.run import augment_into, document
    from visleak.memorization.search.settings import (
        about_preset,
        augment_preset,
        refuse_other_scale,
        rules_of,
        timestep_of,
    )

    shared.refuse_other_kind(out, "augment")
    chosen = augment_preset(preset)
    own.refuse_other_norm(norm, chosen.norm, temperature=temperature, kappa=kappa)
    changes: dict[str, Any] = {
        "iterations": iterations,
        "candidates": candidates,
        "temperature": temperature,
        "kappa": kappa,
        "patience": patience,
        "repeats": repeats,
        "top": top,
        "floor": floor,
        "norm": norm,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    settings = replace(chosen, **given)
    rules = rules_of(preset).banning(banned)
    budget = own.budget_of(calls, seconds)
    listed = read_prompts(triggers, column=column)
    with bars() as progress, own.kept_if_interrupted(out):
        progress("loading the models", 0, 0)
        loaded = shared.model_of(model, device, precision)
        refuse_other_scale(loaded, chosen, given)
        asked = str(timestep_of(preset)) if timestep is None else timestep
        d = shared.settings_of(loaded, noises, asked, settings.norm, output, seed, batch)
        proposer = own.language_model_of(lm, rules, loaded)
        progress("loading the models", 1, 1)
        made = augment_into(
            SearchTask(
                TriggerScore(loaded, d),
                seed=seed,
                budget=budget,
                say=own.told(progress, "augmenting", calls),
            ),
            proposer,
            listed,
            settings,
            out,
            about={
                **about_preset(chosen, settings, rules, d.timestep),
                "origin": listed.origin,
            },
            force=force,
            say=edges.note,
        )
    shared.say_result(document("augment", made), out / "augment.json", json=json, rows=20)
