"""``visleak encode``, ``visleak find``, and what other verbs say to embeddings."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from calling import HOSTILE, check_refused, refusals, refused, run


@pytest.fixture(scope="module")
def encoded(dataset, tmp_path_factory):
    """Both splits of the data set as embeddings."""
    root = tmp_path_factory.mktemp("encoded")
    for split in ("test", "train"):
        ran = run("encode", dataset / split, "-o", root / split, "--shard", 4)
        assert ran.code == 0, ran.err
    return {split: root / split for split in ("test", "train")}


def test_encode_says_what_it_wrote(dataset, tmp_path):
    ran = run("encode", dataset / "test", "-o", tmp_path / "out", "--shard", 4)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"6 vectors in 2 files, 1 unreadable\n{tmp_path / 'out'}\n"
    again = run("encode", dataset / "test", "-o", tmp_path / "out", "--shard", 4)
    assert (again.code, again.out) == (0, ran.out)
    assert again.err == f"reused: {tmp_path / 'out'} holds these vectors, finished\n"
    assert refused("encode", dataset / "train", "-o", tmp_path / "out") == (
        2,
        f"{tmp_path / 'out'} holds embeddings of another set, encoder or layout; choose another"
        " folder with -o DIR, or replace them with --force",
    )
    assert run("encode", dataset / "train", "-o", tmp_path / "out", "--force").code == 0


@refusals("""
    encode {data}/test -> '--output'
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


def test_anonymous_warns_of_thumbnails_and_says_what_to_keep(dataset, tmp_path):
    out = tmp_path / "pub"
    ran = run("encode", dataset / "test", "-o", out, "--anonymous")
    assert ran.code == 0
    assert ran.err == (
        "note: the built-in fingerprint contains a thumbnail (colours and edges) of every image,"
        " whatever the ids are; publish a learned encoder's vectors: --encoder clip\n"
    )
    assert ran.out.splitlines()[-1] == (
        f"keep, and never publish: {out}.salt (the salt) and {out}.ids.csv"
        " (which hash is which image)"
    )
    assert HOSTILE.splitlines()[0] in (tmp_path / "pub.ids.csv").read_text()
    found = run("audit", "--test", f"emb:{out}", "--train", dataset / "train",
                "-o", tmp_path / "audit", "--json")  # fmt: skip
    assert found.code == 0
    assert json.loads(found.out)["totals"][0]["rates"]["hard_or_soft"]["count"] == 3


def test_an_audit_of_embeddings_speaks_of_degrees(encoded, dataset, tmp_path):
    sides = ("--test", f"emb:{encoded['test']}", "--train", f"emb:{encoded['train']}")
    ran = run("audit", *sides, "-o", tmp_path / "out")
    assert (ran.code, ran.err) == (0, "")
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
    shown = run("show", tmp_path / "out", "thing/copy.png", "-o", tmp_path / "a.png")
    assert shown.code == 2
    assert shown.err.endswith("set 'test' holds embeddings only; it has no images to show\n")


def test_pictures_beside_embeddings_are_looked_at(encoded, dataset, tmp_path):
    trained = ("--train", f"emb:{encoded['train']}", "--train", f"pictures={dataset / 'train'}")
    ran = run("audit", "--test", dataset / "test", *trained, "-o", tmp_path / "out", "--json")
    assert (ran.code, ran.err) == (0, "")
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
    again = run("audit", *sides, "-o", tmp_path / "out")
    assert again.code == 0
    assert "kept in" in again.err


def test_encoders_must_agree(encoded, tmp_path):
    np.save(tmp_path / "v.npy", np.eye(560, dtype=np.float16))
    code, said = refused("audit", "--test", f"emb:{encoded['test']}", "--train",
                         f"emb:{tmp_path}/v.npy?encoder=clip", "-o", tmp_path / "out")  # fmt: skip
    assert code == 1
    assert "was made with encoder clip, the audit uses builtin (digest " in said
    code, said = refused("audit", "--test", f"emb:{encoded['test']}", "--train",
                         f"emb:{encoded['train']}", "--encoder", "clip",
                         "-o", tmp_path / "out")  # fmt: skip
    assert code == 1
    assert "was made with encoder builtin (digest " in said
    assert not (tmp_path / "out").exists()


