"""Commands on one set of images: ``encode``, ``find``, ``robustness``, ``train-encoder`` ..."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from visleak.cli import edges
from visleak.cli.command import Call, Reply, free, replaces, whole
from visleak.errors import VisleakError
from visleak.options import (
    METHOD,
    OUTPUT,
    Backend,
    Columns,
    Execution,
    Options,
    Printed,
    Replaced,
    argument,
    keywords,
    option,
    output,
)
from visleak.quantities import counted
from visleak.robustness.settings import Calibrate, Robustness
from visleak.training.settings import EncoderSettings, TrainEncoder


@dataclass(frozen=True)
class ImageSet(Options):
    """The set of a command that takes one."""

    source: str = argument(
        ...,
        "A set of images, as for audit: a folder, list, archive, table, cifar:..., coco:...",
        metavar="[NAME=]SOURCE",
    )


@dataclass(frozen=True)
class Encode(Replaced, panel=OUTPUT):
    """Options of ``encode``."""

    out: Path = output(..., "Folder of the embeddings.")
    encoder: str = option("builtin", "Makes the vectors.", metavar="NAME", panel=METHOD)
    shard: int = option(1_000_000, "Vectors per file.", metavar="N", least=1)
    dtype: str = option("float16", "Storage data type.", choices=("float16", "float32"))
    anonymous: bool = option(
        False,
        "Name images by salted hashes and write nothing else about them. The salt, and a table"
        " that maps the hashes back, are written beside the folder: keep them.",
    )
    salt: Path | None = option(
        None, "File with the salt. Default: one is made, DIR.salt.", metavar="FILE"
    )


def encode(
    images: ImageSet,
    columns: Columns,
    options: Encode,
    execution: Execution,
    backend: Backend,
    call: Call,
) -> Reply:
    """Write the vectors of a set of images as files that others can compare with.

    An interrupted run resumes. Compare with --train emb:DIR.
    """
    from visleak.embedding import encode as write
    from visleak.embedding.encoding import THUMBNAILS
    from visleak.pipeline.ray_engine import engine_of
    from visleak.storage import UNREADABLE

    if options.anonymous and options.encoder in THUMBNAILS:
        edges.note(
            "note: the built-in fingerprint contains a thumbnail (colours and edges) of every"
            " image, whatever the ids are; publish a learned encoder's vectors: --encoder clip"
        )
    call.kept = f"finished shards in {options.out} are kept; the same command resumes from there"
    opened = call.opened(images.source, columns)
    result = write(
        opened,
        **keywords(options),
        **execution.chosen(),
        engine=engine_of(backend.engine, backend.ray_address),
        progress=call.progress,
    )
    if result.unreadable and not result.vectors:
        raise VisleakError(
            f"none of the {result.unreadable:,} images of {opened.name} could be read; see"
            f" {result.folder / UNREADABLE} for the reasons"
        )
    reused = f"reused: {result.folder} holds these vectors, finished"
    return Reply(list(result.lines()), notes=[reused] if result.reused else [])


@dataclass(frozen=True)
class Find(Printed):
    """Options of ``find``."""

    images: tuple[str, ...] = argument(..., "Image files.", metavar="IMAGE..")
    place: str = option(
        ...,
        "Where to search: embeddings that visleak encode wrote, a set of images as for audit, or"
        " an audit folder, whose sets are searched.",
        "--against",
        metavar="DIR|SOURCE|AUDIT_DIR",
    )
    k: int = option(5, "Matches per image, at most.", "--top-k", metavar="N", least=1, most=20)
    encoder: str = option(
        "", "Encoder. Default: that of the embeddings or of the audit, or builtin.", metavar="NAME"
    )


def find(options: Find, execution: Execution, call: Call) -> Reply:
    """Report whether images are in a set, and which of its images are most similar to them."""
    from visleak.embedding import documents
    from visleak.embedding import find as search

    found = search(
        options.images,
        options.place,
        encoder=options.encoder,
        k=options.k,
        **execution.chosen(),
        progress=call.progress,
    )
    lost = max(each.lost for each in found)
    complaint = (
        f"{counted(lost, 'image')} in {options.place} could be read at first, and not again; run"
        " the command again when the source is complete"
    )
    return Reply(
        [part for each in documents(found) for part in whole(each)],
        {"images": [each.as_dict() for each in found]},
        warnings=[complaint] if lost else [],
        code=1 if lost else 0,
    )


@dataclass(frozen=True)
class Same(Printed):
    """Options of ``same``."""

    first: Path = argument(..., "An image.", metavar="A")
    second: Path = argument(..., "Another one.", metavar="B")
    grade: str = option(
        "near",
        "The weakest grade that counts as the same image.",
        choices=("exact", "near", "similar"),
    )


def same(options: Same) -> Reply:
    """Compare two images: grade, probability and reason.

    Exits with 0 if they are the same image, near or exact, and with 3 if they are not.
    """
    from visleak.records import GRADES
    from visleak.two_images import document
    from visleak.two_images import same as compare

    found = compare(options.first, options.second)
    reached = found.grade in GRADES[: GRADES.index(options.grade) + 1]
    return Reply(document(found), asdict(found), code=0 if reached else 3)


def robustness(images: ImageSet, options: Robustness, execution: Execution, call: Call) -> Reply:
    """Measure how reliably changed copies are found among all images of a set.

    Writes tables, plots, a contact sheet of the changes and report.html to a folder.
    """
    from visleak.robustness import robustness as measure
    from visleak.robustness.document import PAGE, RESULT, document, write
    from visleak.storage import claimed

    out = options.out
    free(out, RESULT, force=options.force)
    result = measure(
        call.opened(images.source, out=out),
        options.encoders or ("builtin",),
        **options.chosen(),
        thresholds=options.thresholds,
        **execution.chosen(),
        progress=call.progress,
    )
    call.progress("writing the result", 0, 0)
    with claimed(out):
        write(result, out)
    call.progress("writing the result", 1, 1)
    return Reply(whole(document(result)), out / RESULT, files=[out / PAGE])


def calibrate(images: ImageSet, options: Calibrate, execution: Execution, call: Call) -> Reply:
    """Find the thresholds of an encoder at false-positive rates.

    Compares different images of a set, changed in many ways, and writes a file for
    audit --thresholds.
    """
    from visleak.pipeline.comparison import KIND
    from visleak.robustness import calibrate as measure
    from visleak.robustness.thresholding import document
    from visleak.storage import free_file, write_json

    free_file(options.out, force=replaces(options.out, KIND, force=options.force, file=True))
    result = measure(
        call.opened(images.source, out=options.out),
        options.encoder,
        fpr=options.fpr,
        **options.chosen(),
        **execution.chosen(),
        progress=call.progress,
    )
    write_json(options.out, result.as_dict())
    for line in result.notes:
        edges.warn(line)
    return Reply(document(result), result.as_dict(), files=[options.out])


def train_encoder(
    images: ImageSet, options: TrainEncoder, settings: EncoderSettings, call: Call
) -> Reply:
    """Train an encoder on a set's own images, for --encoder onnx:FILE.

    An interrupted run resumes. See docs/encoders.md.
    """
    from visleak.training import checkpoint_path
    from visleak.training import train_encoder as train
    from visleak.training.encoder import document

    columns = Columns(label=options.label, group=options.group)
    opened = call.opened(images.source, columns, options.out)
    test = options.test and call.opened(options.test, columns, options.out)
    try:
        made = train(
            opened,
            options.out,
            test=test or None,
            settings=settings,
            device=options.device,
            threads=options.threads,
            progress=call.progress,
            notify=edges.note,
            force=options.force,
        )
    except KeyboardInterrupt:
        if checkpoint_path(options.out).exists():
            call.kept = (
                f"the state of the training run is kept in {checkpoint_path(options.out)}; the same"
                " command resumes from there"
            )
        raise
    return Reply(document(made), made.record)
