"""``visleak dlede``: leak on purpose, train again, and see whether the split leaked already."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from visleak.cli import dlede_options as own
from visleak.cli import edges, options
from visleak.cli.dlede_run import Order, carried_out, opened
from visleak.errors import UsageError

if TYPE_CHECKING:
    from visleak.dlede.asking import Verdict
    from visleak.dlede.lesson import Trainer
    from visleak.dlede.plan import Plan
    from visleak.dlede.results import DLeDe

#: What may stand beside ``--scores``; all else is about trainings of our own.
WITH_SCORES: Final = frozenset(
    {
        "scores",
        "out",
        "rule",
        "threshold",
        "certainty",
        "metric",
        "lower",
        "chance",
        "json",
        "force",
    }
)


def dlede(
    context: typer.Context,
    folder: own.Directory = None,
    test: own.Test = None,
    train: own.Train = None,
    whole: own.Whole = None,
    split: own.Recipe = None,
    id_: own.Id = None,
    label: own.Label = None,
    group: own.Group = None,
    trainer: own.TrainerName = None,
    scores: own.Scores = None,
    repetitions: own.Repetitions = 10,
    steps: own.Steps = None,
    full: own.Full = False,
    independent: own.Independent = False,
    stratify: own.Stratify = False,
    seed: own.Seed = 0,
    epochs: own.Epochs = None,
    rule: own.RuleName = "both-steps",
    threshold: own.Threshold = None,
    certainty: own.Certainty = "95%",
    metric: own.Metric = None,
    lower: own.Lower = None,
    chance: own.Chance = None,
    calibrate: own.Calibrate = 0,
    alpha: own.Alpha = "5%",
    check_convergence: own.Convergence = 0,
    audit: own.AuditOf = None,
    allow_proved_leak: own.AllowProved = False,
    no_phash: own.NoHashes = False,
    out: own.Out = Path("visleak-dlede"),
    forecast: own.ForecastOnly = False,
    no_pictures: options.NoPictures = False,
    json: own.Json = False,
    force: own.Force = False,
    jobs: own.Jobs = 1,
    threads: own.Threads = None,
    device: own.Device = "auto",
    time_limit: own.TimeLimit = None,
    workers: options.Workers = None,
    engine: options.EngineName = "local",
    ray_address: options.RayAddress = None,
    cache: options.CacheFolder = None,
) -> None:
    """Does retraining betray the leak? Leaks test images into training on purpose, 10 % a step.

    A split that leaks already gains hardly anything by that (D-LeDe, Babu et al. 2025).
    Trainings are kept: a run that was stopped goes on.
    """
    from visleak.cli.audit_verb import cache_folder
    from visleak.cli.engines import engine_of
    from visleak.dlede.asking import Extras, Verdict, Works

    verdict = Verdict(
        rule=rule,
        threshold=None if threshold is None else _share("--threshold", threshold, "5% or 0.05"),
        certainty=_certainty(certainty),
        metrics=metric or (),
        lower=lower or (),
        chance=dict(map(_chance, chance or ())),
    )
    if scores is not None:
        _refuse_beside_scores(context)
        _judge(scores, verdict, out, json=json, force=force)
        return
    _refuse(folder, test, train, whole, split, trainer)
    if check_convergence == 1:
        raise UsageError("--check-convergence 1 trains no longer; give 2 or more")
    clean = _share("--alpha", alpha, "5% or 0.05")
    if not calibrate and _was_given(context, "alpha"):
        raise UsageError("--alpha goes with --calibrate K")
    cluster = engine_of(engine, ray_address) if engine != "local" or ray_address else None
    made = _trainer(str(trainer), device, threads or 1, time_limit)
    order = Order(
        *(folder, test, train, whole, split),
        columns=(id_, label, group),
        plan=_plan(steps, full, repetitions, independent, stratify, seed, epochs),
        verdict=verdict,
        extras=Extras(
            calibrate=calibrate,
            alpha=clean,
            convergence=check_convergence,
            hashes=not no_phash,
            allow_proved_leak=allow_proved_leak,
        ),
        works=Works(jobs=jobs, engine=cluster, limit=time_limit, say=edges.note),
        out=out,
        audit=audit or "",
        cache=cache_folder(cache),
        workers=workers,
        private=no_pictures,
        force=force,
    )
    if forecast:
        _say_forecast(order, made, json=json)
        return
    _say(*_kept_if_interrupted(order, made), json=json)


def _share(option: str, text: str, example: str) -> float:
    """Return RATE as a share.

    Raises:
        UsageError: it is none.
    """
    from visleak.cli.gates import share_of

    share = share_of(text)
    if share is None:
        raise UsageError(
            f"{option} is a share from 0 to 1 or a percentage, such as {example}; got {text!r}"
        )
    return share


def _certainty(text: str) -> float:
    share = _share("--certainty", text, "95% or 0.95")
    if not 0.5 <= share < 1.0:
        raise UsageError(f"--certainty is at least 50% and below 100%; got {text!r}")
    return share


def _chance(text: str) -> tuple[str, float]:
    """Return the metric and the share of M=RATE.

    Raises:
        UsageError: it is not written so.
    """
    name, _, rate = text.rpartition("=")
    if not name:
        raise UsageError(f"--chance must be a metric and a share, accuracy=25%; got {text!r}")
    return name, _share("--chance", rate, f"{name}=25%")


def _was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _refuse_beside_scores(context: typer.Context) -> None:
    """Refuse options about trainings of our own, so that none is ignored.

    Raises:
        UsageError: one was given.
    """
    for parameter in context.command.params:
        name = parameter.name or ""
        if name not in WITH_SCORES and _was_given(context, name):
            shown = parameter.opts[0] if name != "folder" else "DIR"
            raise UsageError(
                f"{shown} and --scores: --scores judges trainings made elsewhere, and trains"
                f" nothing; leave {shown} out"
            )


def _refuse(
    folder: str | None,
    test: str | None,
    train: str | None,
    whole: str | None,
    recipe: str | None,
    trainer: str | None,
) -> None:
    """Refuse a call that names no split, or two, or nobody who trains.

    Raises:
        UsageError: see its message.
    """
    ways = [bool(folder), bool(test or train), bool(whole or recipe)]
    if sum(ways) == 0:
        raise UsageError(
            "no split to judge: give a folder with train and test in it, or --test S and --train S,"
            " or --set S and --split RECIPE; or judge trainings made elsewhere with --scores FILE"
        )
    if sum(ways) > 1:
        raise UsageError(
            "give either DIR, or --test and --train, or --set and --split; not two of them"
        )
    pairs = (("--test", test, "--train", train), ("--set", whole, "--split", recipe))
    for first, one, second, other in pairs:
        if bool(one) != bool(other):
            there, missing = (first, second) if one else (second, first)
            raise UsageError(f"{there} needs {missing}")
    if not trainer:
        raise UsageError(
            "nobody trains: give --trainer command:'CMD {train} {test} {out} {seed}',"
            " ultralytics:MODEL, torch:detector, torch:classifier or lookup; without a training,"
            " visleak audit finds the pairs"
        )


def _plan(
    steps: str | None,
    full: bool,
    repetitions: int,
    independent: bool,
    stratify: bool,
    seed: int,
    epochs: int | None,
) -> Plan:
    from visleak.dlede.plan import DECIDING, FULL, Plan

    if full and steps is not None:
        raise UsageError("--full is --steps 10,20,30,40,50,60,70,80,90,100; give one of them")
    chosen = FULL if full else DECIDING
    if steps is not None:
        words = [word.strip() for word in steps.split(",")]
        if not all(word.isascii() and word.isdecimal() for word in words):
            raise UsageError(
                f"--steps is whole percents with commas between, such as 10,20; got {steps!r}"
            )
        given = tuple(map(int, words))
        chosen = given if given[0] == 0 else (0, *given)
    return Plan(chosen, repetitions, not independent, stratify, seed, epochs)


def _trainer(text: str, device: str, threads: int, limit: float | None) -> Trainer:
    from visleak.dlede.trainers import load_trainer

    if limit is not None and not limit > 0.0:
        raise UsageError(f"--time-limit is seconds above 0; got {limit:g}")
    return load_trainer(text, device=device, threads=threads, time_limit=limit)


def _judge(file: Path, verdict: Verdict, out: Path, *, json: bool, force: bool) -> None:
    """Judge the scores of a file, write the result and say it."""
    from visleak.dlede.curve_files import read_scores
    from visleak.dlede.measuring import REQUEST, judge_scores
    from visleak.dlede.output import write
    from visleak.dlede.stored import RESULT
    from visleak.storage import free_folder

    free_folder(out, RESULT, force=force)
    # trainings of our own are judged by what they are, whatever is asked
    free_folder(out, REQUEST)
    result = judge_scores(read_scores(file, lower=verdict.lower), verdict=verdict, source=str(file))
    write(result, out)
    _say(result, out, None, json=json)


def _say_forecast(order: Order, trainer: Trainer, *, json: bool) -> None:
    """Print what the trainings would cost."""
    import json as js
    from dataclasses import replace

    from visleak.cli.dlede_view import forecast_line
    from visleak.cli.progress import bars
    from visleak.dlede.measuring import forecast

    with bars() as progress:
        split, _ = opened(order, progress)
        found = forecast(
            split,
            trainer,
            order.out,
            plan=order.plan,
            verdict=order.verdict,
            extras=order.extras,
            works=replace(order.works, progress=progress),
        )
    edges.say((js.dumps(found.as_dict(), indent=1) if json else forecast_line(found)) + "\n")


def _kept_if_interrupted(order: Order, trainer: Trainer) -> tuple[DLeDe, Path, Path | None]:
    """Carry an order out; if somebody stops it, say what is not lost."""
    try:
        return carried_out(order, trainer)
    except KeyboardInterrupt as error:
        word, code = edges.verdict(error)
        kept = (
            f"trainings that were finished are kept in {order.out}, and the same command goes on"
            " from there"
        )
        raise edges.Stopped(f"{word}; {kept}", code) from error


def _say(result: DLeDe, out: Path, page: Path | None, *, json: bool) -> None:
    from visleak.cli.dlede_view import shown
    from visleak.cli.terminal import rendered
    from visleak.dlede.stored import RESULT

    if json:
        edges.say_bytes((out / RESULT).read_bytes())
        return
    edges.say(rendered(shown(result)))
    for path in (out, *([page] if page is not None else [])):
        edges.say(f"{edges.plain(str(path))}\n")
