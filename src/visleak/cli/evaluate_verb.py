"""``visleak evaluate``: the built-in evaluators, each a command of its own."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from visleak.cli import edges
from visleak.cli.command import Call, Reply, add
from visleak.errors import UsageError
from visleak.options import (
    METHOD,
    OUTPUT,
    SETS,
    SPEED,
    Execution,
    Options,
    Printed,
    Replaced,
    argument,
    id_column,
    keywords,
    label_column,
    option,
)

if TYPE_CHECKING:
    from visleak.impact.evaluators.classification import Classification
    from visleak.records import ImageSet
    from visleak.reporting import Document

CLIP: Final = "clip"  # the default model of `zeroshot` and `retrieve`

_CLIP_HELP: Final = (
    "A CLIP model: clip (OpenAI's ViT-B/32), clip:FOLDER, clip:OWNER/NAME, or"
    " clip:MODEL/WEIGHTS?backend=open_clip such as"
    " clip:ViT-B-32/laion2b_s34b_b79k?backend=open_clip."
)


@dataclass(frozen=True)
class Source(Options):
    """The images that a model is run on."""

    source: str = argument(..., "A set of images.", metavar="[NAME=]SOURCE")
    id: str | None = id_column()
    label: str | None = label_column()


@dataclass(frozen=True)
class Network(Options):
    """How a network runs."""

    device: str | None = option(
        None, "Device. Default: GPU if available.", metavar="auto|cpu|cuda[:N]", panel=SPEED
    )
    precision: str | None = option(
        None,
        "Floating-point precision; half precision may change a result. Default: fp32 for"
        " classifiers, the encoder's own for CLIP.",
        metavar="fp32|fp16|bf16",
        panel=METHOD,
    )
    batch: int | None = option(None, "Images per batch.", metavar="N", panel=SPEED, least=1)


@dataclass(frozen=True)
class Target(Replaced):
    """The file of the predictions."""

    out: Path = option(
        Path("predictions.parquet"),
        "File of the predictions, .parquet or .csv.",
        "--output -o",
        metavar="FILE",
        panel=OUTPUT,
    )


@dataclass(frozen=True)
class Classify(Options):
    """Options of ``classify``."""

    model: str = option(
        ...,
        "hf:FOLDER or hf:OWNER/NAME (transformers), timm:NAME, onnx:FILE, torchscript:FILE (a"
        " program: load trusted files only) or checkpoint:FILE?arch=NAME (weights: arch is resnet20"
        " to resnet1202 for CIFAR, or of timm or torchvision). ?prep=FILE.json gives the"
        " preprocessing.",
        metavar="KIND:NAME",
        panel=METHOD,
    )
    classes: Path | None = option(
        None,
        "Names of the model's outputs in their order: one per line, or JSON.",
        metavar="FILE",
        panel=METHOD,
    )
    restrict: bool = option(
        False, "Predict classes of the set only, if the model has more.", panel=METHOD
    )
    scores: bool = option(False, "Also write the score of every class.", panel=OUTPUT)


@dataclass(frozen=True)
class Zeroshot(Options):
    """Options of ``zeroshot``."""

    model: str = option(CLIP, _CLIP_HELP, metavar="CLIP", panel=METHOD)
    classes: Path | None = option(
        None,
        "Names of the classes: one per line, LABEL<TAB>NAME, .csv (label, name) or .json. Default:"
        " the set's labels, underscores as spaces.",
        metavar="FILE",
        panel=METHOD,
    )
    templates: str = option(
        "simple",
        "Prompt templates: 'a photo of a {}.', OpenAI's 80 for ImageNet, or a text file with one"
        " per line.",
        metavar="simple|openai|FILE",
        panel=METHOD,
    )


@dataclass(frozen=True)
class Retrieve(Options):
    """Options of ``retrieve``."""

    source: str | None = argument(
        None,
        "A set of images with captions; leave it out with --images and --texts.",
        metavar="[NAME=]SOURCE",
    )
    model: str | None = option(None, f"{_CLIP_HELP} Default: clip.", metavar="CLIP", panel=METHOD)
    id: str | None = id_column()
    captions: Path | None = option(
        None,
        "The collection: .csv, .tsv or .parquet (id, caption), .json (Karpathy's split, COCO, {ID:"
        " CAPTION}) or Flickr30k's .token. Default: the set's own captions.",
        metavar="FILE",
        panel=SETS,
    )
    caption: str | None = option(
        None,
        "Which of several captions of an image: the first, the N-th, or all of them, of which the"
        " best counts. Default: the first.",
        metavar="first|all|N",
        panel=METHOD,
    )
    images: str | None = option(
        None,
        "Instead of SOURCE and --model: vectors of images, emb:FOLDER, .npy, .npz or .parquet.",
        metavar="FILE",
        panel=SETS,
    )
    texts: str | None = option(
        None,
        "Vectors of captions in the same formats, each with the id of its image.",
        metavar="FILE",
        panel=SETS,
    )
    seed: int = option(
        0, "Random seed of the draws of 200 queries.", metavar="N", panel=METHOD, least=0
    )


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
