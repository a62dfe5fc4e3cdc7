from __future__ import annotations

import importlib.util
import json
import re
import shutil
from pathlib import Path

import pytest
from calling import HOSTILE, refused, run

from visleak.auditing import Audit


def test_summary_says_what_the_folder_says(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = run("audit", dataset, "-o", out)
    assert ran.code == 0
    assert ran.err == ""
    first, *rest = ran.out.splitlines()
    assert first == Audit(out).headline
    assert first.startswith("3 of 6 test images (50.00 %, 95 % CI 18.76-81.24) have a near-dup")
    text = "\n".join(rest)
    assert re.search(r"test +near or exact +3 of 6 +50.00 % +18.76-81.24", text)
    assert re.search(r"repeats +2 images of test repeat each other \(1 pair, 1 exact\)", text)
    assert re.search(r"thresholds +hard 0\.\d+, soft 0\.\d+$", text, re.MULTILINE)
    assert re.search(r"unreadable +1 of 13 images: 1 not-an-image", text)
    assert str(out / "unreadable.csv") in text
    assert str(out / "report.html") in text
    assert "\x1b" not in ran.out
    page = (out / "report.html").read_text()
    assert "data:image/webp" in page or "data:image/png" in page


def test_same_sets_one_by_one_give_the_same_rates(
    dataset: Path, audited: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    ran = run("audit", "--test", dataset / "test", "--train", dataset / "train", "-o", out)
    assert ran.code == 0
    assert Audit(out).headline == Audit(audited).headline


def test_json_is_the_file_and_nothing_else(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = run("audit", dataset, "-o", out, "--json")
    assert ran.out == (out / "audit.json").read_text()
    assert json.loads(ran.out)["headline"].startswith("3 of 6")
    assert ran.err == ""


def test_reuse_is_said_and_keeps_everything(dataset: Path, audited: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in audited.iterdir()}
    ran = run("audit", dataset, "-o", audited, "--json")
    assert ran.code == 0
    assert ran.err == (f"reused: {audited} holds this audit, finished; --force runs it again\n")
    assert ran.out == (audited / "audit.json").read_text()
    assert {path: path.stat().st_mtime_ns for path in audited.iterdir()} == before


def test_reuse_writes_a_missing_report(dataset: Path, audited: Path) -> None:
    (audited / "report.html").unlink()
    assert run("audit", dataset, "-o", audited).code == 0
    assert "data:image" in (audited / "report.html").read_text()


def test_force_does_it_again(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("audit", dataset, "-o", out)
    before = (out / "pairs.parquet").read_bytes()
    ran = run("audit", dataset, "-o", out, "--force", "--json")
    assert ran.code == 0
    assert ran.err == ""
    assert (out / "pairs.parquet").read_bytes() == before


def test_private_report_holds_no_pixels(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a report with pictures lies already; and nothing is decoded for it."""
    out = tmp_path / "out"
    assert run("audit", dataset, "-o", out).code == 0
    assert "data:image/webp" in (out / "report.html").read_text()
    monkeypatch.setattr(Audit, "decoded_images", lambda *_: pytest.fail("decoded"))
    assert run("audit", dataset, "-o", out, "--no-images").code == 0
    page = (out / "report.html").read_text()
    assert set(re.findall(r"data:image/[a-z+]+", page)) <= {"data:image/svg+xml"}
    assert "blob:" not in page


def test_no_verify_gives_degrees_only(dataset: Path, tmp_path: Path) -> None:
    ran = run("audit", dataset, "-o", tmp_path / "out", "--no-verify")
    assert ran.code == 0
    assert "hard or soft" in ran.out
    assert "near or exact" not in ran.out
    assert "not done    verification: switched off" in ran.out


def test_one_set_against_itself(dataset: Path, tmp_path: Path) -> None:
    ran = run("audit", "--set", f"mine={dataset / 'test'}", "-o", tmp_path / "out")
    assert ran.out.startswith("2 of 6 mine images")
    assert "elsewhere in the same set" in ran.out.splitlines()[0]


def test_several_sets_give_the_matrix(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = run("audit", "--set", dataset / "test", "--set", dataset / "train", "-o", out)
    assert ran.code == 0
    content = json.loads((out / "audit.json").read_text())
    cells = {(each["query_set"], each["reference_set"]) for each in content["comparisons"]}
    assert cells == {(a, b) for a in ("test", "train") for b in ("test", "train")}


def test_command_is_kept_as_it_was_given(audited: Path, dataset: Path) -> None:
    content = json.loads((audited / "audit.json").read_text())
    assert content["command"] == f"visleak audit {dataset} -o {audited}"


def test_nothing_is_written_to_the_sources(dataset: Path, audited: Path) -> None:
    names = {path.name for path in dataset.rglob("*") if path.is_file()}
    assert names == {
        *(f"t{number}.png" for number in range(6)),
        *(f"q{number}.png" for number in range(3)),
        *("copy.png", "mirrored.png", "text.jpg", HOSTILE),
    }


# -- errors ----------------------------------------------------------------------------------------


def test_empty_set(tmp_path: Path, dataset: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, message = refused("audit", "--test", tmp_path / "empty", "--train", dataset / "train")
    assert (code, message) == (
        1,
        f"{tmp_path / 'empty'} holds no images (no file below it is an image)",
    )


def test_missing_folder(dataset: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    code, message = refused("audit", "--test", gone, "--train", dataset / "train")
    assert code == 2
    assert message.startswith(f"source '{gone}' does not exist; a source is a folder")
    assert refused("audit", gone) == (2, f"source '{gone}' does not exist")


def test_folder_without_splits(dataset: Path) -> None:
    code, message = refused("audit", dataset / "train")
    assert code == 2
    assert "does not hold two splits (found none)" in message
    assert "--set S" in message


def test_manifest_without_path(tmp_path: Path) -> None:
    manifest = tmp_path / "m.csv"
    manifest.write_text("file,label\na.png,b\n")
    code, message = refused("audit", "--set", manifest, "-o", tmp_path / "out")
    assert code == 1
    assert "path" in message
    assert str(manifest) in message


def test_corrupt_archive(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    archive.write_bytes(b"PK\x03\x04 and then nothing")
    code, message = refused("audit", "--set", archive, "-o", tmp_path / "out")
    assert code == 1
    assert str(archive) in message


def test_nothing_readable(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.jpg").write_text("no picture")
    code, message = refused("audit", "--set", tmp_path / "bad", "-o", tmp_path / "out")
    assert code == 1
    assert message.startswith("set 'bad' ")
    assert "none of its 1 images could be read (1 not-an-image)" in message


@pytest.mark.parametrize(
    ("content", "cure"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "git lfs pull"),
        (b"<!DOCTYPE html><html>404 Not Found</html>", "download it again"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(99), "pip install 'visleak[heif]'"),
    ],
    ids=["lfs", "html", "heic"],
)
def test_nothing_readable_names_the_cure(
    dataset: Path, tmp_path: Path, content: bytes, cure: str
) -> None:
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--encoder", "nosuch"], "encoder must be one of builtin, "),
        (["--search", "annoy"], "search must be one of exact, faiss; got 'annoy'"),
        (["--hard", "2"], "hard must be a similarity between -1 and 1; got 2.0"),
        (["--hard", "0.1", "--soft", "0.2"], "hard (0.1) must not be below soft (0.2)"),
        (["--tset", "x"], "no such option --tset; did you mean --set or --test"),
        (["-o"], "option '-o' requires an argument; see visleak audit --help"),
        (["second"], "(second); see visleak audit --help"),
        (["--test", "x"], "give either DIR, or --test and --train, or --set; not two of them"),
        (
            ["--fail-on", "nears"],
            "--fail-on must be one of exact, near, similar, hard, soft, group, recording, unr",
        ),
        (["--fail-on", "near=2"], "--fail-on near=2: the rate is a share from 0 to 1 or a perce"),
        (["--fail-on", "near", "--no-verify"], "--fail-on near asks for a grade, and --no-verify"),
        (["--id", "name"], "id 'name': "),
        (["--group", "/(/"], "group '/(/' is not a regular expression"),
    ],
)
def test_wrong_call(dataset: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    """One line, exit code 2, and no work is done."""
    code, message = refused("audit", dataset, "-o", tmp_path / "out", *arguments)
    assert code == 2
    assert said in message
    assert not (tmp_path / "out").exists()


def test_calls_without_two_sides(dataset: Path) -> None:
    code, message = refused("audit")
    assert code == 2
    assert message.startswith("nothing to compare: give a folder with train and test in it")
    code, message = refused("audit", "--test", dataset)
    assert (code, message[:37]) == (2, "--test needs --train to compare with;")
    code, message = refused("audit", "--set", dataset / "test", "--skip-within")
    assert code == 2
    assert message.startswith("nothing to compare")


def test_folder_of_another_audit(dataset: Path, audited: Path) -> None:
    before = (audited / "audit.json").read_bytes()
    code, message = refused("audit", dataset, "-o", audited, "--views", "none")
    assert code == 2
    assert message == (
        f"{audited} holds another audit (other sets, files or settings); choose another folder"
        " with -o DIR, or replace it with --force"
    )
    assert (audited / "audit.json").read_bytes() == before


def test_output_is_a_file(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    code, message = refused("audit", dataset, "-o", tmp_path / "out")
    assert (code, message) == (
        2,
        f"the output {tmp_path / 'out'} is a file; choose a folder with -o DIR",
    )
    assert (tmp_path / "out").read_text() == "mine"


def test_cache_can_be_switched_off_or_put_elsewhere(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISLEAK_CACHE", str(tmp_path / "default"))
    assert run("audit", dataset, "-o", tmp_path / "a", "--cache", "off").code == 0
    assert run("audit", dataset, "-o", tmp_path / "b", "--cache", tmp_path / "own").code == 0
    assert not (tmp_path / "default").exists()
    assert any((tmp_path / "own").iterdir())


def test_sources_may_have_any_name(dataset: Path, tmp_path: Path) -> None:
    """Also one that is no UTF-8, and one that looks like markup."""
    for name in ("[bold]x", "caf\udce9"):
        shutil.copytree(dataset / "test", tmp_path / name)
    out = tmp_path / "out"
    ran = run(
        *("audit", "-o", out, "--set", tmp_path / "[bold]x"),
        *("--set", tmp_path / "caf\udce9"),
    )
    assert ran.code == 0, ran.err
    assert "[bold]x" in ran.out
    assert r"caf\udce9" in ran.out
