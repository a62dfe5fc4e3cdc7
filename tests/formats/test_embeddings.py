"""Embeddings made elsewhere: which layouts are read, what images are called, what is refused."""

import json
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refusals import refused
from visleak.errors import UsageError, VisleakError
from visleak.formats import embeddings, open_images
from visleak.formats.embeddings import KIND
from visleak.records import EmbeddingSet


def vectors(rows, width=4, seed=0, dtype=np.float16):
    return np.random.default_rng(seed).normal(size=(rows, width)).astype(dtype)


def clip_retrieval(root, sizes, *, names="{}", **columns):
    """Write the layout of clip-retrieval; columns are functions from all rows to values."""
    first = 0
    for number, size in enumerate(sizes):
        place = root / "img_emb" / f"img_emb_{names.format(number)}.npy"
        place.parent.mkdir(parents=True, exist_ok=True)
        np.save(place, vectors(size, seed=number))
        if columns:
            rows = range(first, first + size)
            table = pa.table({name: [make(row) for row in rows] for name, make in columns.items()})
            texts = root / "metadata" / f"metadata_{names.format(number)}.parquet"
            texts.parent.mkdir(exist_ok=True)
            pq.write_table(table, texts, row_group_size=3)
        first += size
    return root


def manifest(root, rows, **changes):
    content = {
        **{"kind": KIND, "schema": 1, "anonymous": False},
        "encoder": {"name": "clip", "digest": "d1", "width": 4},
        "thresholds": {"hard": 0.98, "soft": 0.95, "provenance": "a paper"},
        "shards": [{"rows": count} for count in rows],
    }
    (root / "manifest.json").write_text(json.dumps(content | changes))


def opened(source, **options):
    found = open_images(source, **options)
    assert isinstance(found, EmbeddingSet)
    return found


def column(images, name="id"):
    return [value for part in images.partitions for value in part.columns()[name].to_pylist()]


def test_the_layout_of_clip_retrieval_with_its_columns(tmp_path):
    columns = {"image_path": lambda row: f"p{row}.jpg", "caption": lambda row: f"c{row}"}
    columns |= {"label": lambda row: row % 3, "width": lambda row: 100 + row}
    clip_retrieval(tmp_path, [7, 5], names="{:04d}", **columns)
    source = f"emb:{tmp_path}?encoder=clip"
    images = pickle.loads(pickle.dumps(opened(source)))
    second = images.partitions[1].columns(np.array([4, 0, 3, 0]))
    assert second["id"].to_pylist() == ["p11.jpg", "p7.jpg", "p10.jpg", "p7.jpg"]
    assert second["caption"].to_pylist() == ["c11", "c7", "c10", "c7"]
    assert second["label"].to_pylist() == ["2", "1", "1", "1"]
    assert second["width"].to_pylist() == [111, 107, 110, 107]
    assert len(images.partitions[1].columns(np.empty(0, np.int64))["id"]) == 0
    assert column(opened(source, id="caption")) == [f"c{row}" for row in range(12)]
    grouped = opened(source, group=r"/p(\d)/")
    assert column(grouped, "group") == [f"p{row}.jpg"[1] for row in range(12)]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"id": lambda row: f"i{row}", "index": lambda row: row}, "i0"),
        ({"id": lambda row: "same", "index": lambda row: 90 + row}, "90"),
        ({"id": lambda row: None, "path": lambda row: f"p{row}"}, "p0"),
        # unique in each file, as the keys of img2dataset are, but not in the set
        ({"id": lambda row: row % 3, "image_path": lambda row: f"{row % 3}"}, "0"),
        ({"id": lambda row: row + 0.5}, "0"),
    ],
)
def test_ids_are_the_first_column_of_unique_values(tmp_path, columns, expected, monkeypatch):
    source = f"emb:{clip_retrieval(tmp_path, [3, 3], **columns)}?encoder=clip"
    ids = column(opened(source))
    assert ids[0] == expected
    assert len(set(ids)) == 6
    monkeypatch.setattr(embeddings, "CHECKED", 5)  # images of a large set are not compared
    assert column(opened(source)) == list("012345")
    if expected == "i0":
        assert column(opened(source, id="id")) == ids


@pytest.mark.parametrize("ending", [".ids.txt", ".ids.parquet", ".parquet"])
def test_one_file_with_ids_beside_it(tmp_path, ending):
    path = tmp_path / "a.npy"
    np.save(path, vectors(3, dtype=np.float32))
    beside = tmp_path / f"a{ending}"
    if ending == ".ids.txt":
        beside.write_text("x\ny\r\nz\n")
    else:
        pq.write_table(pa.table({"id": ["x", "y", "z"]}), beside)
    for source in (path, tmp_path):
        assert column(opened(f"emb:{source}?encoder=clip")) == ["x", "y", "z"]


