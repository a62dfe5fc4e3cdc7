"""Commands on a set of images, and what other commands say to embeddings."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from calling import MOSTLY_READABLE, check_refused, refusals, refused, run
from PIL import Image

from visleak.cli import command
from visleak.progress import Silent


@pytest.fixture(scope="module")
def encoded(dataset, tmp_path_factory):
    root = tmp_path_factory.mktemp("encoded")
    for split in ("test", "train"):
        run("encode", dataset / split, "-o", root / split, "--shard", 4, code=0)
    return {split: root / split for split in ("test", "train")}


def test_encode_reports_what_it_wrote(dataset, tmp_path):
    images, out = Path(shutil.copytree(dataset / "test", tmp_path / "test")), tmp_path / "out"
    (images / "scan.exr").write_bytes(b"no image")
    ran = run("encode", images, "-o", out, "--shard", 4, code=0, err="")
    assert ran.out == f"6 vectors in 2 files, 1 unreadable\nskipped: 1 file: 1 .exr\n{out}\n"
    again = run("encode", images, "-o", out, "--shard", 4)
    assert (again.code, again.out) == (0, ran.out)
    assert again.err == f"reused: {out} holds these vectors, finished\n"
    words = "out holds embeddings of another set, encoder or layout; choose another"
    check_refused(f"encode {dataset}/train -o {out}", words)
    assert run("encode", dataset / "train", "-o", out, "--force").code == 0


@refusals("""
    encode {data}/train -o v.npy -> v.npy is a file; choose a folder with -o DIR
    encode emb:{emb}/test -o unused -> is a set of embeddings: there are no pixels to verify
    robustness emb:{emb}/test -o unused -> is a set of embeddings: there are no pixels to verify
    calibrate emb:{emb}/test --fpr 0.01 -o unused -> is a set of embeddings
    calibrate {data}/train --fpr tiny -o unused -> --fpr must be one rate or two, such as 1e-6
    find {data}/no.png --against {data}/train -> no.png' is not a file
    find {data}/test/thing/copy.png --against {data}/no -> does not exist
    audit --test a=emb:{v}klip --train b=emb:{v}klip -o unused --hard 0.9 --soft 0.8 -> klip
    audit --test a=emb:{v}other --train b=emb:{v}other -o unused -> other
    audit --test {data}/test --train emb:{emb}/train --device cuda:97 -o u -> cuda:97 is not there
