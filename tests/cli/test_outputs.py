"""Where results may be written: never over files of others, never among what is read."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from calling import check_refused, refusals, refused, run
from PIL import Image

from visleak.auditing import Audit
from visleak.verdicts.ledger import Ledger

#: Files that are part of an audit, or that an audit may get.
OWN = ("pairs.parquet", "images.parquet", "audit.json", "verdicts.csv", "replacements.sqlite")


def tree(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


#: Gates that the data set fails, and a verdict on one of its pairs.
GATE = ("--fail-on", "near", "--fail-on", "unreadable=20%", "--no-images", "--views")
JUDGED = "TestID,TrainID,Judgment\nthing/copy.png,thing/t0.png,0\n"


@pytest.fixture
def listed(tmp_path_factory):
    path = tmp_path_factory.mktemp("verdicts") / "list.csv"
    path.write_text(JUDGED)
    return path


def test_an_input_is_never_written_over(dataset, tmp_path):
    place = tmp_path / "d"
    place.mkdir()
    files = sorted(str(path) for path in (dataset / "train").rglob("*.png"))
    pq.write_table(pa.table({"path": files}), place / "images.parquet")
    before = tree(place)
    given = f"--test {dataset}/test --train {place}/images.parquet -o {place}"
    for more in ("", " --force"):
        check_refused(f"audit {given}{more}", "lies in the output")
    assert tree(place) == before


@refusals("""
    audit {data} -o {data}/test -> lies among the images of
    audit {data} -o {data}/test/new/deep -> lies among the images of
    audit --test {data}/test/** --train {data}/train -o {data}/test/new -> lies among the images of
    audit {data} -o {data}/train -> lies among the images of
    encode {data}/train -o {data}/train -> lies among the images of
    diff {audit} {audit} -o {data}/train/new.csv -> lies among the images of
    verdicts {audit} export {data}/train/new.csv -> lies among the images of
    calibrate {data}/train --fpr 1e-1 -o {data}/train/new.json -> lies among the images of
    train-encoder {data}/train -o {data}/train/new.onnx -> lies among the images of
    purge {audit} --remove-from test -o {data}/train/new --apply -> lies among the images of
    replace {audit} --pool {data}/test -o {data}/train/new --apply -> lies among the images of
    impact {audit} --predictions {audit}/audit.json -o {data}/test/new -> lies among the images of
    stats {audit} -o {data}/train --force -> lies among the images of
    memorization trace {data}/test --source {data}/train -o {data}/train/new -> lies among
    memorization compare --model m --methods greedy --prompts {mine}/notes.txt \
 --source {data}/train -o {data}/train/new -> lies among the images of
    memorization benchmark --model m --triggers {mine}/notes.txt --references {data}/train \
 --method rna:1 -o {data}/train/new -> lies among the images of
    audit {data} -o {mine} --force -> that visleak did not write
    encode {data}/test -o {mine} --force -> that visleak did not write
    robustness {data}/test -o {mine} --force -> that visleak did not write
    dlede --scores {mine}/notes.txt -o {mine} --force -> that visleak did not write
    stats {audit} -o {mine} --force -> that visleak did not write
    encode {data}/train -o {audit} --force -> holds a result of visleak audit
    stats {audit} -o {audit} --force -> holds a result of visleak audit
    robustness {data}/train --conditions jpeg-30 -o {audit} --force -> holds a result of visleak
    impact {audit} --predictions {mine}/notes.txt -o {audit} --force -> holds a result of visleak
    dlede --scores {mine}/notes.txt -o {audit} --force -> holds a result of visleak audit
    memorization trace {data}/test --source {data}/train -o {audit} --force -> holds a result of
    memorization detect --model m --prompts {mine}/notes.txt -o {audit} -> holds a result of visleak
    audit {data} -> that visleak did not write
    robustness {data}/train -> that visleak did not write
""")
def test_no_command_writes_among_images_or_other_results(
    dataset, audited, tmp_path, monkeypatch, arguments, words
):
    mine = tmp_path / "mine"
    # a result in one file does not make its folder one
    for name in (".", "visleak-audit", "visleak-robustness"):
        (mine / name).mkdir(parents=True)
        (mine / name / "notes.txt").write_text("id,correct\nthing/q0.png,1\n")
        (mine / name / "thresholds.json").write_text('{"kind": "visleak thresholds"}')
    for name in ("counts.json", "types.csv"):
        (mine / name).write_text("{}")
    monkeypatch.chdir(mine)
    before = tree(dataset), tree(mine), tree(audited)
    check_refused(arguments, words, data=dataset, audit=audited, mine=mine)
    assert (tree(dataset), tree(mine), tree(audited)) == before


@refusals("""
    export {audit} --format csv -> is a part of an audit
    report {audit} -> is a part of an audit
    diff {audit} {audit} -> is a part of an audit
    verdicts {audit} export -> is a part of an audit
    calibrate {data}/train --fpr 1e-1 -> is a part of an audit
""")
def test_the_files_of_an_audit_are_never_written_over(
    folder, dataset, tmp_path, arguments, words, listed
):
    (tmp_path / "link").symlink_to(folder)
    option = "" if arguments.startswith("verdicts") else "-o "
    if not option:
        run("verdicts", folder, "import", listed, "--reviewer", "Ada", code=0)
    before = tree(folder)
    for name in OWN:
        for place in (folder, tmp_path / "link", folder / ".." / "audit"):
            command = f"{arguments} {option}{place / name} --force"
            check_refused(command, words, audit=folder, data=dataset)
    assert tree(folder) == before


def test_an_image_is_of_the_format_of_its_name(audited, tmp_path):
    for name, kind in (("a.jpg", "JPEG"), ("a.png", "PNG")):
        assert run("show", audited, "thing/copy.png", "-o", tmp_path / name).code == 0
        with Image.open(tmp_path / name) as drawn:
            assert drawn.format == kind
    for name, words in (("a.jpg", "exists;"), ("a.txt", "a name that ends in .png or .jpg")):
        check_refused(f"show {audited} thing/copy.png -o {tmp_path / name}", words)


def test_exported_verdicts_write_over_nothing(folder, listed, tmp_path):
    out = tmp_path / "out.csv"
    run("verdicts", folder, "import", listed, "--reviewer", "Ada", code=0)
    second = tmp_path / "out_within_test.csv"
    second.write_text("mine")
    assert refused("verdicts", folder, "export", out)[0] == 2
    assert (out.exists(), second.read_text()) == (False, "mine")
    assert run("verdicts", folder, "export", out, "--force").code == 0
    assert "thing/copy.png,thing/t0.png,0.0,0" in out.read_text()


@pytest.mark.parametrize("output", ["", "leaks/v1.2", "."])
def test_an_earlier_audit_is_replaced_and_kept_aside(
    dataset, listed, tmp_path, monkeypatch, output
):
    """A gate in a workspace that is kept must fail as a gate, not as a wrong command line."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    place = Path(output or "visleak-audit").absolute()
    previous = place.with_name(f"{place.name}.previous")
    given = ("audit", dataset, *(("-o", output) if output else ()), *GATE)
    assert run(*given, "mirror").code == 3
    assert run("verdicts", place, "import", listed).code == 0
    for views in ("none", "mirror"):
        ran = run(*given, views)
        assert (ran.code, f"{previous.name}; verdicts of people stay in" in ran.err) == (3, True)
    assert run(*given, "mirror").err.startswith("reused: ")
    assert Audit(previous).summary.settings.views == "none"
    assert Audit(place).summary.settings.views == "mirror"
    assert "thing/copy.png" in (place / "verdicts.csv").read_text()
    assert {path.name for path in place.parent.iterdir()} == {place.name, previous.name}


def test_what_people_judged_in_the_previous_audit_alone_is_not_replaced(dataset, listed, tmp_path):
    out, previous = tmp_path / "leaks", tmp_path / "leaks.previous"
    given = f"audit {dataset} -o {out} --no-verify --no-images --views"
    assert run(*given.split(), "none").code == 0
    assert run(*given.split(), "mirror").code == 0
    assert run("verdicts", previous, "import", listed).code == 0
    before = tree(tmp_path)
    check_refused(f"{given} none", "judgments of people")
    assert tree(tmp_path) == before
    # what was taken over, or withdrawn since, is lost by nothing
    assert run("verdicts", out, "import", previous / "verdicts.csv").code == 0
    with Ledger(out) as ledger:
        assert ledger.undo(ledger.standing()[0].reviewer)
    assert run(*given.split(), "none").code == 0


def test_a_place_for_the_previous_result_that_is_taken_is_refused(dataset, audited, tmp_path):
    out, previous = tmp_path / "leaks", tmp_path / "leaks.previous"
    given = f"audit {dataset} -o {out} --no-verify --no-images"
    assert run(*given.split()).code == 0
    previous.write_text("mine")
    check_refused(f"{given} --views none", "is not a folder of visleak")
    previous.unlink()
    previous.mkdir()
    (previous / "notes.txt").write_text("mine")
    check_refused(f"{given} --views none", "that visleak did not write")
    (previous / "notes.txt").unlink()
    assert run("stats", audited, "-o", previous).code == 0
    before = tree(tmp_path)
    check_refused(f"{given} --views none", "holds a result of visleak")
    assert tree(tmp_path) == before


def test_logs_and_caches_spare_the_files_of_others(dataset, folder, tmp_path):
    before = tree(dataset), tree(folder)
    for image, why in (("t0.png", "is not a log"), ("run.log", "lies among the images of")):
        check_refused(f"check {folder} --log-file {dataset}/train/thing/{image}", why)
    check_refused(f"check {folder} --log-file {folder}/pairs.parquet", "is not a log")
    audit = f"audit {dataset} -o {folder} --force --cache"
    check_refused(f"{audit} {dataset}/train/cache", "lies among the images of")
    new = f"{dataset}/train/thing/run.log"
    for given in (
        f"audit {dataset} -o {folder} --force",
        f"audit --test {dataset}/test --train t={dataset}/train -o {folder} --force",
        f"encode {dataset}/train -o {folder}",
        f"find {dataset}/test/thing/q0.png --against {folder}",
    ):
        check_refused(f"{given} --log-file {new}", "lies among the images of")
    images = sorted(map(str, (dataset / "train").rglob("*.png")))
    (tmp_path / "list.txt").write_text("\n".join(images))
    pq.write_table(pa.table({"path": images}), tmp_path / "list.parquet")
    for source in (tmp_path / "list.txt", tmp_path / "list.parquet", f"{dataset}/train/*/*.png"):
        given = f"encode {source} -o {folder}-new --log-file {new}"
        check_refused(given, "lies among the images of")
    study = tmp_path / "sets.toml"
    sets = (("test", "B"), ("train", "T"))
    about = '[sets.{0}]\nsource = "{2}/{0}"\nroles = ["{1}"]\n'
    study.write_text("".join(about.format(*each, dataset) for each in sets))
    given = f"audit --config {study} -o {tmp_path / 'study'}"
    check_refused(f"{given} --log-file {new}", "lies among the images of")
    assert (tree(dataset), tree(folder)) == before
    # a folder around the images is none of theirs
    assert run(*f"{audit} {dataset.parent}".split(), "--no-images", "--no-verify").code == 0
