"""DICOM: pixels by values, groups under pseudonyms, and no tag of a person in any output."""

import io
import logging
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pydicom
import pytest
from PIL import Image
from pydicom import encaps, uid
from pydicom.data import get_testdata_file
from pydicom.dataset import Dataset, FileMetaDataset

from refusals import refused
from visleak.errors import UsageError
from visleak.formats import open_image_set
from visleak.images import decode
from visleak.images.pixels import rgb_of_array, to_eight
from visleak.records import Unreadable

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
from calling import run as called

NAME = "DOE^JANE"


def scan(values, syntax=uid.ExplicitVRLittleEndian, **elements):
    """Return a file of some values: (rows, columns), or (frames, rows, columns)."""
    header = Dataset()
    header.file_meta = FileMetaDataset()
    header.file_meta.TransferSyntaxUID = syntax
    header.SOPClassUID = uid.CTImageStorage
    header.SOPInstanceUID = uid.generate_uid()
    header.PatientName, header.PatientID = NAME, "4711"
    header.StudyInstanceUID = header.SeriesInstanceUID = "1.2.3"
    header.Rows, header.Columns = values.shape[-2:]
    if values.ndim == 3:
        header.NumberOfFrames = len(values)
    header.SamplesPerPixel, header.PhotometricInterpretation = 1, "MONOCHROME2"
    header.BitsAllocated, header.BitsStored, header.HighBit = 8 * values.itemsize, 12, 11
    header.PixelRepresentation = int(values.dtype.kind == "i")
    header.PixelData = values.tobytes()
    for name, value in elements.items():
        setattr(header, name, value)
    return header


def stored(header):
    file = io.BytesIO()
    header.save_as(file, enforce_file_format=True)
    return file.getvalue()


def with_wrong_value(data, name):
    """Return a file with the patient's name in the place of a number."""
    tag, wrong = pydicom.tag.Tag(name), NAME.encode()
    start = data.index(tag.group.to_bytes(2, "little") + tag.element.to_bytes(2, "little"))
    length = int.from_bytes(data[start + 6 : start + 8], "little")
    head, rest = data[: start + 6], data[start + 8 + length :]
    return head + len(wrong).to_bytes(2, "little") + wrong + rest


@pytest.fixture
def values():
    rng = np.random.default_rng(3)
    return rng.integers(0, 4096, (40, 50)).astype(np.uint16)


def pixels(data):
    found = decode(data)
    assert not isinstance(found, Unreadable), found
    return found.pixels


def test_the_same_values_are_the_same_pixels_under_any_window(tmp_path, values):
    Image.fromarray(values).save(tmp_path / "b.png")
    expected = pixels((tmp_path / "b.png").read_bytes())
    for window in ({}, {"WindowCenter": 40, "WindowWidth": 400}, {"RescaleIntercept": -1024}):
        (tmp_path / "a.dcm").write_bytes(stored(scan(values, **window)))
        images = open_image_set(tmp_path)
        assert images.ids.to_pylist() == ["a.dcm", "b.png"]
        assert np.array_equal(pixels(next(images.opener.read([0]))), expected)


def test_syntaxes_agree(values):
    expected = pixels(stored(scan(values)))
    packed = scan(values)
    packed.compress(uid.RLELossless)
    j2k = io.BytesIO()
    Image.fromarray(values).save(j2k, "JPEG2000", no_jp2=True)
    lossless = scan(values, uid.JPEG2000Lossless, PixelData=encaps.encapsulate([j2k.getvalue()]))
    others = [packed, lossless]
    others += [scan(values, each) for each in (uid.ImplicitVRLittleEndian, uid.ExplicitVRBigEndian)]
    others[-1].PixelData = values.byteswap().tobytes()
    others.append(scan(values, uid.DeflatedExplicitVRLittleEndian))
    for other in others:
        assert np.array_equal(pixels(stored(other)), expected)


def test_what_is_white(values):
    expected = 255 - pixels(stored(scan(values)))
    for elements in ({"PhotometricInterpretation": "MONOCHROME1"}, {"RescaleSlope": -1}):
        header = scan(values, RescaleIntercept=0, **elements)
        assert np.array_equal(pixels(stored(header)), expected)


def test_signed_values_padding_and_overlays_in_unused_bits(values):
    signed = values.astype(np.int16) - 1024
    plain = scan(np.where(signed < 0, 0, signed), BitsStored=13)
    padded = np.where(signed < 0, -2000, signed).astype(np.int16)
    padded = scan(padded, BitsStored=13, PixelPaddingValue=-2000)
    marked = scan(values | np.uint16(0x8000))
    for one, other in ((padded, plain), (marked, scan(values))):
        assert np.array_equal(pixels(stored(one)), pixels(stored(other)))
    mask = (values > 2000).astype(np.uint8)
    shown = pixels(stored(scan(mask, BitsAllocated=8, BitsStored=1)))
    assert set(np.unique(shown)) == {0, 255}


