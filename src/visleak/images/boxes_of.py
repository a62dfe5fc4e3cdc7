"""``boxes_of(images) -> Boxes``: the annotated objects of a set, where its source has any."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final

from visleak.images.boxes import Boxes
from visleak.images.request import Request
from visleak.images.sources import locate, split_prefix
from visleak.records import ImageSet

#: SOURCE with a prefix: prefix to the function that reads its boxes, imported on use.
READERS: Final = {
    "coco": "visleak.images.boxes_coco:coco_boxes",
    "yolo": "visleak.images.boxes_yolo:yolo_boxes",
    "kitti": "visleak.images.boxes_kitti:kitti_boxes",
}


def boxes_of(images: ImageSet) -> Boxes | None:
    """Return the annotated objects of a set, read from where it was opened.

    An image without annotations is a picture without objects. Corners are as the files have them:
    pixels of COCO and KITTI, shares of width and height of YOLO.

    Args:
        images: as opened from ``coco:``, ``yolo:`` or ``kitti:``.

    Returns:
        ``None`` where the source is of another kind or has no boxes at all.

    Raises:
        VisleakError: an annotation file cannot be read, or a row of it is damaged; the line says
            which, and what is allowed.
    """
    prefix, _ = split_prefix(images.source)
    if prefix not in READERS or Path(images.source).exists():
        return None
    found = locate(images.source)
    request = Request(
        text=images.source,
        path=Path(found.place),
        place=found.place,
        split=found.split,
        options=found.options,
    )
    module, _, name = READERS[prefix].partition(":")
    read: Callable[[ImageSet, Request], Boxes | None] = getattr(import_module(module), name)
    return read(images, request)
