"""Data sets in the manner of torchvision, by classes of the same shape; and by the real ones."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from refusals import refused
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images
from visleak.images import content_digest, decode

torch = pytest.importorskip("torch", reason="torch is not installed")


class FolderSet:
    """As torchvision.datasets.ImageFolder."""

    def __init__(self, root, transform=None):
        self.root = str(root)
        self.classes = sorted(p.name for p in Path(root).iterdir())
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        self.samples = [
            (str(file), self.class_to_idx[name])
            for name in self.classes
            for file in sorted((Path(root) / name).iterdir())
        ]
        self.imgs = self.samples
        self.targets = [target for _, target in self.samples]
        self.transform = transform

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, row):
        path, target = self.samples[row]
        picture = Image.open(path).convert("RGB")
        return (picture if self.transform is None else self.transform(picture)), target


class ArraySet:
    """As torchvision.datasets.CIFAR10 (or MNIST, with a tensor and no channels)."""

    classes = ("cat", "dog")

    def __init__(self, data, targets, transform=None):
        self.data, self.targets, self.transform = data, targets, transform

    def __len__(self):
        return len(self.data)

    def __getitem__(self, row):
        picture = Image.fromarray(np.asarray(self.data[row]))
        return (picture if self.transform is None else self.transform(picture)), self.targets[row]


class ItemSet:
    """A data set that only has items."""

    def __init__(self, items, **more):
        self.items = items
        vars(self).update(more)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, row):
        return self.items[row]


def to_tensor(picture):
    """As torchvision's ToTensor."""
    return torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1).float() / 255


def normalised(picture):
    return (to_tensor(picture) - 0.45) / 0.22


@pytest.fixture
def folder(put):
    for i, name in enumerate(["dog/a.png", "cat/b.jpg", "cat/sub c.png"]):
        path = put(f"root/{name}", seed=i)
    return path.parent.parent


@pytest.fixture
def arrays(picture):
    return np.stack([np.asarray(picture(seed=i)) for i in range(4)])


def test_files_are_read_and_not_what_a_transform_makes_of_them(folder):
    here = open_images(folder)
    for transform in (None, normalised):
        images = open_images(FolderSet(folder, transform))
        assert images.ids.to_pylist() == here.ids.to_pylist()
        assert images.labels.to_pylist() == here.labels.to_pylist()
        assert images.locators.to_pylist() == here.locators.to_pylist()
        assert list(images.opener.read(range(3))) == list(here.opener.read(range(3)))


def test_files_of_a_reader_as_of_timm(folder):
    items = [(torch.full((3, 8, 8), -2.0), 0)] * 3
    images = open_images(ItemSet(items, reader=FolderSet(folder)))
    assert images.ids.to_pylist() == open_images(folder).ids.to_pylist()
    assert images.labels.to_pylist() == ["cat", "cat", "dog"]


def test_files_outside_the_root_keep_their_paths(folder):
    images = FolderSet(folder)
    images.root = "/elsewhere"
    assert open_images(images).ids[0].as_py() == str(folder / "cat/b.jpg")


@pytest.mark.parametrize("transform", [None, normalised])
def test_an_array_is_read_as_it_is(arrays, transform):
    images = open_images(ArraySet(arrays, [0, 1, 1, 0], transform))
    assert images.ids.to_pylist() == ["0", "1", "2", "3"]
    assert images.labels.to_pylist() == ["cat", "dog", "dog", "cat"]
    digests = [content_digest(data) for data in images.opener.read(range(4))]
    assert digests == [content_digest(picture) for picture in arrays]
    assert len(list(pickle.loads(pickle.dumps(images.opener)).read([3]))) == 1


def test_grey_tensors_as_of_mnist():
    data = torch.arange(2 * 8 * 8, dtype=torch.uint8).reshape(2, 8, 8)
    images = open_images(ArraySet(data, torch.tensor([1, 0])))
    assert images.labels.to_pylist() == ["dog", "cat"]
    [found] = images.opener.read([1])
    assert np.array_equal(found, np.repeat(data[1].numpy()[..., None], 3, axis=2))


def test_channels_first_arrays_go_through_the_items(arrays):
    class First(ArraySet):
        def __getitem__(self, row):
            return Image.fromarray(self.data[row].transpose(1, 2, 0)), self.targets[row]

    images = open_images(First(arrays.transpose(0, 3, 1, 2), np.array([0, 1, 1, 0])))
    assert images.labels.to_pylist() == ["cat", "dog", "dog", "cat"]
    assert np.array_equal(next(images.opener.read([2])), arrays[2])


