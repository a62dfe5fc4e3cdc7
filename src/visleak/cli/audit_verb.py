"""``visleak audit``: compare, write the folder and the report, say what came out."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from visleak.cli import config_verb, edges, gates, options
from visleak.cli.engines import engine_of

if TYPE_CHECKING:
    from visleak.auditing import Audit
    from visleak.cli.sets import Compared
    from visleak.pipeline.workplace import Engine, Progress
    from visleak.settings import Settings


@dataclass(frozen=True, slots=True)
class Order:
    """What to compare, and how to go about it."""

    folder: str | None
    test: Sequence[str]
    train: Sequence[str]
    sets: Sequence[str]
    columns: tuple[str | None, str | None, str | None]
    settings: Settings
    thresholds: Path | None
    out: Path
    cache: Path | None
    workers: int | None
    engine: Engine
    force: bool
    private: bool
    command: str


def audit(
    context: typer.Context,
    folder: options.Directory = None,
    test: options.Test = None,
    train: options.Train = None,
    sets: options.Sets = None,
    config: options.Config = None,
    plan: options.Plan = False,
    out: options.OutFolder = Path("visleak-audit"),
    encoder: options.EncoderName = None,
    search: options.SearchName = "exact",
    hard: options.Hard = None,
    soft: options.Soft = None,
    thresholds: options.ThresholdsFile = None,
    views: options.Views = "all",
    candidates: options.Candidates = "auto",
    id_: options.Id = None,
    label: options.Label = None,
    group: options.Group = None,
    no_within: options.NoWithin = False,
    no_verify: options.NoVerify = False,
    annotations: options.Annotations = "auto",
    sample: options.Sample = 0,
    fail_on: options.FailOn = None,
    no_pictures: options.NoPictures = False,
    json: options.Json = False,
    force: options.Force = False,
    workers: options.Workers = None,
    engine: options.EngineName = "local",
    ray_address: options.RayAddress = None,
    cache: options.CacheFolder = None,
) -> None:
    """Find the test images that also occur in the training images.

    Says how many there are, and writes a folder with every pair, report.html included.
    """
    from visleak.settings import Settings

    asked = [gates.parse(text) for text in fail_on or ()]
    if config is not None or plan:
        config_verb.refuse_other_options(context, config)
        config_verb.study(
            config_verb.StudyOrder(
                config=config or Path(),
                out=config_verb.folder_of(context, out),
                plan=plan,
                gates=asked,
                json=json,
                force=force,
                private=no_pictures,
                workers=workers,
                engine=engine_of(engine, ray_address),
                cache=cache_folder(cache),
                command=_command(context),
            )
        )
        return
    gates.check(asked, verify=not no_verify)
    settings = Settings(
        encoder=encoder or "",
        search=search,
        hard=hard,
        soft=soft,
        views=views,
        candidates=candidates,
        within=not no_within,
        verify=not no_verify,
        annotations=annotations,
        sample=sample,
    )
    order = Order(
        folder=folder,
        test=test or (),
        train=train or (),
        sets=sets or (),
        columns=(id_, label, group),
        settings=settings,
        thresholds=thresholds,
        out=out,
        cache=cache_folder(cache),
        workers=workers,
        engine=engine_of(engine, ray_address),
        force=force,
        private=no_pictures,
        command=_command(context),
    )
    result = _kept_if_interrupted(order)
    _render(result, json=json)
    lines = gates.tripped(asked, result.summary)
    for line in lines:
        edges.complain(line)
    if lines:
        raise typer.Exit(3)


def cache_folder(text: str | None) -> Path | None:
    """Return the folder of the cache, ``None`` for none."""
    from visleak.cache import default_folder

    if text == "off":
        return None
    return Path(text) if text else default_folder()


def _command(context: typer.Context) -> str:
    """Return the command line as one may paste it into a shell."""
    text = shlex.join(["visleak", *(context.find_root().obj or ())])
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _kept_if_interrupted(order: Order) -> Audit:
    """Carry an order out; if somebody stops it, say what is not lost."""
    try:
        return carry_out(order)
    except KeyboardInterrupt as error:
        word, code = edges.verdict(error)
        kept = (
            f"what was read and verified is kept in the cache {order.cache}, and the same command"
            " goes on from there"
            if order.cache
            else "nothing is kept, for there is no cache (--cache off)"
        )
        raise edges.Stopped(f"{word}; {kept}", code) from error


def carry_out(order: Order) -> Audit:
    """Open the sets, audit them and write the report."""
    from visleak.cli import sets
    from visleak.cli.pictures import write_page
    from visleak.cli.progress import bars

    sets.refuse_mixtures(order.folder, order.test, order.train, order.sets)
    with bars() as progress:
        progress("listing images", 0, 0)
        columns = sets.Columns(*order.columns)
        compared = (
            sets.from_folder(order.folder, columns)
            if order.folder
            else sets.from_options(order.test, order.train, order.sets, columns)
        )
        progress("listing images", 1, 1)
        result = _audited(order, compared, progress)
        write_page(result, private=order.private, progress=progress)
    if result.reused:
        edges.note(f"reused: {order.out} holds this very audit, finished; --force does it again")
    return result


def _audited(order: Order, compared: Compared, progress: Progress) -> Audit:
    from visleak.auditing import audit as audited

    return audited(
        compared.queries,
        compared.references or None,
        settings=order.settings,
        thresholds=order.thresholds,
        out=order.out,
        workers=order.workers,
        engine=order.engine,
        cache=order.cache,
        progress=progress,
        force=order.force,
        command=order.command,
    )


def _render(result: Audit, *, json: bool) -> None:
    from visleak.store import AUDIT

    if json:
        edges.say_bytes((result.folder / AUDIT).read_bytes())
        return
    from visleak.cli.summary_view import summary
    from visleak.cli.terminal import rendered

    edges.say(rendered(summary(result)))
