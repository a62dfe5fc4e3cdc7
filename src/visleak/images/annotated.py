"""Pictures with boxes: COCO and YOLO. Their annotations are part of the set."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from visleak.errors import UsageError, VisleakError
from visleak.images.columns import canonical_split
from visleak.images.folder import Walk, as_text, file_set, read_file
from visleak.images.listing import Listing
from visleak.images.lists import read_list, relative_name
from visleak.images.request import Request, writable
from visleak.records import ImageSet


def open_coco(request: Request) -> ImageSet:
    """List the images of a COCO annotation file: ``coco:FILE`` or ``coco:FILE?images=FOLDER``.

    Ids are the file names relative to the image folder. The label of an image is its one
    category; null where it shows several or none. Captions are the first of each image.

    Raises:
        VisleakError: the file is no COCO file.
        UsageError: the folder with the images is not found.
    """
    request.refuse_columns("the COCO file")
    request.refuse_split()
    content = coco_content(request)
    images = sorted(
        coco_rows(content, "images", ("id", "file_name"), request),
        key=lambda image: writable(str(image["file_name"])),
    )
    if not images:
        request.no_pictures("its list `images` is empty")
    names = [writable(str(image["file_name"])) for image in images]
    categories = {
        row["id"]: writable(str(row["name"]))
        for row in coco_rows(content, "categories", ("id", "name"), request, optional=True)
    }
    shown: dict[Any, set[str]] = {}
    captions: dict[Any, str] = {}
    for row in coco_rows(content, "annotations", ("image_id",), request, optional=True):
        if "category_id" in row:
            category = row["category_id"]
            name = categories.get(category) if isinstance(category, int | str) else None
            name = name or writable(str(category))
            shown.setdefault(row["image_id"], set()).add(name)
        if isinstance(row.get("caption"), str):
            captions.setdefault(row["image_id"], writable(row["caption"]))
    labels = pa.array((only(shown.get(image["id"], ())) for image in images), pa.string())
    texts = pa.array((captions.get(image["id"]) for image in images), pa.string())
    return file_set(
        request,
        _coco_folder(request, names),
        names,
        labels=labels,
        captions=texts if captions else None,
        annotated=True,
    )


def only(names: Iterable[str]) -> str | None:
    """Return the one member of a set of names, else ``None``.

    >>> only({"cat"}), only({"cat", "dog"}), only(())
    ('cat', None, None)
    """
    distinct = set(names)
    return distinct.pop() if len(distinct) == 1 else None


def coco_content(request: Request) -> dict[str, Any]:
    """Read a COCO annotation file.

    Raises:
        VisleakError: it is no JSON, or no mapping.
    """
    try:
        content = json.loads(request.path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise VisleakError(f"{request.path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise VisleakError(f"{request.path} is no COCO file: it has no list `images`")
    return content


def coco_rows(
    content: Mapping[str, Any],
    key: str,
    needed: Sequence[str],
    request: Request,
    optional: bool = False,
) -> list[dict[str, Any]]:
    """Return a list of a COCO file, each row with the needed keys, whose values are plain.

    Raises:
        VisleakError: there is no such list, or a row lacks a key.
    """
    rows = content.get(key, [] if optional else None)
    if not isinstance(rows, list):
        raise VisleakError(f"{request.path} is no COCO file: it has no list `{key}`")
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or not all(
            isinstance(row.get(name), int | str) for name in needed
        ):
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
            raise UsageError(
                f"source {request.text!r}: images={given} is no folder; looked for"
                f" {' and '.join(map(str, tried))}"
            )
        return folder
    stem = request.path.stem
    for prefix in ("instances_", "captions_", "person_keypoints_"):
        stem = stem.removeprefix(prefix)
    likely = [here, here / "images", here.parent / "images", here.parent / stem, here / stem]
    likely += [here.parent / "images" / stem, here / "images" / stem]
    for folder in likely:
        if any((folder / name).is_file() for name in names[:50]):
            return folder
    raise UsageError(
        f"source {request.text!r}: its images, such as {names[0]}, are in none of"
        f" {', '.join(map(str, dict.fromkeys(likely)))}; add ?images=FOLDER"
    )


def open_yolo(request: Request) -> ImageSet:
    """List a split of a YOLO data set: ``yolo:data.yaml#val``.

    Ids are the file names relative to the split's folder (or, for a list of files, to the data
    set's). The label of an image is its one class; null where it shows several or none.

    Raises:
        VisleakError: the file is no YOLO data set.
        UsageError: there is no such split, or its folder does not exist.
    """
    request.refuse_columns("the YOLO data set")
    content = yolo_content(request.path, request.text)
    splits = yolo_splits(content)
    wanted = canonical_split(request.split)
    if wanted not in splits:
        raise UsageError(
            f"source {request.text!r}: add #SPLIT, one of {', '.join(splits) or '(it has none)'}"
        )
    listing = Listing()
    root, names = _yolo_names(request, content, splits[wanted], listing)
    classes = class_names(content.get("names"))
    labels = pa.array((_yolo_label(root / name, classes) for name in names), pa.string())
    return file_set(request, root, names, labels=labels, annotated=True, skipped=listing.skipped)


def yolo_content(path: Path, text: str) -> dict[str, Any]:
    """Read a YOLO data set's YAML.

    Raises:
        VisleakError: it is no YAML, or no mapping.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        said = " ".join(str(error).split())[:200]
        raise VisleakError(f"{text}: {path} cannot be read as YAML: {said}") from error
    if not isinstance(content, dict):
        raise VisleakError(f"{text}: {path} is no YOLO data set: it has no `train` or `val`")
    return content


