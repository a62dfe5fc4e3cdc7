"""Tags of photographs and maps, and columns: read, and believed where the images agree."""

from __future__ import annotations

import csv
import string
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tifffile
from made_groups import around, inferred, made_set, strangers
from PIL import Image

import visleak
from visleak.formats import open_image_set
from visleak.grouping.document import options
from visleak.grouping.names import joined_places, read_tags, tags_of

TRUTH = np.repeat(np.arange(25), 4)


def unrelated_names(truth, seed=2):
    rng = np.random.default_rng(seed)
    return [f"{rng.bytes(8).hex()}.jpg" for _ in truth]


def believed_of(alike, **about):
    """Return what is found and believed of four images each of 25 groups, with names of nothing."""
    vectors = around(TRUTH, 2, spread=0.15) if alike else strangers(len(TRUTH), 2)
    return inferred(replace(made_set(unrelated_names(TRUTH), vectors), **about))


def read_shot(path):
    """Return camera and time of a file."""
    tags = tags_of(path)
    return None if tags is None else tags.shot


def photograph(path, time, *, model="EOS 5", serial="123", fraction=""):
    exif = Image.Exif()
    exif[0x010F], exif[0x0110] = "Canon", model
    inner = exif.get_ifd(0x8769)
    inner[0x9003], inner[0xA431], inner[0x9291] = time, serial, fraction
    Image.new("RGB", (8, 8), (9, 9, 9)).save(path, exif=exif)
    return str(path)


def test_camera_and_time_are_read(tmp_path):
    first = read_shot(photograph(tmp_path / "a.jpg", "2021:03:04 05:06:07", fraction="25"))
    second = read_shot(photograph(tmp_path / "b.jpg", "2021:03:04 05:06:09", serial="124"))
    assert first.camera.startswith("Canon EOS 5")
    assert "123" not in first.camera
    assert first.camera != second.camera
    assert second.time - first.time == 1750


@pytest.mark.parametrize("time", ["", "0000:00:00 00:00:00", "yesterday", "2021:13:04 05:06:07"])
def test_photographs_without_a_time_state_nothing(tmp_path, time):
    assert read_shot(photograph(tmp_path / "a.jpg", time)) is None


def test_damaged_files_state_nothing(tmp_path):
    whole = (tmp_path / "a.jpg", photograph(tmp_path / "a.jpg", "2021:03:04 05:06:07"))[0]
    data = whole.read_bytes()
    rng = np.random.default_rng(0)
    for number in range(40):
        broken = bytearray(data[: rng.integers(1, len(data))] if number % 2 else data)
        for at in rng.integers(0, min(len(broken), 200), 8):
            broken[at] = rng.integers(256)
        (tmp_path / "b.jpg").write_bytes(bytes(broken))
        read_shot(str(tmp_path / "b.jpg"))
    assert read_shot(str(tmp_path / "none.jpg")) is None
    assert read_tags([str(tmp_path / "none.jpg")] * 5) is None


@pytest.mark.parametrize("alike", [True, False])
def test_bursts_are_believed_where_their_shots_agree(tmp_path, alike):
    """Four shots within seconds, then minutes without any."""
    paths = [
        photograph(tmp_path / f"{n}.jpg", f"2021:03:04 {5 + b // 5:02}:{10 * (b % 5):02}:0{n % 4}")
        for n, b in enumerate(TRUTH.tolist())
    ]
    _, believed = believed_of(alike, locators=pa.array(paths))
    assert [(each.hypothesis.source, each.hypothesis.unit) for each in believed] == (
        [("EXIF", "ms")] if alike else []
    )


def xmp(path, properties: str):
    text = f'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description {properties}</x:xmpmeta>'
    Image.new("RGB", (8, 8), (9, 9, 9)).save(path, xmp=text.encode())
    return str(path)


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
    by_attribute = xmp(
        tmp_path / "a.jpg",
        'tiff:Model="M3" exif:DateTimeOriginal="2021-03-04T05:06:07.5+01:00" GCamera:BurstID="b1"'
        ' xmpMM:OriginalDocumentID="doc" exif:GPSLatitude="48,30N" exif:GPSLongitude="2,15W"/>',
    )
    by_element = xmp(
        tmp_path / "b.webp",
        "><tiff:Model>M3</tiff:Model><exif:DateTimeOriginal>2021-03-04T05:06:09</exif:DateTimeOriginal>"
        "<GCamera:BurstID>b1</GCamera:BurstID></rdf:Description>",
    )
    one, other = tags_of(by_attribute), tags_of(by_element)
    assert one.shot.camera == other.shot.camera == "M3"
    assert other.shot.time - one.shot.time == 1500
    assert one.burst == other.burst != "b1"
    assert one.original is not None
    assert "doc" not in one.original
    assert other.place is None
    plain = tags_of(located(tmp_path / "c.jpg", 48.5, -2.25))
    assert joined_places([one.place, plain.place]) == ["place 1", "place 1"]


