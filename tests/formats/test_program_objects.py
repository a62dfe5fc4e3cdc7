"""What a program holds: images, data sets as of torchvision, tables, rows and lists of paths."""

import io
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tifffile
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
from visleak.images import content_digest, decode


def read(pictures, **options):
    images = open_images(pictures, **options)
    return images, list(images.opener.read(range(len(images))))


def test_pillow_images_arrays_and_encoded_images(picture, encode):
    image = picture()
    rgb = np.asarray(image)
    images, found = read([image, rgb, rgb[:, :, 0], rgb[:, :, :1]], name="mine")
    assert images.name == "mine"
    assert images.ids.to_pylist() == ["0", "1", "2", "3"]
    assert (images.labels, images.source) == (None, "")
    grey = np.repeat(rgb[:, :, :1], 3, 2)
    for held, want in zip(found, (rgb, rgb, grey, grey), strict=True):
        assert held.dtype == np.uint8
        assert np.array_equal(held, want)
    assert open_images(images, name="other") is images
    assert np.array_equal(read(rgb[None])[1][0], rgb)
    refused(UsageError, r"label 'x': a sequence has no columns", [image], label="x")
    data = encode(image)
    images, found = read([(data, label) for label in ("a\ud800", 3, np.int64(4), None)])
    assert found == [data] * 4
    assert images.labels.to_pylist() == ["a\\ud800", "3", "4", None]


def test_a_dataset_with_items(picture):
    class Items:
        def __len__(self):
            return 3

        def __getitem__(self, row):
            if row == 1:
                raise RuntimeError("no such\nfile")
            return picture(seed=row)

    _, found = read(Items())
    assert (found[1].reason, found[1].detail) == ("corrupt", "no such file")
    assert np.array_equal(found[2], np.asarray(picture(seed=2)))


def test_alpha_and_other_types():
    rgba = np.zeros((1, 3, 4), np.uint8)
    rgba[0, 0] = [10, 20, 30, 255]
    rgba[0, 1] = [0, 0, 0, 128]
    kinds = {
        (np.bool_, (True, False)): [255, 0],
        (np.int32, (-5, 5)): [0, 255],
        (np.float16, (0.0, 200.4)): [0, 200],
        (np.int64, (0, 25700)): [0, 100],
        (np.int8, (7,)): [7],
        (np.float64, (-3.0, -3.0)): [0, 0],
    }
    _, found = read([rgba, *(np.array([values], kind) for kind, values in kinds)])
    assert found[0][0].tolist() == [[10, 20, 30], [127] * 3, [255] * 3]
    assert [f[0, :, 0].tolist() for f in found[1:]] == list(kinds.values())


def test_what_is_no_picture_has_a_reason():
    wrong = [np.zeros((3, 224, 224)), np.zeros((4, 4, 2)), np.array([["a"]]), np.zeros(5), None]
    _, found = read([*wrong, np.zeros((0, 4, 3)), "words"])
    assert [f.reason for f in found] == ["corrupt"] * 5 + ["empty", "missing"]
    assert found[0].detail.startswith("expected an array of shape (height, width), ")


def test_opened_files_are_turned_and_cut_ones_have_a_reason(put, picture, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(48, 32).save(tmp_path / "a.png", exif=exif)
    path = put("a.jpg")
    path.write_bytes(path.read_bytes()[:-200])
    with Image.open(tmp_path / "a.png") as image, Image.open(path) as cut:
        _, found = read([image, cut])
    assert np.array_equal(found[0], np.rot90(np.asarray(picture(48, 32)), -1))
    assert found[1].reason == "truncated"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (Image.new("L", (4, 4)), "got one image.*: put it in a list"),
        (np.zeros((4, 4, 3), np.uint8), "got one image of shape .*: put it in a list"),
        (torch.zeros((3, 4, 4)), "got one image.*: put it in a list"),
        (np.zeros((4, 4)), "got one image.*: put it in a list"),
        (3, "source must be .*data frame.*; got int"),
        ({"a": 1, "b": 2}, "got dict with the keys a, b"),
        (b"x", "got bytes"),
        (iter([]), "got list_iterator, which has no length"),
        (object(), "got object"),
    ],
)
def test_what_is_no_sequence(source, words):
    refused(UsageError, words, source)