def test_one_file_alone_and_files_in_the_order_of_their_numbers(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, vectors(3))
    images = opened(f"emb:{path}?encoder=clip?prep=laion")
    assert (images.name, images.encoder_name) == ("a", "clip?prep=laion")
    assert column(images) == ["0", "1", "2"]
    assert column(images, "locator") == [f"{path}!{row}" for row in range(3)]
    before = images.partitions[0].stamp
    np.save(path, vectors(5))
    assert opened(f"emb:{path}?encoder=clip").partitions[0].stamp != before
    with pytest.raises(VisleakError, match="has changed since it was opened"):
        images.partitions[0].matrix()
    clip_retrieval(tmp_path, [2] * 12, url=lambda row: f"http://u/{row}")
    images = opened(f"emb:{tmp_path}?encoder=clip")
    assert (images.name, images.encoder, images.thresholds) == (tmp_path.name, "", None)
    assert (images.width, len(images)) == (4, 24)
    for number, part in enumerate(images.partitions):
        stored = part.matrix()
        assert isinstance(stored.base, np.memmap)
        np.testing.assert_array_equal(stored, vectors(2, seed=number))
    assert column(images) == [str(row) for row in range(24)]
    assert column(images, "locator") == [f"http://u/{row}" for row in range(24)]


@pytest.mark.parametrize("fixed", [True, False])
def test_parquet_with_a_column_of_vectors(tmp_path, monkeypatch, fixed):
    """A partition is some row groups; a missing vector is no number, so that it is told of."""
    monkeypatch.setattr(embeddings, "GROUP_ROWS", 4)
    stored = vectors(9, dtype=np.float32)
    kind = pa.list_(pa.float32(), 4) if fixed else pa.list_(pa.float32())
    rows = [None if row == 6 else list(map(float, stored[row])) for row in range(9)]
    table = pa.table({"image_id": [f"i{r}" for r in range(9)], "emb": pa.array(rows, kind)})
    path = tmp_path / "v.parquet"
    pq.write_table(table, path, row_group_size=2)
    images = opened(f"emb:{path}?encoder=clip")
    assert [part.rows for part in images.partitions] == [4, 4, 1]
    assert column(images) == [f"i{r}" for r in range(9)]
    assert column(images, "locator")[5] == f"{path}!5"
    joined = np.concatenate([part.matrix() for part in images.partitions])
    stored[6] = np.nan
    np.testing.assert_array_equal(joined, stored)
    assert len({part.stamp for part in images.partitions}) == 3
    assert len(opened(f"emb:{tmp_path}?encoder=clip")) == 9


def test_a_manifest_speaks_for_its_folder(tmp_path):
    clip_retrieval(tmp_path, [2, 1], id=lambda row: f"i{row}", digest=lambda row: "ab" * 16)
    manifest(tmp_path, [2, 1])
    images = opened(f"emb:{tmp_path}")
    assert (images.encoder, images.encoder_name) == ("d1", "clip")
    stated = {"hard": 0.98, "soft": 0.95, "provenance": "a paper"}
    assert images.thresholds == stated | {"provisional": False}
    assert column(images, "digest") == ["ab" * 16] * 3
    refused(VisleakError, "clip made these vectors, not dinov2", f"emb:{tmp_path}?encoder=dinov2")
    # digests in tables of others mean something else
    (tmp_path / "manifest.json").unlink()
    assert "digest" not in opened(f"emb:{tmp_path}?encoder=clip").partitions[0].columns()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema": 2}, "has layout 2, this visleak reads up to 1; use a newer one"),
        ({"shards": [{"rows": 5}]}, "its manifest describes 1 shards with 5 vectors of width 4,"),
        ({"encoder": {"name": "clip"}}, r"is damaged \(KeyError\('digest'\)\); encode the set"),
        ({"thresholds": {"hard": 0.1, "soft": 0.9}}, r"is damaged \(ValueError\("),
        ({"kind": "else"}, "the encoder that made these vectors is unknown; name it: emb:"),
    ],
)
def test_a_manifest_that_cannot_be_believed(tmp_path, changes, said):
    manifest(clip_retrieval(tmp_path, [2, 1], id=lambda row: f"i{row}"), [2, 1], **changes)
    refused(VisleakError, said, f"emb:{tmp_path}")


def test_what_is_refused(tmp_path):
    source = f"emb:{tmp_path}?encoder=clip"
    refused(VisleakError, "holds no vectors: emb: takes .npy files", source)
    clip_retrieval(tmp_path, [3, 3], id=lambda row: row if row else None)
    refused(UsageError, "column, expect; did you mean 'encoder'", f"emb:{tmp_path}?encodr=clip")
    refused(UsageError, "has no such column; it has id", source, id="name")
    refused(UsageError, r"frame 'f': emb:.* is a set of", source, frame="f")
    with pytest.raises(VisleakError, match=r"the id of row 0 is null; choose another --id"):
        column(opened(source, id="id"))
    first, second = (tmp_path / "img_emb" / f"img_emb_{n}.npy" for n in (0, 1))
    texts = tmp_path / "metadata" / "metadata_1.parquet"
    for stored, words in (
        (vectors(4), f"{second} holds 4 vectors and {texts} describes 3 images"),
        (vectors(3, width=5), f"{second} holds vectors of 5 numbers, {first} of 4"),
        (vectors(3).astype(np.int8), r"holds int8 of shape \(3, 4\); vectors are a matrix"),
        (np.array([["a"]], object), r"holds object of shape \(1, 1\); vectors are a matrix"),
    ):
        np.save(second, stored, allow_pickle=True)
        refused(VisleakError, words, source)
    np.save(second, vectors(3))
    data = second.read_bytes()
    second.write_bytes(data[:-3])
    refused(VisleakError, f"{second} is truncated: 149 of 152 bytes are there", source)
    second.write_bytes(b"no array")
    refused(VisleakError, f"{second} is not a .npy file: ", source)
    second.write_bytes(data)
    texts.unlink()
    refused(VisleakError, f"{second} has no metadata_1.parquet in", source)
    texts.write_bytes(b"PAR1 no")
    refused(VisleakError, f"{texts} cannot be read as Parquet: ", source)
    (tmp_path / "unfinished.json").write_text("{}")
    refused(VisleakError, "is not finished; run the same `visleak encode` again", source)


