"""``visleak evaluate``: the built-in evaluators, each a command of its own."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from visleak.cli import edges
from visleak.cli.command import Call, Reply, add
from visleak.errors import UsageError
from visleak.impact.evaluators.settings import (
    CLIP,
    Classify,
    Network,
    Retrieve,
    Source,
    Target,
    Zeroshot,
)
from visleak.options import Execution, Printed, keywords

if TYPE_CHECKING:
    from visleak.impact.evaluators.classification import Classification
    from visleak.records import ImageSet
    from visleak.reporting import Document


def classify(
    data: Source,
    settings: Classify,
    network: Network,
    execution: Execution,
    target: Target,
    printed: Printed,
    call: Call,
) -> Reply:
    """Run a classifier on a set and save its predictions."""
    from visleak.impact.evaluators.classify import classify as run

    given = {"running": keywords(network), **keywords(settings), **execution.chosen()}
    return _classified(run, given, data, target, call)


def zeroshot(
    data: Source,
    settings: Zeroshot,
    network: Network,
    execution: Execution,
    target: Target,
    printed: Printed,
    call: Call,
) -> Reply:
    """Classify a set with CLIP and class names, without training, and save the predictions."""
    from visleak.impact.evaluators.zeroshot import zeroshot as run

    given = {"options": keywords(network), **keywords(settings), **execution.chosen()}
    return _classified(run, given, data, target, call)


def retrieve(
    settings: Retrieve,
    network: Network,
    execution: Execution,
    target: Target,
    printed: Printed,
    call: Call,
) -> Reply:
    """Rank all captions for each image and save the rank of its own, with R@1, R@5 and R@10."""
    from visleak.impact.evaluators.retrieve import content, document, retrieve_stored
    from visleak.impact.evaluators.retrieve import retrieve as run

    target = replace(target, force=call.replaces(target.out, force=target.force))
    given = keywords(settings)
    if settings.images is None and settings.texts is None:
        if settings.source is None:
            raise UsageError(
                "nothing to search: give SOURCE, a set of images with captions, or --images FILE"
                " and --texts FILE with vectors"
            )
        images = _opened(settings.source, settings.id, None, target, call)
        given = {name: value for name, value in given.items() if name not in ("source", "id")}
        result = run(
            images,
            options=keywords(network),
            progress=call.progress,
            **{"model": CLIP, **given, **keywords(target)},
            **execution.chosen(),
        )
    else:
        for there, missing in (("images", "texts"), ("texts", "images")):
            if there in given and missing not in given:
                raise UsageError(f"--{there} needs --{missing}: vectors of both sides")
        allowed = ("images", "texts", "seed", "out", "force", "json", "workers", "cache")
        call.only_with("--images and --texts", allowed)
        result = retrieve_stored(progress=call.progress, **given, **keywords(target))
    return _reply(document(result), content(result), target)


def _classified(
    run: Callable[..., Classification],
    given: Mapping[str, object],
    data: Source,
    target: Target,
    call: Call,
) -> Reply:
    """Classify a set and save the predictions."""
    from visleak.impact.evaluators.classification import content, document

    target = replace(target, force=call.replaces(target.out, force=target.force))
    images = _opened(data.source, data.id, data.label, target, call)
    result = run(images, progress=call.progress, **given, **keywords(target))
    return _reply(document(result), content(result), target)


def _opened(
    source: str, id_: str | None, label: str | None, target: Target, call: Call
) -> ImageSet:
    """Return the images of a source; refuse a target that cannot be written first."""
    from visleak.formats.opening import open_set
    from visleak.impact.evaluators.predictions import check_target
    from visleak.settings import SideColumns
    from visleak.storage import refuse_inputs

    check_target(target.out, force=target.force)
    call.progress("listing images", 0, 0)
    images = open_set(source, SideColumns(id_, label))
    refuse_inputs(target.out, [(images.name, images.source)], Path())
    call.progress("listing images", 1, 1)
    return images


def _reply(document: Document, content: Mapping[str, object], target: Target) -> Reply:
    from visleak.reporting import terminal

    command = f"next: visleak impact AUDIT_DIR --predictions {shlex.quote(str(target.out))}"
    return Reply([*terminal(document), str(target.out), command], content)


evaluate = typer.Typer(
    help="Run a model on a test set; the file of its predictions is for visleak impact.",
    rich_markup_mode="rich",
)


@evaluate.callback(invoke_without_command=True)
def _evaluate(context: typer.Context) -> None:
    # idle threads of torch spin on the cores that the workers need: measured, two to four times
    # slower on a busy machine; it is read once, when torch is imported
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if context.invoked_subcommand is None:
        edges.say(context.get_help() + "\n")


add(
    evaluate,
    "classify",
    classify,
    "evaluate classify test/ --model hf:microsoft/resnet-50 -o resnet-50.parquet",
)
add(
    evaluate,
    "zeroshot",
    zeroshot,
    "evaluate zeroshot val/ --classes names.tsv --templates openai -o clip.parquet",
)
add(
    evaluate,
    "retrieve",
    retrieve,
    "evaluate retrieve flickr30k-images/ --captions dataset_flickr30k.json -o clip.parquet",
)