@pytest.mark.parametrize("name", ["SC_rgb_rle.dcm", "SC_rgb_rle_16bit.dcm", "examples_palette.dcm"])
def test_files_of_the_library(name):
    header = pydicom.dcmread(get_testdata_file(name))
    shown = pixels(Path(get_testdata_file(name)).read_bytes())
    if header.PhotometricInterpretation == "RGB":
        assert np.array_equal(shown, to_eight(header.pixel_array))
    assert shown.std() > 10


@pytest.mark.parametrize("implicit", [True, False])
@pytest.mark.parametrize("frames", [1, 3])
def test_files_without_a_preamble(tmp_path, values, implicit, frames):
    stack = np.stack([np.roll(values, number, 1) for number in range(frames)])
    header = scan(stack if frames > 1 else values, SpecificCharacterSet="ISO_IR 100")
    del header.file_meta
    for name in ("bare.dcm", "bare"):
        header.save_as(tmp_path / name, implicit_vr=implicit, little_endian=True)
    data = (tmp_path / "bare").read_bytes()
    assert b"DICM" not in data
    assert np.array_equal(pixels(data), pixels(stored(scan(values))))
    images = open_image_set(tmp_path)
    assert len(images) == 2 * frames
    found = [pixels(each) for each in images.opener.read(range(2 * frames))]
    assert all(np.array_equal(found[at], rgb_of_array(stack[at % frames])) for at in range(2))


