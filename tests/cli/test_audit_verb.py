"""``visleak audit``: its summary, what it reuses, and what it refuses."""

import importlib.util
import json
import re
import shlex
import shutil

import pytest
from calling import HOSTILE, check_refused, refusals, refused, run

from visleak.auditing import Audit


def test_summary_says_what_the_folder_says(dataset, tmp_path):
    out = tmp_path / "my audits" / "out"
    ran = run("audit", dataset, "-o", out)
    assert (ran.code, ran.err) == (0, "")
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
    content = json.loads((out / "audit.json").read_text())
    assert content["command"] == f"visleak audit {dataset} -o '{out}'"
    assert "data:image/" in (out / "report.html").read_text()
    # --force runs again and finds the same; --json prints the file and nothing else
    before = (out / "pairs.parquet").read_bytes()
    ran = run("audit", dataset, "-o", out, "--force", "--json")
    assert (ran.code, ran.err, ran.out) == (0, "", (out / "audit.json").read_text())
    assert (out / "pairs.parquet").read_bytes() == before


def test_candidates_by_similarity_are_left_out_where_nothing_is_near(dataset, tmp_path):
    test, out = tmp_path / "test", tmp_path / "out"
    test.mkdir()
    for name in ("q0.png", "q1.png"):
        shutil.copy(dataset / "test" / "thing" / name, test)
    given = ("audit", "--test", test, "--train", dataset / "train", "-o", out, "--hard", "0.2")
    shown = run(*given, "--soft", "0.1", "--no-images").out
    assert Audit(out).rate("hard_or_soft").count
    assert "near or exact" in shown
    for text in ("hard or soft", "next"):
        assert text not in shown


def test_no_verify_gives_degrees_only(dataset, tmp_path):
    ran = run("audit", dataset, "-o", tmp_path / "out", "--no-verify")
    assert ran.code == 0
    assert "hard or soft" in ran.out
    assert "near or exact" not in ran.out
    assert "verification: switched off" in ran.out


def test_sets_in_place_of_a_folder(dataset, audited, tmp_path):
    sides = ("--test", dataset / "test", "--train", dataset / "train")
    assert run("audit", *sides, "-o", tmp_path / "sides").code == 0
    assert Audit(tmp_path / "sides").headline == Audit(audited).headline
    ran = run("audit", "--set", f"mine={dataset / 'test'}", "-o", tmp_path / "one")
    assert ran.out.startswith("2 of 6 mine images")
    command = f"audit --set {dataset}/test --skip-within -o {tmp_path}/none"
    check_refused(command, "nothing to compare")
    sets = ("--set", dataset / "test", "--set", dataset / "train")
    content = json.loads(run("audit", *sets, "-o", tmp_path / "all", "--json").out)
    cells = {(each["query_set"], each["reference_set"]) for each in content["comparisons"]}
    assert cells == {(a, b) for a in ("test", "train") for b in ("test", "train")}
    names = {path.name for path in dataset.rglob("*") if path.is_file()}
    images = (f"t{n}.png" if n < 6 else f"q{n - 6}.png" for n in range(9))
    assert names == {*images, "copy.png", "mirrored.png", "text.jpg", HOSTILE}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("m.csv", b"file,label\na.png,b\n", "path"),
        ("a.zip", b"PK\x03\x04 and then nothing", "a.zip"),
        ("bad/a.jpg", b"no picture", "none of its 1 images could be read (1 not-an-image)"),
        ("empty/readme.txt", b"", "holds no images"),
    ],
)
def test_sources_without_an_image(tmp_path, name, content, words):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    source = tmp_path / name.partition("/")[0]
    code, message = refused("audit", "--set", source, "-o", tmp_path / "out")
    assert (code, words in message, source.name in message) == (1, True, True), message


