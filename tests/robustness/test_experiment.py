"""The whole experiment on a few natural images, and its files."""

import csv
import json
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
from PIL import Image
from tiny_encoder import TinyEncoder, blobs

from refusals import refusal
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images
from visleak.robustness import robustness
from visleak.robustness.document import write

pytestmark = pytest.mark.usefixtures("drawn_figures")
CONDITIONS = ["original", "flip-h", "rot-45", "crop-100", "red", "collage"]
HOSTILE = "<img src=x onerror=alert(1)>|$x$.png"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, natural):
    root = tmp_path_factory.mktemp("pictures")
    for name in ("astronaut", "chelsea", "coffee", "rocket", "coins", "camera"):
        small = Image.fromarray(natural[name])
        small.thumbnail((240, 240))
        small.save(root / (HOSTILE if name == "rocket" else f"{name}.png"))
    (root / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    return root


@pytest.fixture(scope="module")
def result(folder):
    images, encoders = open_images(folder, name=f"猫 {HOSTILE}"), ["builtin", TinyEncoder()]
    return robustness(images, encoders, conditions=CONDITIONS, cache=None, workers=1)


def test_conditions_that_do_not_apply_are_counted(result):
    """240 pixels less 200 leave 40 on the long side, too little on the short one."""
    assert (result.references, result.queries, result.unreadable) == (6, 6, 1)
    builtin = {each.condition: each for each in result.encoders[0].direct}
    # two are squares
    assert (builtin["crop-100"].applies, builtin["crop-100"].not_applicable) == (2, 4)
    assert all(builtin[name].applies == 6 for name in CONDITIONS if name != "crop-100")
    assert builtin["collage"].curve.roc.total == 6 * (6 - 4)
    assert builtin["original"].curve.roc.total == 6 * 5


def test_the_pipeline_finds_what_a_fingerprint_cannot(result):
    """Rotation by 45 degrees is found by local features and verification only."""
    builtin, tiny = result.encoders
    direct = {each.condition: each for each in builtin.direct}
    judged = {each.condition: each for each in builtin.pipeline}
    for name in ("original", "flip-h", "red"):
        assert direct[name].r1.share == 1.0
        assert judged[name].r1.share == 1.0
    assert judged["rot-45"].r1.count > direct["rot-45"].r1.count
    assert judged["original"].near_or_exact.share == 1.0
    assert sum(each.wrong_exact for each in builtin.pipeline) == 0
    assert tiny.pipeline == ()
    assert builtin.original.roc.auc == 1.0
    assert builtin.trans.roc.total == sum(
        direct[name].curve.roc.total for name in ("flip-h", "rot-45", "crop-100", "red")
    )


def test_every_changed_image_has_a_row(result, tmp_path):
    written = write(result, tmp_path / "out")
    content = json.loads((written / "robustness.json").read_text())
    assert [each["name"] for each in content["encoders"]] == ["builtin", "tiny"]
    stored = content["encoders"][0]["conditions"]["crop-100"]
    assert stored["r1"]["total"] == stored["applies"] == 2
    with (written / "conditions.csv").open() as lines:
        assert len(list(csv.DictReader(lines))) == 2 * len(CONDITIONS)
    for name in ("r1", "roc"):
        ElementTree.parse(written / f"{name}.svg")
    with Image.open(written / "sheet.png") as sheet:
        assert sheet.width > 700
    table = pq.read_table(written / "queries.parquet").to_pylist()
    assert len(table) == 2 * (5 * 6 + 2)
    for tested in result.encoders:
        mine = [row for row in table if row["encoder"] == tested.name]
        for each in tested.direct:
            rows = [row for row in mine if row["condition"] == each.condition]
            assert len(rows) == each.applies
            assert sum(row["first"] for row in rows) == each.r1.count
            assert all(row["first"] == (row["similarity"] > row["best_wrong"]) for row in rows)
        for judged in tested.pipeline:
            rows = [row for row in mine if row["condition"] == judged.condition]
            assert sum(row["pipeline_first"] for row in rows) == judged.r1.count
            near = [row for row in rows if row["grade"] in ("near", "exact")]
            assert len(near) == judged.near_or_exact.count
            seen = [row for row in rows if row["grade"] is not None]
            assert len(seen) == judged.among_candidates.count
        if not tested.pipeline:
            assert all(row["pipeline_first"] is row["grade"] is None for row in mine)


def test_queries_may_be_named(folder, result):
    call = {"encoders": [TinyEncoder()], "conditions": ["red"], "verify": False, "cache": None}
    found = robustness(folder, queries=["coins.png", "astronaut.png"], **call)
    assert (found.queries, found.references) == (2, 6)
    assert found.encoders[0].images["query"].to_pylist() == ["astronaut.png", "coins.png"]
    # a changed image does not depend on the other queries
    whole = {each.condition: each for each in result.encoders[1].direct}
    own = found.encoders[0].direct[0].curve.roc.positives
    assert set(own) <= set(whole["red"].curve.roc.positives)
    for wrong, said in ((["coins.png", "broken.png"], "'broken.png' is not one"), ([], "got none")):
        with pytest.raises(UsageError, match=f"queries must be ids of readable .*; {said}"):
            robustness(folder, queries=wrong, **call)


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"queries": -1}, UsageError, "queries must be 0 (all) or more, and encoders at least"),
        ({"encoders": ["builtin"] * 2}, UsageError, "encoder 'builtin' is given twice"),
        ({"conditions": ["mirror"]}, UsageError, "conditions must be among paper, beyond, all"),
        ({"conditions": []}, UsageError, "conditions must name at least one"),
        ({"thresholds": [1.2]}, UsageError, "thresholds must be similarities between -1 and 1"),
        ({"source": blobs(1)}, VisleakError, "has 1 readable image, and needs 2"),
    ],
)
def test_invalid_arguments_are_refused(given, kind, said):
    call = {"source": blobs(3), "encoders": [TinyEncoder()], "conditions": ["original"]} | given
    assert said in refusal(kind, robustness, **call, verify=False, cache=None)
