"""Which output is which class: every rule, in its order, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.errors import UsageError, VisleakError
from visleak.impact.evaluators.classes import FOREIGN, UNLABELLED, classes_of, read_names, synonyms


def labels(*told):
    return pa.array(told, pa.string())


def test_the_models_own_names_in_the_sets_spelling():
    """Compared without case, ``_`` and ``-``; any of an output's names will do."""
    own = (synonyms("great white shark, Carcharodon"), ("Cat",), ("dog",))
    made = classes_of(3, labels("Great_White-Shark", "dog", None, "fish", "DOG"), own)
    assert made.rule == "the model's own names"
    assert made.names == ("Great_White-Shark", "Cat", "DOG")
    assert made.in_set.tolist() == [True, False, True]
    assert made.foreign == ("fish",)
    found = made.targets(labels("dog", "Great White Shark", None, "fish"))
    assert found.tolist() == [2, 0, UNLABELLED, FOREIGN]


def test_labels_that_are_numbers_of_outputs():
    """A set need not have all classes; names of the model that mean nothing here are no matter."""
    own = (("cat",), ("dog",), ("fish",))
    made = classes_of(3, labels("2", "0", "2"), own)
    assert (made.rule, made.names) == ("the labels are numbers of outputs", ("0", "1", "2"))
    assert made.targets(labels("2", "0")).tolist() == [2, 0]
    assert classes_of(12, labels("00", "07"), None).targets(labels("07", "00")).tolist() == [7, 0]


def test_labels_in_sorted_order():
    """As torchvision's ImageFolder numbers folders."""
    made = classes_of(3, labels("n03", "n01", "n02", "n01"), None)
    assert (made.rule, made.names) == ("the labels in sorted order", ("n01", "n02", "n03"))
    # a number that no output has makes them names
    assert classes_of(3, labels("1", "2", "3"), None).rule == "the labels in sorted order"


def test_a_file_comes_before_everything(tmp_path):
    file = tmp_path / "names.txt"
    file.write_text("dog\ncat\n")
    made = classes_of(2, labels("cat", "dog"), (("cat",), ("dog",)), file)
    assert (made.rule, made.names) == ("the names in the file", ("dog", "cat"))


def test_a_set_without_labels(tmp_path):
    own = (("cat", "Felis"), ("dog",))
    assert classes_of(2, None, own).names == ("cat", "dog")
    assert classes_of(2, labels(None, None), None).names == ("0", "1")
    file = tmp_path / "names.txt"
    file.write_text("a\nb")
    assert classes_of(2, None, own, file).names == ("a", "b")


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
        (
            "a.json",
            '{"0": ["n01", "tench"], "1": ["n02", "cat"]}',
            (("n01", "tench"), ("n02", "cat")),
        ),
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
        ("a.json", '{"a": 0, "b": 0}', "has 1 names"),
        ("a.json", '["a", 3]', "cannot be read (3 is not a name)"),
        ("a.json", "3", "cannot be read (it must be a list of names, or names by number)"),
        ("nowhere.txt", None, "cannot be read ("),
    ],
)
def test_files_that_name_no_outputs(tmp_path, name, text, said):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError) as caught:
        read_names(tmp_path / name, 2)
    assert str(caught.value).startswith(f"--classes {tmp_path / name} ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_known(tmp_path):
    own = tuple((name,) for name in ("a", "b", "c", "d"))
    with pytest.raises(VisleakError) as caught:
        classes_of(4, labels("cat", "dog"), own)
    assert "which of the model's 4 outputs is which of the set's 2 classes is" in str(caught.value)
    (tmp_path / "n.txt").write_text("a\nb")
    with pytest.raises(VisleakError, match="no label of the set is among the names in"):
        classes_of(2, labels("cat", "dog"), None, tmp_path / "n.txt")


@given(st.permutations(["ant", "Bee", "c_d", "e-f", "7"]), st.data())
def test_names_in_any_order_lead_back_to_their_outputs(order, data):
    """Each label's target is the output that has its name, however both are spelt."""
    spelt = [data.draw(st.sampled_from([name, name.upper(), f" {name}"])) for name in order]
    made = classes_of(5, labels(*spelt), tuple((name,) for name in order))
    assert made.targets(labels(*spelt)).tolist() == list(range(5))
    assert made.names == tuple(spelt)
