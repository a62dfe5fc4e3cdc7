"""``visleak audit``: its summary, its gates and cost, what it reuses, and what it refuses."""

import json
import re
import shlex
import shutil
from dataclasses import fields, replace

import pytest
from calling import MOSTLY_READABLE, check_refused, refusals, refused, run
from PIL import Image

from visleak.auditing import Audit
from visleak.pipeline.cost import Cost, describe


def test_summary_says_what_the_folder_says(dataset, tmp_path):
    out = tmp_path / "my audits" / "out"
    ran = run("audit", dataset, "-o", out, code=0, err="")
    first, *rest = ran.out.splitlines()
    assert first == Audit(out).headline
    assert first.startswith("3 of 6 test images (50.00 %, 95 % CI 18.76-81.24)")
    text = "\n".join(rest)
    for pattern in (
        r"test +near or exact +3 of 6 +50.00 % +18.76-81.24",
        r"repeats +2 images of test repeat each other \(1 pair, 1 exact\)",
        r"thresholds +hard 0\.\d+, soft 0\.\d+\n",
        r"unreadable +1 of 13 images: 1 not-an-image",
    ):
        assert re.search(pattern, text), pattern
    assert str(out / "unreadable.csv") in text
    assert str(out / "report.html") in text
    assert "\x1b" not in ran.out
    steps = [line.split(None, 1)[-1] for line in ran.out.splitlines()[-3:]]
    for command in ("next        visleak review", "visleak purge", "visleak split --repair"):
        assert f"{command} " in ran.out
    for step in steps[1:]:
        # as printed they run, and a dry run writes no image
        line = shlex.split(step if step.startswith("visleak") else f"visleak {step}")[1:]
        more = ("-o", tmp_path / "plan") if line[0] == "split" else ()
        assert run(*line, *more).code == 0
    assert Audit(out).summary.as_dict()["command"] == f"visleak audit {dataset} -o '{out}'"
    assert "data:image/" in (out / "report.html").read_text()
    # --force runs again and finds the same; --json prints the file and nothing else
    before = (out / "pairs.parquet").read_bytes()
    ran = run("audit", dataset, "-o", out, "--force", "--json")
    assert (ran.code, ran.err, ran.out) == (0, "", (out / "audit.json").read_text())
    assert (out / "pairs.parquet").read_bytes() == before


def test_sets_in_place_of_a_folder(dataset, tmp_path):
    ran = run("audit", "--set", f"mine={dataset / 'test'}", "-o", tmp_path / "one")
    assert ran.out.startswith("2 of 6 mine images")
    command = f"audit --set {dataset}/test --skip-within -o {tmp_path}/none"
    check_refused(command, "nothing to compare")
    sets = ("--set", dataset / "test", "--set", dataset / "train")
    content = json.loads(run("audit", *sets, "-o", tmp_path / "all", "--json").out)
    cells = {(each["query_set"], each["reference_set"]) for each in content["comparisons"]}
    assert cells == {(a, b) for a in ("test", "train") for b in ("test", "train")}


def test_nothing_readable_names_the_cure(dataset, tmp_path):
    """No gate passes over files that only stand in for images."""
    (tmp_path / "test").mkdir()
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    (tmp_path / "test" / "a.jpg").write_text(pointer)
    given = ("--test", tmp_path / "test", "--train", dataset / "train", "-o", tmp_path / "out")
    gates = "--fail-on near --fail-on unreadable=100%"
    refused(f"audit {gates}", *given, code=1, words="git lfs pull")
    ran = run("encode", tmp_path / "test", "-o", tmp_path / "vectors")
    assert (ran.code, "unreadable.csv" in ran.err) == (1, True)


@refusals("""
    {data} --encoder buitlin -> did you mean 'builtin'?
    {data} --fail-on neer -> got 'neer'; did you mean 'near'?
    {data} --expect 4 -> text of the source: emb:FOLDER?expect=N
    {data} --tset x -> no such option --tset; did you mean --set or --test
    {data} --test x -> give either DIR, or --test and --train, or --set; not two of them
    {data} --fail-on near --no-verify -> --fail-on near asks for a grade, and --no-verify
    {data} --near-at 0.7 --no-verify -> near_at (0.7) is for verified pairs
    {data} --encoder phash --fail-on hard -> --fail-on hard needs a threshold
    --test =x --train {data} -> a set is [DATASET:]NAME=SOURCE
    --test {data} -> --test needs --train to compare with;
     -> nothing to compare: give a folder with train and test in it
""")
def test_wrong_call(dataset, tmp_path, arguments, words):
    check_refused(f"audit -o {tmp_path}/out {arguments}", words, data=dataset)
    assert not (tmp_path / "out").exists()


