"""Verdicts from annotations of CVAT, on the images that ``export`` writes for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from visleak.errors import VisleakError
from visleak.records import GRADES
from visleak.verdicts.record import Verdict, reviewer_name

#: Images are called NUMBER_DIGEST_DIGEST.jpg.
_NAME: Final = re.compile(r"\d+_([0-9a-f]{32})_([0-9a-f]{32})")


def image_name(number: int, digests: tuple[str, str]) -> str:
    """Return the name of the image of a pair.

    >>> image_name(7, ("a", "b"))
    '000007_a_b.jpg'
    """
    return f"{number:06}_{digests[0]}_{digests[1]}.jpg"


def read_tags(path: Path, reviewer: str | None) -> tuple[Verdict, ...]:
    """Return the verdicts in an export as "CVAT for images 1.1"; images without a tag have none.

    Args:
        path: ``annotations.xml``.
        reviewer: who judged; by default whom the task was assigned to, or its owner.
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
    return tuple(verdict for image in images for verdict in _verdicts(path, image, who))


def _verdicts(path: Path, image: ElementTree.Element, who: str) -> Iterator[Verdict]:
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
