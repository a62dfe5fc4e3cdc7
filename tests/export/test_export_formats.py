"""Every format of export, against independent computations."""

import csv
import hashlib
import json
import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import visleak
from refusals import refusal
from toy_audit import GRADES, image_row, pair_row, write_audit
from visleak.errors import UsageError, VisleakError
from visleak.export import export
from visleak.storage import PAIRS_SCHEMA


def pair(query, reference, grade, side="train", **more):
    return pair_row(f"test/{query}", f"{side}/{reference}", grade, **more)


def folder_of(path, pairs, flat=(), verified=True):
    ends = ("query", "reference")
    ids = dict.fromkeys((row[f"{end}_set"], row[end]) for row in pairs for end in ends)
    images = [image_row(name, id_, flat=id_ in flat) for name, id_ in ids]
    compared = list(dict.fromkeys((row["query_set"], row["reference_set"]) for row in pairs))
    write_audit(path, images, pairs, compared, graded=verified)
    return path


@pytest.fixture
def some(tmp_path):
    rng = np.random.default_rng(3)
    pairs = []
    for number in range(200):
        similarity = float(np.float32(rng.choice([1.0, rng.uniform(-0.2, 1.0)])))
        query, reference = (str(rng.integers(0, 60)) for _ in range(2))
        side, grade = "train" if number % 5 else "test", str(rng.choice(GRADES))
        pairs.append(pair(query, reference, grade, side, similarity=similarity))
    return folder_of(tmp_path / "audit", pairs), pairs


def read(path):
    with path.open(newline="") as lines:
        return list(csv.reader(lines))


def test_cifair_against_an_independent_computation(some, tmp_path):
    folder, pairs = some
    files = export(folder, "cifair", tmp_path / "list.csv", grade="similar")
    assert files == (tmp_path / "list.csv", tmp_path / "list_within_test.csv")
    for path, within in zip(files, (False, True), strict=True):
        header, *rows = read(path)
        assert header == ["TestID", "TrainID", "Distance", "Judgment"]
        wanted = sorted(
            (row["query"], row["reference"], GRADES.index(row["grade"]), row["similarity"])
            for row in pairs
            if row["grade"] != "different" and (row["coverage"] == "within") == within
        )
        got = sorted(
            (query, reference, int(judgment), 1.0 - float(distance) ** 2 / 2.0)
            for query, reference, distance, judgment in rows
        )
        assert [row[:3] for row in got] == [row[:3] for row in wanted]
        assert np.allclose([row[3] for row in got], [row[3] for row in wanted], atol=1e-7)
        distances = [float(row[2]) for row in rows]
        assert distances == sorted(distances)
        assert all(math.isfinite(distance) for distance in distances)
    path, _ = export(folder, "cifair", tmp_path / "default.csv")
    assert {row[3] for row in read(path)[1:]} == {"0", "1"}


def test_ids_are_the_leaking_queries(some, tmp_path):
    folder, pairs = some
    for grade in (None, *GRADES):
        (path,) = export(folder, "ids", tmp_path / "ids.txt", grade=grade, force=True)
        strong = GRADES[: GRADES.index(grade or "near") + 1]
        wanted = {
            row["query"] for row in pairs if row["grade"] in strong and row["coverage"] != "within"
        }
        assert path.read_text().splitlines() == sorted(wanted)


def test_ids_are_those_that_the_headline_counts(tmp_path):
    """Both sides of a set compared with itself; no blank image."""
    pairs = [pair("b", "a", "near", "test"), pair("black", "dark", "exact", "test")]
    folder = folder_of(tmp_path / "audit", pairs, flat=("black", "dark"))
    (path,) = export(folder, "ids", tmp_path / "ids.txt")
    assert path.read_text() == "a\nb\n"
    with pytest.raises(VisleakError, match="cannot be written"):
        export(folder, "ids", path / "ids.txt")


def test_id_with_a_line_break_is_never_torn(tmp_path):
    folder = folder_of(tmp_path / "audit", [pair("a\nb", "x", "exact")])
    with pytest.raises(VisleakError, match=r"the id 'a\\nb' holds a line break"):
        export(folder, "ids", tmp_path / "ids.txt")
    assert not (tmp_path / "ids.txt").exists()
    (path,) = export(folder, "csv", tmp_path / "all.csv")
    assert read(path)[1][1] == "a\nb"


def test_csv_holds_every_column_and_no_formula(tmp_path):
    row = pair("=cmd()", "+1", "near", similarity=-0.1, matrix=[-1.0, *[0.0] * 7, 0.1])
    row |= {"probability": np.float32(0.7), "query_label": "@x", "reason": 'a, "b"'}
    (path,) = export(folder_of(tmp_path / "audit", [row]), "csv", tmp_path / "all.csv")
    header, cells = read(path)
    assert header == [*PAIRS_SCHEMA.names, "machine_grade", "judged"]
    got = dict(zip(header, cells, strict=True))
    assert (got["query"], got["reference"], got["query_label"]) == ("'=cmd()", "'+1", "'@x")
    assert np.float32(got["similarity"]) == np.float32(-0.1)
    assert np.float32(got["probability"]) == np.float32(0.7)
    assert [float(x) for x in got["matrix"].strip("[]").split()] == [-1.0, *[0.0] * 7, 0.1]
    assert (got["reason"], got["background"], got["transform"]) == ('a, "b"', "", "")
    assert (got["machine_grade"], got["judged"]) == ("near", "")