def test_open_files_are_read_as_their_format_means_them(capfd):
    """Pillow alone would swap the bytes of such a file."""
    values = np.linspace(0, 1, 60 * 80, dtype=np.float32).reshape(60, 80)
    out = io.BytesIO()
    tifffile.imwrite(out, values, photometric="minisblack", compression="zlib", byteorder=">")
    data = bytearray(out.getvalue())
    _, (found,) = read([Image.open(io.BytesIO(data))])
    assert np.abs(found[..., 0] - 255 * values).max() <= 0.5
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        (start,) = file.pages[0].dataoffsets
    data[start : start + 2] = b"\0\0"  # what begins so is no stream of zlib
    _, (found,) = read([Image.open(io.BytesIO(data))])
    assert found.reason == "corrupt"
    assert capfd.readouterr() == ("", "")


class ItemSet:
    """A data set with items, and with other attributes."""

    def __init__(self, items, **more):
        self.items = items
        vars(self).update(more)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, row):
        return self.items[row]


def folder_set(folder, **more):
    """As torchvision.datasets.ImageFolder with a transform."""
    names = sorted(path.name for path in folder.iterdir())
    numbers = {name: number for number, name in enumerate(names)}
    files = [path for name in names for path in sorted((folder / name).iterdir())]
    samples = [(str(path), numbers[path.parent.name]) for path in files]
    items = [(torch.full((3, 8, 8), -2.0), target) for _, target in samples]
    about = {"root": str(folder), "samples": samples, "class_to_idx": numbers}
    return ItemSet(items, **about | more)


def array_set(data, targets):
    """As torchvision.datasets.CIFAR10, or MNIST, with a transform."""
    items = [(torch.full((3, 8, 8), -2.0), target) for target in targets]
    return ItemSet(items, data=data, targets=targets, classes=("cat", "dog"))


def to_tensor(picture):
    """As torchvision's ToTensor."""
    return torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1).float() / 255


@pytest.fixture
def folder(put):
    for i, name in enumerate(["dog/a.png", "cat/b.jpg", "cat/sub c.png"]):
        path = put(f"root/{name}", seed=i)
    return path.parent.parent


@pytest.fixture
def arrays(picture):
    return np.stack([np.asarray(picture(seed=i)) for i in range(4)])


def test_files_are_read_and_not_what_a_transform_makes_of_them(folder):
    here, given = open_images(folder), folder_set(folder)
    # as of timm, a reader has them
    for source in (given, ItemSet(given.items, reader=given)):
        images = open_images(source)
        for column in ("ids", "labels", "locators"):
            assert getattr(images, column).to_pylist() == getattr(here, column).to_pylist()
        assert list(images.opener.read(range(3))) == list(here.opener.read(range(3)))
    outside = open_images(folder_set(folder, root="/elsewhere"))
    assert outside.ids[0].as_py() == str(folder / "cat/b.jpg")


