"""The settings of an audit: one frozen record, stored with the result and part of every key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

from visleak.errors import UsageError
from visleak.options import METHOD, SETS, SPEED, Columns, Options, argument, check, option, share

VIEW_CHOICES: Final = ("none", "mirror", "all")
#: Probability from which a pair is ``near``, unless the caller sets another.
NEAR_AT: Final = 0.5
#: Share of an image from which it counts as seen, unless the caller sets another.
SEEN: Final = 0.1
#: Seconds that no recording lasts.
LONGEST: Final = 1e9
#: Settings that are stored only where they are not the default.
CHOSEN: Final = ("within_frames", "within_seconds", "overlap")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can change the result of an audit, and nothing else.

    Options of speed (workers, cache, progress) are not included, because they never change the
    result.

    Attributes:
        encoder: text of the encoder; empty takes that of the embeddings, or ``builtin``.
        search: name of the search engine; all but ``exact`` may miss pairs, and say how many.
        hard, soft: thresholds on similarity; ``None`` takes the encoder's own.
        views: which views of a query are compared: ``none``, ``mirror`` or ``all``.
        candidates: ``auto`` (thresholds and best twenty; of streamed embeddings, thresholds
            alone), ``best`` (thresholds and best twenty, of those too) or ``nearest`` (each
            query's one nearest).
        local: also take candidates that share local features (images of 96 pixels and more).
        within: also find duplicates within each query set.
        verify: compare the pixels of the candidate pairs and grade them.
        near_at: probability from which a verified pair is ``near``, above 0 and below 1.
        annotations: ``used`` or ``unused`` overrides what the roles say about the modality.
        sample: audit this many queries, drawn with a fixed seed; 0 takes all.
        per_query: cap on the pairs kept for one query (the true count is kept beside).
        within_frames: frames of one recording that lie this far apart, or less, leak if one is
            tested and one trained with. Ten frames are a second of most driving data.
        within_seconds: the same where the time of a frame is known.
        overlap: measure which share of each image is seen in images that overlap it, and count
            the test images of which at least this share is; ``None`` measures nothing.

    >>> Settings(soft=0.9).soft
    0.9
    >>> Settings(views="some")
    Traceback (most recent call last):
    ...
    visleak.errors.UsageError: views must be one of none, mirror, all; got 'some'
    """

    panel: ClassVar[str] = METHOD
    encoder: str = option(
        "",
        "What makes vectors of images: builtin, clip, dinov2, sscd:FILE and others, see"
        " docs/encoders.md. Default: that of the embeddings, or builtin.",
        metavar="NAME",
    )
    search: str = option(
        "exact",
        "Search engine. A faiss index may miss pairs; how many is measured and stored with the"
        " audit.",
        choices=("exact", "faiss"),
    )
    hard: float | None = option(
        None,
        "Similarity from which a leak is hard. Default: the encoder's own.",
        metavar="X",
        least=-1,
        most=1,
    )
    soft: float | None = option(
        None,
        "Similarity from which a leak is soft. Default: the encoder's own.",
        metavar="X",
        least=-1,
        most=1,
    )
    views: str = option(
        "all", "Also compare mirrored, rotated and inverted views.", choices=VIEW_CHOICES
    )
    candidates: str = option(
        "auto",
        "Which pairs to verify: all above the threshold and the 20 nearest per image (auto: of"
        " training embeddings those above the threshold alone), or the nearest alone.",
        choices=("auto", "nearest", "best"),
    )
    local: bool = True
    within: bool = option(
        True, "Do not search for duplicates inside the test sets.", "--skip-within"
    )
    verify: bool = option(
        True,
        "Skip pixel verification: report similarity levels (degrees), but no grades. If the"
        " thresholds do not suit the images (the summary says so), find others with visleak"
        " calibrate.",
        "--no-verify",
    )
    near_at: float = option(
        NEAR_AT,
        "Probability from which a verified pair is near, above 0 and below 1.",
        metavar="P",
        above=0,
        below=1,
    )
    annotations: str = option(
        "auto",
        "Whether training saw the annotations. Default: as the roles of the sets say.",
        choices=("auto", "used", "unused"),
    )
    sample: int = option(
        0,
        "Audit a random sample of N images per test set, drawn with a fixed seed.",
        metavar="N",
        panel=SETS,
        least=0,
    )
    per_query: int = 100
    within_frames: int = option(
        10,
        "A recording leaks if a test frame is at most this many frames from a training frame.",
        "--max-frame-gap",
        metavar="N",
        least=0,
        below=2**63,
    )
    within_seconds: float = option(
        1.0,
        "The same for frames whose time is known.",
        "--max-time-gap",
        metavar="S",
        least=0,
        below=LONGEST,
    )
    overlap: float | None = option(
        None,
        "Also measure the share of each test image that training images show which overlap it"
        " (tiles, crops, panoramas), and count the images of which this share is seen, such as 10%."
        " Takes several times as long.",
        metavar="SHARE",
        parse=share,
        above=0,
        most=1,
    )

    def __post_init__(self) -> None:
        check(self)
        if self.hard is not None and self.soft is not None and self.hard < self.soft:
            raise UsageError(
                f"hard ({self.hard}) must not be below soft ({self.soft}): similarity is higher"
                " for more similar images"
            )
        if self.near_at != NEAR_AT and not self.verify:
            raise UsageError(
                f"near_at ({self.near_at}) is for verified pairs; leave it out, or verify"
            )
        if self.overlap is not None and not (self.local and self.verify):
            raise UsageError(
                "overlap is measured on pixels; leave it out, or verify and compare local features"
            )
        if self.overlap is not None and self.candidates == "nearest":
            raise UsageError("overlap needs all partners of an image; use other candidates")
        if self.per_query < 1:
            raise UsageError(f"per_query must be 1 or more; got {self.per_query}")

    def as_dict(self) -> dict[str, object]:
        """Return the settings as plain values, in the order of the attributes.

        How near frames leak, and overlap, stand there only where somebody chose it.
        """
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in CHOSEN or getattr(self, field.name) != field.default
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Settings:
        """Return stored settings; names that this version does not know are ignored."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: each for name, each in value.items() if name in known})


@dataclass(frozen=True)
class SideColumns(Columns, panel=SETS):
    """Columns of the tables of both sides."""

    frame: str | None = option(
        None,
        "Column with the frame numbers of recordings, or with times (seconds, ISO dates, whole"
        " milli-, micro- or nanoseconds since 1970); or a pattern whose first group is searched in"
        " the id. With --group, test frames next to training frames of their recording are found"
        " by time.",
        metavar="COLUMN|/REGEX/",
    )
    objects: str | None = option(
        None,
        "boxes: compare the annotated objects of coco:, yolo: and kitti: sources instead, each box"
        " as an image of its own; ids name the image and the box.",
        choices=("boxes",),
    )


@dataclass(frozen=True)
class Sides(Options):
    """What is compared, as texts: a folder with splits, two sides, or sets with each other."""

    folder: str | None = argument(
        None,
        "A data set with train, val and test in it: folders, Parquet files, a table with a split"
        " column, or a YOLO data.yaml. Test and val are compared with train.",
        metavar="DIR",
    )
    test: tuple[str, ...] = option(
        (),
        "Test images: a folder, list, glob, .csv or .parquet, .zip, .tar, shards such as"
        " a-{000..146}.tar, any of these at https://, s3:// or gs://, hf:NAME#test,"
        " cifar:FOLDER#test, kitti:FOLDER, coco:FILE, yolo:FILE#val or emb:FOLDER (embeddings)."
        " May be repeated.",
        metavar="[[DATASET:]NAME=]SOURCE",
        panel=SETS,
    )
    train: tuple[str, ...] = option(
        (),
        "Training images to compare them with. May be repeated.",
        metavar="[[DATASET:]NAME=]SOURCE",
        panel=SETS,
    )
    sets: tuple[str, ...] = option(
        (),
        "A set to compare with itself; several are also compared with each other.",
        "--set",
        metavar="[[DATASET:]NAME=]SOURCE",
        panel=SETS,
    )
    columns: SideColumns = SideColumns()


@dataclass(frozen=True)
class Network(Options, panel=SPEED):
    """How a network computes vectors; ``None`` leaves it to the encoder."""

    device: str | None = option(
        None,
        "Device for neural encoders and for comparing embeddings. Default: GPU if available for"
        " encoders, the processor for comparing.",
        metavar="auto|cpu|cuda|..",
    )
    batch: int | None = option(
        None, "Images per batch of a network; fewer need less memory.", metavar="N", least=1
    )
    precision: str | None = option(
        None,
        "Floating-point precision of a network. fp16 and bf16 are faster on GPUs and change"
        " similarities in about the third decimal.",
        metavar="fp32|fp16|bf16",
        panel=METHOD,
    )