# -- find ----------------------------------------------------------------------------------------


def test_find_in_pictures_looks_at_them(dataset):
    copy, other = dataset / "test" / "thing" / "copy.png", dataset / "test" / "thing" / "q0.png"
    ran = run("find", copy, other, "--against", dataset / "train", "--json", "--top-k", 2)
    assert (ran.code, ran.err) == (0, "")
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


def test_find_in_embeddings_speaks_of_likeness(dataset, encoded):
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
    ran = run("find", text, picture, "--against", train)
    assert ran.code == 0
    assert f"{text}: cannot be read (not-an-image)" in ran.out


def test_missing_files_are_counted_as_skipped(tmp_path):
    folder = tmp_path / "train"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in (0, 1, 3):
        np.save(folder / f"img_emb_{number}.npy", rng.normal(size=(5, 8)).astype(np.float32))
    train = f"b=emb:{folder}?encoder=clip"
    sides = ("--test", f"a=emb:{folder}/img_emb_0.npy?encoder=clip", "--train")
    ran = run("audit", *sides, train, "-o", tmp_path / "out")
    assert ran.code == 0
    assert "3 of 4 files; img_emb_2.npy is missing" in " ".join(ran.out.split())
    summary = json.loads((tmp_path / "out" / "audit.json").read_text())
    about = {each["name"]: each["files"] for each in summary["sets"]}
    assert about == {
        "a": {"present": 1, "expected": 1, "missing": [], "ignored": 0},
        "b": {"present": 3, "expected": 4, "missing": ["img_emb_2.npy"], "ignored": 0},
    }
    assert any("img_emb_2.npy" in line for line in summary["skipped"])
    code, said = refused("audit", *sides, f"{train}&expect=4", "-o", tmp_path / "all")
    assert code == 1
    assert "img_emb_2.npy is missing" in said


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
    code, said = refused(*call, "-o", tmp_path / "out")
    assert code == 1
    assert shard.name in said
    assert "manifest" in said
    shutil.copy(encoded["train"] / "img_emb" / shard.name, shard)
    texts = sorted((folder / "metadata").iterdir())[-1]
    table = pq.read_table(texts)
    whole = texts.read_bytes()
    renamed = pa.array([f"x{id_}" for id_ in table["id"].to_pylist()])
    pq.write_table(table.set_column(table.schema.get_field_index("id"), "id", renamed), texts)
    code, said = refused(*call, "-o", tmp_path / "out")
    assert (code, texts.name in said, "manifest" in said) == (1, True, True)
    texts.write_bytes(whole)
    shard.write_bytes(shard.read_bytes()[:-7])
    code, said = refused(*call, "-o", tmp_path / "out")
    assert (code, "truncated" in said) == (1, True)


def test_zero_vectors_are_unreadable(tmp_path):
    """They were counted as images, which makes every rate smaller."""
    vectors = np.eye(6, dtype=np.float32)
    vectors[2], vectors[3, 0], vectors[4, 0] = 0, np.nan, np.inf
    np.save(tmp_path / "v.npy", vectors)
    np.save(tmp_path / "t.npy", np.eye(6, dtype=np.float32))
    for test, train in (("v", "t"), ("t", "v")):
        sides = ("--test", f"{test}=emb:{tmp_path}/{test}.npy?encoder=clip",
                 "--train", f"{train}=emb:{tmp_path}/{train}.npy?encoder=clip")  # fmt: skip
        out = tmp_path / test
        summary = json.loads(run("audit", *sides, "-o", out, "--json").out)
        about = {each["name"]: each for each in summary["sets"]}
        assert (about["v"]["readable"], about["v"]["unreadable"]) == (3, 3)
        assert summary["totals"][0]["rates"]["hard_or_soft"]["count"] == 3
        assert not any("unit length" in line for line in summary["skipped"])
        lines = (out / "unreadable.csv").read_text().splitlines()[1:]
        assert [line.split(",")[1] for line in lines] == ["2", "3", "4"]
        assert "zeros" in lines[0]
        assert "NaN" in lines[1]


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
