"""Verdicts from annotations of Label Studio and CVAT, on tasks that ``export`` wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from visleak.errors import UsageError, VisleakError
from visleak.records import GRADES
from visleak.verdicts.record import Verdict, reviewer_name

#: Fields of a task's data that a verdict needs: content digests and names of both images.
DIGESTS: Final = ("query_digest", "reference_digest")
NAMES: Final = ("query_set", "query", "reference_set", "reference")

#: Name of the control whose choice is the verdict.
CONTROL: Final = "grade"

Node = Mapping[str, object]


def read_annotations(path: Path) -> tuple[Verdict, ...]:
    """Return the verdicts in a JSON export of Label Studio; skipped tasks have none."""
    try:
        tasks = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise VisleakError(f"{path} cannot be read as JSON ({error})") from error
    if not isinstance(tasks, list):
        raise VisleakError(
            f"{path} is not a JSON export of Label Studio: it must be a list of tasks"
        )
    found: list[Verdict] = []
    for number, task in enumerate(tasks, 1):
        try:
            found += _verdicts(task)
        except (KeyError, TypeError, AttributeError, UsageError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else error
            raise VisleakError(
                f"{path}, task {number}: {what}; export the tasks with visleak export --format"
                " labelstudio, and the annotations as JSON"
            ) from error
    return tuple(found)


def _verdicts(task: Node) -> Iterator[Verdict]:
    data = _node(task["data"])
    left, right = (_text(data[name]) for name in DIGESTS)
    about = {name: _text(data[name]) for name in NAMES}
    annotations = task["annotations"]
    if not isinstance(annotations, list):
        raise TypeError("its annotations must be a list")
    for annotation in map(_node, annotations):
        if annotation.get("was_cancelled"):
            continue
        time = annotation.get("updated_at") or annotation.get("created_at")
        stamp = {"time": time} if isinstance(time, str) else {}
        for judgment in _choices(annotation):
            who = _reviewer(annotation.get("completed_by"))
            yield Verdict.of(left, right, judgment, who, **about, **stamp)


def _choices(annotation: Node) -> Iterator[str]:
    results = annotation["result"]
    if not isinstance(results, list):
        raise TypeError("the result of an annotation must be a list")
    for result in map(_node, results):
        choices = _node(result.get("value")).get("choices")
        if result.get("from_name") == CONTROL and isinstance(choices, list) and choices:
            yield _text(choices[0])


def _reviewer(annotator: object) -> str:
    """Return the name of an annotator: Label Studio gives a number, or a record with an address."""
    if isinstance(annotator, Mapping):
        annotator = annotator.get("email") or annotator.get("id")
    return f"labelstudio-{annotator}" if isinstance(annotator, int) else _text(annotator)


def _node(value: object) -> Node:
    if not isinstance(value, Mapping):
        raise TypeError("it is not a task of Label Studio with annotations")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text was expected; got {value!r}")
    return value


# -- verdicts from annotations of CVAT, on the images that ``export`` writes for it ---------------


#: Images are called NUMBER_DIGEST_DIGEST.jpg.
_NAME: Final = re.compile(r"\d+_([0-9a-f]{32})_([0-9a-f]{32})")


def image_name(number: int, digests: tuple[str, str]) -> str:
    """Return the name of the image of a pair.

    >>> image_name(7, ("a", "b"))
    '000007_a_b.jpg'
    """
    return f"{number:06}_{digests[0]}_{digests[1]}.jpg"


def read_tags(path: Path, reviewer: str | None) -> tuple[Verdict, ...]:
    """Return the verdicts of "CVAT for images 1.1"; images without a tag have none.

    By default the reviewer is whom the task was assigned to, or its owner.
    """
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise VisleakError(f"{path} cannot be read as XML ({error})") from error
    images = root.findall("image")
    if root.tag != "annotations" or not images:
        raise VisleakError(
            f"{path} has no annotated images; export the task as CVAT for images 1.1"
        )
    who = reviewer_name(reviewer or _annotator(root) or path.stem)
    return tuple(verdict for image in images for verdict in _cvat_verdicts(path, image, who))


def _cvat_verdicts(path: Path, image: ElementTree.Element, who: str) -> Iterator[Verdict]:
    name = image.get("name", "")
    digests = _NAME.match(Path(name).stem)
    if digests is None:
        raise VisleakError(
            f"{path}: {name!r} is not an image of visleak export --format cvat; nothing was"
            " imported"
        )
    grades = [label for tag in image.findall("tag") if (label := tag.get("label")) in GRADES]
    if len(grades) > 1:
        raise VisleakError(
            f"{path}: {name} has the grades {' and '.join(grades)}; keep one, and export again"
        )
    if grades:
        yield Verdict.of(digests[1], digests[2], grades[0], who)


def _annotator(root: ElementTree.Element) -> str | None:
    """Return who annotated; an export of several jobs or a project has no such person."""
    for name in ("assignee", "owner"):
        found = root.findtext(f"meta/task/{name}/username") or root.findtext(
            f"meta/job/{name}/username"
        )
        if found:
            return found
    return None