def test_cache_can_be_switched_off_or_put_elsewhere(dataset, tmp_path, monkeypatch):
    monkeypatch.setenv("VISLEAK_CACHE", str(tmp_path / "default"))
    given = ("audit", dataset, "--no-verify", "--no-images", "-o")
    assert run(*given, tmp_path / "a", "--cache", "off").code == 0
    assert run(*given, tmp_path / "b", "--cache", tmp_path / "own").code == 0
    assert not (tmp_path / "default").exists()
    assert any((tmp_path / "own").iterdir())


#: Above the probability of every pair that is not exact.
NEVER = "0.99999999999"


def test_pairs_below_near_at_are_similar(dataset, audited, tmp_path):
    strict = tmp_path / "strict"
    call = ("audit", dataset, "-o", strict, "--near-at", NEVER)
    assert run(*call).code == 0
    default, found = (Audit(folder).pairs() for folder in (audited, strict))
    assert found["probability"].equals(default["probability"])
    assert set(default["grade"].to_pylist()) >= {"exact", "near"}
    demoted = ["similar" if each == "near" else each for each in default["grade"].to_pylist()]
    assert found["grade"].to_pylist() == demoted
    assert Audit(strict).rate("near_or_exact").count == Audit(strict).rate("exact").count == 2
    again = run(*call, "--fail-on", "near=33%")
    assert (again.code, "reused" in again.err, NEVER in again.out) == (3, True, True)
    assert f"near_at: 0.5 -> {NEVER}" in run("diff", audited, strict).out


def test_tripped_gates_end_with_three_after_all_is_written(dataset, tmp_path):
    out = tmp_path / "out"
    command = f"audit {dataset} -o {out} --fail-on near --fail-on exact=50% --fail-on unreadable=1%"
    ran = run(command, code=3)
    assert ran.err.splitlines() == [
        "visleak: gate near: 3 of 6 test images (50.00 %) have a near-duplicate or exact copy;"
        " allowed 0.00 %",
        "visleak: gate unreadable: 1 of 7 test images (14.29 %) could not be read; allowed 1.00 %",
    ]
    assert ran.out.startswith("3 of 6 test images")
    assert (out / "report.html").is_file()


def test_gates_hold_for_a_reused_audit_and_need_readable_images(dataset, audited):
    call = ("audit", dataset, "-o", audited, "--fail-on")
    assert run(*call, "near", *MOSTLY_READABLE, "--json").code == 3
    assert run(*call, "near=50%", *MOSTLY_READABLE).code == 0
    (line,) = [line for line in run(*call, "near=50%", code=3).err.splitlines() if "gate" in line]
    assert "1 of 7 test images" in line
    assert "--fail-on unreadable=RATE" in line