def test_what_is_refused_of_parquet(tmp_path):
    path = tmp_path / "v.parquet"
    source = f"emb:{path}?encoder=clip"
    pq.write_table(pa.table({"id": ["a"]}), path)
    refused(VisleakError, r"has no column of vectors \(lists of floats\); it has id", source)
    two = pa.array([[0.0, 1.0]], pa.list_(pa.float32()))
    pq.write_table(pa.table({"one": two, "two": two}), path)
    refused(VisleakError, rf"\(one, two\); choose one: emb:{path}\?column=one", source)
    assert opened(f"{source}&column=two").width == 2
    refused(UsageError, "no such column of vectors; it has one, two", f"{source}&column=id")
    ragged = pa.array([[0.0, 1.0], [1.0]], pa.list_(pa.float32()))
    pq.write_table(pa.table({"emb": ragged}), path)
    images = opened(source)
    with pytest.raises(VisleakError, match="a vector has 1 numbers, the first has 2"):
        images.partitions[0].matrix()


@pytest.mark.parametrize(
    ("form", "numbers", "expected", "missing"),
    [
        ("img_emb_{}", (0, 1, 2), 3, set()),
        ("img_emb_{}", (0, 1, 3), 4, {"img_emb_2.npy"}),
        ("img_emb_{:04d}", (1, 2, 4), 4, {"img_emb_0003.npy"}),
        # a part of a set that somebody chose
        ("img_emb_{}", (100, 101, 102), 3, set()),
        ("img_emb_{}", (100, 101, 103), 4, {"img_emb_102.npy"}),
        # dates do not count files
        ("day_{}", (20240101, 20240201, 20240301), 3, set()),
        ("e-{:05d}-of-00005", (0, 1, 3), 5, {"e-00002-of-00005.npy", "e-00004-of-00005.npy"}),
        ("e-{0:05d}-of-00004-{0}a5c", (0, 1, 3), 4, {"e-00002-of-00004.npy"}),
        # other files do not hide a gap
        ("{}", ("a_0", "a_1", "a_3", "b_0", "b_2", "mean"), 8, {"a_2.npy", "b_1.npy"}),
        ("a_{}", (0, 5_000_000), 5_000_001, None),
    ],
)
def test_missing_files_of_a_sequence_are_named(tmp_path, form, numbers, expected, missing):
    (tmp_path / "img_emb").mkdir()
    for number in numbers:
        np.save(tmp_path / "img_emb" / f"{form.format(number)}.npy", vectors(2))
    files = opened(f"emb:{tmp_path}?encoder=clip").files
    assert (files.present, files.expected) == (len(numbers), expected)
    cut = len(files.missing) <= 10 and "more are missing" in str(files)
    assert cut if missing is None else set(files.missing) == missing


def test_a_stated_number_of_files_must_be_there(tmp_path):
    folder = clip_retrieval(tmp_path, [2] * 4, id=lambda row: row) / "img_emb"
    source = f"emb:{tmp_path}?encoder=clip&expect="
    assert opened(f"{source}4").files.complete
    refused(VisleakError, "4 of 6 .*img_emb_4.npy, img_emb_5.npy .*expect=6", f"{source}6")
    refused(VisleakError, "expect=2", f"{source}2")
    # in another folder, while a table describes it
    (tmp_path / "images").mkdir()
    (folder / "img_emb_3.npy").rename(tmp_path / "images" / "img_emb_3.npy")
    files = opened(f"emb:{tmp_path}?encoder=clip").files
    assert (files.present, files.ignored, files.missing) == (3, 1, ("img_emb_3.npy",))
    assert "not read" in str(files)
    (folder / "img_emb_1.npy").unlink()
    # two files are there as stated, and the one between them is not
    for count in (2, 3):
        refused(VisleakError, "img_emb_1.npy", f"{source}{count}")
    for wrong in ("0", "many", ""):
        refused(UsageError, "expect must be a whole number from 1", f"{source}{wrong}")
    single = f"emb:{folder / 'img_emb_2.npy'}?encoder=clip&expect="
    assert opened(f"{single}1").files.expected == 1
    refused(VisleakError, "1 of 2 files", f"{single}2")
