"""Reading back what was written, with visleak's own readers, and comparing it with the source."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from visleak.errors import VisleakError
from visleak.formats import open_image_set
from visleak.formats.writing import OutputPart, OutputSource
from visleak.images import content_digest
from visleak.pipeline.context import Progress
from visleak.records import ImageSet, Int64, Unreadable


def verify(part: OutputPart, opened: OutputSource, folder: Path, progress: Progress) -> list[str]:
    """Open a part that was written and compare every image with what was read from the source.

    Args:
        part: what it should hold.
        opened: how it is opened.
        folder: where it lies.
        progress: is told how far it is.

    Returns:
        The ids in the result, for the images of the part in the part's own order.

    Raises:
        VisleakError: an image, its id or its label is not as it should be.
    """
    images = open_image_set(opened.source(folder), name=part.name, **opened.options)
    order = opened.order if opened.order is not None else np.arange(len(part))
    if len(images) != len(part):
        raise _wrong(part, f"{len(images):,} images are there and not {len(part):,}")
    _compare_ids(part, opened, images, order)
    _compare_labels(part, images, order)
    digests = part.digests()[order]
    step = f"verifying {part.name}"
    for number, stored in enumerate(images.opener.read(range(len(images)))):
        if number % 64 == 0:
            progress(step, number, len(images))
        if isinstance(stored, Unreadable):
            why = stored.detail or stored.reason
            raise _wrong(part, f"image {images.ids[number]} cannot be read back: {why}")
        if content_digest(stored) != digests[number].tobytes():
            raise _wrong(part, f"image {images.ids[number]} has another content")
    progress(step, len(images), len(images))
    found = [""] * len(part)
    for at, id_ in zip(order.tolist(), images.ids.to_pylist(), strict=True):
        found[at] = id_
    return found


def _wrong(part: OutputPart, what: str) -> VisleakError:
    return VisleakError(
        f"part {part.name!r} was not written as it should be: {what}; nothing was kept of it"
    )


def _compare_ids(part: OutputPart, opened: OutputSource, images: ImageSet, order: Int64) -> None:
    if opened.renamed:
        return
    if opened.ids is not None:
        wanted = pa.array(opened.ids, pa.string())
    else:
        own = part.column("ids")
        wanted = pa.array([own[at] for at in order.tolist()], pa.string())
    if not images.ids.equals(wanted):
        raise _wrong(part, "its ids are others")


def _compare_labels(part: OutputPart, images: ImageSet, order: Int64) -> None:
    own = part.column("labels")
    wanted = pa.array([own[at] for at in order.tolist()], pa.string())
    found = images.labels if images.labels is not None else pa.nulls(len(images), pa.string())
    if not found.equals(wanted):
        raise _wrong(part, "its labels are others")
