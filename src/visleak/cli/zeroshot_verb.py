"""``visleak evaluate zeroshot``: which of some names a CLIP finds for the pictures of a set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visleak.cli import edges, evaluate_options, evaluate_view, options
from visleak.cli.audit_verb import cache_folder

if TYPE_CHECKING:
    from visleak.impact.evaluators.zeroshot import ZeroShot


def zeroshot(
    source: options.Collection,
    model: evaluate_options.Clip = None,
    out: evaluate_options.Predictions = Path("predictions.parquet"),
    id_: options.Id = None,
    label: options.Label = None,
    classes: Annotated[
        Path | None,
        typer.Option(
            "--classes",
            metavar="FILE",
            rich_help_panel=options.HOW,
            help="Names of the classes: one a line, LABEL<TAB>NAME, .csv (label, name) or .json; by"
            " default the set's labels, underscores as spaces.",
        ),
    ] = None,
    templates: Annotated[
        str,
        typer.Option(
            "--templates",
            metavar="simple|openai|FILE",
            rich_help_panel=options.HOW,
            help="Sentences that names are put into: 'a photo of a {}.', OpenAI's 80 for ImageNet,"
            " or a text file with one a line.",
        ),
    ] = "simple",
    device: options.Device = None,
    precision: options.Precision = None,
    batch: options.Batch = None,
    workers: options.Workers = None,
    cache: options.CacheFolder = None,
    json_: evaluate_options.Json = False,
    force: evaluate_options.Force = False,
) -> None:
    """Write which name a CLIP finds for each picture of a set, and say how often it is right."""
    from visleak.cli import sets
    from visleak.cli.progress import bars
    from visleak.impact.evaluators.predictions import check_target
    from visleak.impact.evaluators.zeroshot import zeroshot as written
    from visleak.storage import refuse_inputs

    check_target(out, force=force)
    with bars() as progress:
        progress("listing images", 0, 0)
        images = sets.one(source, sets.Columns(id_, label))
        refuse_inputs(out, [(images.name, images.source)], Path())
        progress("listing images", 1, 1)
        result = written(
            images,
            model or evaluate_options.CLIP,
            out,
            options=evaluate_options.running(device, precision, batch),
            classes=classes,
            templates=templates,
            workers=workers,
            cache=cache_folder(cache),
            progress=progress,
            force=force,
        )
    evaluate_view.show(result, _told(result), _plain(result), as_json=json_)


def _told(result: ZeroShot) -> Iterator[str]:
    """Yield the summary, a line each."""
    yield edges.plain(f"{result.images:,} images of {result.set} by {result.model}")
    for name, share in (("accuracy", result.accuracy), ("top-5", result.top_5)):
        if share is not None and share.total:
            yield f"{name:<11}{evaluate_view.percent(share)}"
    if result.accuracy is None:
        yield "no accuracy: the set has no labels"
    yield edges.plain(f"{'classes':<11}{result.classes:,}: {result.rule}")
    name, count = result.templates
    yield edges.plain(f"{'templates':<11}{count:,}: {name}; {result.prompts:,} prompts")


def _plain(result: ZeroShot) -> dict[str, Any]:
    """Return the summary as JSON has it."""
    return {
        "set": result.set,
        "model": result.model,
        "images": result.images,
        "accuracy": evaluate_view.numbers(result.accuracy),
        "top_5": evaluate_view.numbers(result.top_5),
        "classes": {"count": result.classes, "rule": result.rule},
        "templates": {"name": result.templates[0], "count": result.templates[1]},
        "prompts": {"count": result.prompts, "cut": result.cut},
    }