def test_results_for_other_tools(dataset, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    given = ("audit", dataset, "-o", tmp_path / "out", "--fail-on", "near", *MOSTLY_READABLE)
    assert json.loads(run(*given, "--format", "sarif", "--open", code=3).out)["version"] == "2.1.0"
    assert shown == [(tmp_path / "out" / "report.html").as_uri()]
    assert run(*given, "--format", "junit").out.startswith("<?xml")
    assert run(*given, "--format", "json").out == (tmp_path / "out" / "audit.json").read_text()
    check_refused(f"audit {dataset} --format junit", "--format junit reports gates")


@pytest.fixture(scope="module")
def changed(dataset, tmp_path_factory):
    """The data set with one more leak: a training image, turned."""
    root = tmp_path_factory.mktemp("changed") / "data"
    shutil.copytree(dataset, root)
    picture = Image.open(root / "train" / "thing" / "t2.png")
    picture.transpose(Image.Transpose.ROTATE_90).save(root / "test" / "thing" / "turned.png")
    return root


def test_new_leaks_trip_and_are_named(changed, audited, tmp_path):
    out = tmp_path / "out"
    command = ("audit", changed, "-o", out, "--baseline", audited)
    gates = ("--fail-on", "near", "--fail-on", "exact", "--fail-on", "unreadable=50%")
    ran = run(*command, *gates, code=3)
    near, pair = ran.err.splitlines()
    assert near.startswith("visleak: gate near: 1 new of 7 test images (14.29 %)")
    assert pair.startswith("  test thing/turned.png = train thing/t2.png: near, probability ")
    assert "gate exact: 0 new of 7 test images (0.00 %) have an exact copy (2 known" in ran.out
    ran = run(*command, "--fail-on", "near=20%", *MOSTLY_READABLE)
    assert (ran.code, "reused: " in ran.err) == (0, True)
    ran = run(*command)
    assert (ran.code, ran.out.splitlines()[-1][-23:]) == (0, "(3 known from baseline)")
    # as JSON, beside the audit, which is independent of gates
    ran = run(*command, "--fail-on", "near", "--json")
    content = json.loads(ran.out)
    assert (ran.code, content.pop("baseline")) == (3, [str(audited)])
    (gate,) = content.pop("gates")
    assert (gate["gate"], gate["query_set"], gate["tripped"]) == ("near", "test", True)
    assert (gate["new"]["count"], gate["known"], gate["new_pairs"]) == (1, 3, 1)
    assert gate["worst"][0]["query"] == "thing/turned.png"
    assert content == json.loads((out / "audit.json").read_text())


@refusals("""
    {out}/nowhere -> does not exist; give an audit folder or a file of accepted pairs
    {out} -> holds no finished audit (no audit.json)
    {audit} -> is the output folder itself, so the second run would know every leak
""")
def test_a_wrong_baseline_ends_the_run(dataset, audited, tmp_path, arguments, words):
    out = audited if "{audit}" in arguments else tmp_path / "out"
    command = f"audit {dataset} -o {out} --baseline {arguments}"
    check_refused(command, words, audit=audited, out=tmp_path)
    assert not (tmp_path / "out").exists()


def test_cost_is_printed_and_nothing_is_done(dataset, tmp_path):
    given = ("audit", dataset, "-o", tmp_path / "out", "--dry-run", "--cache", "off")
    ran = run(*given, code=0)
    assert re.fullmatch(
        r"13 images \(\d+ kB\); about \d+ s with 1 process: \d s reading and encoding, \d s search,"
        r" \d+ s local features, \d s screening of \d+ pairs, \d+ s verification of \d+ pairs"
        r" \(estimated from 13 images and \d+ pairs\); at least 497 kB of scratch\n",
        ran.out,
    ), ran.out
    found = json.loads(run(*given, "--json", code=0).out)
    size = sum(file.stat().st_size for file in dataset.glob("*/thing/*"))
    assert (found["images"], found["bytes"]) == (13, size)
    assert not (tmp_path / "out").exists()


def test_the_line_of_a_large_run():
    steps = dict.fromkeys(("fingerprint", "search", "local", "screening"), 80_000.0)
    known = {"images": 407_314_000, "embeddings": 12, "verified": 4_000, "scratch": 834_179_072_000}
    known |= {"seconds": 86_400.0, "steps": steps | {"verification": 5_000.0}, "bytes": None}
    cost = Cost(**dict.fromkeys([field.name for field in fields(Cost)], 0) | known)
    shown = describe(cost)
    assert shown.startswith("407,314,000 images; 12 embeddings; about 24:00:00 with ")
    assert "1:23:20 verification of 4,000 pairs" in shown
    assert "at least 834 GB of scratch" in shown
    unknown = replace(cost, images=3, embeddings=0, bytes=999_600, seconds=None, cache=20)
    shown = describe(replace(unknown, scratch=10))
    assert shown == "3 images (1.0 MB); at least 10 bytes of scratch, up to 20 bytes of cache"


def test_without_thresholds_there_are_no_degrees(dataset, tmp_path):
    out = tmp_path / "out"
    ran = run("audit", dataset, "-o", out, "--encoder", "phash", code=0)
    assert ran.out.startswith("3 of 6 test images")
    assert re.search(r"thresholds +none are known", ran.out)
    assert "near or exact" in ran.out
    (total,) = Audit(out).summary.totals
    assert total.rates["hard"] is total.rates["hard_or_soft"] is None
    assert total.rates["near_or_exact"].count == 3
    pairs = Audit(out).pairs()
    assert pairs["degree"].null_count == len(pairs) > pairs["grade"].null_count == 0
    for shown in (ran.out, (out / "report.html").read_text()):
        assert "hard or soft" not in shown
    ran = run(f"audit {dataset} -o {tmp_path}/bare --encoder phash --no-verify", code=0)
    assert ran.out.startswith("test was compared with train; no thresholds, so no rate\n")
    assert "visleak calibrate S --encoder phash --fpr 1e-6" in ran.out


def test_thresholds_of_the_caller_serve(dataset, tmp_path):
    base = ("audit", dataset, "--encoder", "phash", "--no-verify", *MOSTLY_READABLE)
    ran = run(*base, "-o", tmp_path / "h", "--hard", "0.95", "--fail-on", "hard=90%", code=0)
    assert "hard 0.95, soft 0.95" in ran.out
    rates = json.loads((tmp_path / "h" / "audit.json").read_text())["totals"][0]["rates"]
    assert rates["hard"]["count"] == rates["hard_or_soft"]["count"] == 2
    assert rates["soft"]["count"] == 0
    ran = run(*base, "-o", tmp_path / "s", "--soft", "0.95", "--fail-on", "soft=90%", code=0)
    rates = json.loads((tmp_path / "s" / "audit.json").read_text())["totals"][0]["rates"]
    assert rates["hard"] is rates["soft"] is None
    assert rates["hard_or_soft"]["count"] == 2


def test_the_cost_of_a_long_run_is_shown_at_a_terminal(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr("visleak.cli.audits.WORTH_TELLING", 1)
    monkeypatch.setattr("visleak.cli.audits.TELL_ABOVE", 0.0)
    for times in (1, 0):
        ran = run("audit", dataset, "-o", tmp_path / "out", "--no-images", terminal=True)
        assert (ran.code, ran.err.count("13 images (152 kB); about ")) == (0, times)
