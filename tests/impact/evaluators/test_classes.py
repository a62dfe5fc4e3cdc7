"""Which output of a model is which class of a set, and names of classes for prompts."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusals import refusal
from visleak.errors import UsageError, VisleakError
from visleak.impact.evaluators.classes import (
    FOREIGN,
    UNLABELLED,
    class_names,
    classes_of,
    read_names,
    synonyms,
)


def labels(*told):
    return pa.array(told, pa.string())


def test_the_models_own_names_in_the_sets_spelling():
    own = (synonyms("great white shark, Carcharodon"), ("Cat",), ("dog",))
    made = classes_of(3, labels("Great_White-Shark", "dog", None, "fish", "DOG"), own)
    assert made.rule == "the model's own names"
    assert made.names == ("Great_White-Shark", "Cat", "DOG")
    assert made.in_set.tolist() == [True, False, True]
    assert made.foreign == ("fish",)
    found = made.targets(labels("dog", "Great White Shark", None, "fish"))
    assert found.tolist() == [2, 0, UNLABELLED, FOREIGN]


def test_labels_that_are_numbers_of_outputs():
    own = (("cat",), ("dog",), ("fish",))
    made = classes_of(3, labels("2", "0", "2"), own)
    assert (made.rule, made.names) == ("the labels are numbers of outputs", ("0", "1", "2"))
    assert made.targets(labels("2", "0")).tolist() == [2, 0]
    assert classes_of(12, labels("00", "07"), None).targets(labels("07", "00")).tolist() == [7, 0]


def test_a_set_without_labels(tmp_path):
    own = (("cat", "Felis"), ("dog",))
    assert classes_of(2, None, own).names == ("cat", "dog")
    assert classes_of(2, labels(None, None), None).names == ("0", "1")
    file = tmp_path / "names.txt"
    file.write_text("b\na")
    assert classes_of(2, None, own, file).names == ("b", "a")
    assert classes_of(2, labels("a", "b"), own, file).names == ("b", "a")
    assert class_names(None, file).classes.names == ("b", "a")


def test_outputs_of_one_name_are_one_class():
    own = (synonyms("crane, bird"), ("crane",), ("maillot",))
    made = classes_of(3, labels("crane", "maillot"), own)
    assert made.first.tolist() == [0, 0, 2]
    assert made.repeated == ("crane",)
    assert made.names == ("crane", "crane", "maillot")
    assert made.targets(labels("crane")).tolist() == [0]


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("a.txt", "tench, Tinca\ncat\n\n", (("tench, Tinca", "tench", "Tinca"), ("cat",))),
        ("a.json", '["a", "b"]', (("a",), ("b",))),
        ("a.json", '{"1": "b", "0": "a"}', (("a",), ("b",))),
        ("a.json", '{"0": ["n1", "tench"], "1": "cat"}', (("n1", "tench"), ("cat",))),
        ("a.json", '{"cat": 1, "ant": 0}', (("ant",), ("cat",))),
    ],
)
def test_files_of_names(tmp_path, name, text, wanted):
    (tmp_path / name).write_text(text, encoding="utf-8-sig")
    assert read_names(tmp_path / name, 2) == wanted


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.txt", "a\n\nb", "cannot be read (line 2 is empty)"),
        ("a.txt", "a", "has 1 names, and the model 2 outputs; give one name for each output"),
        ("a.json", "{", "cannot be read ("),
        ("a.json", '{"0": "a", "2": "b"}', "cannot be read (output 1 has no name)"),
        ("a.json", '["a", 3]', "cannot be read (3 is not a name)"),
        ("a.json", "3", "cannot be read (it must be a list of names, or names by number)"),
    ],
)
def test_files_that_name_no_outputs(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    message = refusal(UsageError, read_names, tmp_path / name, 2)
    assert message.startswith(f"--classes {tmp_path / name} ")
    assert said in message


def test_what_cannot_be_known(tmp_path):
    own = tuple((name,) for name in ("a", "b", "c", "d"))
    given = labels("cat", "dog")
    said = refusal(VisleakError, classes_of, 4, given, own)
    assert "which of the model's 4 outputs is which of the set's 2 classes is" in said
    (tmp_path / "n.txt").write_text("a\nb")
    said = refusal(VisleakError, classes_of, 2, given, None, tmp_path / "n.txt")
    assert "no label of the set is among the names in" in said


@given(st.permutations(["ant", "Bee", "c_d", "e-f", "7"]), st.data())
def test_names_in_any_order_lead_back_to_their_outputs(order, data):
    spelt = [data.draw(st.sampled_from([name, name.upper(), f" {name}"])) for name in order]
    made = classes_of(5, labels(*spelt), tuple((name,) for name in order))
    assert made.targets(labels(*spelt)).tolist() == list(range(5))
    assert made.names == tuple(spelt)


LABELS = pa.array(["n02123045", "n02124075", "n02123045", None])


def test_the_sets_labels_are_names():
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
        ("c.json", '{"n02123045": "tabby", "n02124075": "Egyptian cat", "n09999999": "car"}'),
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
    (tmp_path / "c.json").write_text('["crane", "dog", "crane"]')
    made = class_names(pa.array(["2", "0"]), tmp_path / "c.json")
    assert made.classes.names == ("0", "1", "2")
    assert made.classes.targets(pa.array(["2", "0", "1"])).tolist() == [2, 0, 1]
    assert made.shared == ("crane",)
    assert made.classes.rule == "labels are the numbers of the lines"


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (None, "the set has no labels to take names of classes from; give --classes FILE: one na"),
        (pa.array(["a", "a"]), "the set has one label to take names"),
        (LABELS, "labels are 'n02123045', 'n02124075', which are not names"),
    ],
)
def test_labels_that_are_no_names(labels, said):
    assert said in refusal(UsageError, class_names, labels, None)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("c.txt", "a\tx\nb\n", "line 2 has no tab, other lines have; write one name per line"),
        ("c.txt", "a\tx\na\ty\n", "line 2: label 'a' has two names"),
        ("c.txt", "a\tx\nb\t\n", "line 2 has no name; write"),
        ("c.txt", "cat\n", "a classifier needs two classes, there is 1"),
        ("c.json", '["a", " "]', "name 2 is empty"),
        ("c.txt", "n02123045\nN02123045\n", "'n02123045' names two classes"),
        ("c.txt", "cat\ndog\n", "names none of the set's classes: labels are 'n02123045', 'n02124"),
        ("c.csv", "id,name\na,b\n", "has no column 'label'; it has id, name"),
        ("c.json", '["a", 3]', "it is neither a list of names nor an object of names by label"),
    ],
)
def test_files_that_are_refused(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    message = refusal(VisleakError, class_names, LABELS, tmp_path / name)
    assert message.startswith(f"--classes {tmp_path / name}")
    assert said in message


def test_a_missing_file_is_refused(tmp_path):
    absent = tmp_path / "absent.txt"
    assert "file not found" in refusal(VisleakError, class_names, LABELS, absent)
