"""Boxes of COCO annotation files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from visleak.errors import VisleakError
from visleak.images.annotated import coco_content, coco_rows
from visleak.images.box_rows import BoxRows, shown
from visleak.images.boxes import Boxes
from visleak.images.request import Request, writable
from visleak.records import ImageSet

#: Beyond it no picture's side in pixels goes.
LARGEST: Final = 1e6


def coco_boxes(images: ImageSet, request: Request) -> Boxes | None:
    """Return the boxes of a COCO file, in pixels; classes in the order of their numbers.

    Annotations of images that the file does not list belong to no image of the set, and those
    without ``category_id`` are no objects (captions).

    Args:
        images: the set.
        request: the parts of its source.

    Returns:
        ``None`` where no annotation has a box.

    Raises:
        VisleakError: see :func:`visleak.images.boxes_of.boxes_of`.
    """
    content = coco_content(request)
    place = _places(content, images, request)
    annotations = coco_rows(content, "annotations", ("image_id",), request, optional=True)
    if not any("bbox" in row for row in annotations):
        return None
    classes = _classes(content, request)
    number = {category: index for index, category in enumerate(classes)}
    rows = BoxRows()
    for at, row in enumerate(annotations):
        if row["image_id"] not in place or "category_id" not in row:
            continue
        category = row["category_id"]
        if not isinstance(category, int | str) or category not in number:
            raise _damaged(request, at, "its `category_id` is none of `categories`", category)
        crowd = row.get("iscrowd", 0)
        if crowd not in (0, 1):
            raise _damaged(request, at, "`iscrowd` is 0 or 1", crowd)
        corners = _corners(row.get("bbox"), at, request)
        rows.add(place[row["image_id"]], number[category], corners, bool(crowd))
    return rows.boxes(list(classes.values()), images, relative=False)


def _places(content: Mapping[str, Any], images: ImageSet, request: Request) -> dict[Any, int]:
    """Return the row of the set that each image's number in the file stands for."""
    rows = {id_: row for row, id_ in enumerate(images.ids.to_pylist())}
    found: dict[Any, int] = {}
    for image in coco_rows(content, "images", ("id", "file_name"), request):
        row = rows.get(writable(str(image["file_name"])))
        if row is None:
            continue
        if image["id"] in found:
            raise VisleakError(
                f"{shown(request.path)}: two of `images` have the id {image['id']!r}, so that"
                " nobody can tell whose their annotations are"
            )
        found[image["id"]] = row
    return found


def _classes(content: Mapping[str, Any], request: Request) -> dict[int | str, str]:
    """Return the name of each category, by its number, in ascending order."""
    found: dict[int | str, str] = {}
    for row in coco_rows(content, "categories", ("id", "name"), request, optional=True):
        if row["id"] in found:
            raise VisleakError(
                f"{shown(request.path)}: two of `categories` have the id {row['id']!r}"
            )
        found[row["id"]] = writable(str(row["name"]))
    return dict(sorted(found.items(), key=lambda item: (isinstance(item[0], str), item[0])))


def _corners(box: Any, at: int, request: Request) -> Sequence[float]:
    """Return the corners of a box that is given as (left, top, width, height)."""
    plain = isinstance(box, list) and len(box) == 4
    if not plain or not all(
        isinstance(value, int | float) and -LARGEST <= value <= LARGEST for value in box
    ):
        raise _damaged(request, at, "`bbox` is [left, top, width, height] in pixels", box)
    left, top, width, height = box
    if width < 0 or height < 0:
        raise _damaged(request, at, "width and height of `bbox` are 0 or more", box)
    return left, top, left + width, top + height


def _damaged(request: Request, at: int, allowed: str, got: Any) -> VisleakError:
    what = "nothing" if got is None else repr(got)[:60]
    return VisleakError(
        f"{shown(request.path)}, row {at} of `annotations`: {allowed}; got {writable(what)}"
    )
