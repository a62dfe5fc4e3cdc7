"""Choosing the kind of a source, taking arguments apart, splits and sides."""

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refusals import refused
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images, open_splits, parse_set
from visleak.formats.opening import distinct_names, named_sets, open_sides
from visleak.formats.sources import resolved
from visleak.settings import Sides


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("c10:test=cifar:c#test", ("c10", "test", "cifar:c#test")),
        ("a=b=c", ("", "a", "b=c")),
        ("data/x=1/cats", ("", "cats", "data/x=1/cats")),
        ("coco:a/x.json?images=dir", ("", "x", "coco:a/x.json?images=dir")),
        ("./a=b.zip", ("", "a=b", "./a=b.zip")),
        ("m.csv#test", ("", "test", "m.csv#test")),
        ("hub/data/train-*.parquet", ("", "train", "hub/data/train-*.parquet")),
        ("*.png", ("", "images", "*.png")),
        ("a:b:c=d", ("a:b", "c", "d")),
    ],
)
def test_parse_set(text, want):
    assert parse_set(text) == want


@pytest.mark.parametrize("text", ["", "=x", ":a=x", "a=", "d:=x"])
def test_parse_set_refuses_empty_parts(text):
    refused(UsageError, r"a set is \[DATASET:\]NAME=SOURCE", text, parse_set)


def test_unknown_sources_name_the_known_ones(tmp_path, put):
    known = r"a source is a folder of Parquet files, .* or begins with cifar:, coco:, yolo:, .*hf:"
    refused(UsageError, r"source 'tfds:mnist#test': tfds: is not a kind of", "tfds:mnist#test")
    refused(UsageError, rf"source '.*/a.doc' is of no known kind; {known}", put("a.doc", "x"))
    refused(UsageError, rf"source 'nope' does not exist; {known}", "nope")
    refused(UsageError, r"a source is empty", "")
    refused(UsageError, r"source 'coco:x.json': x.json does not exist", "coco:x.json")
    put("a/1.png")
    refused(UsageError, r"#test chooses a split of .*; this source has none", f"{tmp_path}/a#test")


@pytest.mark.parametrize(
    ("source", "want"),
    [
        ("here#x", "{base}/here#x"),
        ("table.csv?remote=yes#test", "{base}/table.csv?remote=yes#test"),
        ("hf:user/set?config=a#test", "hf:user/set?config=a#test"),
        ("hf:here#test", "hf:{base}/here#test"),
        ("a-{0..3}.tar::/x/b.tar", "{base}/a-{0..3}.tar::/x/b.tar"),
        ("wds:a.tar?image=l.png", "wds:{base}/a.tar?image=l.png"),
        ("wds:s3://box/a.tar", "wds:s3://box/a.tar"),
    ],
)
def test_a_stored_source_is_found_from_elsewhere(tmp_path, source, want):
    (tmp_path / "here").mkdir()
    assert resolved(source, tmp_path) == want.replace("{base}", str(tmp_path))


def test_a_path_is_never_a_prefix(tmp_path, put, monkeypatch):
    put("cifar:x/1.png")
    monkeypatch.chdir(tmp_path)
    for source in ("cifar:x", tmp_path / "cifar:x"):
        assert len(open_images(source)) == 1
    assert parse_set(".") == ("", tmp_path.name, ".")
    assert parse_set("cifar:x/") == ("", "cifar:x", "cifar:x/")


def test_name_dataset_and_roles_are_kept(put, tmp_path):
    put("a/1.png")
    images = open_images(tmp_path / "a", name="n", dataset="d", roles=["training", "benchmark"])
    assert (images.name, images.dataset, images.roles) == ("n", "d", ("training", "benchmark"))
    refused(VisleakError, r"roles are benchmark, training", tmp_path / "a", roles=["x"])


