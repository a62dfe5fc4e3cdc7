"""Every kind of file that holds images, damaged in every way: a reason, and never a crash."""

import gzip
import struct
import warnings

import h5py
import nibabel
import numpy as np
import pydicom
import pytest
import tifffile
from PIL import Image
from test_dicom import scan, stored
from video_making import numbered, write_video

from visleak.formats import open_image_set
from visleak.images import decode
from visleak.records import DecodedImage, Unreadable

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (5, 24, 32), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (5, 24, 32, 3), dtype=np.uint8)
FRAMES = [numbered(number) for number in range(12)]
KEY = {
    "encryption_scheme": "cenc-aes-ctr",
    "encryption_key": "76a6c65c5ea762046bd749a2e632ccbb",
    "encryption_kid": "a7e61c373e219033c21091fa607bf3b8",
}


def animation(path, kind):
    first, *others = map(Image.fromarray, FRAMES[:4])
    first.save(path, kind, save_all=True, append_images=others, duration=200)


def hdf5(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=COLOUR, chunks=(1, 24, 32, 3), compression="gzip")


def idx(path):
    head = struct.pack(">HBB3I", 0, 8, 3, *GREY.shape)
    path.write_bytes(gzip.compress(head + GREY.tobytes()))


def nifti(path):
    volume = RNG.integers(-900, 900, (16, 20, 6)).astype(np.int16)
    nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), path)


def slide(path):
    tiles = {"tile": (16, 16), "photometric": "rgb", "compression": "jpeg"}
    with tifffile.TiffWriter(path) as file:
        file.write(np.tile(COLOUR[0], (4, 4, 1)), subifds=1, **tiles)
        file.write(np.tile(COLOUR[0], (2, 2, 1)), subfiletype=1, **tiles)


#: By the ending: the prefix of the source, and what writes a file.
KINDS = {
    "mp4": ("video", lambda path: write_video(path, FRAMES)),
    "mkv": ("video", lambda path: write_video(path, FRAMES)),
    "avi": ("video", lambda path: write_video(path, FRAMES, "mpeg4")),
    "webm": ("video", lambda path: write_video(path, FRAMES, "libvpx", **{"cpu-used": "8"})),
    "gif": ("video", lambda path: animation(path, "GIF")),
    "apng": ("video", lambda path: animation(path, "PNG")),
    "dcm": ("dicom", lambda path: path.write_bytes(stored(scan(GREY.astype(np.uint16) * 9)))),
    "nii": ("nifti", nifti),
    "nii.gz": ("nifti", nifti),
    "tif": ("tiff", lambda path: tifffile.imwrite(path, GREY, compression="zlib")),
    "svs": ("tiff", slide),
    "npy": ("array", lambda path: np.save(path, COLOUR)),
    "npz": ("array", lambda path: np.savez_compressed(path, images=COLOUR)),
    "h5": ("array", hdf5),
    "idx3-ubyte.gz": ("array", idx),
}


def flipped(data, seed):
    rng, broken = np.random.default_rng(seed), bytearray(data)
    for at in rng.integers(0, len(data), 30):
        broken[at] ^= 1 << rng.integers(8)
    return bytes(broken)


