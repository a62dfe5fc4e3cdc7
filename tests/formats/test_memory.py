"""Images that the program already holds."""

import io
import pickle

import numpy as np
import tifffile
from PIL import Image

from refusals import refused
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images


def read(pictures, **options):
    images = open_images(pictures, **options)
    return images, list(images.opener.read(range(len(images))))


def test_pillow_images_and_arrays(picture):
    image = picture()
    rgb = np.asarray(image)
    images, found = read([image, rgb, image.convert("L"), rgb[:, :, 0], rgb[:, :, :1]], name="mine")
    assert images.name == "mine"
    assert images.ids.to_pylist() == ["0", "1", "2", "3", "4"]
    assert images.labels is None
    assert images.source == ""
    assert all(f.dtype == np.uint8 and f.shape == (32, 48, 3) for f in found)
    assert np.array_equal(found[0], rgb)
    assert np.array_equal(found[1], rgb)
    assert np.array_equal(found[3], np.repeat(rgb[:, :, :1], 3, 2))
    assert np.array_equal(found[4], found[3])
    assert next(pickle.loads(pickle.dumps(images.opener)).read([2])).shape == (32, 48, 3)
    assert open_images(images, name="other") is images


def test_labels_come_with_tuples(picture):
    images, found = read([(picture(), label) for label in ("cat", 3, np.int64(4), None)])
    assert images.labels.to_pylist() == ["cat", "3", "4", None]
    assert found[0].shape == (32, 48, 3)


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
    rgba = np.zeros((2, 2, 4), np.uint8)
    rgba[0, 0] = [10, 20, 30, 255]
    rgba[1, 1] = [0, 0, 0, 128]
    grey = np.array([[0, 257], [65535, 514]], np.uint16)
    kinds = {
        (np.bool_, (True, False)): [255, 0],
        (np.float64, (0.0, 0.5, 1.0)): [0, 128, 255],
        (np.int64, (0, 255)): [0, 255],
        (np.int32, (-5, 5)): [0, 255],
        (np.float16, (0.0, 200.4)): [0, 200],
        (np.int64, (0, 25700)): [0, 100],
        (np.int8, (7,)): [7],
        (np.float64, (0,)): [0],
        (np.float64, (-3.0, -3.0)): [0, 0],
    }
    _, found = read([rgba, grey, *(np.array([values], kind) for kind, values in kinds)])
    assert found[0][0].tolist() == [[10, 20, 30], [255, 255, 255]]
    assert found[0][1, 1].tolist() == [127] * 3
    assert found[1][..., 0].tolist() == [[0, 1], [255, 2]]
    assert [f[0, :, 0].tolist() for f in found[2:]] == list(kinds.values())


def test_what_is_no_picture_has_a_reason():
    wrong = [np.zeros((3, 224, 224)), np.zeros((4, 4, 2)), np.array([["a"]]), np.zeros(5), None]
    _, found = read([*wrong, np.zeros((0, 4, 3)), "words"])
    assert [f.reason for f in found] == ["corrupt"] * 5 + ["empty", "missing"]
    assert found[0].detail.startswith("expected an array of shape (height, width), ")
    assert found[4].detail == "expected a Pillow image or an array, got NoneType"


def test_the_orientation_of_an_opened_file_is_applied(put, picture, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(48, 32).save(tmp_path / "a.png", exif=exif)
    with Image.open(tmp_path / "a.png") as image:
        _, found = read([image])
    assert np.array_equal(found[0], np.rot90(np.asarray(picture(48, 32)), -1))


def test_a_cut_file_opened_by_pillow(put, tmp_path):
    path = put("a.jpg")
    path.write_bytes(path.read_bytes()[:-200])
    with Image.open(path) as image:
        _, found = read([image])
    assert found[0].reason == "truncated"


def test_an_array_of_pictures():
    stack = np.zeros((5, 8, 9, 3), np.uint8)
    assert len(read(stack)[1]) == 5
    assert read(np.zeros((5, 8, 9), np.uint8))[1][0].shape == (8, 9, 3)


def test_what_is_no_sequence(picture):
    for one in (picture(), np.asarray(picture()), np.zeros((4, 4))):
        refused(UsageError, r"got one image.*: put it in a list", one)
    for other, seen in (
        (3, "int"),
        ({"a": 1}, "int"),
        ({"a": 1, "b": 2}, "dict with the keys a, b"),
        (b"x", "bytes"),
        (iter([]), "list_iterator, which has no length"),
    ):
        refused(UsageError, rf"source must be .*data frame.*; got {seen}", other)
    refused(VisleakError, r"holds no images", [])
    refused(UsageError, r"label 'x': a sequence has no columns", [picture()], label="x")
    assert open_images([picture()] * 3, group="/[01]/").groups.to_pylist() == ["0", "1", None]


def test_encoded_pictures_are_passed_on(picture, encode):
    data = encode(picture())
    images, found = read([(data, "a\ud800")])
    assert found == [data]
    assert images.labels.to_pylist() == ["a\\ud800"]


def test_open_files_are_read_as_their_format_means_them(capfd):
    """Pillow alone would swap the bytes of such a file."""
    values = np.linspace(0, 1, 60 * 80, dtype=np.float32).reshape(60, 80)
    out = io.BytesIO()
    tifffile.imwrite(out, values, photometric="minisblack", compression="zlib", byteorder=">")
    _, (found,) = read([Image.open(io.BytesIO(out.getvalue()))])
    assert np.abs(found[..., 0] - 255 * values).max() <= 0.5
    with tifffile.TiffFile(io.BytesIO(out.getvalue())) as file:
        (start,) = file.pages[0].dataoffsets
    damaged = bytearray(out.getvalue())
    # what begins so is no stream of zlib
    damaged[start : start + 2] = b"\0\0"
    _, (found,) = read([Image.open(io.BytesIO(bytes(damaged)))])
    assert found.reason == "corrupt"
    assert capfd.readouterr() == ("", "")
