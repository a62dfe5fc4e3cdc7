"""``visleak evaluate classify``: what a classifier takes the pictures of a set for."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visleak.cli import edges, evaluate_options, options

if TYPE_CHECKING:
    from visleak.impact.evaluators.classify import Classified
    from visleak.impact.evaluators.judging import Share


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
    precision: options.Precision = None,
    batch: options.Batch = None,
    workers: options.Workers = None,
    json_: evaluate_options.Json = False,
    force: evaluate_options.Force = False,
) -> None:
    """Write what a classifier takes the pictures of a set for, and say how often it is right."""
    from visleak.cli import sets
    from visleak.cli.progress import bars
    from visleak.impact.evaluators.classifiers import load_classifier
    from visleak.impact.evaluators.classify import classify as written
    from visleak.impact.evaluators.predictions import check_target

    check_target(out, force=force)
    told = {"device": device, "precision": precision, "batch": batch}
    with bars() as progress:
        progress("listing images", 0, 0)
        images = sets.one(source, sets.Columns(id_, label))
        progress("listing images", 1, 1)
        progress("loading the model", 0, 0)
        network = load_classifier(model, **{k: v for k, v in told.items() if v is not None})
        progress("loading the model", 1, 1)
        result = written(
            images,
            network,
            out,
            classes=classes,
            restrict=restrict,
            scores=scores,
            workers=workers,
            progress=progress,
            force=force,
        )
    if json_:
        edges.say(json.dumps(_plain(result), indent=1, ensure_ascii=False) + "\n")
        return
    for line in _told(result):
        edges.say(f"{line}\n")
    for note in result.notes:
        edges.note(f"note: {note}")


def _told(result: Classified) -> Iterator[str]:
    """Yield the summary, a line each."""
    yield edges.plain(f"{result.images:,} images of {result.set} by {result.model}")
    for name, share in (("accuracy", result.accuracy), ("top-5", result.top_5)):
        if share is not None and share.images:
            yield f"{name:<11}{_percent(share)}"
    if result.accuracy is None:
        yield "no accuracy: the set has no labels"
    yield edges.plain(f"{'classes':<11}{result.classes:,}: {result.rule}")
    if result.unreadable_file is not None:
        where = edges.plain(str(result.unreadable_file))
        yield f"{'unreadable':<11}{result.unreadable:,}, in no count: {where}"
    speed = (result.images + result.unreadable) / max(result.seconds, 1e-9)
    yield f"{'time':<11}{result.seconds:,.1f} s, {speed:,.0f} images/s"
    yield edges.plain(str(result.file))
    yield edges.plain(f"next: visleak impact A --predictions {shlex.quote(str(result.file))}")


def _percent(share: Share) -> str:
    ends = f"{100 * share.low:.2f} to {100 * share.high:.2f}"
    return f"{100 * share.value:.2f} % ({share.count:,} of {share.images:,}; 95 %: {ends})"


def _plain(result: Classified) -> dict[str, Any]:
    """Return the summary as JSON has it."""
    return {
        "file": str(result.file),
        "set": result.set,
        "model": result.model,
        "images": result.images,
        "accuracy": _numbers(result.accuracy),
        "top_5": _numbers(result.top_5),
        "classes": {"count": result.classes, "rule": result.rule},
        "unreadable": {
            "images": result.unreadable,
            "file": str(result.unreadable_file) if result.unreadable_file else None,
        },
        "seconds": round(result.seconds, 3),
        "notes": list(result.notes),
    }


def _numbers(share: Share | None) -> dict[str, Any] | None:
    if share is None or not share.images:
        return None
    ends = {"low": share.low, "high": share.high}
    return {"value": share.value, **ends, "right": share.count, "images": share.images}
