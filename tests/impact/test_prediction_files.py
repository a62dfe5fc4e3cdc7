"""Files of predictions: what is read, what is refused, and that nothing in them ever runs."""

import io
import random
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from predictions_making import IDS, LABELS, as_csv, as_npz, as_parquet, benchmark, scores_of

import refusals
from visleak.errors import UsageError, VisleakError
from visleak.impact.predictions import files as prediction_files
from visleak.impact.predictions.files import numbers_of, read_predictions, text_of


def refusal(path):
    """Return the one line by which a file is refused, without its path."""
    said = refusals.refusal(VisleakError, scores_of, path, benchmark())
    assert str(path) in said
    return said.replace(str(path), "F")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "F is empty: a prediction file begins with a header"),
        (b"id,correct\n", "F holds no predictions: it has columns, but no rows"),
        (b"file,correct\na,1\n", "F has no column `id` with the ids of the images; it has 'file'"),
        (
            b"id:ap\na:1\n",
            "F has no column `id` with the ids of the images; it has 'id:ap': separate",
        ),
        (b"id,ap,ap\na,1,2\n", "F has more than one column 'ap'; keep one"),
        (b"id,ap\na,1\nb,2\na,3\n", "F: id 'a' occurs more than once, in rows 0 and 2; keep one"),
        (b"id,ap\na,1\n,2\nb,1\n,3\n", "F: no id in rows 1 and 3; every prediction needs the id"),
        (b"id,ap\na,1\nb\n", "F cannot be read as CSV: CSV parse error: "),
        (b"id,ap\n\xff,1\n", "F cannot be read as CSV: "),
        ("id,ap\na,1\n".encode("utf-16-le"), "F cannot be read as CSV: it is UTF-16 without"),
    ],
)
def test_a_bad_csv_is_refused(tmp_path, text, said):
    path = tmp_path / "a.csv"
    path.write_bytes(text)
    assert refusal(path).startswith(said)


def test_a_missing_file_is_refused(tmp_path):
    assert "no such prediction file" in refusal(tmp_path / "absent.csv")


def test_what_is_no_table_or_no_text(tmp_path):
    with pytest.raises(UsageError, match=r"predictions are read from \.csv, \.tsv"):
        read_predictions(tmp_path / "a.json")
    with pytest.raises(VisleakError, match="F must hold text or whole numbers; its type is list"):
        text_of(pa.array([[1]]), "F")


def test_csv_as_other_programs_write_it(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(
        b'\xef\xbb\xbf"id","correct","ap"\r\n"a,\r\n""b""",TRUE, 1e-1\r\n007,false,NA\r\n'
    )
    found = read_predictions(path)
    assert found.ids.to_pylist() == ['a,\r\n"b"', "007"]
    assert numbers_of(found.columns["correct"]).tolist() == [1.0, 0.0]
    np.testing.assert_array_equal(numbers_of(found.columns["ap"]), [0.1, np.nan])


def test_scores_of_a_csv_are_numbers_or_a_row_of_none(tmp_path):
    columns = {"id": IDS, "score:cat": [0.5] * 20, "score:dog": [0.6] * 20}
    columns["score:cat"][4] = columns["score:dog"][4] = None
    scores, _ = scores_of(as_csv(tmp_path / "a.csv", columns), benchmark())
    assert np.isnan(scores.values["accuracy"]).tolist() == [n == 4 for n in range(20)]
    columns["score:dog"][4] = 0.5
    said = refusal(as_csv(tmp_path / "b.csv", columns))
    assert said.startswith("F: row 4 has a class score that is missing or NaN; leave out the row")
    columns["score:cat"][4] = "high"
    assert "invalid value 'high'" in refusal(as_csv(tmp_path / "c.csv", columns))


CLASSES, UNEVEN, SCORES = ("cat", "dog"), [[1.0, 2.0]] * 19, np.ones((20, 2))


@pytest.mark.parametrize(
    ("columns", "classes", "said"),
    [
        ({"id": pa.array(range(20), pa.timestamp("s"))}, (), "F: `id` must be a column of text or"),
        ({"id": [0.5] * 20, "ap": [1] * 20}, (), "F: column `id` must hold text or whole numbers;"),
        ({"id": [b"\xff"] * 20, "ap": [1] * 20}, (), "F: column `id` of type binary is not"),
        ({"id": IDS, "scores": [*UNEVEN, [1.0]]}, CLASSES, "F: row 19 has 1 class scores, others"),
        (
            {"id": IDS, "scores": [*UNEVEN, [1.0, None]]},
            CLASSES,
            "F: row 19 has a class score that",
        ),
        ({"id": IDS, "scores": pa.nulls(20, pa.list_(pa.float32()))}, (), "F has class scores for"),
    ],
)
def test_a_bad_parquet_is_refused(tmp_path, columns, classes, said):
    assert refusal(as_parquet(tmp_path / "a.parquet", columns, classes)).startswith(said)


def test_class_names_must_be_a_list(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"id": IDS, "scores": [[1.0]] * 20})
    for stored in ("{", '["a", {}]', "7"):
        pa.parquet.write_table(table.replace_schema_metadata({"classes": stored}), path)
        assert refusal(path) == "F: its metadata key `classes` must be a JSON list of class names"