@pytest.mark.parametrize(
    ("content", "cure"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "git lfs pull"),
        (b"<!DOCTYPE html><html>404 Not Found</html>", "download it again"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(99), "pip install 'visleak[heif]'"),
    ],
    ids=["lfs", "html", "heic"],
)
def test_nothing_readable_names_the_cure(dataset, tmp_path, content, cure):
    """No gate passes over files that only stand in for images."""
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "a.jpg").write_bytes(content)
    if cure.startswith("pip") and importlib.util.find_spec("pillow_heif"):
        cure = "corrupt"
    given = ("--test", tmp_path / "test", "--train", dataset / "train", "-o", tmp_path / "out")
    code, message = refused("audit", *given, "--fail-on", "near", "--fail-on", "unreadable=100%")
    assert (code, cure in message) == (1, True), message
    ran = run("encode", tmp_path / "test", "-o", tmp_path / "vectors")
    assert (ran.code, "unreadable.csv" in ran.err) == (1, True)


@refusals("""
    {data} --encoder nosuch -> encoder must be one of builtin,
    {data} --search annoy -> search must be one of exact, faiss; got 'annoy'
    {data} --hard 2 -> hard must be from -1 to 1; got 2.0
    {data} --hard 0.1 --soft 0.2 -> hard (0.1) must not be below soft (0.2)
    {data} --expect 4 -> text of the source: emb:FOLDER?expect=N
    {data} --tset x -> no such option --tset; did you mean --set or --test
    {data} -o -> option '-o' requires an argument; see visleak audit --help
    {data} second -> (second); see visleak audit --help
    {data} --test x -> give either DIR, or --test and --train, or --set; not two of them
    {data} --fail-on nears -> --fail-on must be one of exact, near, similar, hard, soft, group
    {data} --fail-on near=2 -> --fail-on near=2: the rate is a share from 0 to 1 or a perce
    {data} --fail-on near --no-verify -> --fail-on near asks for a grade, and --no-verify
    {data} --id name -> id 'name':
    {data} --group '/(/' -> group '/(/' is not a regular expression
    {data} --near-at 1 -> near_at
    {data} --near-at nan -> near_at
    {data} --near-at much -> near-at
    {data} --near-at 0.7 --no-verify -> near_at (0.7) is for verified pairs
    {data} --encoder phash --fail-on hard -> --fail-on hard needs a threshold
    {data} --encoder phash --fail-on soft -> --fail-on soft needs a threshold
    {data} --encoder phash --soft 0.9 --fail-on hard --no-verify -> --fail-on hard needs a thresh
    {data} --device cpu -> encoder builtin has no option 'device'
    {data} --batch 3 -> encoder builtin has no option 'batch'
    {data}/train -> does not hold two splits (found none)
    {data}/gone -> gone' does not exist
    --test {data}/gone --train {data}/train -> gone' does not exist; a source is a folder
    --test =x --train {data} -> a set is [DATASET:]NAME=SOURCE
    --test {data} -> --test needs --train to compare with;
     -> nothing to compare: give a folder with train and test in it
""")
def test_wrong_call(dataset, tmp_path, arguments, words):
    check_refused(f"audit -o {tmp_path}/out {arguments}", words, data=dataset)
    assert not (tmp_path / "out").exists()


def test_output_is_a_file(dataset, tmp_path):
    (tmp_path / "out").write_text("mine")
    check_refused(f"audit {dataset} -o {tmp_path}/out", "out is a file; choose a folder")
    assert (tmp_path / "out").read_text() == "mine"


def test_cache_can_be_switched_off_or_put_elsewhere(dataset, tmp_path, monkeypatch):
    monkeypatch.setenv("VISLEAK_CACHE", str(tmp_path / "default"))
    given = ("audit", dataset, "--no-verify", "--no-images", "-o")
    assert run(*given, tmp_path / "a", "--cache", "off").code == 0
    assert run(*given, tmp_path / "b", "--cache", tmp_path / "own").code == 0
    assert not (tmp_path / "default").exists()
    assert any((tmp_path / "own").iterdir())


# -- the probability from which a pair is near -----------------------------------------------------

#: Above the probability of every pair that is not exact.
NEVER = "0.9999999"


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
    assert (again.code, "reused" in again.err, f"probability {NEVER}" in again.out) == (
        3,
        True,
        True,
    )
    content = json.loads((strict / "audit.json").read_text())
    assert content["grader"]["near_at"] == content["settings"]["near_at"] == float(NEVER)
    assert f"near from probability <strong>{NEVER}<" in (strict / "report.html").read_text()
    assert f"near_at: 0.5 -> {NEVER}" in run("diff", audited, strict).out