def test_an_array_is_read_as_it_is(arrays):
    images = open_images(array_set(arrays, [0, 1, 1, 0]))
    assert images.ids.to_pylist() == ["0", "1", "2", "3"]
    assert images.labels.to_pylist() == ["cat", "dog", "dog", "cat"]
    digests = [content_digest(data) for data in images.opener.read(range(4))]
    assert digests == [content_digest(picture) for picture in arrays]
    grey = torch.arange(2 * 8 * 8, dtype=torch.uint8).reshape(2, 8, 8)
    images = open_images(array_set(grey, torch.tensor([1, 0])))
    assert images.labels.to_pylist() == ["dog", "cat"]
    [found] = images.opener.read([1])
    assert np.array_equal(found, np.repeat(grey[1].numpy()[..., None], 3, axis=2))
    # of which the axes are not known
    items = [(Image.fromarray(picture), None) for picture in arrays]
    images = open_images(ItemSet(items, data=arrays.transpose(0, 3, 1, 2), targets=[0, 1, 1, 0]))
    assert images.labels.to_pylist() == ["0", "1", "1", "0"]
    assert np.array_equal(next(images.opener.read([2])), arrays[2])
    refused(UsageError, r"id 'x': .*has no columns", array_set(arrays, [0] * 4), id="x")


def test_a_subset_keeps_the_ids_of_the_whole(folder, arrays):
    part = torch.utils.data.Subset(folder_set(folder), [2, 0])
    images = open_images(part)
    assert images.ids.to_pylist() == ["cat/b.jpg", "dog/a.png"]
    assert images.labels.to_pylist() == ["cat", "dog"]
    opener = pickle.loads(pickle.dumps(images.opener))
    assert decode(next(opener.read([1]))).width == 48
    whole = array_set(arrays, [0, 1, 1, 0])
    inner = torch.utils.data.Subset(whole, np.array([3, 1, 2]))
    nested = open_images(torch.utils.data.Subset(inner, [2, 0]), group=r"/(.)/")
    assert nested.ids.to_pylist() == ["2", "3"], "the first and the last of rows 3, 1, 2"
    assert nested.groups.to_pylist() == ["2", "3"]
    assert np.array_equal(next(nested.opener.read([1])), arrays[3])
    beyond = torch.utils.data.Subset(whole, [9])
    refused(UsageError, r"a subset of 4 images names row 9", beyond)


def test_tensors_in_unit_range_are_the_pixels_they_came_from(arrays):
    images = open_images(ItemSet([(to_tensor(picture), row) for row, picture in enumerate(arrays)]))
    assert images.labels.to_pylist() == ["0", "1", "2", "3"]
    for found, want in zip(images.opener.read(range(4)), arrays, strict=True):
        assert np.array_equal(found, want)
    whole = torch.from_numpy(arrays).permute(0, 3, 1, 2)
    assert np.array_equal(next(open_images(whole).opener.read([1])), arrays[1]), "uint8, in one"
    one = open_images([to_tensor(arrays[0])[:1]])
    assert np.array_equal(next(one.opener.read([0]))[..., 0], arrays[0][..., 0]), "one channel"


def test_normalised_tensors_are_refused_in_one_line(arrays):
    said = r"^source: ItemSet yields tensors, but .* normalised; give the data set without its"
    normalised = (to_tensor(arrays[0]) - 0.45) / 0.22
    for tensor in (normalised, torch.full((3, 4, 4), float("nan"))):
        refused(UsageError, said, ItemSet([(tensor, 0)]))
    mixed = open_images(ItemSet([(to_tensor(arrays[0]), 0), (normalised, 1)]))
    assert next(mixed.opener.read([1])).reason == "unsupported"


def test_labels_of_every_kind(arrays):
    values = [torch.tensor(1), np.int64(0), "x", None]
    items = [(Image.fromarray(a), value) for a, value in zip(arrays, values, strict=True)]
    assert open_images(ItemSet(items)).labels.to_pylist() == ["1", "0", "x", None]
    named = ItemSet(items, classes=["cat", "dog"])
    assert open_images(named).labels.to_pylist() == ["dog", "cat", "x", None]
    # where the data set has them, not every item is read
    given = ItemSet([*items[:1], None, None], targets=[1, 0, 1], classes=["a", "b"])
    assert open_images(given).labels.to_pylist() == ["b", "a", "b"]


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