@pytest.mark.parametrize("inner", ["", "images/"])
def test_folders(inner, tmp_path, put):
    for name in ("Train/cat/1", "Train/dog/2", "validation/cat/1", "TEST/1", "x/1"):
        put(f"set/{inner}{name}.png")
    splits = open_splits(tmp_path / "set")
    assert {key: (s.name, len(s), s.roles, s.dataset) for key, s in splits.items()} == {
        "train": ("train", 2, ("training",), "set"),
        "val": ("val", 1, ("benchmark",), "set"),
        "test": ("test", 1, ("benchmark",), "set"),
    }
    assert list(splits) == ["train", "val", "test"]
    assert splits["train"].labels.to_pylist() == ["cat", "dog"]
    for images in splits.values():
        assert open_images(images.source).ids == images.ids


def test_tables(tmp_path, put, picture, encode):
    path = put("m.csv", "path,split\n0.png,training\n1.png,test\n2.png,Test\n3.png,\n4.png,extra\n")
    splits = open_splits(path, dataset="d")
    assert {k: len(v) for k, v in splits.items()} == {"train": 1, "test": 2, "extra": 1}
    assert splits["test"].ids.to_pylist() == ["1.png", "2.png"]
    assert (splits["test"].source, splits["test"].dataset) == (f"{path}#test", "d")
    table = pa.table({"image": [encode(picture())] * 2, "split": ["train", "test"]})
    (tmp_path / "hub [1]/data").mkdir(parents=True)
    for name in ("train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001"):
        path = tmp_path / f"hub [1]/data/{name}.parquet"
        pq.write_table(table, path)
    splits = open_splits(tmp_path / "hub [1]")
    assert {k: (len(v), v.dataset) for k, v in splits.items()} == {
        "train": (4, "hub [1]"),
        "test": (2, "hub [1]"),
    }
    assert len(open_images(splits["train"].source)) == 4
    assert {k: len(v) for k, v in open_splits(path).items()} == {"train": 1, "test": 1}
    (tmp_path / "flat").mkdir()
    for name in ("train", "validation"):
        pq.write_table(table, tmp_path / f"flat/{name}.parquet")
    assert list(open_splits(tmp_path / "flat")) == ["train", "val"]


def test_splits_that_are_refused(put, tmp_path):
    for name in ("one/train", "one/other", "s/train", "s/val", "s/valid", "e/train"):
        put(f"{name}/1.png")
    (tmp_path / "e/test").mkdir()
    for source in (tmp_path / "one", put("m.csv", "path\na.png\n"), put("x.txt", "a.png\n")):
        refused(UsageError, r"does not hold two splits \(found", source, open_splits)
    refused(UsageError, r"holds the split val twice: .*/val and", tmp_path / "s", open_splits)
    refused(VisleakError, r"e/test holds no images", tmp_path / "e", open_splits)
    for opened in (open_splits, open_images):
        refused(UsageError, r"does not exist; did you mean 'one'", f"{tmp_path}/onne", opened)


@pytest.mark.parametrize(
    ("test", "train"), [(["a=x"], ["a=y"]), (["a=x", "a=y"], ["z"]), (["x/p/a", "x/p/a"], ["z"])]
)
def test_one_name_for_two_sets_is_refused(test, train):
    sides = (("--test", "benchmark", "test", test), ("--train", "training", "train", train))
    with pytest.raises(UsageError, match=r"two sets are called .* differ: --test NAME="):
        distinct_names([each for side in sides for each in named_sets(*side)])


def test_sides(put, tmp_path):
    """Test and val against train; without train, test against val."""
    train, val, test = (put(f"{name}/a.png").parent for name in ("train", "val", "test"))
    sides = open_sides(Sides(test=(f"voc:a={test}",), train=(str(train),)))
    (query,), (reference,) = sides.queries, sides.references
    assert (query.name, query.dataset, query.roles) == ("a", "voc", ("benchmark",))
    assert (reference.name, reference.dataset, reference.roles) == ("train", "", ("training",))
    alone = open_sides(Sides(sets=(str(val),)))
    assert (alone.queries[0].roles, alone.references) == ((), ())
    for queries, reference in ((["val", "test"], "train"), (["test"], "val")):
        sides = open_sides(Sides(str(tmp_path)))
        assert [images.name for images in sides.queries] == queries
        assert [images.name for images in sides.references] == [reference]
        shutil.rmtree(train, ignore_errors=True)
