"""Every format of export, against independent computations."""

from __future__ import annotations

import csv
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import visleak
from refusals import refusal
from toy_audit import image_row, pair_row, write_audit
from visleak.errors import UsageError, VisleakError
from visleak.export import export
from visleak.storage import AUDIT, PAIRS_SCHEMA

GRADES = ("exact", "near", "similar", "different")


def pair(query: str, reference: str, similarity: float, grade: str, **more: Any) -> dict[str, Any]:
    return pair_row(f"test/{query}", f"train/{reference}", grade, similarity=similarity, **more)


def repeat(query: str, reference: str, similarity: float, grade: str) -> dict[str, Any]:
    return pair_row(f"test/{query}", f"test/{reference}", grade, similarity=similarity)


def folder_of(
    path: Path, pairs: list[dict[str, Any]], flat: tuple[str, ...] = (), verified: bool = True
) -> Path:
    ends = ("query", "reference")
    ids = dict.fromkeys((row[f"{end}_set"], row[end]) for row in pairs for end in ends)
    images = [image_row(name, id_, flat=id_ in flat) for name, id_ in ids]
    compared = list(dict.fromkeys((row["query_set"], row["reference_set"]) for row in pairs))
    write_audit(path, images, pairs, compared, graded=verified)
    return path


@pytest.fixture
def some(tmp_path: Path) -> tuple[Path, list[dict[str, Any]]]:
    rng = np.random.default_rng(3)
    pairs = []
    for number in range(200):
        make = repeat if number % 5 == 0 else pair
        similarity = float(np.float32(rng.choice([1.0, rng.uniform(-0.2, 1.0)])))
        query, reference = (str(rng.integers(0, 60)) for _ in range(2))
        pairs.append(make(query, reference, similarity, str(rng.choice(GRADES))))
    return folder_of(tmp_path / "audit", pairs), pairs


def read(path: Path) -> list[list[str]]:
    with path.open(newline="") as lines:
        return list(csv.reader(lines))


