"""Pages of TIFF, slices of NIfTI, arrays and frames of videos: each is read as it was written."""

import gzip
import pickle
import re
import struct
import sys
from pathlib import Path

import h5py
import nibabel
import numpy as np
import pytest
import tifffile
from PIL import Image
from video_making import number_of, numbered, write_video

from refusals import refused
from visleak.errors import MissingExtra, UsageError, VisleakError
from visleak.formats import open_image_set
from visleak.formats.video import FrameInterval
from visleak.images import decode
from visleak.images.pixels import rgb_of_array
from visleak.records import Unreadable

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (6, 20, 30), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (6, 20, 30, 3), dtype=np.uint8)
DEEP = RNG.integers(0, 4096, (6, 20, 30), dtype=np.uint16)
VOLUME = RNG.integers(0, 900, (16, 20, 24)).astype(np.int16)
LABELS = np.array([3, 1, 4, 1, 5, 9])


def idx(values):
    head = struct.pack(">HBB", 0, 8, values.ndim)
    return head + np.array(values.shape, ">u4").tobytes() + values.tobytes()


def same(source, expected, **checks):
    """Whether a source holds some images, read forward, backward and one by one."""
    images = open_image_set(source)
    assert len(images) == len(expected)
    for positions in (range(len(expected)), [1], [0], [0, len(expected) - 1]):
        for at, found in zip(positions, images.opener.read(list(positions)), strict=True):
            assert np.array_equal(found, rgb_of_array(expected[at])), at
    for name, value in checks.items():
        assert getattr(images, name).to_pylist()[: len(value)] == value
    return images


@pytest.mark.parametrize(
    "values",
    [GREY, DEEP, COLOUR.transpose(0, 3, 1, 2), np.asfortranarray(GREY), GREY > 9],
    ids=["grey", "deep", "channels first", "fortran", "boolean"],
)
def test_npy(tmp_path, values):
    np.save(tmp_path / "a.npy", values)
    images = values.transpose(0, 2, 3, 1) if values.shape[1] == 3 else values
    same(tmp_path / "a.npy", images, ids=["a.npy#0", "a.npy#1"])


def test_files_of_several_arrays_with_labels(tmp_path):
    arrays = {"train_images": COLOUR, "train_labels": LABELS[:, None], "val_images": GREY[:2]}
    path = tmp_path / "m.npz"
    np.savez_compressed(path, **arrays)
    source = f"array:{path}#key=train_images"
    images = same(source, COLOUR, labels=["3", "1", "4"], ids=["m.npz#train_images/0"])
    same(path, [*COLOUR, *GREY[:2]])
    assert images.groups is None  # both sides of a set are often in one file
    words = "there are train_images, train_labels, val_images"
    refused(UsageError, words, f"array:{path}#key=test", open_image_set)
    with h5py.File(tmp_path / "p.h5", "w") as file:
        file["x"], file["y"] = COLOUR, LABELS.reshape(6, 1, 1, 1)
    same(tmp_path / "p.h5", COLOUR, labels=["3", "1"], ids=["p.h5#x/0"])
    # an archive whose headers say that it is encrypted
    np.savez(path, images=GREY)
    content = bytearray(path.read_bytes())
    for magic, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        content[content.find(magic) + at] |= 1
    path.write_bytes(content)
    refused(VisleakError, "encrypted", path, open_image_set)


def test_hdf5_never_reads_other_files(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = COLOUR
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["link"] = h5py.ExternalLink("other.h5", "x")
        layout = h5py.VirtualLayout(shape=COLOUR.shape, dtype="u1")
        layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "x", COLOUR.shape)
        file.create_virtual_dataset("x", layout)
    refused(VisleakError, "data in other files", tmp_path / "a.h5", open_image_set)


@pytest.mark.parametrize("name", ["t10k-images-idx3-ubyte", "train-images-idx3-ubyte.gz"])
def test_idx(tmp_path, name):
    packed = gzip.compress(idx(GREY)) if name.endswith("gz") else idx(GREY)
    (tmp_path / name).write_bytes(packed)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(LABELS.astype(np.uint8)))
    same(tmp_path / name, GREY)
    same(f"array:{tmp_path}", GREY)


