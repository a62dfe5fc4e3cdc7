"""COCO: annotation files and the images that they describe."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, TypeAlias, TypedDict, cast

import pyarrow as pa

from visleak.errors import UsageError, VisleakError, explaining
from visleak.formats.boxes import Boxes, boxes_of_rows, only_name, shown
from visleak.formats.files import FileOpener, file_set
from visleak.formats.request import Request, writable
from visleak.formats.sources import locate
from visleak.formats.writing import (
    Destination,
    OutputPart,
    OutputSource,
    Selection,
    contents,
    free_name,
)
from visleak.records import ImageSet

LARGEST: Final = 1e6  # beyond it no image's side in pixels goes


class CocoRow(TypedDict, total=False):
    """An image, an annotation or a category of a COCO file."""

    id: int | str
    file_name: int | str
    name: int | str
    image_id: int | str
    category_id: object
    caption: object
    bbox: object
    iscrowd: object


#: The lists of a COCO file by name; what else it holds (``info``) is copied as it is.
Content: TypeAlias = dict[str, list[CocoRow]]
#: Lists of a COCO file whose rows belong to an image.
OF_IMAGES: Final = ("annotations", "segment_info")


def open_coco(request: Request) -> ImageSet:
    """List the images of a COCO annotation file: ``coco:FILE`` or ``coco:FILE?images=FOLDER``.

    Ids are the file names relative to the image folder. The label of an image is its one
    category; null where it shows several or none. Captions are the first of each image.
    """
    request.refuse_columns_and_split("the COCO file")
    content = coco_content(request)
    images = sorted(coco_rows(content, "images", ("id", "file_name"), request), key=_name)
    if not images:
        request.refuse_empty("its list `images` is empty")
    names = list(map(_name, images))
    rows = coco_rows(content, "categories", ("id", "name"), request, optional=True)
    categories = {row["id"]: writable(str(row["name"])) for row in rows}
    shown: dict[int | str, set[str]] = {}
    captions: dict[int | str, str] = {}
    for row in coco_rows(content, "annotations", ("image_id",), request, optional=True):
        if "category_id" in row:
            category = row["category_id"]
            name = categories.get(category) if isinstance(category, int | str) else None
            shown.setdefault(row["image_id"], set()).add(name or writable(str(category)))
        caption = row.get("caption")
        if isinstance(caption, str):
            captions.setdefault(row["image_id"], writable(caption))
    labels = pa.array((only_name(shown.get(image["id"], ())) for image in images), pa.string())
    texts = pa.array((captions.get(image["id"]) for image in images), pa.string())
    return file_set(
        request,
        _coco_folder(request, names),
        names,
        labels=labels,
        captions=texts if captions else None,
        annotated=True,
    )


def _name(image: CocoRow) -> str:
    return writable(str(image["file_name"]))


def coco_boxes(images: ImageSet, request: Request) -> Boxes | None:
    """Return the boxes of a COCO file, in pixels; classes in the order of their numbers.

    Annotations of images that the file does not list belong to no image of the set, and those
    without ``category_id`` are not objects (captions).
    """
    content = coco_content(request)
    place = _places(content, images, request)
    annotations = coco_rows(content, "annotations", ("image_id",), request, optional=True)
    if not any("bbox" in row for row in annotations):
        return None
    classes = _classes(content, request)
    number = {category: index for index, category in enumerate(classes)}
    rows = []
    for at, row in enumerate(annotations):
        if row["image_id"] not in place or "category_id" not in row:
            continue
        category = row["category_id"]
        if not isinstance(category, int | str) or category not in number:
            raise _damaged_row(request, at, "its `category_id` is none of `categories`", category)
        crowd = row.get("iscrowd", 0)
        if crowd not in (0, 1):
            raise _damaged_row(request, at, "`iscrowd` is 0 or 1", crowd)
        corners = _corners(row.get("bbox"), at, request)
        rows.append((place[row["image_id"]], number[category], corners, bool(crowd)))
    return boxes_of_rows(rows, classes.values(), images, relative=False)


def write_coco(part: OutputPart, place: Destination) -> OutputSource:
    """Write a part's annotation file: images and annotations that are kept, all else as it is.

    Images are put into ``images``; as ``manifest``, they stay where they are. Of several parts,
    the files stand side by side in ``annotations``. Where images of several sets come together,
    numbers that are taken are replaced.
    """
    contents_ = [_kept_content(piece) for piece in part.pieces]
    names = _names(part, contents_)
    merged = _merged(part, contents_)
    file = Path(locate(part.pieces[0].images.source).place).name
    file = f"annotations/{part.name}-{file}" if place.many else file
    folder = f"images/{part.name}" if place.many else "images"
    path = place.made(file)
    if place.how == "manifest":
        roots = {os.path.abspath(cast(FileOpener, p.images.opener).root) for p in part.pieces}
        if len(roots) > 1:
            raise UsageError(
                f"part {part.name!r}: its images lie in {' and '.join(sorted(roots))}, and a COCO"
                " file has one folder; use --format link or --format copy"
            )
        folder = place.link_to(os.fsencode(roots.pop()), path)
    else:
        for piece, own_names in zip(part.pieces, names, strict=True):
            for position, stored in contents(piece):
                name = own_names[str(piece.images.ids[position].as_py())]
                place.put(piece, position, f"{folder}/{name}", stored)
        folder = f"../{folder}" if place.many else folder
    # a name that is not UTF-8 is escaped
    path.write_bytes(json.dumps(merged, ensure_ascii=False).encode("utf-8", "backslashreplace"))
    own = [names[at][str(id_)] for at, p in enumerate(part.pieces) for id_ in p.column("ids")]
    return OutputSource.by_name(file, own, "coco:", f"?images={folder}")


def coco_content(request: Request) -> Content:
    """Read a COCO annotation file."""
    what = f"{request.path} cannot be read as JSON"
    with explaining(what, OSError, ValueError, RecursionError):
        content = json.loads(request.path.read_bytes())
    if not isinstance(content, dict):
        raise VisleakError(f"{request.path} is not a COCO file: it has no list `images`")
    return content


def coco_rows(
    content: Content, key: str, needed: Sequence[str], request: Request, optional: bool = False
) -> list[CocoRow]:
    """Return a list of a COCO file; the needed keys of each row are numbers or texts."""
    rows: object = content.get(key, [] if optional else None)
    if not isinstance(rows, list):
        raise VisleakError(f"{request.path} is not a COCO file: it has no list `{key}`")
    for number, row in enumerate(rows):
        values = map(row.get, needed) if isinstance(row, dict) else [None]
        if not all(isinstance(value, int | str) for value in values):
            raise VisleakError(
                f"{request.path}: row {number} of `{key}` needs {' and '.join(needed)}"
            )
    return rows


def _coco_folder(request: Request, names: Sequence[str]) -> Path:
    """Return the folder with the images: the one given, else the likely one that has some."""
    given = request.options.get("images")
    here = request.path.parent
    if given is not None:
        tried = dict.fromkeys((Path(given), here / given))
        folder = next((folder for folder in tried if folder.is_dir()), None)
        if folder is None:
            places = " and ".join(map(str, tried))
            raise request.refusal(f"images={given} is not a folder; looked for {places}")
        return folder
    stem = request.path.stem
    for prefix in ("instances_", "captions_", "person_keypoints_"):
        stem = stem.removeprefix(prefix)
    likely = [here, here / "images", here.parent / "images", here.parent / stem, here / stem]
    likely += [here.parent / "images" / stem, here / "images" / stem]
    for folder in likely:
        if any((folder / name).is_file() for name in names[:50]):
            return folder
    raise request.refusal(
        f"its images, such as {names[0]}, are in none of"
        f" {', '.join(map(str, dict.fromkeys(likely)))}; add ?images=FOLDER"
    )


def _places(content: Content, images: ImageSet, request: Request) -> dict[int | str, int]:
    """Return the row in the set of each image of the file, by its number."""
    rows = {id_: row for row, id_ in enumerate(images.ids.to_pylist())}
    found: dict[int | str, int] = {}
    for image in coco_rows(content, "images", ("id", "file_name"), request):
        row = rows.get(writable(str(image["file_name"])))
        if row is None:
            continue
        if image["id"] in found:
            raise VisleakError(
                f"{shown(request.path)}: two of `images` have the id {image['id']!r}, so that"
                " their annotations cannot be told apart"
            )
        found[image["id"]] = row
    return found


def _classes(content: Content, request: Request) -> dict[int | str, str]:
    found: dict[int | str, str] = {}
    for row in coco_rows(content, "categories", ("id", "name"), request, optional=True):
        if row["id"] in found:
            raise VisleakError(
                f"{shown(request.path)}: two of `categories` have the id {row['id']!r}"
            )
        found[row["id"]] = writable(str(row["name"]))
    return dict(sorted(found.items(), key=lambda item: (isinstance(item[0], str), item[0])))


def _corners(box: object, at: int, request: Request) -> Sequence[float]:
    numbers = [
        side
        for side in (box if isinstance(box, list) else ())
        if isinstance(side, int | float) and -LARGEST <= side <= LARGEST
    ]
    if not isinstance(box, list) or not len(numbers) == len(box) == 4:
        raise _damaged_row(request, at, "`bbox` is [left, top, width, height] in pixels", box)
    left, top, width, height = numbers
    if width < 0 or height < 0:
        raise _damaged_row(request, at, "width and height of `bbox` are 0 or more", box)
    return left, top, left + width, top + height


def _damaged_row(request: Request, at: int, allowed: str, got: object) -> VisleakError:
    what = "nothing" if got is None else repr(got)[:60]
    return VisleakError(
        f"{shown(request.path)}, row {at} of `annotations`: {allowed}; got {writable(what)}"
    )


def _kept_content(piece: Selection) -> Content:
    content: Content = json.loads(Path(locate(piece.images.source).place).read_bytes())
    kept = set(piece.column("ids"))
    images = [row for row in content["images"] if _name(row) in kept]
    numbers = {row["id"] for row in images}
    found = content | {"images": images}
    for name in OF_IMAGES:
        if isinstance(content.get(name), list):
            found[name] = [row for row in content[name] if row.get("image_id") in numbers]
    return found


def _names(part: OutputPart, contents_: Sequence[Content]) -> list[dict[str, str]]:
    """Return, for each piece, the new name of each image; change the rows accordingly."""
    taken: set[str] = set()
    names = []
    for piece, content in zip(part.pieces, contents_, strict=True):
        own = {}
        for row in content["images"]:
            given = _name(row)
            own[given] = free_name(given, piece.images.name, taken)
            taken.add(own[given])
            if own[given] != given:
                row["file_name"] = own[given]
        names.append(own)
    return names


def _merged(part: OutputPart, contents_: Sequence[Content]) -> Content:
    """Return the files of several pieces as one; repeated numbers are replaced."""
    first, *others = contents_
    merged = dict(first)
    for content, piece in zip(others, part.pieces[1:], strict=True):
        if _categories(content) != _categories(first):
            raise VisleakError(
                f"part {part.name!r}: sets {part.pieces[0].images.name!r} and"
                f" {piece.images.name!r} have different categories and cannot become one COCO file"
            )
        images = _renumbered(merged["images"], content["images"])
        numbers = {old["id"]: new["id"] for old, new in zip(content["images"], images, strict=True)}
        merged["images"] = [*merged["images"], *images]
        for name in OF_IMAGES:
            if name in merged or name in content:
                rows = [r | {"image_id": numbers[r["image_id"]]} for r in content.get(name, [])]
                merged[name] = [*merged.get(name, []), *_renumbered(merged.get(name, []), rows)]
    return merged


def _categories(content: Content) -> list[tuple[int | str, int | str]]:
    return sorted((row["id"], row["name"]) for row in content.get("categories", []))


def _renumbered(there: Iterable[CocoRow], rows: Sequence[CocoRow]) -> list[CocoRow]:
    """Return rows with distinct ``id``; repeated ones continue from the largest."""
    taken = {row["id"] for row in there if "id" in row}
    numbers = (n for n in (*taken, *(row.get("id") for row in rows)) if isinstance(n, int))
    free = itertools.count(max(numbers, default=0) + 1)
    return [row | {"id": next(free)} if row.get("id") in taken else row for row in rows]