""")
def test_wrong_calls(dataset, encoded, tmp_path, arguments, words, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "v.npy", np.eye(4, dtype=np.float16))
    vectors = f"{tmp_path}/v.npy?encoder="
    check_refused(arguments, words, data=dataset, emb=encoded["test"].parent, v=vectors)


def test_anonymous_warns_of_thumbnails_and_names_what_to_keep(dataset, tmp_path):
    out = tmp_path / "pub"
    command = ("encode", dataset / "test", "-o", out, "--anonymous")
    (tmp_path / "pub.ids.csv").write_text("my,notes\n")
    assert "is another file" in run(*command, code=2).err
    assert (tmp_path / "pub.ids.csv").read_text() == "my,notes\n"
    (tmp_path / "pub.ids.csv").unlink()
    for _ in range(2):
        ran = run(*command, code=0)
        assert ran.err.startswith("note: the built-in fingerprint contains a thumbnail (colours")
        assert ran.out.splitlines()[-1] == (
            f"keep, and never publish: {out}.salt (the salt) and {out}.ids.csv"
            " (which hash is which image)"
        )
    found = run(f"audit --test emb:{out} --train {dataset}/train -o {tmp_path}/audit", code=0)
    assert found.out.startswith("3 of 6 ")


def test_an_audit_of_embeddings_reports_degrees(encoded, tmp_path):
    sides = ("--test", f"emb:{encoded['test']}", "--train", f"emb:{encoded['train']}")
    ran = run("audit", *sides, "-o", tmp_path / "out", code=0, err="")
    assert ran.out.startswith("3 of 6 test images (50.00 %")
    assert "have an image at or above the soft threshold in train" in ran.out
    assert run("report", tmp_path / "out", "--force").code == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "No images were available when this page was made" in page
    gated = ("audit", *sides, "-o", tmp_path / "out", *MOSTLY_READABLE, "--fail-on")
    again = run(*gated, "near", code=2)
    assert "--fail-on near: this audit did not measure it (a grade needs images" in again.err
    assert [run(*gated, f"soft={rate}%").code for rate in (50, 49)] == [0, 3]
    words = "set 'test' holds embeddings only; it has no images to show"
    check_refused(f"show {tmp_path}/out thing/copy.png -o {tmp_path}/a.png", words)


def test_images_beside_embeddings_are_looked_at(encoded, dataset, tmp_path):
    trained = ("--train", f"emb:{encoded['train']}", "--train", f"pictures={dataset / 'train'}")
    ran = run(f"audit --test {dataset}/test -o {tmp_path}/out --json", *trained, code=0, err="")
    summary = json.loads(ran.out)
    rates = {each["reference_set"]: each["rates"] for each in summary["comparisons"]}
    assert rates["pictures"]["near_or_exact"]["count"] == 3
    assert rates["train"]["near_or_exact"] is None
    assert rates["train"]["hard_or_soft"] == rates["pictures"]["hard_or_soft"]
    total = summary["totals"][0]["rates"]
    assert (total["near_or_exact"], total["hard_or_soft"]["count"]) == (None, 3)
    assert "verification of train: there are embeddings only" in " ".join(summary["skipped"])
    pairs = pq.read_table(tmp_path / "out" / "pairs.parquet").to_pylist()
    looked = {(row["reference_set"], row["grade"] is not None) for row in pairs}
    assert looked == {("train", False), ("pictures", True), ("test", True)}


def test_find_in_images_looks_at_them(dataset):
    copy, other = dataset / "test" / "thing" / "copy.png", dataset / "test" / "thing" / "q0.png"
    ran = run(f"find {copy} {other} --against {dataset}/train --json --top-k 2", code=0, err="")
    first, second = json.loads(ran.out)["images"]
    assert [first["found"], second["found"]] == [True, False]
    best = first["matches"][0]
    assert (best["set"], best["id"], best["grade"]) == ("train", "thing/t0.png", "exact")
    assert best["locator"] == str(dataset / "train" / "thing" / "t0.png")
    assert len(first["matches"]) == len(second["matches"]) == 2
    text = dataset / "test" / "thing" / "text.jpg"
    check_refused(f"find {text} --against {dataset}/train", "not-an-image", code=1)
    ran = run("find", text, copy, "--against", dataset / "train", code=0)
    assert f"{text}: cannot be read (not-an-image)" in ran.out
    assert f"{copy}: found: thing/t0.png of train (exact)" in ran.out


def test_find_in_embeddings_reports_degrees(dataset, encoded):
    copy, other = dataset / "test" / "thing" / "copy.png", dataset / "test" / "thing" / "q0.png"
    for place in (encoded["train"], f"emb:{encoded['train']}"):
        ran = run("find", copy, other, "--against", place, "--json")
        first, second = json.loads(ran.out)["images"]
        assert (first["found"], second["found"]) == (True, False)
        assert (first["matches"][0]["degree"], first["matches"][0]["grade"]) == ("hard", None)
    lines = run("find", copy, other, "--against", encoded["train"]).out.splitlines()
    assert lines[0].endswith("likely match (similarity only): thing/t0.png of train (hard)")
    assert any(": not found; the nearest has similarity 0." in line for line in lines)


def test_find_in_an_audit_looks_through_its_sets(dataset, audited):
    picture = dataset / "train" / "thing" / "t1.png"
    found = json.loads(run("find", picture, "--against", audited, "--json").out)["images"][0]
    assert [(m["set"], m["id"], m["grade"]) for m in found["matches"][:2]] == [
        ("train", "thing/t1.png", "exact"),
        ("test", "thing/mirrored.png", "near"),
    ]


def test_files_that_are_missing_are_said_to_be(tmp_path):
    folder, rng = tmp_path / "train", np.random.default_rng(0)
    folder.mkdir()
    for number in (0, 1, 3):
        vectors = rng.normal(size=(5, 8)).astype(np.float32)
        np.save(folder / f"img_emb_{number}.npy", vectors)
    test = f"a=emb:{folder}/img_emb_0.npy?encoder=clip"
    given = f"audit -o {tmp_path}/out --test {test} --train b=emb:{folder}?encoder=clip"
    ran = run(given, code=0)
    assert "3 of 4 files; img_emb_2.npy is missing" in " ".join(ran.out.split())
    summary = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert summary["sets"][1]["files"]["missing"] == ["img_emb_2.npy"]
    assert any("img_emb_2.npy" in line for line in summary["skipped"])
    check_refused(f"{given}&expect=4", "img_emb_2.npy is missing", code=1)


@pytest.mark.parametrize(("side", "search"), [("--test", "exact"), ("--train", "faiss")])
def test_a_shard_that_is_not_its_manifests_is_refused(encoded, tmp_path, side, search):
    if search == "faiss":
        pytest.importorskip("faiss")
    folder = shutil.copytree(encoded["train"], tmp_path / "edited")
    shard = sorted((folder / "img_emb").iterdir())[-1]
    stored = np.load(shard)
    stored[0] = -stored[0]
    np.save(shard, stored)
    other = "--train" if side == "--test" else "--test"
    call = ("audit", side, f"emb:{folder}", other, f"emb:{encoded['test']}", "--search", search)
    _, message = refused(*call, "-o", tmp_path / "out", code=1, words=shard.name)
    assert "manifest" in message
    shutil.copy(encoded["train"] / "img_emb" / shard.name, shard)
    texts = sorted((folder / "metadata").iterdir())[-1]
    table, whole = pq.read_table(texts), texts.read_bytes()
    pq.write_table(table.set_column(0, table.schema.names[0], table.column(0)[::-1]), texts)
    _, message = refused(*call, "-o", tmp_path / "out", code=1, words=texts.name)
    assert "manifest" in message
    texts.write_bytes(whole)
    shard.write_bytes(shard.read_bytes()[:-7])
    refused(*call, "-o", tmp_path / "out", code=1, words="truncated")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory, natural):
    root = tmp_path_factory.mktemp("collection")
    for name in ("astronaut", "chelsea", "coffee", "coins", "camera"):
        small = Image.fromarray(natural[name])
        small.thumbnail((160, 160))
        small.save(root / f"{name}.png")
    return root


def test_robustness_writes_a_folder_and_prints_its_result(pictures, tmp_path):
    out = tmp_path / "out"
    given = ("--conditions", "original,flip-h,gauss", "--queries", 3, "--report-at", 0.5, "-o", out)
    ran = run("robustness", f"mine={pictures}", *given, code=0, err="")
    first, *rest = ran.out.splitlines()
    assert first.startswith("builtin ranks the original first for 100.00 % with verification and")
    assert any(line.split()[:3] == ["flip-h", "3", "100.00"] for line in rest)
    assert rest[-1] == str(out / "report.html")
    ran = run("robustness", f"mine={pictures}", *given, "--json")
    assert ran.out == (out / "robustness.json").read_text()
    assert ran.err.startswith(f"the earlier result is kept in {out}.previous")


def test_calibrate_then_audit(pictures, tmp_path):
    file = tmp_path / "thresholds.json"
    given = ("--fpr", "1e-6,0.1", "--conditions", "original,red", "-o", file)
    ran = run("calibrate", pictures, *given, code=0)
    assert "cannot support a rate of 1e-06: with 10 pairs of images the smallest is" in ran.err
    (entry,) = json.loads(file.read_text())["encoders"].values()
    assert f"hard {entry['hard']:g}" in ran.out
    assert ran.out.splitlines()[-1] == str(file)
    run(f"audit --set {pictures} --thresholds {file} -o {tmp_path}/audit", code=0)
    found = json.loads((tmp_path / "audit" / "audit.json").read_text())["thresholds"]
    assert (found["hard"], found["soft"]) == (entry["hard"], entry["soft"])
    assert found["provenance"] == entry["provenance"]


#: A training of seconds.
QUICK = ("--epochs", "2", "--batch", "8", "--threads", "1")


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """Return a table of bright and dark images, with two columns of labels and one of videos."""
    pytest.importorskip("torch")
    root = tmp_path_factory.mktemp("shapes")
    rng = np.random.default_rng(0)
    lines = ["path,label,other,video"]
    for number in range(40):
        low = 128 * (number % 2)
        pixels = rng.integers(low, low + 128, (16, 16, 3), np.uint8)
        Image.fromarray(pixels).save(root / f"{number:02}.png")
        bright = "bright" if low else "dark"
        lines.append(f"{number:02}.png,{bright},same,{number // 4}")
    table = root / "shapes.csv"
    table.write_text("\n".join(lines) + "\n")
    return table


def test_what_train_encoder_prints(shapes, tmp_path):
    out = tmp_path / "model.onnx"
    ran = run("train-encoder", shapes, "-o", out, *QUICK, "--group", "video", code=0, err="")
    first, second, files, after = ran.out.splitlines()
    assert first == (
        "plain-11 at 16 pixels: 2 classes, learned from 36 images of shapes in 2 epochs"
    )
    assert second.startswith("  accuracy, held-out part: ")
    assert second.split(": ")[1].split(" (")[0].endswith(" of 4")
    assert files == f"{out}, {out}.json"
    assert after == f"use it with --encoder onnx:{out}"
    bare = tmp_path / "bare"
    bare.mkdir()
    for picture in sorted(shapes.parent.glob("*.png"))[:20]:
        shutil.copy(picture, bare)
    (bare / "broken.png").write_bytes(b"no picture")
    given = ("train-encoder", bare, "-o", out, *QUICK, "--force")
    ran = run(*given, "--json")
    assert json.loads(ran.out) == json.loads((tmp_path / "model.onnx.json").read_text())["about"]
    assert ran.err.splitlines() == [
        "1 image of bare unreadable: excluded",
        "bare has no labels: the network learns to distinguish images",
    ]
    ran = run(*given, "--test", bare, code=0)
    assert "  two views of an image found among all, bare: " in ran.out


@refusals("""
    -o {here}/there.onnx -> there.onnx.json exists; choose another file with -o FILE
    -o {here} -> is a folder; choose a file with -o FILE
    -o {here}/m.onnx --device tpu -> device must be auto, cpu, cuda or cuda:N; got 'tpu'
    -o {here}/m.onnx --label other -> all images of set 'shapes' have the label 'same'
    -o {here}/m.onnx --test {images}/00.png -> has one of the training labels (bright, dark)
    -o {here}/file/m.onnx -> the output folder {here}/file/.m.onnx.training cannot be
