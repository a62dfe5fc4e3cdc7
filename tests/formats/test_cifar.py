"""CIFAR pickles, read without trusting them."""

import codecs
import collections
import os
import pickle

import numpy as np
import pytest

from refusals import refused
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images
from visleak.formats.cifar import load_pickle
from visleak.images import decode


@pytest.fixture
def rows():
    return np.random.default_rng(0).integers(0, 256, (12, 3072), dtype=np.uint8)


def as_python_2(content):
    """The bytes that Python 2 would have written: texts as old strings."""
    data = pickle.dumps(content, protocol=2)
    return data.replace(b"numpy._core", b"numpy.core")


def write_ten(folder, rows, dump=as_python_2):
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    for i, name in enumerate(names):
        part = rows[2 * i : 2 * i + 2]
        content = {"data": part, "labels": [i, 9 - i], "filenames": ["a", "b"], "batch_label": name}
        (folder / name).write_bytes(dump(content))
    meta = {"label_names": [f"class{i}" for i in range(10)], "num_vis": 3072}
    (folder / "batches.meta").write_bytes(dump(meta))
    return folder


@pytest.mark.parametrize("dump", [as_python_2, pickle.dumps])
def test_cifar_10(dump, tmp_path, rows):
    folder = write_ten(tmp_path / "cifar-10-batches-py", rows, dump)
    for place in (folder, tmp_path):
        images = open_images(f"cifar:{place}#train")
        assert images.ids.to_pylist() == [str(i) for i in range(10)]
        assert images.labels.to_pylist()[:4] == ["class0", "class9", "class1", "class8"]
        assert images.locators[3].as_py() == f"{folder}/data_batch_2!1"
        assert images.name == "train"
    opener = pickle.loads(pickle.dumps(images.opener))
    want = rows.reshape(12, 3, 32, 32).transpose(0, 2, 3, 1)
    for position, found in zip([0, 3, 4, 9], opener.read([0, 3, 4, 9]), strict=True):
        assert np.array_equal(found, want[position])
        assert decode(found).width == 32
    [found] = open_images(f"cifar:{tmp_path}#test").opener.read([1])
    assert np.array_equal(found, want[11])


def test_cifar_100(tmp_path, rows):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name in ("train", "test"):
        content = {"data": rows[:3], "fine_labels": [0, 1, 1], "coarse_labels": [0, 0, 0]}
        (folder / name).write_bytes(as_python_2(content))
    meta = {"fine_label_names": ["apple", "bed"], "coarse_label_names": ["things"]}
    (folder / "meta").write_bytes(as_python_2(meta))
    source = f"cifar:{folder}#test"
    assert open_images(source).labels.to_pylist() == ["apple", "bed", "bed"]
    assert open_images(source, label="coarse_labels").labels.to_pylist() == ["things"] * 3
    refused(UsageError, r"label 'x': .* has fine_labels, coarse_labels$", source, label="x")


class Evil:
    def __init__(self, function, arguments=()):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"data": Evil(os.system, ("touch pwned",))}, "it loads .*system, which no"),
        ({"data": Evil(eval, ("1",))}, "it loads .*eval, which no"),
        ({"data": Evil(getattr, ("text", "upper"))}, "it loads .*getattr, which no"),
        ({"data": Evil(collections.OrderedDict)}, "it loads collections.OrderedDict, which no"),
        ({"data": Evil(np.load, ("x",))}, "it loads numpy.load, which no"),
        ({"data": Evil(bytearray, (10,))}, "it loads .*bytearray, which no"),
        ({"data": Evil(codecs.encode, ("text", "rot13"))}, "the encoding 'rot13' is not read"),
        ({"data": np.array([{}, []], dtype=object)}, "arrays of O8? are not read"),
        ([1], "it is not a table"),
    ],
)
def test_a_pickle_of_anything_else_is_refused(content, words, tmp_path, rows, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = write_ten(tmp_path / "c", rows)
    (folder / "test_batch").write_bytes(pickle.dumps(content, protocol=2))
    said = f"test_batch cannot be read as a CIFAR file: {words}"
    refused(VisleakError, said, f"cifar:{folder}#test")
    assert not (tmp_path / "pwned").exists()


def test_damaged_pickles(tmp_path):
    path = tmp_path / "x"
    good = pickle.dumps({"data": np.zeros((2, 3072), np.uint8)}, protocol=2)
    rng = np.random.default_rng(0)
    for turn in range(200):
        data = bytearray(good[: len(good) if turn % 2 else int(rng.integers(0, len(good)))])
        for place in rng.integers(0, max(1, min(len(data), 200)), 3):
            data[place : place + 1] = bytes([rng.integers(0, 256)])
        path.write_bytes(data)
        try:
            load_pickle(path)
        except VisleakError as error:
            assert "\n" not in str(error)  # noqa: PT017


def test_what_is_missing_is_named(tmp_path, rows):
    refused(VisleakError, r"holds no CIFAR files: expected batches.meta", f"cifar:{tmp_path}#test")
    folder = write_ten(tmp_path / "c", rows)
    for source in (f"cifar:{folder}", f"cifar:{folder}#val"):
        refused(UsageError, r"add #train or #test to choose a split", source)
    refused(UsageError, r"id 'x': CIFAR files have no such column", f"cifar:{folder}#test", id="x")
    images = open_images(f"cifar:{folder}#train")
    (folder / "data_batch_3").unlink()
    assert [f.reason for f in images.opener.read([4, 5])] == ["io-error"] * 2
    refused(VisleakError, r"data_batch_3 is missing; unpack the whole", f"cifar:{folder}#train")
    for data, words in (
        (rows[:2], r"has no 'labels' for its 2 images"),
        (rows[:2, :5], r"without its `data` of 3,072 bytes an image"),
    ):
        (folder / "test_batch").write_bytes(pickle.dumps({"data": data, "labels": [1]}))
        refused(VisleakError, words, f"cifar:{folder}#test")
