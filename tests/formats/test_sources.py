"""Choosing the kind of a source, and taking arguments apart."""

import importlib
import re
from pathlib import Path

import pytest

from refusals import refused
from visleak.errors import UsageError, VisleakError
from visleak.formats import hub, open_images, parse_set
from visleak.formats.sources import FORMATS, IN_SOURCE, resolved


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("val=lists/val.txt", ("", "val", "lists/val.txt")),
        ("voc:val=lists/val.txt", ("voc", "val", "lists/val.txt")),
        ("a=b=c", ("", "a", "b=c")),
        ("test=cifar:c#test", ("", "test", "cifar:c#test")),
        ("c10:test=cifar:c#test", ("c10", "test", "cifar:c#test")),
        ("cifar:c10#test", ("", "test", "cifar:c10#test")),
        ("cifar:some/c10#train", ("", "train", "cifar:some/c10#train")),
        ("coco:val=dir", ("coco", "val", "dir")),
        ("coco:x.json?images=dir", ("", "x", "coco:x.json?images=dir")),
        ("coco:a/x.json?images=dir", ("", "x", "coco:a/x.json?images=dir")),
        ("yolo:d/data.yaml#val", ("", "val", "yolo:d/data.yaml#val")),
        ("./a=b.zip", ("", "a=b", "./a=b.zip")),
        ("data/x=1/cats", ("", "cats", "data/x=1/cats")),
        ("data/cats.tar.gz", ("", "cats", "data/cats.tar.gz")),
        ("data/cats.v2.zip", ("", "cats.v2", "data/cats.v2.zip")),
        ("m.csv#test", ("", "test", "m.csv#test")),
        ("hub/data/train-*.parquet", ("", "train", "hub/data/train-*.parquet")),
        ("hub/**/*.png", ("", "hub", "hub/**/*.png")),
        ("*.png", ("", "images", "*.png")),
        ("a:b:c=d", ("a:b", "c", "d")),
    ],
)
def test_parse_set(text, want):
    assert parse_set(text) == want


@pytest.mark.parametrize("text", ["=x", ":a=x", "a=", "d:=x"])
def test_parse_set_refuses_empty_parts(text):
    refused(UsageError, r"a set is \[DATASET:\]NAME=SOURCE with no part empty", text, parse_set)
    refused(UsageError, r"a set is \[DATASET:\]NAME=SOURCE; got an empty argument", "", parse_set)


def test_a_name_like_a_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.d").mkdir()
    assert parse_set(".") == ("", tmp_path.name, ".")
    assert parse_set("x.d/") == ("", "x.d", "x.d/")


def test_unknown_sources_name_the_known_ones(tmp_path, put):
    known = (
        r"a source is a folder of Parquet files, .*, a folder, a glob, .*, a \.zip archive,"
        r" a \.tar archive, an image, .*, a pattern of \.tar shards, an address \(https://, s3://,"
        r" gs://\), or begins with cifar:, coco:, yolo:, .*hf:"
    )
    refused(UsageError, r"source 'tfds:mnist#test': tfds: is not a kind of", "tfds:mnist#test")
    refused(UsageError, rf"source '.*/a.doc' is of no known kind; {known}", put("a.doc", "x"))
    refused(UsageError, rf"source 'nope' does not exist; {known}", "nope")
    refused(UsageError, r"a source is empty", "")
    refused(UsageError, r"source 'coco:x.json': x.json does not exist", "coco:x.json")


@pytest.mark.parametrize(
    ("source", "want"),
    [
        ("a/b.zip", "{base}/a/b.zip"),
        ("/x/b.zip", "/x/b.zip"),
        ("cifar:c10#test", "cifar:{base}/c10#test"),
        ("coco:/x/a.json", "coco:/x/a.json"),
        ("here#x", "{base}/here#x"),
        ("table.csv?remote=yes#test", "{base}/table.csv?remote=yes#test"),
        ("hf:user/set?config=a#test", "hf:user/set?config=a#test"),
        ("hf:here#test", "hf:{base}/here#test"),
        ("a-{0..3}.tar::/x/b.tar", "{base}/a-{0..3}.tar::/x/b.tar"),
        ("wds:a.tar?image=l.png", "wds:{base}/a.tar?image=l.png"),
        ("wds:s3://box/a.tar", "wds:s3://box/a.tar"),
        ("s3://box/a.tar", "s3://box/a.tar"),
    ],
)
def test_a_stored_source_is_found_from_elsewhere(tmp_path, source, want):
    (tmp_path / "here").mkdir()
    assert resolved(source, tmp_path) == want.replace("{base}", str(tmp_path))


def test_splits_of_what_has_none(tmp_path, put):
    put("a/1.png")
    refused(UsageError, r"#test chooses a split of .*; this source has none", f"{tmp_path}/a#test")


def test_a_path_is_never_a_prefix(tmp_path, put, monkeypatch):
    put("cifar:x/1.png")
    monkeypatch.chdir(tmp_path)
    assert len(open_images("cifar:x")) == 1
    assert len(open_images(tmp_path / "cifar:x")) == 1


def test_name_dataset_and_roles_are_kept(put, tmp_path):
    put("a/1.png")
    images = open_images(tmp_path / "a", name="n", dataset="d", roles=["training", "benchmark"])
    assert (images.name, images.dataset, images.roles) == ("n", "d", ("training", "benchmark"))
    refused(VisleakError, r"roles are benchmark, training", tmp_path / "a", roles=["x"])


def test_every_format_has_the_functions_that_it_names():
    for found in FORMATS:
        writes = found.layout.writes if found.layout else ""
        detects = found.detects if isinstance(found.detects, str) else ""
        for named in filter(None, (found.opens, detects, found.boxes, writes)):
            module, _, function = named.partition(":")
            assert callable(getattr(importlib.import_module(f"visleak.formats.{module}"), function))


@pytest.mark.parametrize("option", sorted(IN_SOURCE))
def test_an_option_of_sources_is_one_where_its_example_says_so(option, tmp_path, monkeypatch):
    """``--expect 4`` on the command line is answered with the example."""
    monkeypatch.chdir(tmp_path)
    text = IN_SOURCE[option]
    if text.startswith("hf:"):
        assert option in hub.OPTIONS
        return
    name = re.split(r"[:?#]", text)[-2].rpartition(":")[2]
    Path(name).touch() if name.startswith("FILE") or "." in name else Path(name).mkdir()
    with pytest.raises(VisleakError) as refused:
        open_images(text)
    assert "is not an option" not in str(refused.value)
