"""``visleak robustness`` and ``visleak calibrate`` from the command line."""

import json

import pytest
from calling import check_refused, refusals, refused, run
from PIL import Image


@pytest.fixture(scope="module")
def pictures(tmp_path_factory, natural):
    root = tmp_path_factory.mktemp("collection")
    for name in ("astronaut", "chelsea", "coffee", "coins", "camera"):
        small = Image.fromarray(natural[name])
        small.thumbnail((160, 160))
        small.save(root / f"{name}.png")
    return root


def test_robustness_writes_a_folder_and_says_what_came_out(pictures, tmp_path):
    out = tmp_path / "out"
    given = ("--conditions", "original,flip-h,gauss", "--queries", 3, "--report-at", 0.5, "-o", out)
    ran = run("robustness", f"mine={pictures}", *given)
    assert ran.code == 0
    assert ran.err == ""
    first, *rest = ran.out.splitlines()
    assert first.startswith("builtin ranks the original first for 100.00 % with verification and")
    assert any(line.split()[:3] == ["flip-h", "3", "100.00"] for line in rest)
    assert rest[-1] == str(out / "report.html")
    content = json.loads((out / "robustness.json").read_text())
    assert content["queries"] == 3
    assert content["set"] == "mine"
    assert content["encoders"][0]["conditions"]["gauss"]["at"]["0.5"]["pairs"] == 12
    ran = run("robustness", f"mine={pictures}", *given, "--json")
    assert ran.out == (out / "robustness.json").read_text()
    assert ran.err.startswith(f"the earlier result is kept in {out}.previous")


def test_calibrate_then_audit(pictures, tmp_path):
    file = tmp_path / "thresholds.json"
    given = ("--fpr", "0.1,0.2", "--conditions", "original,red", "-o", file)
    ran = run("calibrate", pictures, *given)
    assert ran.code == 0
    assert ran.err == ""
    hard = json.loads(file.read_text())["encoders"]
    (entry,) = hard.values()
    assert f"hard {entry['hard']:g}" in ran.out
    assert ran.out.splitlines()[-1] == str(file)
    audited = run("audit", "--set", pictures, "--thresholds", file, "-o", tmp_path / "audit")
    assert audited.code == 0
    found = json.loads((tmp_path / "audit" / "audit.json").read_text())["thresholds"]
    assert (found["hard"], found["soft"]) == (entry["hard"], entry["soft"])
    assert found["provenance"] == entry["provenance"]
    file.write_text("{}")
    code, said = refused("calibrate", pictures, *given)
    assert (code, said.startswith(f"{file} exists;")) == (2, True)


def test_calibrate_says_what_it_cannot_support(pictures, tmp_path):
    file = tmp_path / "t.json"
    ran = run("calibrate", pictures, "--fpr", "1e-6", "--no-verify", "--json", "-o", file)
    assert ran.code == 0
    lines = ran.err.splitlines()
    assert len(lines) == 2
    assert "cannot support a rate of 1e-06: with 10 pairs of images the smallest is 0.1" in lines[0]
    assert json.loads(ran.out) == json.loads(file.read_text())


def test_thresholds_of_another_encoder_are_refused(pictures, tmp_path):
    file = tmp_path / "t.json"
    entry = {"name": "clip", "hard": 0.9, "soft": 0.8, "provenance": "x"}
    content = {"kind": "visleak thresholds", "schema": 1, "encoders": {"c0ffee" * 5: entry}}
    file.write_text(json.dumps(content))
    code, said = refused("audit", "--set", pictures, "--thresholds", file, "-o", tmp_path / "audit")
    assert code == 2
    assert "holds thresholds of clip (c0ffeec0ffee), not of builtin" in said
    assert "thresholds of one encoder never serve another" in said


@refusals("""
    robustness {set} --encoder vgg -> encoder must be one of builtin,
    robustness {set} --conditions blur -> conditions must be among paper, beyond
    robustness {set}/none -> does not exist
    calibrate {set} --fpr tiny -> --fpr must be one rate or two, such as 1e-6
    calibrate {set} --fpr 2 -> fpr must be a rate between 0 and 1
    calibrate {set} -> missing option '--fpr'
    audit --set {set} --thresholds {set}/t.json -> t.json is not a file
""")
def test_wrong_command_lines(pictures, tmp_path, arguments, words):
    check_refused(f"{arguments} -o {tmp_path}/out", words, set=pictures)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("verb", ["robustness", "calibrate"])
def test_a_set_that_cannot_be_read_is_told_with_the_cure(tmp_path, verb):
    folder = tmp_path / "pointers"
    folder.mkdir()
    for number in range(3):
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{number:064}\nsize 9\n"
        (folder / f"{number}.jpg").write_text(pointer)
    more = ("--fpr", "1e-1") if verb == "calibrate" else ()
    code, message = refused(verb, folder, *more, "-o", tmp_path / "out")
    assert (code, "`git lfs pull`" in message) == (1, True)
