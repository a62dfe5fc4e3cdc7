"""Names, roles and data sets of the two sides of a comparison."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from visleak.errors import UsageError
from visleak.formats.opening import distinct_names as named
from visleak.formats.opening import named_sets as asked
from visleak.formats.opening import open_sides
from visleak.settings import Sides


def names(test: list[str], train: list[str], sets: list[str] | None = None) -> list[str]:
    return named(
        [
            *asked("--test", "benchmark", "test", test),
            *asked("--train", "training", "train", train),
            *asked("--set", "", "", sets or []),
        ]
    )


@pytest.mark.parametrize(
    ("test", "train"), [(["a=x"], ["a=y"]), (["a=x", "a=y"], ["z"]), (["x/p/a", "x/p/a"], ["z"])]
)
def test_one_name_for_two_sets_is_refused(test: list[str], train: list[str]) -> None:
    with pytest.raises(UsageError, match=r"two sets are called .* differ: --test NAME="):
        names(test, train)


def test_roles_and_datasets(put: Callable[..., Path]) -> None:
    train, test = (put(f"{part}/a.png").parent for part in ("train", "test"))
    sides = open_sides(Sides(test=(f"voc:a={test}",), train=(str(train),)))
    (query,), (reference,) = sides.queries, sides.references
    assert (query.name, query.dataset, query.roles) == ("a", "voc", ("benchmark",))
    assert (reference.name, reference.dataset, reference.roles) == ("train", "", ("training",))
    alone = open_sides(Sides(sets=(str(test),)))
    assert (alone.queries[0].roles, alone.references) == ((), ())


def test_splits_of_a_folder(put: Callable[..., Path], tmp_path: Path) -> None:
    """Test and val against train; without train, test against val."""
    for split in ("train", "val", "test"):
        put(f"{split}/a.png")
    sides = open_sides(Sides(str(tmp_path)))
    assert [images.name for images in sides.queries] == ["val", "test"]
    assert [images.name for images in sides.references] == ["train"]
    (tmp_path / "train" / "a.png").unlink()
    (tmp_path / "train").rmdir()
    sides = open_sides(Sides(str(tmp_path)))
    assert [images.name for images in sides.queries] == ["test"]
    assert [images.name for images in sides.references] == ["val"]
