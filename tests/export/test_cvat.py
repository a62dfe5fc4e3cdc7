"""Pairs go to CVAT as images, and its tags come back as verdicts."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from visleak.errors import VisleakError
from visleak.export import export
from visleak.verdicts import read_verdicts
from visleak.verdicts.exchange import import_verdicts


def annotated(path: Path, tags: dict[str, list[str]], owner: str | None = "ada") -> Path:
    """Write annotations as CVAT for images 1.1 has them."""
    root = ElementTree.Element("annotations")
    ElementTree.SubElement(root, "version").text = "1.1"
    task = ElementTree.SubElement(ElementTree.SubElement(root, "meta"), "task")
    if owner is not None:
        ElementTree.SubElement(ElementTree.SubElement(task, "owner"), "username").text = owner
    for number, (name, labels) in enumerate(tags.items()):
        image = ElementTree.SubElement(root, "image", id=str(number), name=name, width="9")
        for label in labels:
            ElementTree.SubElement(image, "tag", label=label, source="manual")
    ElementTree.ElementTree(root).write(path)
    return path


def test_tags_return_as_verdicts(folder: Path, tmp_path: Path) -> None:
    archive, labels = export(folder, "cvat", tmp_path / "pairs.zip")
    with zipfile.ZipFile(archive) as images:
        names = images.namelist()
        for name in names:
            with images.open(name) as data, Image.open(data) as card:
                assert card.format == "JPEG"
                card.verify()
    assert len(names) == 2
    assert names == sorted(names)
    grades = [label["name"] for label in json.loads(labels.read_text())]
    tags = annotated(tmp_path / "a.xml", {f"batch/{names[0]}": [grades[2]], names[1]: []})
    found = import_verdicts(folder, tags)
    assert (found.added, found.unknown, found.reviewers) == (1, 0, ("ada",))
    assert [v.judgment for v in read_verdicts(folder)] == ["similar"]
    assert import_verdicts(folder, tags).added == 0
    assert import_verdicts(folder, tags, reviewer="eve").reviewers == ("eve",)


def test_an_export_without_a_person_is_called_by_its_file(folder: Path, tmp_path: Path) -> None:
    archive, _ = export(folder, "cvat", tmp_path / "pairs.zip")
    name = zipfile.ZipFile(archive).namelist()[0]
    tags = annotated(tmp_path / "second.xml", {name: ["near"]}, owner=None)
    assert import_verdicts(folder, tags).reviewers == ("second",)


@pytest.mark.parametrize(
    ("tags", "named"),
    [({}, r"CVAT for images 1\.1"), ({"cat.jpg": ["near"]}, r"cat\.jpg"), (None, "XML")],
)
def test_other_files_are_refused_by_name(
    folder: Path, tmp_path: Path, tags: dict[str, list[str]] | None, named: str
) -> None:
    path = tmp_path / "other.xml"
    path.write_text("<") if tags is None else annotated(path, tags)
    with pytest.raises(VisleakError, match=named) as error:
        import_verdicts(folder, path)
    assert "other.xml" in str(error.value)
    assert not read_verdicts(folder)


def test_two_grades_of_one_pair_are_refused(folder: Path, tmp_path: Path) -> None:
    archive, _ = export(folder, "cvat", tmp_path / "pairs.zip")
    name = zipfile.ZipFile(archive).namelist()[0]
    with pytest.raises(VisleakError, match="near and exact"):
        import_verdicts(folder, annotated(tmp_path / "a.xml", {name: ["near", "exact"]}))