def test_a_subset_keeps_the_ids_of_the_whole(folder, arrays):
    part = torch.utils.data.Subset(FolderSet(folder), [2, 0])
    images = open_images(part)
    assert images.ids.to_pylist() == ["cat/b.jpg", "dog/a.png"]
    assert images.labels.to_pylist() == ["cat", "dog"]
    assert decode(next(images.opener.read([1]))).width == 48
    inner = torch.utils.data.Subset(ArraySet(arrays, [0, 1, 1, 0]), np.array([3, 1, 2]))
    nested = open_images(torch.utils.data.Subset(inner, [2, 0]), group=r"/(.)/")
    assert nested.ids.to_pylist() == ["2", "3"], "the first and the last of rows 3, 1, 2"
    assert nested.groups.to_pylist() == ["2", "3"]
    assert np.array_equal(next(nested.opener.read([1])), arrays[3])


def test_tensors_in_unit_range_are_the_pixels_they_came_from(arrays):
    made = [(to_tensor(picture), row) for row, picture in enumerate(arrays)]
    images = open_images(ItemSet(made))
    assert images.labels.to_pylist() == ["0", "1", "2", "3"]
    for found, want in zip(images.opener.read(range(4)), arrays, strict=True):
        assert np.array_equal(found, want)
    whole = torch.from_numpy(arrays).permute(0, 3, 1, 2)
    assert np.array_equal(next(open_images(whole).opener.read([1])), arrays[1]), "uint8, in one"
    one = open_images([to_tensor(arrays[0])[:1]])
    assert np.array_equal(next(one.opener.read([0]))[..., 0], arrays[0][..., 0]), "one channel"


def test_normalised_tensors_are_refused_in_one_line(arrays):
    said = r"^source: ItemSet yields tensors, but .* normalised; give the data set without its"
    refused(UsageError, said, ItemSet([(normalised(picture), 0) for picture in arrays]))
    nan = torch.full((3, 4, 4), float("nan"))
    refused(UsageError, r"they are normalised", ItemSet([(nan, 0)]))
    mixed = open_images(ItemSet([(to_tensor(arrays[0]), 0), (normalised(arrays[1]), 1)]))
    assert next(mixed.opener.read([1])).reason == "unsupported"


def test_labels_of_every_kind(arrays):
    values = [torch.tensor(1), np.int64(0), "x", None]
    items = [(Image.fromarray(a), value) for a, value in zip(arrays, values, strict=True)]
    assert open_images(ItemSet(items)).labels.to_pylist() == ["1", "0", "x", None]
    named = ItemSet(items, classes=["cat", "dog"])
    assert open_images(named).labels.to_pylist() == ["dog", "cat", "x", None]


def test_targets_spare_reading_every_item(arrays):
    items = [(Image.fromarray(arrays[0]), 0), None, None, None]
    images = open_images(ItemSet(items, targets=[1, 0, 1, 0], classes=["a", "b"]))
    assert images.labels.to_pylist() == ["b", "a", "b", "a"]


def test_objects_that_are_no_data_set(arrays):
    refused(UsageError, r"source must be .*; got object", object())
    refused(UsageError, r"got one image.*: put it in a list", to_tensor(arrays[0]))
    refused(VisleakError, r"holds no images", ItemSet([]))
    whole = ArraySet(arrays, [0] * 4)
    beyond = torch.utils.data.Subset(whole, [9])
    refused(UsageError, r"a subset of 4 images names row 9", beyond)
    refused(UsageError, r"id 'x': the data set .*has no columns", whole, id="x")


def test_the_real_ones(folder, arrays, tmp_path):
    try:
        from torchvision import datasets, transforms
    except Exception as error:  # beside another torch it fails with an error of its own
        pytest.skip(f"torchvision cannot be imported: {type(error).__name__}")
    for transform in (None, transforms.ToTensor()):
        images = open_images(datasets.ImageFolder(str(folder), transform=transform))
        assert images.ids.to_pylist() == open_images(folder).ids.to_pylist()
        assert images.labels.to_pylist() == ["cat", "cat", "dog"]
    fake = datasets.FakeData(4, (3, 16, 16), 2, transform=transforms.ToTensor())
    found = list(open_images(fake).opener.read(range(4)))
    assert [data.shape for data in found] == [(16, 16, 3)] * 4
