"""What classes are called in sentences, and which label is which class."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from visleak.errors import UsageError, VisleakError
from visleak.impact.evaluators.classes import class_names

LABELS = pa.array(["n02123045", "n02124075", "n02123045", None])


def test_the_sets_labels_are_names():
    """Underscores are spaces; the label stays as it is, for it is what is predicted."""
    made = class_names(pa.array(["tiger_cat", "dog", "tiger_cat"]), None)
    assert made.names == ("dog", "tiger cat")
    assert made.classes.names == ("dog", "tiger_cat")
    assert made.classes.targets(pa.array(["tiger_cat", "dog"])).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("c.tsv.txt", "n02123045\ttabby\nn02124075\tEgyptian cat\nn09999999\tcar\n"),
        ("c.csv", "label,x,name\nn02123045,1,tabby\nn02124075,2,Egyptian cat\nn09999999,3,car\n"),
        ("c.tsv", "name\tlabel\ntabby\tn02123045\nEgyptian cat\tn02124075\ncar\tn09999999\n"),
        (
            "c.json",
            json.dumps({"n02123045": "tabby", "n02124075": "Egyptian cat", "n09999999": "car"}),
        ),
    ],
)
def test_names_by_label(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    made = class_names(LABELS, tmp_path / name)
    assert made.names == ("tabby", "Egyptian cat", "car")
    assert made.classes.in_set.tolist() == [True, True, False]
    assert made.classes.targets(LABELS).tolist() == [0, 1, 0, -2]


def test_names_that_are_labels(tmp_path):
    (tmp_path / "c.txt").write_text("Tiger Cat\ndog\nbird\n")
    made = class_names(pa.array(["tiger_cat", "dog", "horse"]), tmp_path / "c.txt")
    assert made.classes.names == ("tiger_cat", "dog", "bird")
    assert made.names == ("Tiger Cat", "dog", "bird")
    assert made.classes.foreign == ("horse",)


def test_names_by_number(tmp_path):
    """Labels that are numbers count the lines; equal names are two classes then, and told."""
    (tmp_path / "c.json").write_text(json.dumps(["crane", "dog", "crane"]))
    made = class_names(pa.array(["2", "0"]), tmp_path / "c.json")
    assert made.classes.names == ("0", "1", "2")
    assert made.classes.targets(pa.array(["2", "0", "1"])).tolist() == [2, 0, 1]
    assert made.shared == ("crane",)
    assert made.classes.rule == "labels are the numbers of the lines"


def test_a_set_without_labels(tmp_path):
    (tmp_path / "c.txt").write_text("cat\ndog\n")
    assert class_names(None, tmp_path / "c.txt").classes.names == ("cat", "dog")


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (None, "the set has no labels to take names of classes from; give --classes FILE: one na"),
        (pa.array(["a", "a"]), "the set has one label to take names"),
        (LABELS, "labels are 'n02123045', 'n02124075', which are not names"),
        (pa.array(["0", "1"]), "labels are '0', '1', which are not names"),
    ],
)
def test_labels_that_are_no_names(labels, said):
    """A photo of a n02123045 would be answered, and mean nothing."""
    with pytest.raises(UsageError) as caught:
        class_names(labels, None)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("c.txt", "a\tx\nb\n", "line 2 has no tab, other lines have; write one name per line"),
        ("c.txt", "a\tx\nb\t\n", "line 2 has no name; write"),
        ("c.txt", "a\tx\na\ty\n", "line 2: label 'a' has two names"),
        ("c.txt", "cat\n", "a classifier needs two classes, there is 1"),
        ("c.txt", "n02123045\nN02123045\n", "'n02123045' names two classes"),
        ("c.txt", "cat\ndog\n", "names none of the set's classes: labels are 'n02123045', 'n02124"),
        ("c.csv", "id,name\na,b\n", "has no column 'label'; it has id, name"),
        ("c.json", "{", "Expecting property name"),
        ("c.json", '["a", 3]', "it is neither a list of names nor an object of names by label"),
        ("c.json", '["a", " "]', "name 2 is empty"),
    ],
)
def test_files_that_are_refused(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    with pytest.raises(VisleakError) as caught:
        class_names(LABELS, tmp_path / name)
    assert str(caught.value).startswith(f"--classes {tmp_path / name}")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_such_file():
    with pytest.raises(UsageError, match=r"--classes no\.txt: file not found"):
        class_names(LABELS, Path("no.txt"))