""")
def test_what_train_encoder_refuses(shapes, tmp_path, arguments, words):
    (tmp_path / "there.onnx.json").write_text("{}")
    (tmp_path / "file").write_text("")
    code = 1 if "label" in words or "cannot" in words else 2
    places = {"here": tmp_path, "images": shapes.parent}
    check_refused(f"train-encoder {shapes} {arguments}", words, code=code, **places)
    assert not [*tmp_path.glob("*.onnx"), *tmp_path.glob(".*")]


@pytest.mark.parametrize("missing", ["torch", "onnx"])
def test_a_missing_library_is_named_before_anything_is_read(shapes, tmp_path, monkeypatch, missing):
    """Torch exports with onnx: to learn that after the training would be late."""
    monkeypatch.setitem(sys.modules, missing, None)
    assert refused("train-encoder", shapes, "-o", tmp_path / "m.onnx") == (
        1,
        "train-encoder needs an extra: pip install 'visleak[torch]'",
    )


def test_an_interrupt_reports_what_is_kept(shapes, tmp_path, monkeypatch):
    out = tmp_path / "model.onnx"

    class Stopping(Silent):
        """Interrupts the run in the middle of the training."""

        def show(self, step, *, new):
            if step.name.startswith("training") and step.done > step.total / 2:
                raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(command, "display_for", lambda *stream, **options: Stopping())
        kept = out.with_name(".model.onnx.training") / "checkpoint.pt"
        words = f"is kept in {kept}; the same command"
        refused(f"train-encoder {shapes} -o {out}", *QUICK, code=130, words=words)
    ran = run("train-encoder", shapes, "-o", out, *QUICK, code=0)
    assert ran.err == "resumed: 4 of 8 steps were done before\n"
    assert out.exists()
    assert not kept.parent.exists()
