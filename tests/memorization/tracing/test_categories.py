"""Categories that a person wrote down."""

from __future__ import annotations

from pathlib import Path

import pytest

from visleak.errors import VisleakError
from visleak.memorization.tracing import Trace
from visleak.memorization.tracing.run import read_categories


def written(folder: Path, text: str) -> Path:
    file = folder / "categories.csv"
    file.write_text(text)
    return file


def test_by_reference(traced: Trace, tmp_path: Path) -> None:
    file = written(tmp_path, "reference,category\nastronaut.png,Human\nnobody.png,artwork\n")
    told = read_categories(file).applied_to(traced)
    assert [each.category for each in told.originals] == ["human", ""]
    assert told.notes == ("rows of categories.csv about no memorized image: 1",)


def test_by_prompt_with_a_formula_sign(traced: Trace, tmp_path: Path) -> None:
    file = written(tmp_path, "prompt,category\n'=a space poster,artwork\nan astronaut,human\n")
    told = read_categories(file).applied_to(traced)
    assert told.originals[0].category == "human"
    assert told.notes == (
        "memorized image 0 has several categories in categories.csv: human, artwork; the first is"
        " taken",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("image,kind\n", "needs category, and one of reference, image, prompt"),
        ("name,category\n", "needs category, and one of reference, image, prompt"),
        ("image,category\na,cat\n", "line 2: category is one of commercial product, human,"),
    ],
)
def test_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(VisleakError, match=said):
        read_categories(written(tmp_path, text))
