"""``[NAME=]FILE`` of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from visleak.errors import UsageError
from visleak.impact.settings import fair_files, named_files


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "lr=0.1.csv"
    path.write_text("")
    return path


def test_a_name_ends_at_the_first_sign_without_a_slash(file: Path) -> None:
    assert named_files("--predictions", [f"a={file}"]) == {"a": file}
    assert named_files("--predictions", [str(file)]) == {"lr=0.1": file}
    assert named_files("--predictions", ["./lr=0.1.csv"]) == {"lr=0.1": Path("lr=0.1.csv")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr=0.1.csv", "--subset: 0.1.csv does not exist; for the file lr=0.1.csv give"),
        ("=none.csv", "--subset is NAME=FILE with no part empty; got '=none.csv'"),
        ("a=", "--subset is NAME=FILE with no part empty; got 'a='"),
        ("", "--subset is NAME=FILE with no part empty; got ''"),
    ],
)
def test_what_is_neither_is_refused(file: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        named_files("--subset", [text], "subset", needs_name=True)
    assert message in str(refused.value)


def test_what_is_there_but_no_file_is_not_called_missing() -> None:
    with pytest.raises(UsageError, match=r"^--predictions: /dev/null is no plain file; give a"):
        named_files("--predictions", ["a=/dev/null"])


def test_one_fair_file_is_of_the_one_model(file: Path) -> None:
    one = {"a": Path("a.csv")}
    assert fair_files([str(file)], one) == {"a": file}
    assert fair_files([f"a={file}"], one) == {"a": file}
    for texts, models in (([f"b={file}"], one), ([str(file)], one | {"b": Path("b.csv")})):
        with pytest.raises(UsageError, match=r"which has no --predictions; models are 'a'"):
            fair_files(texts, models)
