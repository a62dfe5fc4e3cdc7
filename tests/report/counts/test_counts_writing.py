"""The files of the counts."""

import csv
import json
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image as Picture

from toy_audit import Image, Pair, split_audit
from visleak.errors import UsageError, VisleakError
from visleak.report.counts import count, write_counts

pytestmark = pytest.mark.usefixtures("drawn_figures")

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def folder(tmp_path):
    test = [Image("a", HOSTILE), Image("b", "=cmd()"), Image("c", None)]
    pairs = [Pair("a", "t", "near", 0.9), Pair("b", "t", "exact", 1.0)]
    return split_audit(tmp_path / "audit", test, [Image("t")], pairs)


def pictures(name, ids):
    rng = np.random.default_rng(len(name))
    return {id_: rng.integers(0, 255, (40, 60, 3), np.uint8) for id_ in ids if id_ != "b"}


def test_files(folder, tmp_path):
    out = tmp_path / "new" / "counts"
    counts = count(folder)
    written = write_counts(counts, out, pictures)
    # one of the exact pair's images cannot be read
    names = ["counts.json", "types.csv", "classes.csv", "types.svg", "classes.svg"]
    assert [path.name for path in written] == [*names, "example-near-10-50-90.png"]
    assert json.loads((out / "counts.json").read_text()) == json.loads(json.dumps(counts.as_dict()))
    types, classes = (
        list(csv.reader((out / name).read_text().splitlines())) for name in names[1:3]
    )
    assert types[1] == ["test", "train-test", "exact", "1", "1", "1", "1"]
    assert [row[1] for row in classes[1:]] == [HOSTILE, "'=cmd()", ""]
    with Picture.open(written[-1]) as card:
        assert card.width > 4 * 160
    for path in written[3:5]:
        drawing = ElementTree.parse(path).getroot()
        assert not [each for each in drawing.iter() if each.tag.endswith(("script", "image"))]


def test_places_that_cannot_be_written(folder, tmp_path):
    (tmp_path / "file").write_text("")
    counts = count(folder)
    with pytest.raises(UsageError, match="is a file; choose a folder"):
        write_counts(counts, tmp_path / "file", None)
    with pytest.raises(VisleakError, match="cannot be written"):
        write_counts(counts, tmp_path / "file" / "below", None)
