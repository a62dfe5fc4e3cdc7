"""Pairs go to Label Studio as tasks and to CVAT as images; annotations come back as verdicts."""

import json
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from visleak.errors import UsageError, VisleakError
from visleak.export import export
from visleak.verdicts import read_verdicts
from visleak.verdicts.exchange import import_verdicts


def annotated(tasks, *choices):
    """Return tasks as Label Studio exports them, one choice each."""
    made = []
    for task, choice in zip(tasks, choices, strict=True):
        value = {"type": "choices", "value": {"choices": [choice]}}
        annotation = {
            "completed_by": {"id": 3, "email": "ada@example.org"},
            "was_cancelled": False,
            "created_at": "2026-01-02T03:04:05.678901Z",
            "result": [{"from_name": "grade", "to_name": "query"} | value],
        }
        made.append(task | {"annotations": [annotation]})
    return made


def tagged(path, tags, owner="<owner><username>ada</username></owner>"):
    """Write tags by image as CVAT for images 1.1 has them."""
    lines = [f"<annotations><meta><task>{owner}</task></meta>"]
    for name, labels in tags.items():
        lines += [f'<image name="{name}">', *(f'<tag label="{each}"/>' for each in labels)]
        lines.append("</image>")
    path.write_text("\n".join([*lines, "</annotations>"]))
    return path


@pytest.fixture
def tasks(folder, tmp_path):
    path, _ = export(folder, "labelstudio", tmp_path / "tasks.json")
    return json.loads(path.read_text())


@pytest.fixture
def images(folder, tmp_path):
    """The names of the images for CVAT."""
    archive, _ = export(folder, "cvat", tmp_path / "pairs.zip")
    return zipfile.ZipFile(archive).namelist()


def judgments(folder):
    return [verdict.judgment for verdict in read_verdicts(folder)]


def test_tasks_return_as_verdicts(folder, tasks, tmp_path):
    predicted = [task["predictions"][0]["result"][0]["value"]["choices"] for task in tasks]
    assert sorted(predicted) == [["exact"], ["near"]]
    assert all(task["data"]["query_image"].startswith("data:image/") for task in tasks)
    view = ElementTree.parse(tmp_path / "tasks.xml").getroot()
    fields = {value[1:] for tag in view.iter() if (value := tag.get("value", "")).startswith("$")}
    assert fields <= tasks[0]["data"].keys()
    done = tmp_path / "done.json"
    done.write_text(json.dumps(annotated(tasks, "exact", "similar")))
    found = import_verdicts(folder, done)
    assert (found.added, found.unknown, found.reviewers) == (2, 0, ("ada@example.org",))
    assert judgments(folder) == ["exact", "similar"]
    assert import_verdicts(folder, done).added == 0


def test_skipped_tasks_and_numbers_of_annotators(folder, tasks, tmp_path):
    done = annotated(tasks, "near", "near")
    done[0]["annotations"][0]["was_cancelled"] = True
    done[1]["annotations"][0]["completed_by"] = 7
    (tmp_path / "done.json").write_text(json.dumps(done))
    assert import_verdicts(folder, tmp_path / "done.json").reviewers == ("labelstudio-7",)


def test_tags_return_as_verdicts(folder, images, tmp_path):
    with zipfile.ZipFile(tmp_path / "pairs.zip") as archive:
        for name in images:
            with archive.open(name) as data, Image.open(data) as card:
                assert card.format == "JPEG"
    assert len(images) == 2
    grades = [label["name"] for label in json.loads((tmp_path / "pairs.json").read_text())]
    tags = tagged(tmp_path / "a.xml", {f"batch/{images[0]}": [grades[2]], images[1]: []})
    found = import_verdicts(folder, tags)
    assert (found.added, found.unknown, found.reviewers) == (1, 0, ("ada",))
    assert judgments(folder) == ["similar"]
    assert import_verdicts(folder, tags).added == 0
    assert import_verdicts(folder, tags, reviewer="eve").reviewers == ("eve",)
    # without a person, the name is that of the file
    tags = tagged(tmp_path / "second.xml", {images[0]: ["near"]}, owner="")
    assert import_verdicts(folder, tags).reviewers == ("second",)


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("a.json", "{", "JSON"),
        ("a.json", "{}", "list of tasks"),
        ("a.json", "[7]", "task 1"),
        ("a.json", '[{"data": {}}]', "query_digest"),
        ("a.json", '[{"data": {"query_digest": 1}}]', "task 1"),
        ("a.xml", "<", "XML"),
        ("a.xml", "<annotations/>", r"CVAT for images 1\.1"),
        ("a.xml", {"cat.jpg": ["near"]}, r"cat\.jpg"),
    ],
)
def test_other_files_are_refused_by_name(folder, tmp_path, name, content, named):
    path = tmp_path / name
    path.write_text(content) if isinstance(content, str) else tagged(path, content)
    with pytest.raises(VisleakError, match=named) as error:
        import_verdicts(folder, path)
    assert str(path) in str(error.value)
    assert not judgments(folder)


def test_unknown_and_several_grades_are_refused(folder, tasks, images, tmp_path):
    (tmp_path / "done.json").write_text(json.dumps(annotated(tasks, "near", "maybe")))
    with pytest.raises(VisleakError, match=r"task 2.*maybe"):
        import_verdicts(folder, tmp_path / "done.json")
    with pytest.raises(VisleakError, match="near and exact"):
        import_verdicts(folder, tagged(tmp_path / "a.xml", {images[0]: ["near", "exact"]}))


def test_nothing_is_written_beside_an_older_file_or_without_an_image(folder, tmp_path):
    (tmp_path / "tasks.xml").touch()
    with pytest.raises(UsageError, match=r"tasks\.xml"):
        export(folder, "labelstudio", tmp_path / "tasks.json")
    (tmp_path / "test" / "1.png").unlink()
    with pytest.raises(VisleakError, match=r"1\.png of test"):
        export(folder, "labelstudio", tmp_path / "tasks.json", force=True)
    assert [path.name for path in tmp_path.glob("tasks*")] == ["tasks.xml"]


def test_label_studio_takes_the_tasks(tasks, tmp_path):
    interfaces = pytest.importorskip("label_studio_sdk.label_interface")
    project = interfaces.LabelInterface((tmp_path / "tasks.xml").read_text())
    project.validate()
    for task in tasks:
        assert project.validate_task({"data": task["data"]})
        assert all(project.validate_prediction(each) for each in task["predictions"])


@pytest.mark.filterwarnings("ignore")
def test_tags_as_cvat_writes_them(folder, images, tmp_path):
    models, datumaro = map(pytest.importorskip, ("cvat_sdk.models", "datumaro"))
    labels = json.loads((tmp_path / "pairs.json").read_text())
    assert all(models.PatchedLabelRequest(**each).name == each["name"] for each in labels)
    with zipfile.ZipFile(tmp_path / "pairs.zip") as archive:
        archive.extractall(tmp_path / "images")
    grades = [label["name"] for label in labels]
    items = [
        datumaro.DatasetItem(
            Path(name).stem,
            media=datumaro.Image.from_file(path=str(tmp_path / "images" / name)),
            annotations=[datumaro.Label(grades.index("similar"))],
        )
        for name in images
    ]
    made = datumaro.Dataset.from_iterable(items, categories=grades, media_type=datumaro.Image)
    made.export(str(tmp_path / "cvat"), "cvat", save_media=True, image_ext=".jpg")
    (annotations,) = (tmp_path / "cvat").rglob("*.xml")
    import_verdicts(folder, annotations, reviewer="ada")
    assert judgments(folder) == ["similar", "similar"]
