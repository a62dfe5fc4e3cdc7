"""Commands on a set of images, and what other commands say to embeddings."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from calling import HOSTILE, check_refused, refusals, refused, run
from PIL import Image

from visleak.cli import command
from visleak.progress import Silent, Step


@pytest.fixture(scope="module")
def encoded(dataset, tmp_path_factory):
    root = tmp_path_factory.mktemp("encoded")
    for split in ("test", "train"):
        run("encode", dataset / split, "-o", root / split, "--shard", 4, code=0)
    return {split: root / split for split in ("test", "train")}


def test_encode_reports_what_it_wrote(dataset, tmp_path):
    ran = run("encode", dataset / "test", "-o", tmp_path / "out", "--shard", 4, code=0, err="")
    assert ran.out == f"6 vectors in 2 files, 1 unreadable\n{tmp_path / 'out'}\n"
    again = run("encode", dataset / "test", "-o", tmp_path / "out", "--shard", 4)
    assert (again.code, again.out) == (0, ran.out)
    assert again.err == f"reused: {tmp_path / 'out'} holds these vectors, finished\n"
    words = "out holds embeddings of another set, encoder or layout; choose another"
    check_refused(f"encode {dataset}/train -o {tmp_path}/out", words)
    assert run("encode", dataset / "train", "-o", tmp_path / "out", "--force").code == 0


@refusals("""
    encode emb:{emb}/test -o unused -> is a set of embeddings: there are no pixels to verify
    robustness emb:{emb}/test -o unused -> is a set of embeddings: there are no pixels to verify
    calibrate emb:{emb}/test --fpr 0.01 -o unused -> is a set of embeddings
    find {data}/no.png --against {data}/train -> no.png' is not a file
    find {data}/test/thing/copy.png --against {data}/no -> does not exist
    audit --test a=emb:{v}klip --train b=emb:{v}klip -o unused --hard 0.9 --soft 0.8 -> klip
    audit --test a=emb:{v}other --train b=emb:{v}other -o unused -> other
    audit --test a=emb:{v}other: --train b=emb:{v}other: -o unused -> other
    audit --test {data}/test --train emb:{emb}/train --device cuda:97 -o u -> cuda:97 is not there
    audit --test {data}/test --train {data}/train --device auto -o u -> has no option 'device'