def test_pictures_and_captions_beside_the_predictions_are_not_read(tmp_path):
    columns = {
        "id": IDS,
        "image": [{"bytes": b"\xff", "path": "x"}] * 20,
        "image.bytes": ["a caption"] * 20,
        "prediction": pa.array(LABELS).dictionary_encode(),
        "tags": [["x"]] * 20,
    }
    scores, notes = scores_of(as_parquet(tmp_path / "a.parquet", columns), benchmark())
    assert scores.values["accuracy"].tolist() == [1.0] * 20
    assert notes == ("a: columns that are not metrics: 'image', 'image.bytes', 'tags'",)


def test_pickles_in_an_npz_are_never_loaded(tmp_path):
    trace = tmp_path / "trace"

    class Boom:
        def __reduce__(self):
            return Path.touch, (trace,)

    boom = np.array([Boom()] * 20, dtype=object)
    said = "holds Python objects, which are never loaded; save it as numbers or text, such as np.ar"
    for name, columns in {
        "id": {"id": boom, "correct": np.ones(20)},
        "more": {"id": IDS, "correct": np.ones(20), "more": boom},
    }.items():
        assert refusal(as_npz(tmp_path / "a.npz", columns)).startswith(f"F: array {name!r} {said}")
    assert not trace.exists()
    np.load(tmp_path / "a.npz", allow_pickle=True)["more"]
    assert trace.exists()  # it would have gone off


def forged(path, shape, kind="<f8", data=b""):
    """Write an archive whose ``id`` claims a shape."""
    header = io.BytesIO()
    about = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, about)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("id.npy", header.getvalue() + data)
    return path


def test_absurd_sizes_are_refused_before_anything_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(prediction_files, "_read", lambda *_: pytest.fail("an array was read"))
    path = tmp_path / "a.npz"
    for shape in ((10**15,), (2**62, 2**62), (-5,)):
        assert "bytes and has 0; the file is damaged" in refusal(forged(path, shape))
    monkeypatch.setattr(prediction_files, "LARGEST", 1 << 16)
    zeros = b"\0" * (1 << 20)
    said = refusal(forged(path, (1 << 17,), data=zeros))
    assert said.startswith("F: its arrays claim 1,048,576 bytes, array 'id' most of them; at most")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, "F has no column `id` with the ids of the images; it has none"),
        ({"id": np.ones((20, 2))}, "F: array `id` must be one id per image; its shape is (20, 2)"),
        ({"id": IDS, "scores": np.ones((19, 2))}, "F: array 'scores' of shape (19, 2) must have"),
        (
            {"id": IDS, "scores": SCORES, "classes": [CLASSES]},
            "F: array `classes` must be one name",
        ),
        ({"id": IDS, "scores": np.ones((20, 0))}, "F: its class scores have no class"),
        ({"id": IDS, "ap": np.ones(20, complex)}, "F holds nothing to score: it needs `correct`"),
    ],
)
def test_a_bad_npz_is_refused(tmp_path, columns, said):
    assert refusal(as_npz(tmp_path / "a.npz", columns)).startswith(said)


def test_class_scores_are_never_held_whole(tmp_path):
    """80 MB of scores pass by in blocks, whatever the file."""
    values = np.zeros((10_000, 2_000), np.float32)
    values[:, 7] = 1
    ids = [str(number) for number in range(len(values))]
    about = benchmark(ids, ["7"] * len(values))
    np.savez_compressed(tmp_path / "a.npz", id=ids, scores=values)
    lists = pa.FixedSizeListArray.from_arrays(values.reshape(-1), 2_000)
    parquet = as_parquet(tmp_path / "a.parquet", {"id": ids, "scores": lists})
    for path in (tmp_path / "a.npz", parquet):
        tracemalloc.start()
        scores, _ = scores_of(path, about)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert scores.values["accuracy"].all()
        assert peak < 40e6


def test_large_columns_come_in_one_piece(tmp_path):
    """Arrow hands over more than 16 MB of numpy's text in pieces."""
    ids = np.char.add(np.arange(20_000).astype("U5"), "x" * 1_000)
    assert isinstance(pa.array(ids), pa.ChunkedArray)
    found = read_predictions(as_npz(tmp_path / "a.npz", {"id": ids, "ap": np.ones(20_000)}))
    assert found.ids.to_pylist() == ids.tolist()


def test_damage_anywhere_is_one_line_or_harmless(tmp_path):
    scores = np.tile(np.eye(2), (10, 1))
    columns = {"id": IDS, "prediction": LABELS, "ap": [0.5] * 20}
    files = [
        as_csv(tmp_path / "a.csv", {**columns, "score:cat": [1, 0] * 10, "score:dog": [0, 1] * 10}),
        as_parquet(tmp_path / "a.parquet", {**columns, "scores": scores.tolist()}, ["cat", "dog"]),
        as_npz(tmp_path / "a.npz", {**columns, "scores": scores, "classes": ["cat", "dog"]}),
    ]
    generator = random.Random(4)
    outcomes = []
    for file in files:
        scores_of(file, benchmark())  # whole, it is read
        whole = file.read_bytes()
        for _ in range(120):
            damaged = bytearray(whole)
            for _ in range(generator.randint(1, 3)):
                damaged[generator.randrange(len(whole))] = generator.randrange(256)
            if generator.random() < 0.3:
                del damaged[generator.randrange(len(whole)) :]
            file.write_bytes(damaged)
            try:
                scores_of(file, benchmark(), allow_partial=True)
                outcomes.append("")
            except VisleakError as error:
                outcomes.append(str(error))
    assert not any("\n" in said for said in outcomes)
    assert 200 < sum(map(bool, outcomes)) < len(outcomes)