#: What leaves no image, and what may.
FATAL = (
    lambda data: b"",
    lambda data: data[:1],
    lambda data: data[:40],
    lambda data: bytes(len(data)),
    lambda data: b"<html><body>404 not found</body></html>" * 20,
)
DAMAGES = (
    *FATAL,
    lambda data: data[: len(data) // 10],
    lambda data: data[: len(data) // 2],
    lambda data: data[: len(data) - 30],
    lambda data: data[: len(data) // 3] + bytes(300) + data[len(data) // 3 + 300 :],
    lambda data: data + b"words",
    *(lambda data, seed=seed: flipped(data, seed) for seed in range(4)),
)


def read(source):
    """Return what is read of each file, with reasons of one line, and names of files not listed."""
    images = open_image_set(source)
    found, reasons = {}, list(images.problems)
    positions = range(len(images))
    for id_, stored_ in zip(images.ids.to_pylist(), images.opener.read(positions), strict=True):
        made = stored_ if isinstance(stored_, Unreadable) else decode(stored_)
        found.setdefault(id_.partition("#")[0], []).append(made)
        if not isinstance(made, DecodedImage):
            reasons.append(made)
    assert all(len(each.detail) < 400 and "\n" not in each.detail for each in reasons)
    return found, {each.id for each in images.problems}


def whole(found):
    return found and all(isinstance(each, DecodedImage) for each in found)


@pytest.mark.parametrize("ending", KINDS)
def test_a_damaged_file_costs_itself_alone(tmp_path, ending, capfd, caplog):
    prefix, make = KINDS[ending]
    good = tmp_path / f"good.{ending}"
    make(good)
    data = good.read_bytes()
    names = [f"bad{number}.{ending}" for number in range(len(DAMAGES))]
    for name, damage in zip(names, DAMAGES, strict=True):
        (tmp_path / name).write_bytes(damage(data))
    # of a file with the ending of another kind, the content decides, or it has a reason
    for other in {"mp4", "gif", "dcm", "nii.gz", "tif", "npy", "h5"} - {ending}:
        KINDS[other][1](tmp_path / f"x.{other}")
        (tmp_path / f"x.{other}").rename(tmp_path / f"other{other}.{ending}")
    found, problems = read(f"{prefix}:{tmp_path}" + "#names=yes" * (prefix == "dicom"))
    assert whole(found[good.name])
    # without pixels it is counted
    assert len(set(names) - {*found, *problems}) <= (ending == "dcm")
    for name in names[: len(FATAL)]:
        assert not any(isinstance(each, DecodedImage) for each in found.get(name, [])), name
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.name.startswith("pydicom")]


def test_an_encrypted_video(tmp_path):
    write_video(tmp_path / "good.mp4", FRAMES)
    write_video(tmp_path / "locked.mp4", FRAMES, container_options=KEY)
    found, problems = read(f"video:{tmp_path}")
    locked = found.get("locked.mp4", [])
    assert not any(isinstance(each, DecodedImage) for each in locked)
    assert locked or problems == {"locked.mp4"}


#: Elements of DICOM that contradict the pixels, or each other.
WRONG = [
    {"Rows": 0},
    {"Rows": 65535, "Columns": 65535},
    {"Columns": 31},
    {"BitsAllocated": 13},
    {"BitsStored": 99},
    {"SamplesPerPixel": 3},
    {"PhotometricInterpretation": "WORDS"},
    {"NumberOfFrames": -3},
    {"NumberOfFrames": 10**9},
    {"RescaleSlope": "1e999"},
]


@pytest.mark.parametrize("elements", WRONG, ids=str)
def test_wrong_elements_of_dicom(tmp_path, elements):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        header = scan(GREY[0].astype(np.uint16), **elements)
        pydicom.dcmwrite(tmp_path / "bad.dcm", header, enforce_file_format=True)
    (tmp_path / "good.dcm").write_bytes(stored(scan(GREY[0].astype(np.uint16))))
    found, _ = read(f"dicom:{tmp_path}#names=yes")
    assert whole(found["good.dcm"])


#: Tags of TIFF: width, length, bits, compression, photometric, offsets, samples, rows, counts.
TAGS = (256, 257, 258, 259, 262, 273, 277, 278, 279, 284, 339)


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("value", [0, 1, 7, 65535])
def test_wrong_tags_of_tiff(tmp_path, tag, value):
    tifffile.imwrite(tmp_path / "good.tif", COLOUR[0], photometric="rgb")
    data = bytearray((tmp_path / "good.tif").read_bytes())
    at = int.from_bytes(data[4:8], "little")
    for entry in range(at + 2, at + 2 + 12 * int.from_bytes(data[at : at + 2], "little"), 12):
        if int.from_bytes(data[entry : entry + 2], "little") == tag:
            data[entry + 8 : entry + 12] = value.to_bytes(4, "little")
    (tmp_path / "bad.tif").write_bytes(data)
    for source in (f"tiff:{tmp_path}", str(tmp_path)):
        found, _ = read(source)
        assert whole(found["good.tif"])