""")
def test_wrong_calls(dataset, encoded, tmp_path, arguments, words, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "v.npy", np.eye(4, dtype=np.float16))
    vectors = f"{tmp_path}/v.npy?encoder="
    check_refused(arguments, words, data=dataset, emb=encoded["test"].parent, v=vectors)


def test_anonymous_warns_of_thumbnails_and_names_what_to_keep(dataset, tmp_path):
    out = tmp_path / "pub"
    ran = run("encode", dataset / "test", "-o", out, "--anonymous", code=0)
    assert ran.err == (
        "note: the built-in fingerprint contains a thumbnail (colours and edges) of every image,"
        " whatever the ids are; publish a learned encoder's vectors: --encoder clip\n"
    )
    assert ran.out.splitlines()[-1] == (
        f"keep, and never publish: {out}.salt (the salt) and {out}.ids.csv"
        " (which hash is which image)"
    )
    assert HOSTILE.splitlines()[0] in (tmp_path / "pub.ids.csv").read_text()
    found = run(
        f"audit --test emb:{out} --train {dataset}/train -o {tmp_path}/audit --json",
        code=0,
    )
    assert json.loads(found.out)["totals"][0]["rates"]["hard_or_soft"]["count"] == 3


def test_an_audit_of_embeddings_reports_degrees(encoded, dataset, tmp_path):
    sides = ("--test", f"emb:{encoded['test']}", "--train", f"emb:{encoded['train']}")
    ran = run("audit", *sides, "-o", tmp_path / "out", code=0, err="")
    assert ran.out.startswith("3 of 6 test images (50.00 %")
    assert "have an image at or above the soft threshold in train" in ran.out
    assert run("audit", *sides, "-o", tmp_path / "out").err.startswith("reused: ")
    (tmp_path / "out" / "report.html").unlink()
    assert run("report", tmp_path / "out").code == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Similarity alone reaches the soft threshold" in page
    assert "No images were available when this page was made" in page
    gate = run("audit", *sides, "-o", tmp_path / "gate", "--fail-on", "near")
    assert (gate.code, gate.err) == (
        2,
        "visleak: --fail-on near: this audit did not measure it (a grade needs images, and some"
        " sets have embeddings only; use hard or soft)\n",
    )
    assert run("audit", *sides, "-o", tmp_path / "gate", "--fail-on", "soft=50%").code == 0
    assert run("audit", *sides, "-o", tmp_path / "gate", "--fail-on", "soft=49%").code == 3
    shown = run("show", tmp_path / "out", "thing/copy.png", "-o", tmp_path / "a.png", code=2)
    assert shown.err.endswith("set 'test' holds embeddings only; it has no images to show\n")


def test_pictures_beside_embeddings_are_looked_at(encoded, dataset, tmp_path):
    trained = ("--train", f"emb:{encoded['train']}", "--train", f"pictures={dataset / 'train'}")
    ran = run(f"audit --test {dataset}/test -o {tmp_path}/out --json", *trained, code=0, err="")
    summary = json.loads(ran.out)
    rates = {each["reference_set"]: each["rates"] for each in summary["comparisons"]}
    assert rates["pictures"]["near_or_exact"]["count"] == 3
    assert rates["train"]["near_or_exact"] is None
    assert rates["train"]["hard_or_soft"] == rates["pictures"]["hard_or_soft"]
    total = summary["totals"][0]["rates"]
    assert (total["near_or_exact"], total["hard_or_soft"]["count"]) == (None, 3)
    assert summary["grader"] is not None
    assert "verification of train: there are embeddings only" in " ".join(summary["skipped"])
    pairs = pq.read_table(tmp_path / "out" / "pairs.parquet").to_pylist()
    looked = {(row["reference_set"], row["grade"] is not None) for row in pairs}
    assert looked == {("train", False), ("pictures", True), ("test", True)}
    shown = run("show", tmp_path / "out", "thing/copy.png").out
    assert "exact" in shown
    assert "hard" in shown
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("or its set holds embeddings only") <= 4
    assert "data:image/" in page


def test_a_device_may_be_asked_for_where_only_vectors_are_compared(dataset, encoded, tmp_path):
    """The built-in fingerprint has no device, the comparison with embeddings has."""
    sides = ("--test", dataset / "test", "--train", f"emb:{encoded['train']}")
    assert run("audit", *sides, "--device", "auto", "-o", tmp_path / "auto").code == 0


def test_a_changed_file_is_another_audit(encoded, tmp_path):
    """Its stamp is part of the audit's key."""
    np.save(tmp_path / "v.npy", np.eye(4, dtype=np.float16))
    sides = ("--test", f"a=emb:{tmp_path}/v.npy?encoder=other:x", "--train",
             f"b=emb:{tmp_path}/v.npy?encoder=other:x", "--hard", 0.9, "--soft", 0.8)  # fmt: skip
    assert run("audit", *sides, "-o", tmp_path / "out").code == 0
    assert "reused" in run("audit", *sides, "-o", tmp_path / "out").err
    np.save(tmp_path / "v.npy", np.eye(4, dtype=np.float32))
    assert "kept in" in run("audit", *sides, "-o", tmp_path / "out", code=0).err


def test_find_in_pictures_looks_at_them(dataset):
    copy, other = dataset / "test" / "thing" / "copy.png", dataset / "test" / "thing" / "q0.png"
    ran = run(f"find {copy} {other} --against {dataset}/train --json --top-k 2", code=0, err="")
    found = json.loads(ran.out)["images"]
    assert [(each["image"], each["found"]) for each in found] == [
        (str(copy), True),
        (str(other), False),
    ]
    best = found[0]["matches"][0]
    assert (best["set"], best["id"], best["grade"]) == ("train", "thing/t0.png", "exact")
    assert best["locator"] == str(dataset / "train" / "thing" / "t0.png")
    assert [len(each["matches"]) for each in found] == [2, 2]
    text = run("find", copy, "--against", dataset / "train").out
    assert text.splitlines()[0] == f"{copy}: found: thing/t0.png of train (exact)"


def test_find_in_embeddings_reports_degrees(dataset, encoded):
    copy, other = dataset / "test" / "thing" / "copy.png", dataset / "test" / "thing" / "q0.png"
    for place in (encoded["train"], f"emb:{encoded['train']}"):
        first, second = json.loads(run("find", copy, other, "--against", place, "--json").out)[
            "images"
        ]
        assert (first["found"], second["found"]) == (True, False)
        assert first["matches"][0]["degree"] == "hard"
        assert (first["matches"][0]["grade"], len(second["matches"])) == (None, 5)
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


