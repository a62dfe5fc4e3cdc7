"""Tags of photographs and maps, and columns: read, and believed where the images agree."""

import csv
import string
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tifffile
from made_groups import around, inferred, made_set
from PIL import Image

import visleak
from image_changes import noisy
from visleak.formats import open_image_set
from visleak.grouping.document import options
from visleak.grouping.names import joined_places, read_tags, tags_of

TRUTH = np.repeat(np.arange(25), 4)


def believed_of(alike, **about):
    """Return what is found and believed of four images each of 25 groups, with names of nothing."""
    rng = np.random.default_rng(2)
    vectors = around(TRUTH if alike else range(len(TRUTH)), 2, spread=0.15)
    names = [f"{rng.bytes(8).hex()}.jpg" for _ in TRUTH]
    return inferred(replace(made_set(names, vectors), **about))


def photograph(path, time, serial="123", fraction=""):
    exif = Image.Exif()
    exif[0x010F], exif[0x0110] = "Canon", "EOS 5"
    inner = exif.get_ifd(0x8769)
    inner[0x9003], inner[0xA431], inner[0x9291] = time, serial, fraction
    Image.new("RGB", (8, 8), (9, 9, 9)).save(path, exif=exif)
    return str(path)


def test_camera_and_time_are_read(tmp_path):
    first = tags_of(photograph(tmp_path / "a.jpg", "2021:03:04 05:06:07", fraction="25"))
    second = tags_of(photograph(tmp_path / "b.jpg", "2021:03:04 05:06:09", serial="124"))
    assert first.shot.camera.startswith("Canon EOS 5")
    assert "123" not in first.shot.camera
    assert first.shot.camera != second.shot.camera
    assert second.shot.time - first.shot.time == 1750
    for time in ("", "0000:00:00 00:00:00", "yesterday", "2021:13:04 05:06:07"):
        tags = tags_of(photograph(tmp_path / "c.jpg", time))
        assert tags is None or tags.shot is None


def test_damaged_files_state_nothing(tmp_path):
    data = Path(photograph(tmp_path / "a.jpg", "2021:03:04 05:06:07")).read_bytes()
    rng = np.random.default_rng(0)
    for number in range(40):
        broken = bytearray(data[: rng.integers(1, len(data))] if number % 2 else data)
        for at in rng.integers(0, min(len(broken), 200), 8):
            broken[at] = rng.integers(256)
        (tmp_path / "b.jpg").write_bytes(bytes(broken))
        tags_of(str(tmp_path / "b.jpg"))
    assert read_tags([str(tmp_path / "none.jpg")] * 5) is None
    assert tags_of(located(tmp_path / "none.jpg", 0, 0)) is None


def located(path, north, east):
    exif = Image.Exif()
    gps = exif.get_ifd(0x8825)
    for name, number, value in (("NS", 1, north), ("EW", 3, east)):
        gps[number] = name[value < 0]
        whole = abs(value)
        gps[number + 1] = (int(whole), int(whole * 60 % 60), whole * 3600 % 60)
    Image.new("RGB", (8, 8), (9, 9, 9)).save(path, exif=exif)
    return str(path)


def test_properties_of_xmp(tmp_path):
    def tags(name, properties):
        text = f'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description {properties}</x:xmpmeta>'
        Image.new("RGB", (8, 8), (9, 9, 9)).save(tmp_path / name, xmp=text.encode())
        return tags_of(str(tmp_path / name))

    one = tags(
        "a.jpg",
        'tiff:Model="M3" exif:DateTimeOriginal="2021-03-04T05:06:07.5+01:00" GCamera:BurstID="b1"'
        ' xmpMM:OriginalDocumentID="doc" exif:GPSLatitude="48,30N" exif:GPSLongitude="2,15W"/>',
    )
    other = tags(
        "b.webp",
        "><tiff:Model>M3</tiff:Model><exif:DateTimeOriginal>2021-03-04T05:06:09</exif:DateTimeOriginal>"
        "<GCamera:BurstID>b1</GCamera:BurstID></rdf:Description>",
    )
    assert one.shot.camera == other.shot.camera == "M3"
    assert other.shot.time - one.shot.time == 1500
    assert one.burst == other.burst != "b1"
    assert one.original is not None
    assert "doc" not in one.original
    assert other.place is None
    plain = tags_of(located(tmp_path / "c.jpg", 48.5, -2.25))
    assert joined_places([one.place, plain.place]) == ["place 1", "place 1"]


