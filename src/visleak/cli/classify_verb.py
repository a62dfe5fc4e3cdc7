"""``visleak evaluate classify``: what a classifier takes the pictures of a set for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visleak.cli import edges, evaluate_options, evaluate_view, options
from visleak.cli.audit_verb import cache_folder

if TYPE_CHECKING:
    from visleak.impact.evaluators.classify import Classified


def classify(
    source: options.Collection,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="KIND:NAME",
            show_default=False,
            rich_help_panel=options.HOW,
            help="hf:FOLDER or hf:OWNER/NAME (transformers), timm:NAME, onnx:FILE,"
            " torchscript:FILE (a program: load only what you trust) or checkpoint:FILE?arch=NAME"
            " (weights: arch is resnet20 to resnet1202 for CIFAR, else of timm or torchvision)."
            " ?prep=FILE.json says how pictures are prepared.",
        ),
    ],
    out: evaluate_options.Predictions = Path("predictions.parquet"),
    id_: options.Id = None,
    label: options.Label = None,
    classes: Annotated[
        Path | None,
        typer.Option(
            "--classes",
            metavar="FILE",
            rich_help_panel=options.HOW,
            help="Names of the model's outputs in their order: one a line, or json.",
        ),
    ] = None,
    restrict: Annotated[
        bool,
        typer.Option(
            "--restrict",
            rich_help_panel=options.HOW,
            help="Answer with classes of the set only, where the model has more.",
        ),
    ] = False,
    scores: Annotated[
        bool,
        typer.Option(
            "--scores",
            rich_help_panel=options.OUT,
            help="Write the score of every class, too.",
        ),
    ] = False,
    device: options.Device = None,
    precision: Annotated[
        str | None,
        typer.Option(
            "--precision",
            metavar="fp32|fp16|bf16",
            rich_help_panel=options.HOW,
            help="Arithmetic of the network, fp32 by default; the halves may change a score.",
        ),
    ] = None,
    batch: options.Batch = None,
    workers: options.Workers = None,
    cache: options.CacheFolder = None,
    json_: evaluate_options.Json = False,
    force: evaluate_options.Force = False,
) -> None:
    """Write what a classifier takes the pictures of a set for, and say how often it is right."""
    from visleak.cli import sets
    from visleak.cli.progress import bars
    from visleak.impact.evaluators.classify import classify as written
    from visleak.impact.evaluators.predictions import check_target
    from visleak.storage import refuse_inputs

    check_target(out, force=force)
    with bars() as progress:
        progress("listing images", 0, 0)
        images = sets.one(source, sets.Columns(id_, label))
        refuse_inputs(out, [(images.name, images.source)], Path())
        progress("listing images", 1, 1)
        result = written(
            images,
            model,
            out,
            classes=classes,
            restrict=restrict,
            scores=scores,
            running=evaluate_options.running(device, precision, batch),
            workers=workers,
            cache=cache_folder(cache),
            progress=progress,
            force=force,
        )
    evaluate_view.show(result, _told(result), _plain(result), as_json=json_)


def _told(result: Classified) -> Iterator[str]:
    """Yield the summary, a line each."""
    yield edges.plain(f"{result.images:,} images of {result.set} by {result.model}")
    for name, share in (("accuracy", result.accuracy), ("top-5", result.top_5)):
        if share is not None and share.total:
            yield f"{name:<11}{evaluate_view.percent(share)}"
    if result.accuracy is None or not result.accuracy.total:
        yield "no accuracy: the images have no labels"
    yield edges.plain(f"{'classes':<11}{result.classes:,}: {result.rule}")
    speed = (result.images + result.unreadable) / max(result.seconds, 1e-9)
    yield f"{'time':<11}{result.seconds:,.1f} s, {speed:,.0f} images/s"


def _plain(result: Classified) -> dict[str, Any]:
    """Return the summary as JSON has it."""
    return {
        "set": result.set,
        "model": result.model,
        "images": result.images,
        "accuracy": evaluate_view.numbers(result.accuracy),
        "top_5": evaluate_view.numbers(result.top_5),
        "classes": {"count": result.classes, "rule": result.rule},
        "seconds": round(result.seconds, 3),
    }
