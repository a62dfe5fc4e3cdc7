"""Built-in evaluators: a model runs on a set and its predictions are saved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from visleak.options import (
    METHOD,
    OUTPUT,
    SETS,
    SPEED,
    Options,
    Replaced,
    argument,
    id_column,
    label_column,
    option,
    output,
)

# -- options of the evaluators; this module imports nothing heavy ---------------------------------


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
class Network(Options, panel=SPEED):
    """How a network runs."""

    device: str | None = option(
        None, "Device. Default: GPU if available.", metavar="auto|cpu|cuda[:N]"
    )
    precision: str | None = option(
        None,
        "Floating-point precision; half precision may change a result. Default: fp32 for"
        " classifiers, the encoder's own for CLIP.",
        metavar="fp32|fp16|bf16",
        panel=METHOD,
    )
    batch: int | None = option(None, "Images per batch.", least=1)


@dataclass(frozen=True)
class Target(Replaced):
    """The file of the predictions."""

    out: Path = output(
        Path("predictions.parquet"), "File of the predictions, .parquet or .csv.", metavar="FILE"
    )


@dataclass(frozen=True)
class Classify(Options, panel=METHOD):
    """Options of ``classify``."""

    model: str = option(
        ...,
        "hf:FOLDER or hf:OWNER/NAME (transformers), timm:NAME, onnx:FILE, torchscript:FILE (a"
        " program: load trusted files only) or checkpoint:FILE?arch=NAME (weights: arch is resnet20"
        " to resnet1202 for CIFAR, or of timm or torchvision). ?prep=FILE.json gives the"
        " preprocessing.",
        metavar="KIND:NAME",
    )
    classes: Path | None = option(
        None, "Names of the model's outputs in their order: one per line, or JSON.", metavar="FILE"
    )
    restrict: bool = option(False, "Predict classes of the set only, if the model has more.")
    scores: bool = option(False, "Also write the score of every class.", panel=OUTPUT)


@dataclass(frozen=True)
class Zeroshot(Options, panel=METHOD):
    """Options of ``zeroshot``."""

    model: str = option(CLIP, _CLIP_HELP, metavar="CLIP")
    classes: Path | None = option(
        None,
        "Names of the classes: one per line, LABEL<TAB>NAME, .csv (label, name) or .json. Default:"
        " the set's labels, underscores as spaces.",
        metavar="FILE",
    )
    templates: str = option(
        "simple",
        "Prompt templates: 'a photo of a {}.', OpenAI's 80 for ImageNet, or a text file with one"
        " per line.",
        metavar="simple|openai|FILE",
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
    seed: int = option(0, "Random seed of the draws of 200 queries.", panel=METHOD, least=0)