def test_arrays_that_are_refused(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    np.save(tmp_path / "vectors.npy", np.zeros((5, 4, 3, 2, 7)))
    np.save(tmp_path / "good.npy", GREY)
    data = (tmp_path / "good.npy").read_bytes()
    (tmp_path / "huge.npy").write_bytes(data.replace(b"(6, 20, 30)", b"(6,9999999)"))
    (tmp_path / "bad-ubyte").write_bytes(b"\0\0\x42\x03")
    images = open_image_set(f"array:{tmp_path}")
    assert {each.split("#")[0] for each in images.ids.to_pylist()} == {"good.npy"}
    assert {each.id: each.reason for each in images.problems} == {
        **dict.fromkeys(("objects.npy", "vectors.npy"), "unsupported"),
        **{"huge.npy": "too-large", "bad-ubyte": "corrupt"},
    }


def test_a_truncated_file_costs_its_last_images(tmp_path):
    nibabel.save(nibabel.Nifti1Image(GREY.transpose(2, 1, 0), np.eye(4)), tmp_path / "a.nii.gz")
    np.save(tmp_path / "a.npy", GREY)
    (tmp_path / "a-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(GREY)))
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-700])
        found = list(open_image_set(path).opener.read(range(6)))
        assert found[-1].reason in ("truncated", "corrupt")
        assert np.array_equal(found[0][:, :, 0], GREY[0])


@pytest.mark.parametrize("name", ["v.nii", "v.nii.gz"])
def test_nifti(tmp_path, name):
    values = RNG.integers(-1000, 2000, (16, 20, 24, 2)).astype(np.int16)
    path = tmp_path / name
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), path)
    slices = [values[:, :, z, t].T for t in range(2) for z in range(24)]
    images = same(path, slices, ids=[f"{name}#z=0,t=0", f"{name}#z=1,t=0"])
    assert images.frames.to_pylist() == 2 * list(range(24))
    same(f"nifti:{path}#axis=0", [values[x, :, :, t].T for t in (0, 1) for x in range(16)])
    nibabel.save(nibabel.Nifti2Image(VOLUME, np.eye(4)), path)
    same(path, [VOLUME[:, :, z].T for z in range(24)])
    refused(UsageError, "axis", f"nifti:{path}#axis=3", open_image_set)


@pytest.mark.parametrize("values", [GREY, COLOUR, DEEP, DEEP.astype(np.float32) / 7])
def test_pages(tmp_path, values):
    photometric = "rgb" if values.ndim == 4 else "minisblack"
    tifffile.imwrite(tmp_path / "a.tif", values, photometric=photometric, compression="zlib")
    same(f"tiff:{tmp_path / 'a.tif'}", values, ids=["a.tif#page=0"])


def test_a_page_is_turned_as_it_states_and_its_tiles_are_as_stored(tmp_path):
    tags = [(274, "H", 1, 6, False)]  # clockwise
    tifffile.imwrite(tmp_path / "a.tif", COLOUR, photometric="rgb", extratags=tags)
    same(f"tiff:{tmp_path / 'a.tif'}", np.rot90(COLOUR, -1, axes=(1, 2)))
    same(f"tiff:{tmp_path / 'a.tif'}#tile=100", COLOUR)


def test_pages_behind_the_end_of_a_file_are_stated(tmp_path):
    tifffile.imwrite(tmp_path / "whole.tif", COLOUR, photometric="rgb")
    with tifffile.TiffFile(tmp_path / "whole.tif") as file:
        third = file.pages[2].offset
    (tmp_path / "cut.tif").write_bytes((tmp_path / "whole.tif").read_bytes()[:third])
    (tmp_path / "head.tif").write_bytes(b"II*\0garbage")
    images = open_image_set(f"tiff:{tmp_path}")
    assert images.groups.to_pylist().count("whole.tif") == len(COLOUR)
    assert [(each.id, each.reason) for each in images.problems] == [
        ("cut.tif", "truncated"),
        ("head.tif", "corrupt"),
    ]


def test_files_of_one_ome_set_are_listed_by_themselves(tmp_path):
    """Each file of a set names the planes of all; none may be in two files, or two sides."""
    numbers = {"a": "urn:uuid:1", "b": "urn:uuid:2"}
    planes = "".join(
        f'<TiffData FirstZ="{z}" IFD="0" PlaneCount="1">'
        f'<UUID FileName="{name}.ome.tif">{number}</UUID></TiffData>'
        for z, (name, number) in enumerate(numbers.items())
    )
    for name, number, plane in zip(numbers, numbers.values(), GREY[:2], strict=True):
        about = (
            f'<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" UUID="{number}">'
            '<Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint8"'
            f' SizeX="{plane.shape[1]}" SizeY="{plane.shape[0]}" SizeZ="2" SizeC="1" SizeT="1">'
            f'<Channel ID="Channel:0:0"/>{planes}</Pixels></Image></OME>'
        )
        place = tmp_path / f"{name}.ome.tif"
        tifffile.imwrite(place, plane, description=about, metadata=None)
    images = open_image_set(f"tiff:{tmp_path}")
    assert images.ids.to_pylist() == ["a.ome.tif#page=0", "b.ome.tif#page=0"]
    for found, plane in zip(images.opener.read([0, 1]), GREY, strict=False):
        assert np.array_equal(found[:, :, 0], plane)