def tables(names):
    """Return one set as every kind of object."""
    rows = {"path": names, "label": ["a", "b", "c", "a"]}
    images = {"image": [np.asarray(Image.open(name)) for name in names], "label": rows["label"]}
    return (
        pd.DataFrame(rows),
        pa.table({**rows, "image": [Path(name).read_bytes() for name in names]}),
        pd.DataFrame(images),
        [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)],
        [dict(zip(images, row, strict=True)) for row in zip(*images.values(), strict=True)],
    )


@pytest.mark.parametrize("kind", range(5))
def test_every_kind_of_table_holds_the_same_images(photos, kind):
    images = open_images(tables(photos)[kind], name="mine")
    for name, found in zip(photos, images.opener.read(range(4)), strict=True):
        assert np.array_equal(decode(found).pixels, decode(Path(name).read_bytes()).pixels)
    assert images.labels.to_pylist() == ["a", "b", "c", "a"]
    assert "4 images" in repr(images)


def test_an_audit_of_a_frame_with_itself_finds_the_copy(photos):
    table = pd.DataFrame({"path": photos, "label": ["a", None, "c", "a"]})
    result = visleak.audit(table.iloc[:3], table.iloc[3:], cache=None, near_at=0.7, views="none")
    assert result.summary.settings.near_at == 0.7
    assert result.leaks()["query"].to_pylist() == ["0.png"]
    assert list(result.to_pandas(grade="near")["reference"]) == ["3.png"]
    assert next(row["query"] for row in result) == "0.png"
    assert len(result) == len(result.pairs())
    assert bool(result)
    refused(UsageError, "did you mean 'near_at'", photos, visleak.audit, near_att=0.7)


@pytest.mark.parametrize(
    "kind",
    [
        *(np.array, pd.Series, pa.array, tuple, set),
        lambda names: pa.table({"path": names}).to_batches()[0],
        lambda names: pytest.importorskip("polars").LazyFrame({"path": names}),
    ],
)
def test_other_objects_that_hold_paths(photos, kind):
    assert open_images(kind(photos)).ids.to_pylist() == photos
    # a mapping with one split is this split
    assert open_images({"test": kind(photos)}).ids.to_pylist() == photos
    refused(UsageError, "one of image files", [*photos, "a.tar"])


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
    """Of a mapping, such as a DatasetDict, of a folder, and of a column of a table."""
    sides = ["test", None, "test", "train"]
    for name, side in zip(photos, sides, strict=True):
        Path("data", str(side)).mkdir(parents=True, exist_ok=True)
        Path("data", str(side), name).write_bytes(Path(name).read_bytes())
    stored = [Path(name).read_bytes() for name in photos]
    tables = (pd.DataFrame({"path": photos, "split": sides}), {"image": stored, "split": sides})
    mapping = {"test": photos[:3:2], "train": photos[3:]}
    for source in (mapping, "data", tables[0], pa.table(tables[1])):
        assert str(visleak.audit(source, cache=None).rate("exact"))[:6] == "1 of 2"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (pd.DataFrame({"file": ["a.png"]}), "`path`.*`image`.*file"),
        ([{"pixels": 1}], "keys pixels"),
        ([1, 2], "got int"),
        ([(torch.rand(2, 3, 8, 8), torch.zeros(2))], r"batch of shape \(2, 3, 8, 8\)"),
        ([(None, 3), (None, 4)], "NoneType in a tuple"),
        ({"train": 3}, "got"),
        ([], "set 'test' holds no images"),
        ({"a": ["a.png"], "b": ["a.png"]}, "must be train or val"),
        ({"train": ["a.png"], "val": ["a.png"], "validation": ["a.png"]}, "split val twice"),
    ],
)
def test_what_is_not_understood_is_refused(source, words):
    """Instead of an audit of nothing, or of a guess."""
    sides = (source,) if isinstance(source, dict) and len(source) > 1 else (source, source)
    with pytest.raises(VisleakError, match=words):
        visleak.audit(*sides, cache=None)