def geotiff(path, x, y, pixel=0.5, kind=1):
    keys = (1, 1, 0, 2, 1024, 0, 1, kind, 3072, 0, 1, 32632)
    tags = [
        (33550, "d", 3, (pixel, pixel, 0.0), True),
        (33922, "d", 6, (0.0, 0.0, 0.0, x, y, 0.0), True),
        (34735, "H", len(keys), keys, True),
    ]
    tifffile.imwrite(path, np.zeros((100, 100, 3), "u1"), photometric="rgb", extratags=tags)
    return str(path)


def test_maps_that_overlap_are_of_one_place(tmp_path):
    """Tiles that only touch are not."""
    corners = [(0, 0), (50, 0), (40, 20), (300, 0), (325, 10)]
    paths = [geotiff(tmp_path / f"{n}.tif", 5e5 + x, 5e6 + y) for n, (x, y) in enumerate(corners)]
    places = [tags_of(path).place for path in paths]
    assert [name[-1] for name in joined_places(places)] == ["1", "1", "1", "2", "2"]
    assert joined_places(places[:2]) == ["place 1", "place 2"]
    degrees = geotiff(tmp_path / "d.tif", 11.5, 48.0, pixel=1e-5, kind=2)
    shot = located(tmp_path / "d.jpg", 48 - 50e-5, 11.5 + 50e-5)
    assert len(set(joined_places([tags_of(degrees).place, tags_of(shot).place]))) == 1


@pytest.mark.parametrize("alike", [True, False])
def test_bursts_and_places_are_believed_where_their_images_agree(tmp_path, alike):
    """Four shots within seconds, then minutes without any; or a kilometre between places."""
    bursts, places = [], []
    for n, b in enumerate(TRUTH.tolist()):
        time = f"2021:03:04 {5 + b // 5:02}:{10 * (b % 5):02}:0{n % 4}"
        bursts.append(photograph(tmp_path / f"burst{n}.jpg", time))
        places.append(located(tmp_path / f"place{n}.jpg", 48 + 0.01 * b, 11.5 + 1e-5 * (n % 4)))
    for paths, source in ((bursts, "EXIF"), (places, "GPS")):
        _, believed = believed_of(alike, locators=pa.array(paths))
        assert [each.hypothesis.source for each in believed] == [source] * alike
        assert not any("48" in name for each in believed for name in each.groups)


@pytest.mark.parametrize(
    ("name", "alike", "words", "is_believed"),
    [
        ("patient_id", True, False, True),
        ("batch", True, False, True),
        ("batch", False, False, False),
        ("hue", True, True, False),
        ("class_id", True, False, None),
    ],
)
def test_columns_in_which_values_repeat(name, alike, words, is_believed):
    """Values that are words are classes, unless the column states subjects; names may say so."""
    values = [string.ascii_letters[group] if words else f"{group}" for group in TRUTH.tolist()]
    found, believed = believed_of(alike, columns={name: pa.array(values)})
    expected = [] if is_believed is None else [f"column {name}"]
    assert [each.hypothesis.words for each in found] == expected
    assert bool(believed) == bool(is_believed)


def test_a_column_is_believed_where_its_images_agree(tmp_path):
    """Photographs of 20 patients in three shots each; names and dates state nothing."""
    rng = np.random.default_rng(5)
    rows = []
    for patient in range(20):
        base = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
        base = np.asarray(base.resize((48, 48), Image.Resampling.BICUBIC))
        for shot in range(3):
            name = f"{rng.bytes(6).hex()}.png"
            Image.fromarray(noisy(base, shot, 9)).save(tmp_path / name)
            rows.append((name, f"P{patient:03}", str(rng.integers(30, 90)), f"note {len(rows)}"))
    table = tmp_path / "list.csv"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([("path", "patient_id", "age", "note"), *rows])
    assert set(open_image_set(table).columns) == {"patient_id", "age"}
    audit = visleak.audit(table, verify=False, workers=1, cache=None)
    (known,) = audit.summary.grouping.believed
    assert (known.source, known.words, known.groups) == ("column", "column patient_id", 20)
    assert options(known) == "--group patient_id"


def test_columns_beside_the_images_of_a_parquet_file(tmp_path):
    broken = pa.array([b"\xff", b"b"] * 30)
    columns = {
        "image": pa.array([b"%d" % row for row in range(60)]),
        "patient_id": pa.array(np.arange(60) // 3),
        "score": pa.array(np.arange(60) / 7),
        "note": pa.array([f"note {row}" for row in range(60)]),
        "broken": broken.view(pa.string()),
        "camera": pa.array(["a", "b", "c"] * 20).dictionary_encode(),
        "blob": broken.dictionary_encode(),
    }
    pq.write_table(pa.table(columns), tmp_path / "list.parquet")
    found = open_image_set(tmp_path / "list.parquet").columns
    assert {name: column[-1].as_py() for name, column in found.items()} == {
        "patient_id": "19",
        "camera": "c",
    }