def test_several_sets(tmp_path):
    pairs = [pair("a", "x", "exact"), pair("b", "x", "near", query_set="val")]
    folder = folder_of(tmp_path / "audit", pairs)
    with pytest.raises(UsageError, match=r"cifair holds one test set, .* has test, val"):
        export(folder, "cifair", tmp_path / "out")
    (path,) = export(folder, "ids", tmp_path / "ids.txt", query_set="val")
    assert path.read_text() == "b\n"
    folder = folder_of(
        tmp_path / "audit", [pair("a", "x", "exact"), pair("a", "x", "near", "extra")]
    )
    with pytest.raises(UsageError, match="one training set, the pairs are with extra, train"):
        export(folder, "cifair", tmp_path / "out")


def test_what_is_not_in_an_audit_is_refused(tmp_path):
    folder = folder_of(tmp_path / "audit", [pair("a", "b", "near")])
    for given, message in (
        ({"format": "xml"}, "got 'xml'"),
        ({"grade": "nearly"}, "grade must be one of exact, near, similar, different"),
        ({"query_set": "dev"}, "set must be one of test; got 'dev'"),
    ):
        arguments = {"format": "ids"} | given
        assert message in refusal(UsageError, export, folder, out=tmp_path / "out", **arguments)


def test_unverified_audit_has_no_grades(tmp_path):
    folder = folder_of(tmp_path / "audit", [pair("a", "b", None)], verified=False)
    for as_, grade in (("ids", None), ("csv", "near")):
        with pytest.raises(UsageError, match="audited without verification"):
            export(folder, as_, tmp_path / "out", grade=grade)
    (path,) = export(folder, "csv", tmp_path / "all.csv")
    assert len(read(path)) == 2


@pytest.mark.parametrize("alone", [False, True])
def test_every_image_has_a_row(tmp_path, natural, alone):
    pandas = pytest.importorskip("pandas")
    for side, names in (("test", ("astronaut", "coffee")), ("train", ("astronaut", "chelsea"))):
        (tmp_path / side).mkdir()
        for name in names:
            Image.fromarray(natural[name][:96, :96]).save(tmp_path / side / f"{side}_{name}.png")
    out = tmp_path.parent / f"{tmp_path.name}-audit"
    sides = [tmp_path] if alone else [tmp_path / "test", tmp_path / "train"]
    sides = [visleak.open_images(each, name=each.name if not alone else "all") for each in sides]
    visleak.audit(*sides, out=out, cache=None)
    export(out, "issues", out / "issues.csv")
    table = pandas.read_csv(out / "issues.csv").set_index("id")
    flagged = sorted(Path(id_).name for id_ in table.index[table["is_leak_issue"]])
    assert flagged == ["test_astronaut.png"] + (["train_astronaut.png"] if alone else [])
    assert len(table) == (4 if alone else 2)
    assert set(table["leak_grade"].dropna()) == {"exact"}
    # as cleanlab has them: a boolean, and a share with 0 for the worst
    assert table["is_leak_issue"].dtype == bool
    assert set(table["leak_score"][~table["is_leak_issue"]]) == {1.0}
    assert table["leak_score"][table["is_leak_issue"]].between(0, 0.1).all()


def test_the_section_of_a_card_has_the_rates_of_the_audit(folder, tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    (path,) = export(folder, "card", tmp_path / "section.md")
    card = hub.DatasetCard(f"---\nlicense: mit\n---\n# Photos\n\n{path.read_text()}")
    assert card.data.license == "mit"
    (row,) = [line for line in card.text.splitlines() if line.startswith("| test ")]
    assert "1 of 3" in row
    assert "2 of 3" in row


def test_the_description_names_the_list_and_its_columns(folder, tmp_path):
    described, listed = export(folder, "croissant", tmp_path / "leaks.json")
    content = json.loads(described.read_text())
    (file,) = content["distribution"]
    assert file["sha256"] == hashlib.sha256(listed.read_bytes()).hexdigest()
    header, *rows = read(listed)
    assert [row[1] for row in rows] == ["0.png", "1.png"]
    assert [row[4] for row in rows] == ["near", "exact"]
    fields = content["recordSet"][0]["field"]
    assert [each["source"]["extract"]["column"] for each in fields] == header


@pytest.mark.filterwarnings("ignore:ConjunctiveGraph")
def test_mlcroissant_reads_the_records(folder, tmp_path):
    croissant = pytest.importorskip("mlcroissant")
    described, _ = export(folder, "croissant", tmp_path / "leaks.json")
    dataset = croissant.Dataset(jsonld=described)
    assert not dataset.metadata.ctx.issues.errors
    records = list(dataset.records("leaks"))
    assert [record["leaks/image"] for record in records] == [b"0.png", b"1.png"]
    assert records[1]["leaks/probability"] > 0.9