def test_places_of_photographs(tmp_path):
    """Of shots some metres apart, and of others a kilometre away."""
    paths = [
        located(tmp_path / f"{n}.jpg", 48 + 0.01 * (n // 3) + 1e-5 * (n % 3), 11.5)
        for n in range(9)
    ]
    found = joined_places([tags_of(path).place for path in paths])
    assert found == [f"place {n // 3 + 1}" for n in range(9)]
    assert tags_of(located(tmp_path / "none.jpg", 0, 0)) is None


def geotiff(path, x, y, side=100, pixel=0.5, kind=1):
    keys = (1, 1, 0, 2, 1024, 0, 1, kind, 3072, 0, 1, 32632)
    tags = [
        (33550, "d", 3, (pixel, pixel, 0.0), True),
        (33922, "d", 6, (0.0, 0.0, 0.0, x, y, 0.0), True),
        (34735, "H", len(keys), keys, True),
    ]
    values = np.zeros((side, side, 3), np.uint8)
    tifffile.imwrite(path, values, photometric="rgb", extratags=tags)
    return str(path)


def test_maps_that_overlap_are_of_one_place(tmp_path):
    """Tiles that only touch are not."""
    corners = [(0, 0), (50, 0), (40, 20), (300, 0), (325, 10)]
    paths = [geotiff(tmp_path / f"{n}.tif", 5e5 + x, 5e6 + y) for n, (x, y) in enumerate(corners)]
    found = joined_places([tags_of(path).place for path in paths])
    assert found == ["place 1", "place 1", "place 1", "place 2", "place 2"]
    assert joined_places([tags_of(path).place for path in paths[:2]]) == ["place 1", "place 2"]
    degrees = geotiff(tmp_path / "d.tif", 11.5, 48.0, pixel=1e-5, kind=2)
    shot = located(tmp_path / "d.jpg", 48 - 50e-5, 11.5 + 50e-5)
    assert len(set(joined_places([tags_of(degrees).place, tags_of(shot).place]))) == 1


@pytest.mark.parametrize("alike", [True, False])
def test_places_are_believed_where_their_images_agree(tmp_path, alike):
    paths = [
        located(tmp_path / f"{n}.jpg", 48 + 0.01 * group, 11.5 + 1e-5 * (n % 4))
        for n, group in enumerate(TRUTH.tolist())
    ]
    _, believed = believed_of(alike, locators=pa.array(paths))
    assert [(each.hypothesis.kind, each.hypothesis.source) for each in believed] == (
        [("places", "GPS")] if alike else []
    )
    assert not any("48" in name for each in believed for name in each.groups)


@pytest.mark.parametrize(
    ("name", "alike", "words"),
    [
        ("patient_id", True, False),
        ("batch", True, False),
        ("batch", False, False),
        ("hue", True, True),
    ],
)
def test_columns_in_which_values_repeat(name, alike, words):
    """Values that are words are classes, unless the column states subjects."""
    values = [string.ascii_letters[group] if words else f"{group}" for group in TRUTH.tolist()]
    found, believed = believed_of(alike, columns={name: pa.array(values)})
    assert [each.hypothesis.words for each in found] == [f"column {name}"]
    assert bool(believed) == (alike and not words)


@pytest.mark.parametrize(("name", "groups"), [("class_id", 25), ("target", 25), ("batch", 5)])
def test_columns_of_classes_are_not_groups(name, groups):
    truth = np.repeat(np.arange(groups), 100 // groups)
    own = made_set(unrelated_names(truth), around(truth, 2, spread=0.15))
    own = replace(own, columns={name: pa.array([str(group) for group in truth.tolist()])})
    assert inferred(own) == ([], [])


# -- columns of a table, from the file to the command ---------------------------------------------


@pytest.fixture
def table(tmp_path):
    """Photographs of 20 patients in three shots each; names and dates state nothing."""
    rng = np.random.default_rng(5)
    rows = []
    for patient in range(20):
        base = rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
        base = np.asarray(Image.fromarray(base).resize((48, 48), Image.Resampling.BICUBIC))
        for _ in range(3):
            name = f"{rng.bytes(6).hex()}.png"
            noise = rng.normal(0, 9, base.shape)
            Image.fromarray(np.clip(base + noise, 0, 255).astype(np.uint8)).save(tmp_path / name)
            rows.append((name, f"P{patient:03}", str(rng.integers(30, 90)), f"note {len(rows)}"))
    with (tmp_path / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "patient_id", "age", "note"), *rows])
    return tmp_path / "list.csv"


def test_a_column_is_believed_where_its_images_agree(table, tmp_path):
    images = open_image_set(table)
    assert set(images.columns) == {"patient_id", "age"}
    audit = visleak.audit(table, out=tmp_path / "audit", verify=False, workers=1, cache=None)
    (known,) = audit.summary.grouping.believed
    assert (known.source, known.words, known.groups) == ("column", "column patient_id", 20)
    assert options(known) == "--group patient_id"


def test_columns_beside_the_images_of_a_parquet_file(table):
    with table.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    content = [(table.parent / row["path"]).read_bytes() for row in rows]
    columns = {
        "image": pa.array(content, pa.binary()),
        "patient_id": pa.array([int(row["patient_id"][1:]) for row in rows]),
        "score": pa.array([float(row["age"]) for row in rows]),
        "note": pa.array([row["note"] for row in rows]),
        "broken": pa.array([b"\xff", b"b"] * 30).view(pa.string()),
        "camera": pa.array(["a", "b", "c"] * 20).dictionary_encode(),
        "blob": pa.array([b"\xff", b"b"] * 30).dictionary_encode(),
    }
    path = table.with_suffix(".parquet")
    pq.write_table(pa.table(columns), path)
    images = open_image_set(path)
    assert {name: column[-1].as_py() for name, column in images.columns.items()} == {
        "patient_id": "19",
        "camera": "c",
    }
