"""What tags say of people and places is in no table, report, log or message."""

import logging
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from test_dicom import NAME, scan, stored, with_wrong_value

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
from calling import run as called

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
IN_PHOTOGRAPHS = (
    *("Ansel Private", "SN-555-777", "48.8584", "2.2945", "My Lovely Home", "burst-0815"),
)


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
    [(scans, "dicom:", (*PLANTED.values(), "JANE")), (photographs, "", IN_PHOTOGRAPHS)],
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