def test_cifair_against_an_independent_computation(
    some: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
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


def test_cifair_has_exact_and_near_pairs_by_default(
    some: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    path, _ = export(some[0], "cifair", tmp_path / "list.csv")
    assert {row[3] for row in read(path)[1:]} == {"0", "1"}


def test_ids_are_the_leaking_queries(
    some: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    folder, pairs = some
    for grade in (None, *GRADES):
        (path,) = export(folder, "ids", tmp_path / "ids.txt", grade=grade, force=True)
        strong = GRADES[: GRADES.index(grade or "near") + 1]
        wanted = {
            row["query"] for row in pairs if row["grade"] in strong and row["coverage"] != "within"
        }
        assert path.read_text().splitlines() == sorted(wanted)


def test_ids_of_a_set_compared_with_itself_are_both_sides(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "audit", [repeat("b", "a", 0.9, "near")])
    (path,) = export(folder, "ids", tmp_path / "ids.txt")
    assert path.read_text() == "a\nb\n"


def test_blank_pictures_are_no_ids(tmp_path: Path) -> None:
    pairs = [pair("black", "x", 1.0, "exact"), pair("cat", "y", 0.9, "near")]
    folder = folder_of(tmp_path / "audit", pairs, flat=("black",))
    (path,) = export(folder, "ids", tmp_path / "ids.txt")
    assert path.read_text() == "cat\n"


def test_id_with_a_line_break_is_never_torn(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "audit", [pair("a\nb", "x", 1.0, "exact")])
    with pytest.raises(VisleakError, match=r"the id 'a\\nb' holds a line break"):
        export(folder, "ids", tmp_path / "ids.txt")
    assert not (tmp_path / "ids.txt").exists()
    (path,) = export(folder, "csv", tmp_path / "all.csv")
    assert read(path)[1][1] == "a\nb"


def test_csv_holds_every_column_and_no_formula(tmp_path: Path) -> None:
    row = pair("=cmd()", "+1", np.float32(-0.1), "near", matrix=[-1.0, *[0.0] * 7, 0.1])
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


def test_csv_keeps_all_pairs_or_those_of_a_grade(
    some: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    folder, pairs = some
    (path,) = export(folder, "csv", tmp_path / "all.csv")
    got = [(row[1], row[3], np.float32(row[4]), row[8]) for row in read(path)[1:]]
    columns = ("query", "reference", "similarity", "grade")
    assert sorted(got) == sorted(tuple(row[name] for name in columns) for row in pairs)
    (path,) = export(folder, "csv", tmp_path / "all.csv", grade="exact", force=True)
    assert {row[8] for row in read(path)[1:]} == {"exact"}


def test_several_sets(tmp_path: Path) -> None:
    pairs = [pair("a", "x", 1.0, "exact"), pair("b", "x", 0.9, "near", query_set="val")]
    folder = folder_of(tmp_path / "audit", pairs)
    for kind in ("cifair", "ids"):
        with pytest.raises(UsageError, match=f"{kind} holds one test set, .* has test, val"):
            export(folder, kind, tmp_path / "out")
    (path,) = export(folder, "ids", tmp_path / "ids.txt", query_set="val")
    assert path.read_text() == "b\n"
    with pytest.raises(UsageError, match="set must be one of test, val; got 'dev'"):
        export(folder, "ids", tmp_path / "ids.txt", query_set="dev")
    pairs = [pair("a", "x", 1.0, "exact"), pair("a", "x", 1.0, "near", reference_set="extra")]
    with pytest.raises(UsageError, match="one training set, the pairs are with extra, train"):
        export(folder_of(tmp_path / "audit", pairs), "cifair", tmp_path / "out")


@pytest.mark.parametrize(
    ("as_", "grade", "message"),
    [
        ("xml", None, "got 'xml'"),
        ("ids", "nearly", "grade must be one of exact, near, similar, different; got 'nearly';"),
    ],
)
def test_wrong_words(tmp_path: Path, as_: str, grade: str | None, message: str) -> None:
    folder = folder_of(tmp_path / "audit", [pair("a", "b", 0.1, "near")])
    assert message in refusal(UsageError, export, folder, as_, tmp_path / "out", grade=grade)


def test_unverified_audit_has_no_grades(tmp_path: Path) -> None:
    row = pair("a", "b", 0.9, "near") | {"grade": None}
    folder = folder_of(tmp_path / "audit", [row], verified=False)
    for as_, grade in (("cifair", None), ("ids", None), ("csv", "near")):
        with pytest.raises(UsageError, match="audited without verification"):
            export(folder, as_, tmp_path / "out", grade=grade)
    (path,) = export(folder, "csv", tmp_path / "all.csv")
    assert len(read(path)) == 2


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "audit", [pair("a", "b", 0.1, "near")])
    with pytest.raises(UsageError, match="is a folder; choose a file"):
        export(folder, "ids", tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(VisleakError, match="cannot be written"):
        export(folder, "ids", tmp_path / "file" / "ids.txt")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / AUDIT).write_text(json.dumps({"schema": 1, "grader": {}, "totals": []}))
    with pytest.raises(VisleakError, match=r"pairs.parquet cannot be read"):
        export(tmp_path / "broken", "csv", tmp_path / "all.csv")


@pytest.mark.parametrize("alone", [False, True])
def test_every_image_has_a_row(tmp_path: Path, natural: dict[str, np.ndarray], alone: bool) -> None:
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
    clean = table[~table["is_leak_issue"]]
    assert set(clean["leak_score"]) == {1.0}
    assert table["leak_score"][table["is_leak_issue"]].max() < 0.1


def test_the_section_has_the_rates_of_the_audit(folder: Path, tmp_path: Path) -> None:
    (path,) = export(folder, "card", tmp_path / "README.part.md")
    text = path.read_text()
    assert text.startswith("## ")
    (row,) = [line for line in text.splitlines() if line.startswith("| test ")]
    assert "1 of 3" in row
    assert "2 of 3" in row
    assert "visleak" in text


def test_the_section_is_one_of_a_card_of_the_hub(folder: Path, tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    (path,) = export(folder, "card", tmp_path / "section.md")
    card = hub.DatasetCard(f"---\nlicense: mit\n---\n# Photos\n\n{path.read_text()}")
    assert card.data.license == "mit"
    assert "near or exact" in card.text


def test_the_description_names_the_list_and_its_columns(folder: Path, tmp_path: Path) -> None:
    described, listed = export(folder, "croissant", tmp_path / "leaks.json")
    content = json.loads(described.read_text())
    (file,) = content["distribution"]
    assert file["sha256"] == hashlib.sha256(listed.read_bytes()).hexdigest()
    header, *rows = listed.read_text().splitlines()
    assert len(rows) == 2
    fields = content["recordSet"][0]["field"]
    assert [each["source"]["extract"]["column"] for each in fields] == header.split(",")


@pytest.mark.filterwarnings("ignore:ConjunctiveGraph")
def test_mlcroissant_reads_the_records(folder: Path, tmp_path: Path) -> None:
    croissant = pytest.importorskip("mlcroissant")
    described, _ = export(folder, "croissant", tmp_path / "leaks.json")
    dataset = croissant.Dataset(jsonld=described)
    assert not dataset.metadata.ctx.issues.errors
    records = [
        {name.removeprefix("leaks/"): value for name, value in record.items()}
        for record in dataset.records("leaks")
    ]
    assert [record["image"] for record in records] == [b"0.png", b"1.png"]
    assert [record["grade"] for record in records] == [b"near", b"exact"]
    assert records[1]["probability"] > 0.9