def test_find_counts_what_cannot_be_read(dataset):
    picture, train = dataset / "test" / "thing" / "copy.png", dataset / "train"
    text = dataset / "test" / "thing" / "text.jpg"
    check_refused(f"find {text} --against {train}", "not-an-image", code=1)
    ran = run("find", text, picture, "--against", train, code=0)
    assert f"{text}: cannot be read (not-an-image)" in ran.out


def test_missing_files_are_counted_as_skipped(tmp_path):
    folder = tmp_path / "train"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in (0, 1, 3):
        np.save(folder / f"img_emb_{number}.npy", rng.normal(size=(5, 8)).astype(np.float32))
    test = f"a=emb:{folder}/img_emb_0.npy?encoder=clip"
    sides = f"--test {test} --train b=emb:{folder}?encoder=clip"
    ran = run(f"audit {sides} -o {tmp_path}/out", code=0)
    assert "3 of 4 files; img_emb_2.npy is missing" in " ".join(ran.out.split())
    summary = json.loads((tmp_path / "out" / "audit.json").read_text())
    about = {each["name"]: each["files"] for each in summary["sets"]}
    assert about == {
        "a": {"present": 1, "expected": 1, "missing": [], "ignored": 0},
        "b": {"present": 3, "expected": 4, "missing": ["img_emb_2.npy"], "ignored": 0},
    }
    assert any("img_emb_2.npy" in line for line in summary["skipped"])
    check_refused(f"audit {sides}&expect=4 -o {tmp_path}/all", "img_emb_2.npy is missing", code=1)


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
    table = pq.read_table(texts)
    whole = texts.read_bytes()
    renamed = pa.array([f"x{id_}" for id_ in table["id"].to_pylist()])
    pq.write_table(table.set_column(table.schema.get_field_index("id"), "id", renamed), texts)
    code, message = refused(*call, "-o", tmp_path / "out")
    assert (code, texts.name in message, "manifest" in message) == (1, True, True)
    texts.write_bytes(whole)
    shard.write_bytes(shard.read_bytes()[:-7])
    refused(*call, "-o", tmp_path / "out", code=1, words="truncated")


def test_files_that_are_not_encoded_are_counted(dataset, tmp_path):
    images = Path(shutil.copytree(dataset / "train", tmp_path / "train"))
    (images / "scan.exr").write_bytes(b"no image")
    command = ("encode", images, "-o", tmp_path / "vectors")
    for _ in range(2):
        assert "skipped: 1 file: 1 .exr" in run(*command).out


def test_the_table_of_ids_replaces_no_other_file(dataset, tmp_path):
    (tmp_path / "vectors.ids.csv").write_text("my,notes\n")
    command = ("encode", dataset / "test", "-o", tmp_path / "vectors", "--anonymous")
    ran = run(*command)
    assert (ran.code, "is another file" in ran.err) == (2, True)
    assert (tmp_path / "vectors.ids.csv").read_text() == "my,notes\n"
    (tmp_path / "vectors.ids.csv").unlink()
    # the same command again gives the same table
    assert [run(*command).code for _ in range(2)] == [0, 0]


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
    ran = run("calibrate", pictures, *given, code=0, err="")
    hard = json.loads(file.read_text())["encoders"]
    (entry,) = hard.values()
    assert f"hard {entry['hard']:g}" in ran.out
    assert ran.out.splitlines()[-1] == str(file)
    run(f"audit --set {pictures} --thresholds {file} -o {tmp_path}/audit", code=0)
    found = json.loads((tmp_path / "audit" / "audit.json").read_text())["thresholds"]
    assert (found["hard"], found["soft"]) == (entry["hard"], entry["soft"])
    assert found["provenance"] == entry["provenance"]
    file.write_text("{}")
    refused("calibrate", pictures, *given, code=2, words=f"{file} exists;")


def test_calibrate_reports_what_it_cannot_support(pictures, tmp_path):
    file = tmp_path / "t.json"
    ran = run("calibrate", pictures, "--fpr", "1e-6", "--no-verify", "--json", "-o", file, code=0)
    lines = ran.err.splitlines()
    assert len(lines) == 2
    assert "cannot support a rate of 1e-06: with 10 pairs of images the smallest is 0.1" in lines[0]
    assert json.loads(ran.out) == json.loads(file.read_text())