@pytest.mark.parametrize(
    "options",
    [
        {"tile": (64, 48), "compression": "zlib"},
        {"rowsperstrip": 17, "compression": "lzw"},
        {"tile": (64, 64), "planarconfig": "separate"},
    ],
    ids=["tiles", "strips", "planes"],
)
def test_tiles_are_the_parts_of_a_page(tmp_path, options):
    values = RNG.integers(0, 256, (230, 190, 3), dtype=np.uint8)
    page = values.transpose(2, 0, 1) if "planarconfig" in options else values
    tifffile.imwrite(tmp_path / "a.tif", page, photometric="rgb", **options)
    images = open_image_set(f"tiff:{tmp_path / 'a.tif'}#tile=100")
    assert len(images) == 6
    for name, found in zip(images.ids.to_pylist(), images.opener.read(range(6)), strict=True):
        x, y = map(int, re.search(r"x=(\d+),y=(\d+)", name).groups())
        assert np.array_equal(found, values[y : y + 100, x : x + 100])
    for option in ("tile=x", "pages=1"):
        refused(UsageError, "tile|pages", f"tiff:{tmp_path}#{option}", open_image_set)


def test_the_label_of_a_slide_is_left_out(tmp_path):
    """A file as scanners write it: tissue, thumbnail, a smaller level, label and macro."""
    tissue = RNG.integers(0, 256, (512, 384, 3), dtype=np.uint8)
    about = "Aperio Image Library v1\r\n512x384 [0,0 384x512] (128x128) JPEG/RGB Q=70|AppMag = 20"
    with tifffile.TiffWriter(tmp_path / "a.svs") as file:
        options = {"photometric": "rgb", "metadata": None}
        file.write(tissue, tile=(128, 128), description=about, **options)
        file.write(tissue[::8, ::8], description=about + "\nthumbnail", **options)
        file.write(tissue[::4, ::4], tile=(16, 16), description=about, **options)
        file.write(tissue[:50, :60], description=about + "\nlabel 60x50", subfiletype=1, **options)
        file.write(tissue[:60, :90], description=about + "\nmacro 90x60", subfiletype=9, **options)
    source = f"tiff:{tmp_path / 'a.svs'}"
    images = open_image_set(f"{source}#tile=256")
    assert images.ids.to_pylist() == [
        f"a.svs#page=0,x={x},y={y}" for y in (0, 256) for x in (0, 256)
    ]
    assert np.array_equal(next(images.opener.read([1])), tissue[:256, 256:])
    smaller = open_image_set(f"{source}#level=1")
    assert np.array_equal(next(smaller.opener.read([0])), tissue[::4, ::4])
    refused(VisleakError, "2 levels", f"{source}#level=2", open_image_set)


@pytest.mark.parametrize(
    ("module", "name", "extra"),
    [
        ("av", "video:a.mp4", "video"),
        ("datasets", "hf:a.x", "hf"),
        ("h5py", "array:a.h5", "hdf5"),
        ("nibabel.nifti1", "nifti:a.nii", "medical"),
        ("pydicom", "dicom:a.dcm", "medical"),
        ("tifffile", "tiff:a.tif", "tiff"),
    ],
)
def test_a_missing_library_is_one_line(tmp_path, monkeypatch, module, name, extra):
    monkeypatch.chdir(tmp_path)
    Path(name.partition(":")[2]).write_bytes(b"II*\0")
    monkeypatch.setitem(sys.modules, module, None)
    refused(MissingExtra, rf"pip install 'visleak\[{extra}\]'", name)


FRAMES = [numbered(number) for number in range(120)]
CONTAINERS = (
    ("a.mp4", "libx264", {"bf": "3", "g": "30"}),
    ("a.mkv", "libx264", {"bf": "2", "g": "250"}),
    ("a.avi", "mpeg4", {"bf": "2", "g": "12"}),
    ("b.avi", "libx264", {"bf": "3", "g": "30"}),  # which has no times of showing
    ("a.webm", "libvpx", {"g": "50", "b": "1M"}),
)


@pytest.fixture(scope="module", params=CONTAINERS, ids=lambda each: each[0])
def video(request, tmp_path_factory):
    name, codec, options = request.param
    return write_video(tmp_path_factory.mktemp("video") / name, FRAMES, codec, **options)