def yolo_splits(content: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the folders or list files of each split that a data set has, by canonical name."""
    splits = {}
    for key, value in content.items():
        name = canonical_split(str(key))
        entries = [value] if isinstance(value, str) else value
        if name not in ("train", "val", "test") or not isinstance(entries, list) or not entries:
            continue
        if all(isinstance(entry, str) for entry in entries):
            splits[name] = [writable(entry) for entry in entries]
    return splits


def yolo_base(path: Path, content: Mapping[str, Any]) -> Path:
    """Return the data set's folder: `path` in the YAML, else where the YAML lies."""
    given = content.get("path")
    if isinstance(given, str) and (path.parent / given).is_dir():
        return path.parent / given
    return path.parent


def _missing_base(path: Path, content: Mapping[str, Any]) -> str:
    """Say that the folder that the YAML names is not there, and where it was looked for."""
    given = content.get("path")
    if not isinstance(given, str) or (path.parent / given).is_dir():
        return ""
    return (
        f"; its `path: {given}` is no folder either (looked for {path.parent / given}), so that"
        f" splits were looked for beside the file, in {path.parent}"
    )


def _yolo_names(
    request: Request, content: Mapping[str, Any], entries: Sequence[str], listing: Listing
) -> tuple[Path, list[str]]:
    """Return the folder that ids are relative to, and the names of the pictures, sorted."""
    base = yolo_base(request.path, content)
    if len(entries) == 1 and (base / entries[0]).is_dir():
        root = base / entries[0]
        names = list(Walk(str(root), listing.takes_file).names())
    else:
        root, names = base, []
        for entry in entries:
            place = base / entry
            if place.is_dir():
                below = Walk(str(place), listing.takes_file).names()
                names += [relative_name(f"{entry}/{name}", base) for name in below]
            elif place.is_file() and place.suffix == ".txt":
                # A leading ./ means: beside the list; anything else: below the data set.
                lines = read_list(place)
                names += [
                    os.path.relpath(place.parent / line, base)
                    if line.startswith("./")
                    else relative_name(line, base)
                    for line in lines
                ]
            else:
                raise UsageError(
                    f"source {request.text!r}: {place} is neither a folder nor a .txt list"
                    f"{_missing_base(request.path, content)}"
                )
    if not names:
        places = ", ".join(str(base / entry) for entry in entries)
        request.no_pictures(listing.why_empty(f"no file below {places}"))
    return root, sorted(names, key=as_text)


def class_names(names: Any) -> dict[int, str]:
    """Return what the entry ``names`` of a YOLO data set calls its classes, by number."""
    if isinstance(names, list):
        return {number: writable(str(name)) for number, name in enumerate(names)}
    if isinstance(names, dict):
        items = names.items()
        return {number: writable(str(name)) for number, name in items if isinstance(number, int)}
    return {}


def yolo_label_file(image: Path) -> Path:
    """Return where the label file of a picture lies: in ``labels`` instead of the last ``images``.

    Of a picture in no ``images`` it lies beside it, as Ultralytics has it.

    >>> yolo_label_file(Path("/coco/images/val/1.jpg")), yolo_label_file(Path("/coco/1.jpg"))
    (PosixPath('/coco/labels/val/1.txt'), PosixPath('/coco/1.txt'))
    """
    before, folder, after = os.path.abspath(image).rpartition(f"{os.sep}images{os.sep}")
    place = f"{before}{os.sep}labels{os.sep}{after}" if folder else after
    return Path(place).with_suffix(".txt")


def _yolo_label(image: Path, classes: Mapping[int, str]) -> str | None:
    """Return the one class in the label file of a picture, else ``None``."""
    try:
        data = read_file(str(yolo_label_file(image)))
        text = data.decode("utf-8") if isinstance(data, bytes) else ""
    except UnicodeDecodeError:
        return None
    firsts = {line.split()[0] for line in text.splitlines() if line.strip()}
    numbers = {int(first) for first in firsts if first.isascii() and first.isdigit()}
    return only(classes.get(number, str(number)) for number in numbers)
