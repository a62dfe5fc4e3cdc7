"""``visleak same``: two images."""

import json

import pytest
from calling import check_refused, run
from PIL import Image

import visleak


def test_the_grade_is_that_of_the_audit(dataset, audited):
    test, train = dataset / "test" / "thing", dataset / "train" / "thing"
    pairs = visleak.Audit(audited).pairs().to_pylist()
    for name, other in (("copy.png", "t0.png"), ("mirrored.png", "t1.png"), ("q1.png", "t4.png")):
        ran = run("same", test / name, train / other, "--json")
        found = json.loads(ran.out)
        row = [
            r for r in pairs if (r["query"], r["reference"]) == (f"thing/{name}", f"thing/{other}")
        ]
        grade = row[0]["grade"] if row else "different"
        assert found["grade"] == grade
        assert ran.code == (0 if grade in ("exact", "near") else 3)
    ran = run("same", test / "mirrored.png", train / "t1.png", "--grade", "exact")
    assert (ran.code, ran.out.startswith("near, mirrored: ")) == (3, True)


def test_what_cannot_be_compared(dataset, tmp_path):
    image = dataset / "test" / "thing" / "copy.png"
    check_refused(f"same {image} {tmp_path}/none.png", "is not a file")
    check_refused(f"same {image} {dataset}/test/thing/text.jpg", "not-an-image", code=1)
    Image.new("RGB", (64, 64)).save(tmp_path / "blank.png")
    check_refused(f"same {image} {tmp_path}/blank.png", "blank", code=1)


def test_pixels_in_python(natural):
    image = natural["astronaut"][:96, :96]
    assert visleak.same(image, image[:, ::-1]).grade == "near"
    with pytest.raises(visleak.VisleakError, match="is not a file"):
        visleak.same("nowhere.png", image)
