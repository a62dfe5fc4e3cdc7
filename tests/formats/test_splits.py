"""Sources that hold several splits, and the two sides of a comparison."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refusals import refused
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images, open_splits
from visleak.formats.opening import distinct_names as named
from visleak.formats.opening import named_sets as asked
from visleak.formats.opening import open_sides
from visleak.settings import Sides


def summary(splits):
    return {name: (s.name, len(s), s.roles, s.dataset) for name, s in splits.items()}


@pytest.mark.parametrize("inner", ["", "images/"])
def test_folders(inner, tmp_path, put):
    for name in ("Train/cat/1", "Train/dog/2", "validation/cat/1", "TEST/1", "x/1"):
        put(f"set/{inner}{name}.png")
    splits = open_splits(tmp_path / "set")
    assert summary(splits) == {
        "train": ("train", 2, ("training",), "set"),
        "val": ("val", 1, ("benchmark",), "set"),
        "test": ("test", 1, ("benchmark",), "set"),
    }
    assert list(splits) == ["train", "val", "test"]
    assert splits["train"].labels.to_pylist() == ["cat", "dog"]
    for images in splits.values():
        again = open_images(images.source)
        assert again.ids == images.ids


def test_a_manifest(put):
    for i in range(3):
        put(f"{i}.png")
    path = put("m.csv", "path,split\n0.png,training\n1.png,test\n2.png,Test\n3.png,\n4.png,extra\n")
    splits = open_splits(path, dataset="d")
    assert {k: len(v) for k, v in splits.items()} == {"train": 1, "test": 2, "extra": 1}
    assert splits["test"].ids.to_pylist() == ["1.png", "2.png"]
    assert splits["test"].source == f"{path}#test"
    assert splits["test"].dataset == "d"
    assert open_images(splits["test"].source).ids == splits["test"].ids


def test_the_layouts_of_the_hubs(tmp_path, put, picture, encode):
    table = pa.table({"image": [encode(picture())] * 2, "split": ["train", "test"]})
    for name in ("train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001"):
        path = tmp_path / f"hub [1]/data/{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
    splits = open_splits(tmp_path / "hub [1]")
    assert summary(splits) == {
        "train": ("train", 4, ("training",), "hub [1]"),
        "test": ("test", 2, ("benchmark",), "hub [1]"),
    }
    assert len(open_images(splits["train"].source)) == 4
    found = open_splits(path)
    assert {k: len(v) for k, v in found.items()} == {"train": 1, "test": 1}
    (tmp_path / "flat").mkdir()
    pq.write_table(table, tmp_path / "flat/train.parquet")
    pq.write_table(table, tmp_path / "flat/validation.parquet")
    assert list(open_splits(tmp_path / "flat")) == ["train", "val"]


def test_yolo(put, tmp_path):
    for split in ("train", "valid"):
        put(f"y/images/{split}/a.png")
    path = put("y/data.yaml", "train: images/train\nval: images/valid\n")
    for source in (path, f"yolo:{path}"):
        splits = open_splits(source)
        assert {k: (len(v), v.annotated, v.dataset) for k, v in splits.items()} == {
            "train": (1, True, "y"),
            "val": (1, True, "y"),
        }
    assert open_splits(tmp_path / "y")["train"].annotated
    put("y/data.yaml", "train: ../elsewhere/train\nval: ../elsewhere/valid\n")
    assert not open_splits(tmp_path / "y")["train"].annotated


def test_too_few_splits(put, tmp_path):
    put("one/train/1.png")
    put("one/other/1.png")
    refused(UsageError, r"does not hold two splits \(found only", tmp_path / "one", open_splits)
    refused(UsageError, r"does not hold two splits", put("m.csv", "path\na.png\n"), open_splits)
    refused(UsageError, r"does not hold two splits \(found", put("x.txt", "a.png\n"), open_splits)
    refused(UsageError, r"source 'nope' does not exist", "nope", open_splits)
    for opened in (open_splits, open_images):
        refused(
            UsageError,
            r"does not exist; did you mean 'photos'",
            str(put("photos/train/1.png").parents[1].with_name("photso")),
            opened,
        )


def test_two_names_for_one_split(put, tmp_path):
    for name in ("train", "val", "valid"):
        put(f"s/{name}/1.png")
    refused(UsageError, r"holds the split val twice: .*/val and", tmp_path / "s", open_splits)


def test_an_empty_split_is_an_error(put, tmp_path):
    put("s/train/1.png")
    (tmp_path / "s/test").mkdir()
    refused(VisleakError, r"s/test holds no images", tmp_path / "s", open_splits)


def names(test, train, sets=()):
    sides = (("--test", "benchmark", "test", test), ("--train", "training", "train", train))
    return named([each for side in (*sides, ("--set", "", "", sets)) for each in asked(*side)])


@pytest.mark.parametrize(
    ("test", "train"), [(["a=x"], ["a=y"]), (["a=x", "a=y"], ["z"]), (["x/p/a", "x/p/a"], ["z"])]
)
def test_one_name_for_two_sets_is_refused(test, train):
    with pytest.raises(UsageError, match=r"two sets are called .* differ: --test NAME="):
        names(test, train)


def test_roles_and_datasets(put):
    train, test = (put(f"{part}/a.png").parent for part in ("train", "test"))
    sides = open_sides(Sides(test=(f"voc:a={test}",), train=(str(train),)))
    (query,), (reference,) = sides.queries, sides.references
    assert (query.name, query.dataset, query.roles) == ("a", "voc", ("benchmark",))
    assert (reference.name, reference.dataset, reference.roles) == ("train", "", ("training",))
    alone = open_sides(Sides(sets=(str(test),)))
    assert (alone.queries[0].roles, alone.references) == ((), ())


def test_splits_of_a_folder(put, tmp_path):
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