def test_thresholds_of_another_encoder_are_refused(pictures, tmp_path):
    file = tmp_path / "t.json"
    entry = {"name": "clip", "hard": 0.9, "soft": 0.8, "provenance": "x"}
    content = {"kind": "visleak thresholds", "schema": 1, "encoders": {"c0ffee" * 5: entry}}
    file.write_text(json.dumps(content))
    _, message = refused(
        f"audit --set {pictures} --thresholds {file} -o {tmp_path}/audit",
        code=2,
        words="holds thresholds of clip (c0ffeec0ffee), not of builtin",
    )
    assert "thresholds of one encoder never serve another" in message


@refusals("""
    robustness {set} --encoder vgg -> encoder must be one of builtin,
    robustness {set} --conditions blur -> conditions must be among paper, beyond
    robustness {set}/none -> does not exist
    calibrate {set} --fpr tiny -> --fpr must be one rate or two, such as 1e-6
    audit --set {set} --thresholds {set}/t.json -> t.json is not a file
""")
def test_wrong_command_lines(pictures, tmp_path, arguments, words):
    check_refused(f"{arguments} -o {tmp_path}/out", words, set=pictures)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("verb", ["robustness", "calibrate"])
def test_a_set_that_cannot_be_read_is_reported_with_a_remedy(tmp_path, verb):
    folder = tmp_path / "pointers"
    folder.mkdir()
    for number in range(3):
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{number:064}\nsize 9\n"
        (folder / f"{number}.jpg").write_text(pointer)
    more = ("--fpr", "1e-1") if verb == "calibrate" else ()
    refused(verb, folder, *more, "-o", tmp_path / "out", code=1, words="`git lfs pull`")


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


def test_what_it_prints(shapes, tmp_path):
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


def test_json_is_the_record_and_notes_go_elsewhere(shapes, tmp_path):
    bare = tmp_path / "pictures"
    bare.mkdir()
    for picture in sorted(shapes.parent.glob("*.png"))[:20]:
        (bare / picture.name).write_bytes(picture.read_bytes())
    (bare / "broken.png").write_bytes(b"no picture")
    out = tmp_path / "m.onnx"
    ran = run("train-encoder", bare, "-o", out, *QUICK, "--json")
    record = json.loads(ran.out)
    assert record == json.loads((tmp_path / "m.onnx.json").read_text())["about"]
    assert record["objective"] == "instances"
    assert ran.err.splitlines() == [
        "1 image of pictures unreadable: excluded",
        "pictures has no labels: the network learns to distinguish images",
    ]
    ran = run("train-encoder", bare, "-o", out, *QUICK, "--force", "--test", bare, code=0)
    assert "  two views of an image found among all, pictures: " in ran.out


@refusals("""
    -o {here}/there.onnx -> there.onnx.json exists; choose another file with -o FILE
    -o {here} -> is a folder; choose a file with -o FILE
    -o {here}/m.onnx --device tpu -> device must be auto, cpu, cuda or cuda:N; got 'tpu'
""")
def test_what_it_refuses(shapes, tmp_path, arguments, words):
    (tmp_path / "there.onnx.json").write_text("{}")
    check_refused(f"train-encoder {shapes} {arguments}", words, here=tmp_path)
    assert not [*tmp_path.glob("*.onnx"), *tmp_path.glob(".*")]


@refusals("""
    -o {here}/m.onnx --label other -> all images of set 'shapes' have the label 'same'
    -o {here}/m.onnx --test {images}/00.png --epochs 2 -> has one of the training labels (bright
    -o {here}/file/m.onnx -> the output folder {here}/file/.m.onnx.training cannot be
""")
def test_content_it_refuses(shapes, tmp_path, arguments, words):
    (tmp_path / "file").write_text("")
    places = {"here": tmp_path, "images": shapes.parent}
    check_refused(f"train-encoder {shapes} {arguments}", words, code=1, **places)
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

        def show(self, step: Step, *, new: bool) -> None:
            if step.name.startswith("training") and step.done > step.total / 2:
                raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(command, "display_for", lambda *stream, **options: Stopping())
        kept = out.with_name(".model.onnx.training") / "checkpoint.pt"
        refused(
            f"train-encoder {shapes} -o {out}",
            *QUICK,
            code=130,
            words=f"is kept in {kept}; the same command",
        )
    ran = run("train-encoder", shapes, "-o", out, *QUICK, code=0)
    assert ran.err == "resumed: 4 of 8 steps were done before\n"
    assert out.exists()
    assert not kept.parent.exists()
