"""``visleak dlede`` from the command line: a command that learns by counting, and its result."""

import json
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from calling import check_refused, refusals, run
from fault_commands import not_sendable
from PIL import Image

from visleak.auditing import Audit
from visleak.dlede.document import read_result

#: Its mAP rises by GAIN times the share of test images that are in training, from 0.5.
PROGRAM = """
import json, sys
train, test, out, seed, gain = sys.argv[1:]
train, test = (open(name).read().splitlines() for name in (train, test))
if float(gain) < 0:
    sys.exit("the disk of the cluster is away")
share = len(set(train) & set(test)) / len(test)
score = 0.5 + float(gain) * share + int(seed) % 9 * 1e-5
found = {"precision": 0.6, "recall": 0.4, "map50": score, "f1": score - 0.02, "<b>$x$": 0.5}
json.dump(found, open(out, "w"))
"""

pytestmark = pytest.mark.usefixtures("_trained_here")

BAD = "<img src=x onerror=alert(1)>.png"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Twenty test and 24 training images of other recordings; one name is markup."""
    root = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(5)
    for side, offset, count in (("train", 0, 24), ("test", 8, 20)):
        (root / side).mkdir()
        for number in range(count):
            name = f"r{number // 5 + offset}-{number:02d}.png"
            name = BAD if (side, number) == ("test", 7) else name
            pixels = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
            Image.fromarray(pixels).resize((40, 40), Image.Resampling.BICUBIC).save(
                root / side / name
            )
    return root


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "train.py"
    path.write_text(PROGRAM)
    return path


def trainer(program, gain):
    python = shlex.quote(sys.executable)
    return f"command:{python} -I -S {program} {{train}} {{test}} {{out}} {{seed}} {gain}"


def dlede(pictures, program, out, *more, gain=0.5):
    given = ("--test", pictures / "test", "--train", pictures / "train", "-o", out)
    return run("dlede", *given, "--trainer", trainer(program, gain), *more)


@pytest.fixture(scope="module")
def _trained_here():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("visleak.dlede.train.execution.sendable", not_sendable)
        yield


@pytest.fixture(scope="module")
def made(_trained_here, pictures, program, tmp_path_factory):
    """A clean split, three repetitions, with its audit."""
    out = tmp_path_factory.mktemp("made") / "out"
    return out, dlede(pictures, program, out, "--repetitions", 3)


def test_a_clean_split_from_end_to_end(made, pictures, program, tmp_path):
    out, ran = made
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0].startswith("no leak shows (certainty over 99.9 %, 3 repetitions)")
    assert "raises mAP@0.5 by 10.0 % and F1 by 10.4 %, the next 10 % by 9.1 % and 9.4 %" in lines[1]
    assert lines[-2:] == [str(out), str(out / "audit" / "report.html")]
    pairs, hashes, costs = ran.err.splitlines()[:3]
    assert pairs.startswith("pairs, by the audit: 0 of 20 test images")
    assert "equal perceptual hashes" in hashes
    assert costs.startswith("9 training runs on 24 images, each tested on 20")
    page = (out / "audit" / "report.html").read_text(encoding="utf-8")
    assert f"pairs, by the audit: {Audit(out / 'audit').headline}" in page
    assert "<img src=x onerror" not in page
    assert "<b>$x$" not in page
    result = read_result(out)
    assert result.audit is not None
    assert result.audit.folder == "audit"
    # finished training runs are not made again; those of another trainer are kept until --force
    given = (Path(shutil.copytree(out, tmp_path / "out")), "--repetitions")
    bare = ("--audit", "off", "--no-phash")
    again = dlede(pictures, program, *given, 3, *bare, "--json")
    assert again.err == f"reused: all 9 training runs were in {given[0]}\n"
    assert again.out.encode() == (given[0] / "dlede.json").read_bytes()
    more = dlede(pictures, program, *given, 4, "--no-phash", "--audit", out / "audit")
    assert more.code == 0, more.err
    assert "9 finished before;" in more.err
    assert f"the report of {out / 'audit'} showed another result of dlede" in more.err
    other = dlede(pictures, program, given[0], *bare, gain=0.25)
    assert (other.code, "holds training runs with another trainer" in other.err) == (2, True)


def test_one_set_parted_by_a_recipe(pictures, program, tmp_path):
    out = tmp_path / "out"
    given = ("--set", pictures, "--split", "random:0.5", "--repetitions", 1, "-o", out)
    ran = run("dlede", *given, "--trainer", trainer(program, 0.02), "--no-images", code=0)
    assert ran.out.startswith("on the means the split seems to leak already (one repetition")
    assert not (out / "phash-pairs.png").exists()
    assert (out / "audit" / "report.html").is_file()


def test_a_folder_of_splits_reports_what_it_leaves_out(pictures, program, tmp_path):
    data = Path(shutil.copytree(pictures, tmp_path / "data"))
    shutil.copytree(pictures / "test", data / "val")
    given = ("dlede", data, "--trainer", trainer(program, 0.5), "--dry-run")
    ran = run(*given, "-o", tmp_path / "out", code=0)
    assert ran.out.startswith("30 training runs on 24 images, each tested on 20; the expected time")
    assert "val is ignored" in ran.err
    assert not (tmp_path / "out").exists()
    assert json.loads(run(*given, "--json", "--full-curve").out)["training_runs"] == 110


def test_trainings_that_fail_leave_their_reason(pictures, program, tmp_path):
    given = ("--repetitions", 1, "--audit", "off")
    ran = dlede(pictures, program, tmp_path / "out", *given, gain=-1.0)
    assert ran.code == 1
    assert "the disk of the cluster is away" in ran.err
    assert not (tmp_path / "out" / "dlede.json").exists()


def test_scores_of_trainings_made_elsewhere(tmp_path):
    file, out = tmp_path / "kitti.csv", tmp_path / "out"
    file.write_text("step,map50,f1\n0,.852,.839\n10,.856,.842\n20,.866,.850\n")
    ran = run("dlede", "--scores", file, "-o", out, code=0, err="")
    assert ran.out.startswith("undecided whether the split leaks (one repetition; by the means")
    assert ran.out.splitlines()[-1] == str(out)
    judged = json.loads((out / "dlede.json").read_text())["judgement"]
    assert (judged["verdict"], judged["reason_code"]) == ("undecided", "score-too-high")
    again = run("dlede", "--scores", file, "-o", out, "--force", "--threshold", "0.4%", "--json")
    assert json.loads(again.out)["judgement"]["on_means"] == "clean"
    file.write_text("step,repetition,map50,f1\n0,1,.5,.5\n10,1,.6,.6\n0,2,.5,.5\n20,2,.6,.6\n")
    check_refused(f"dlede --scores {file} -o {tmp_path}/none", "nothing can be judged", code=1)
    assert not (tmp_path / "none").exists()


def test_a_leak_that_the_audit_proves_is_not_trained(pictures, program, tmp_path):
    out, folder = tmp_path / "out", pictures / "train"
    given = ("--test", f"val={folder}", "--train", f"train={folder}", "-o", out)
    given = (*given, "--trainer", trainer(program, 0.02), "--repetitions", 1)
    ran = run("dlede", *given, code=0)
    proof = "24 of 24 val images (100.00 %"
    assert ran.out.startswith(f"the split leaks, and nothing was trained: {proof}")
    assert "--allow-proved-leak" in ran.out
    # findings come before anything else, and no cost is told
    assert ran.err.startswith(f"pairs, by the audit: {proof}")
    assert "training runs" not in ran.err
    assert not (out / "runs").exists()
    result = read_result(out)
    assert result.judgement.reason_code == "leak-proved-without-retraining"
    assert str(result.proof).startswith(proof)
    assert "nothing was trained" in (out / "audit" / "report.html").read_text()
    forced = run("dlede", *given, "--allow-proved-leak", code=0)
    assert forced.err.index("pairs, by the audit") < forced.err.index("3 training runs")
    assert len(list((out / "runs").rglob("*.json"))) == 3


@pytest.mark.parametrize("side", ["train", "test"])
def test_an_image_changed_since_the_audit_is_refused(made, pictures, program, tmp_path, side):
    copies = Path(shutil.copytree(pictures, tmp_path / "pictures"))
    audit = tmp_path / "audit"
    sets = ("--test", copies / "test", "--train", copies / "train")
    assert run("audit", *sets, "-o", audit, "--workers", 1).code == 0
    file = sorted((copies / side).iterdir())[3]
    Image.new("RGB", (40, 40), "red").save(file)
    ran = dlede(copies, program, tmp_path / "out", "--audit", audit)
    assert ran.code == 1
    assert f"1 image of set '{side}' changed since the audit {audit}, such as" in ran.err
    assert file.name in ran.err
    assert not list((tmp_path / "out").rglob("runs/*/*.json"))


def test_an_image_that_a_program_changes_is_noticed(pictures, tmp_path):
    copies = Path(shutil.copytree(pictures, tmp_path / "pictures"))
    file = sorted((copies / "train").iterdir())[3]
    program = tmp_path / "train.py"
    given = ("--repetitions", 1, "--audit", "off", "--no-phash")
    # what is written again as it was is no other image
    program.write_text(f"{PROGRAM}\nimport os\nos.utime({str(file)!r})")
    assert dlede(copies, program, tmp_path / "same", *given).code == 0
    program.write_text(f"{PROGRAM}\nopen({str(file)!r}, 'ab').write(b'x')")
    ran = dlede(copies, program, tmp_path / "out", *given)
    assert ran.code == 1
    assert f"{file.name!r} of set 'train' is not what it was when the command began" in ran.err
    assert not (tmp_path / "out" / "dlede.json").exists()


@refusals("""
     -> give one split
    --set {set} {by} -> --set needs --split
    {sides} -> no trainer
    {sides} --trainer magic -> got 'magic'
    {sides} {by} --full-curve --steps 10 -> exclude each other
    {sides} {by} --steps '10;20' -> got '10;20'
    --scores {file} {by} -> --trainer cannot be used with --scores
    --scores {file} --chance 50% -> chance
    --scores {file} --chance recall=9% -> there is no metric 'recall'
    --scores {file} -o {begun} -> holds training runs
    {sides} {by} -o {scored} -> holds a result already (dlede.json)
    {sides} {by} -o {set}/test/out -> lies among the images of 'test'
    {sides} {by} --audit {begun} -> holds no finished audit
    {sides} {by} --audit {audit} -> is of other sets
""")
def test_what_cannot_end_well_is_refused_before_any_work(
    audited, pictures, program, tmp_path, arguments, words, monkeypatch
):
    def never(*arguments, **options):
        pytest.fail("the work was begun")

    monkeypatch.setattr("visleak.dlede.protocol.run", never)
    monkeypatch.setattr("visleak.auditing.audit", never)
    for file in ("scored/dlede.json", "begun/request.json"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text('{"kind": "visleak dlede request"}')
    (tmp_path / "file").write_text("step,map50,f1\n0,.5,.5\n10,.6,.6\n20,.7,.7\n")
    places = {"scored": tmp_path / "scored", "begun": tmp_path / "begun", "set": pictures}
    sides = f"--test {pictures}/test --train {pictures}/train"
    by = f"--trainer {shlex.quote(trainer(program, 0.5))}".replace("{", "{{").replace("}", "}}")
    given = arguments.replace("{sides}", sides).replace("{by}", by)
    out = "" if "-o " in given else f" -o {tmp_path}/none"
    check_refused(f"dlede {given}{out}", words, **places, file=tmp_path / "file", audit=audited)
    assert not (tmp_path / "none").exists()