def test_frames_groups_and_pseudonyms(tmp_path, values):
    frames = np.stack([values, values[::-1], values // 2])
    (tmp_path / NAME).mkdir()
    scan(values, InstanceNumber=7).save_as(tmp_path / NAME / "a.dcm", enforce_file_format=True)
    scan(frames, PatientID="12").save_as(tmp_path / NAME / "b", enforce_file_format=True)
    report = scan(values)
    del report.PixelData, report.Rows, report.Columns
    report.save_as(tmp_path / "report.dcm", enforce_file_format=True)
    images = open_image_set(tmp_path)
    assert len(images) == 4
    assert len(set(images.groups.to_pylist())) == 2
    assert images.skipped == {"DICOM without pixels": 1}
    for column in (images.ids, images.locators, images.groups):
        assert not any(word in text for text in column.to_pylist() for word in (NAME, "4711"))
    read = list(images.opener.read(range(4)))
    assert np.array_equal(read[2], rgb_of_array(frames[1]))
    assert list(images.columns) == ["DICOM study", "DICOM series"]
    assert not any("1.2.3" in text for each in images.columns.values() for text in each.to_pylist())
    # a patient is known in other sets too
    assert images.groups[0] in open_image_set(f"dicom:{tmp_path / NAME}").groups
    named = open_image_set(f"dicom:{tmp_path}#names=yes&group=series")
    assert named.ids.to_pylist() == [f"{NAME}/a.dcm", *(f"{NAME}/b#frame={n}" for n in range(3))]
    assert named.frames.to_pylist() == [7, 0, 1, 2]
    refused(UsageError, "group must be one of", f"dicom:{tmp_path}#group=ward", open_image_set)


def test_damaged_and_huge_files_are_refused_with_a_reason(values, monkeypatch):
    whole = stored(scan(values))
    encrypted = scan(values, uid.JPEGBaseline8Bit, PixelData=encaps.encapsulate([b"\x07" * 64]))
    unknown = whole.replace(b"1.2.840.10008.1.2.1\0", b"1.2.840.10008.9.9.9\0")
    for data in (whole[:133], whole[:-100], stored(encrypted), unknown):
        assert isinstance(decode(data), Unreadable)
    assert decode(stored(scan(values, Rows=60_000, Columns=60_000))).reason == "too-large"
    # a frame larger than its header says
    for kind, syntax in (("JPEG", uid.JPEGBaseline8Bit), ("JPEG2000", uid.JPEG2000Lossless)):
        coded = io.BytesIO()
        Image.new("L", (900, 700)).save(coded, kind)
        frames = encaps.encapsulate([coded.getvalue()])
        found = decode(stored(scan(values, syntax, PixelData=frames, BitsAllocated=8)))
        assert "900 x 700" in found.detail
    monkeypatch.setattr("visleak.images.dicom.MAX_UNPACKED", 3_000)
    packed = stored(scan(values, uid.DeflatedExplicitVRLittleEndian))
    assert decode(packed).reason == "too-large"


#: What is planted in tags, and in names of files and folders.
PLANTED = {
    "PatientName": NAME,
    "PatientID": "4711-JANE",
    "PatientBirthDate": "19370401",
    "PatientAddress": "Elm Street 77",
    "InstitutionName": "Northside Hospital",
    "StudyInstanceUID": "1.2.840.99.4711",
    "SeriesInstanceUID": "1.2.840.99.4712",
    "StudyDescription": "lump of Jane",
}
OWNER = ("Ansel Private", "SN-555-777", "burst-0815")
PLACE = ("48.8584", "2.2945", "My Lovely Home")


def texts_of(folder):
    """Yield names and contents of all files as text: tables as their values."""
    for path in sorted(folder.rglob("*")):
        yield path.name, str(path.relative_to(folder))
        if path.suffix == ".parquet":
            yield path.name, str(pq.read_table(path).to_pylist())
        elif path.is_file():
            yield path.name, path.read_bytes().decode("utf-8", "replace")


def run(*arguments):
    result = called(*arguments)
    return result.out + result.err


def scans(folder, seed):
    place = folder / PLANTED["PatientName"] / PLANTED["PatientID"]
    place.mkdir(parents=True)
    values = np.random.default_rng(seed).integers(0, 4096, (3, 40, 50)).astype(np.uint16)
    known = np.random.default_rng(0).integers(0, 4096, (40, 50)).astype(np.uint16)
    data = stored(scan(known, **PLANTED))
    files = {
        "same": data,
        "frames": stored(scan(values, **PLANTED)),
        "cut": data[: len(data) // 2],
        "bits": data[:200] + bytes(20) + data[220:],
        "syntax": data.replace(b"1.2.840.10008.1.2.1\0", b"1.2.840.10008.1.2.9\0"),
    }
    for name in ("InstanceNumber", "NumberOfFrames", "RescaleSlope", "WindowCenter"):
        files[name] = with_wrong_value(stored(scan(known, **{name: "7"}, **PLANTED)), name)
    for name, content in files.items():
        (place / f"JANE-{name}.dcm").write_bytes(content)


def photographs(folder, seed):
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    exif = Image.Exif()
    exif[0x013B], exif[0x010F], exif[0x0110] = "Ansel Private", "Canon", "R5"
    exif[0x010E] = "My Lovely Home"
    inner, gps = exif.get_ifd(0x8769), exif.get_ifd(0x8825)
    inner[0xA431], inner[0x9003] = "SN-555-777", "2021:03:04 05:06:07"
    gps[1], gps[2], gps[3], gps[4] = "N", (48, 51, 30.24), "E", (2, 17, 40.2)
    xmp = b'<x GCamera:BurstID="burst-0815" exif:GPSLatitude="48.8584" exif:GPSLongitude="2.2945"/>'
    for _ in range(6):
        pixels = rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{rng.bytes(4).hex()}.jpg", exif=exif, xmp=xmp)


@pytest.mark.parametrize(
    ("make", "prefix", "planted"),
    [(scans, "dicom:", (*PLANTED.values(), "JANE")), (photographs, "", (*OWNER, *PLACE))],
)
def test_nothing_of_a_person_is_in_any_output(tmp_path, monkeypatch, caplog, make, prefix, planted):
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.DEBUG)
    out = tmp_path / "out"
    for seed, side in enumerate(("test", "train")):
        make(tmp_path / side, seed + 1)
    sides = [f"--{side}={side}={prefix}{side}" for side in ("test", "train")]
    shown = run("audit", *sides, "-o", str(out / "audit"), "-v", "--log-file", str(out) + ".log",
                "--no-verify", "--candidates", "nearest", "--workers", "1")  # fmt: skip
    folder = str(out / "audit")
    assert (out / "audit" / "report.html").exists(), shown
    shown += run("show", folder)
    shown += run("stats", folder, "--json")
    shown += run("check", folder)
    shown += run("export", folder, "--format", "csv", "--degree", "hard", "-o", str(out / "p.csv"))
    shown += run("report", folder, "--format", "md", "-o", str(out / "r.md"))
    shown += run("purge", folder, "--remove-from", "test", "--degree", "hard", "--apply",
                 "-o", str(out / "purged"))  # fmt: skip
    shown += run("audit", f"--set={prefix}test/missing-{side}", "-o", str(out / "none"))
    # Pillow's own records of the level DEBUG, which a program must ask for, list all tags
    records = [record for record in caplog.records if not record.name.startswith("PIL")]
    logged = "\n".join(record.getMessage() for record in records)
    found = [("shown", shown), ("log", (tmp_path / "out.log").read_text()), ("log", logged)]
    for name, text in [*found, *texts_of(out)]:
        for word in planted:
            assert word not in text, (name, word, text[max(0, text.find(word) - 80) :][:200])
