"""Tables, rows and lists of paths that a program holds, as a data scientist has them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from PIL import Image
from torch.utils.data import (
    BatchSampler,
    ChainDataset,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
)

import visleak
from refusals import refused
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Four images in the working folder; the last is a copy of the first."""
    monkeypatch.chdir(tmp_path)
    names = []
    for number in range(4):
        noise = np.random.default_rng(number % 3).integers(0, 256, (6, 6, 3), np.uint8)
        names.append(f"{number}.png")
        Image.fromarray(noise).resize((64, 64), Image.Resampling.BICUBIC).save(names[-1])
    return names


def frames(names):
    """Return one set as every kind of object."""
    rows = {"path": names, "label": ["a", "b", "c", "a"]}
    images = [np.asarray(Image.open(name)) for name in names]
    return {
        "pandas": pd.DataFrame(rows),
        "arrow": pa.table(rows),
        "arrow, bytes": pa.table({**rows, "image": [Path(name).read_bytes() for name in names]}),
        "pandas, images": pd.DataFrame({"image": images, "label": rows["label"]}),
        "rows": [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)],
        "rows, images": [
            {"image": image, "label": label}
            for image, label in zip(images, rows["label"], strict=True)
        ],
    }


KINDS = ("pandas", "arrow", "arrow, bytes", "pandas, images", "rows", "rows, images")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_table_holds_the_same_images(photos, kind):
    """Pixels and labels; what is missing in a column is null."""
    images = open_images(frames(photos)[kind], name="mine")
    wanted = [np.asarray(Image.open(name)) for name in photos]
    found = [
        np.asarray(Image.open(photos[row])) if isinstance(stored, bytes) else stored
        for row, stored in enumerate(images.opener.read(range(4)))
    ]
    assert all(np.array_equal(*pair) for pair in zip(found, wanted, strict=True))
    assert images.labels.to_pylist() == ["a", "b", "c", "a"]
    assert "4 images" in repr(images)


def test_an_audit_of_a_frame_with_itself_finds_the_copy(photos):
    table = pd.DataFrame({"path": photos, "label": ["a", None, "c", "a"]})
    result = visleak.audit(table.iloc[:3], table.iloc[3:], cache=None)
    assert result.leaks()["query"].to_pylist() == ["0.png"]
    assert list(result.to_pandas(grade="near")["reference"]) == ["3.png"]
    assert next(row["query"] for row in result) == "0.png"
    assert len(result) == len(result.pairs())
    assert bool(result)


def test_a_list_of_paths(photos):
    images = open_images([Path(name) for name in photos])
    assert images.ids.to_pylist() == photos
    refused(UsageError, "one of image files", [*photos, "a.tar"])


@pytest.mark.parametrize("kind", [np.array, pd.Series, pa.array, tuple, set])
def test_a_column_or_set_of_paths_is_a_list_of_paths(photos, kind):
    assert open_images(kind(photos)).ids.to_pylist() == photos


def test_tables_that_are_read_later_or_in_batches(photos):
    (batch,) = pa.table({"path": photos}).to_batches()
    assert open_images(batch).ids.to_pylist() == photos
    polars = pytest.importorskip("polars")
    assert open_images(polars.LazyFrame({"path": photos})).ids.to_pylist() == photos
    assert open_images(polars.Series(photos)).ids.to_pylist() == photos


@pytest.mark.parametrize("image", ["path", "image"])
@pytest.mark.parametrize("kind", [pd.DataFrame, pa.table])
def test_a_column_split_names_the_sides_of_an_audit(photos, kind, image):
    """As of a table that is a file."""
    values = photos if image == "path" else [Path(name).read_bytes() for name in photos]
    table = kind({image: values, "split": ["test", "test", None, "train"]})
    result = visleak.audit(table, cache=None)
    assert str(result.rate("exact")) == "1 of 2 (50.00 %, 95 % CI 9.45-90.55)"


def test_a_mapping_with_one_split_is_this_split(photos):
    assert open_images({"test": photos}).ids.to_pylist() == photos
    assert len(open_images({"test": "."})) == len(photos)


def test_an_empty_list_is_an_empty_set(photos):
    with pytest.raises(VisleakError, match="set 'test' holds no images"):
        visleak.audit([], photos)


def test_what_can_only_be_iterated_needs_a_length(photos):
    class Stream(IterableDataset):
        def __iter__(self):
            return map(Image.open, photos)

    class Sized(Stream):
        def __len__(self):
            return len(photos)

    chain = ChainDataset([Sized(), Stream()])  # with a length that raises
    for source, count in ((Sized(), len(photos)), (chain, 2 * len(photos))):
        assert visleak.audit(source, photos, cache=None).rate("exact").total == count
    for source in (Stream(), map(Image.open, photos)):
        refused(UsageError, "no length", source)


def test_a_loader_is_its_data_set_only_where_it_hands_out_all_of_it(photos):
    images = [(np.asarray(Image.open(name)), 0) for name in photos]
    for options in ({}, {"shuffle": True}, {"batch_size": 3, "drop_last": True}):
        assert len(open_images(DataLoader(images, **options))) == len(photos)
    some = SubsetRandomSampler([0, 1])
    for options in (
        {"sampler": some},
        {"sampler": RandomSampler(images, num_samples=2)},
        {"batch_sampler": BatchSampler(some, 2, drop_last=False)},
        {"batch_sampler": [[0, 1]]},
    ):
        refused(UsageError, "Subset", DataLoader(images, **options))


def test_splits_are_the_sides_of_an_audit(photos):
    """A mapping of splits, such as a DatasetDict, and a folder with splits."""
    found = visleak.audit({"test": photos[:3], "train": photos[3:]}, cache=None)
    assert found.rate("exact").count == 1
    for side, names in (("test", photos[:3]), ("train", photos[3:])):
        Path("data", side).mkdir(parents=True)
        for name in names:
            Path(name).rename(Path("data", side, name))
    result = visleak.audit("data", cache=None)
    assert str(result.rate("exact")) == str(found.rate("exact"))
    assert visleak.audit("data/test", cache=None).rate("exact").count == 0


def test_settings_are_keywords(photos):
    result = visleak.audit(photos[:3], photos[3:], cache=None, near_at=0.7, views="none")
    assert result.summary.settings.near_at == 0.7
    refused(UsageError, "did you mean 'near_at'", photos, visleak.audit, near_att=0.7)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (pd.DataFrame({"file": ["a.png"]}), "`path`.*`image`.*file"),
        ([{"pixels": 1}], "keys pixels"),
        ([1, 2], "got int"),
        ([np.zeros((2, 8, 8, 3), np.uint8)], r"batch of shape \(2, 8, 8, 3\)"),
        ([(torch.rand(2, 3, 8, 8), torch.zeros(2))], r"batch of shape \(2, 3, 8, 8\)"),
        ([(None, 3), (None, 4)], "NoneType in a tuple"),
        ({"train": 3}, "got"),
    ],
)
def test_what_is_not_understood_is_refused(source, words):
    """Instead of an audit of nothing."""
    with pytest.raises(UsageError, match=words):
        visleak.audit(source, source, cache=None)


@pytest.mark.parametrize(
    ("splits", "words"),
    [(("a", "b"), "must be train or val"), (("train", "val", "validation"), "split val twice")],
)
def test_a_mapping_of_splits_is_never_guessed(photos, splits, words):
    refused(UsageError, words, dict.fromkeys(splits, photos), visleak.audit, cache=None)
