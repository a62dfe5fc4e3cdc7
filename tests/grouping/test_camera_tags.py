"""Camera and time in the tags of photographs: read, damaged, and believed where shots agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from made_groups import around, inferred, made_set, strangers
from PIL import Image

from visleak.grouping.tags import read_shot, read_shots


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
    assert read_shots([str(tmp_path / "none.jpg")] * 5) is None


@pytest.mark.parametrize("alike", [True, False])
def test_bursts_are_believed_where_their_shots_agree(tmp_path, alike):
    """Four shots within seconds, then minutes without any."""
    truth = np.repeat(np.arange(25), 4)
    paths = [
        photograph(tmp_path / f"{n}.jpg", f"2021:03:04 {5 + b // 5:02}:{10 * (b % 5):02}:0{n % 4}")
        for n, b in enumerate(truth.tolist())
    ]
    rng = np.random.default_rng(2)
    ids = [f"{rng.bytes(8).hex()}.jpg" for _ in paths]
    vectors = around(truth, 2, spread=0.15) if alike else strangers(len(truth), 2)
    own = replace(made_set(ids, vectors), locators=pa.array(paths))
    _, believed = inferred(own)
    assert [(each.hypothesis.source, each.hypothesis.unit) for each in believed] == (
        [("EXIF", "ms")] if alike else []
    )