def test_each_frame_is_the_one_of_its_time(video):
    images = open_image_set(f"video:{video}#every=all")
    assert len(images) == 120
    assert images.timed
    assert images.frames.to_pylist() == [40 * number for number in range(120)]
    assert set(images.groups.to_pylist()) == {video.name}
    opener = pickle.loads(pickle.dumps(images.opener))
    for positions in (range(120), [90], [3, 4, 100], [2], [2], [119], [0, 60, 61]):
        assert [number_of(frame) for frame in opener.read(positions)] == list(positions)


def test_an_interval_takes_the_frame_that_is_shown(video):
    images = open_image_set(video)  # by its ending, each second
    assert images.ids.to_pylist() == [f"{video.name}#t={second}.000" for second in range(5)]
    images = open_image_set(f"video:{video}#every=30")
    assert images.frames.to_pylist() == [0, 1200, 2400, 3600]


def test_a_rate_that_varies(tmp_path):
    times = [0, 40, 1500, 1540, 1580, 4000, 4010]
    frames = [numbered(number) for number in range(len(times))]
    path = write_video(tmp_path / "vfr.mkv", frames, milliseconds=times)
    images = open_image_set(f"video:{path}#every=all")
    assert images.frames.to_pylist() == times
    images = open_image_set(f"video:{path}#every=1s")
    # at 0 s, 1 s and 2 s to 4 s: a frame that is shown for long is taken once
    assert [number_of(frame) for frame in images.opener.read(range(len(images)))] == [0, 1, 4, 5]


@pytest.mark.parametrize("text", ["0", "1.5", "x", "-1s", "1h", ""])
def test_intervals_that_are_none(text):
    refused(UsageError, "every must be", text, FrameInterval.parse, where="video:a.mp4")


def test_a_folder_of_videos(tmp_path, put):
    (tmp_path / "one").mkdir()
    write_video(tmp_path / "one" / "a.mp4", FRAMES[:50])
    write_video(tmp_path / "b.mkv", FRAMES[:20])
    put("notes.txt", b"words")
    images = open_image_set(tmp_path)
    assert images.ids.to_pylist() == ["b.mkv#t=0.000", "one/a.mp4#t=0.000", "one/a.mp4#t=1.000"]
    assert images.labels.to_pylist() == [None, "one", "one"]
    assert images.skipped == {".txt": 1}
    put("cat.png", b"\x89PNG\r\n\x1a\n")
    assert open_image_set(tmp_path).ids.to_pylist() == ["cat.png"]
    # what names other files is no video, and a video may go away
    listed = put("list.mp4", b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n")
    assert [each.id for each in open_image_set(f"video:{tmp_path}").problems] == ["list.mp4"]
    refused(VisleakError, "holds no images", listed, open_image_set)
    (tmp_path / "b.mkv").unlink()
    assert next(images.opener.read([0])).reason == "missing"


def test_a_truncated_video_keeps_what_it_holds(tmp_path):
    path = write_video(tmp_path / "a.mkv", [*FRAMES, *FRAMES], g="10")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    images = open_image_set(f"video:{path}#every=all")
    assert 20 < len(images) < 200
    (problem,) = images.problems
    assert problem.reason == "truncated"
    found = zip(images.frames.to_pylist(), images.opener.read(range(len(images))), strict=True)
    shown = [(time // 40, frame) for time, frame in found if not isinstance(frame, Unreadable)]
    assert all(number_of(frame) == at % 120 for at, frame in shown)
    assert len(shown) >= len(images) - 2


@pytest.mark.parametrize("ending", ["gif", "png", "webp", "avif"])
def test_animations_frame_by_frame(tmp_path, ending):
    frames = [Image.fromarray(numbered(number)) for number in range(6)]
    path = tmp_path / f"a.{ending}"
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=200)
    images = open_image_set(f"video:{path}#every=all")
    assert images.frames.to_pylist() == [0, 200, 400, 600, 800, 1000]
    found = list(images.opener.read(range(6)))
    assert [number_of(frame) for frame in found] == list(range(6))
    assert np.array_equal(found[0], decode(path.read_bytes()).pixels)
    frames[0].save(tmp_path / f"still.{ending}")
    listed = open_image_set(f"video:{tmp_path}#every=all")  # of a folder, what moves
    assert set(listed.groups.to_pylist()) == {path.name} | ({"still.gif"} & {f"still.{ending}"})


@pytest.mark.parametrize("ending", ["jpg", "heic", "jxl"])
def test_an_image_that_is_named_as_a_video_is_refused_as_one(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    path.write_bytes(b"pixels")
    refused(VisleakError, rf"\.{ending} files are read as one", f"video:{path}", open_image_set)
