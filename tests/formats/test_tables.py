"""CSV and Parquet manifests that name files, and Parquet files with the images inside."""

import json
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refusals import refused
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images, tables
from visleak.records import Unreadable


@pytest.fixture
def pictures(put):
    return [put(f"pics/{i}.png", seed=i).read_bytes() for i in range(4)]


@pytest.fixture
def blobs(picture, encode):
    return [encode(picture(seed=i)) for i in range(20)]


def write(path, blobs, *, rows=6, paths="{}.png", metadata=None, **columns):
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    image = [{"bytes": b, "path": paths and paths.format(i)} for i, b in enumerate(blobs)]
    table = pa.table({"image": pa.array(image, kind), **columns})
    if metadata:
        table = table.replace_schema_metadata(metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=rows)
    return path


ROWS = (
    "path,label,caption,group,frame,split,code\n"
    'pics/0.png,cat,"a, ""b""",g1,7,train,007\n'
    "pics/1.png,dog,,g1,8,test,008\n"
    "pics/2.png,,c,,,test,009\n"
)


def test_columns_of_manifests(put, pictures, tmp_path):
    images = open_images(put("m.csv", "\ufeff" + ROWS))
    assert images.ids.to_pylist() == ["pics/0.png", "pics/1.png", "pics/2.png"]
    assert images.labels.to_pylist() == ["cat", "dog", None]
    assert images.captions.to_pylist() == ['a, "b"', None, "c"]
    assert images.groups.to_pylist() == ["g1", "g1", None]
    assert images.frames.to_pylist() == [7, 8, None]
    opener = pickle.loads(pickle.dumps(images.opener))
    assert list(opener.read([0, 2])) == [pictures[0], pictures[2]]
    chosen = open_images(images.source, id="code", label="caption", group="split")
    assert chosen.ids.to_pylist() == ["007", "008", "009"]
    assert chosen.labels.to_pylist() == ['a, "b"', None, "c"]
    assert chosen.groups.to_pylist() == ["train", "test", "test"]
    assert open_images(images.source, group="/(\\d)/").groups.to_pylist() == ["0", "1", "2"]
    words = "label 'x': .* has no such column; it has"
    refused(UsageError, words, tmp_path / "m.csv", label="x")
    images = open_images(put("m.tsv", "path\tlabel\npics/0.png\ta b\n\tc\n"))
    assert images.labels.to_pylist() == ["a b", "c"]
    assert [getattr(x, "reason", "") for x in images.opener.read([0, 1])] == ["", "missing"]
    table = pa.table({"path": ["pics/3.png", "pics/1.png"], "label": [5, None], "index": [10, 20]})
    pq.write_table(table, tmp_path / "m.parquet")
    images = open_images(tmp_path / "m.parquet")
    assert images.ids.to_pylist() == ["10", "20"]
    assert images.labels.to_pylist() == ["5", None]
    assert list(images.opener.read([0, 1])) == [pictures[3], pictures[1]]
    # beside images, a table is no set of its own
    assert len(open_images(tmp_path)) == 4


def test_one_split_of_a_table(put, pictures, tmp_path, blobs):
    path = put("m.csv", ROWS)
    images = open_images(f"{path}#TEST")
    assert images.ids.to_pylist() == ["pics/1.png", "pics/2.png"]
    assert list(images.opener.read([0])) == [pictures[1]]
    assert images.name == "TEST"
    refused(UsageError, r"no split 'val'; there are test, train$", f"{path}#val")
    path = put("n.csv", "path\npics/0.png\n")
    refused(UsageError, r"#val needs a `split` column; there is none", f"{path}#val")
    split = pa.array(["train", "validation", "test", "train"] * 5)
    path = write(tmp_path / "a.parquet", blobs, split=split)
    images = open_images(f"{path}#val")
    assert images.ids.to_pylist() == [f"{i}.png" for i in range(1, 20, 4)]
    assert list(images.opener.read([0, 2])) == [blobs[1], blobs[9]]
    assert images.locators[2].as_py() == f"{path}!9"


def test_ids_follow_the_order_of_preference(put, pictures, tmp_path, blobs):
    def ids(text, **options):
        return open_images(put("m.csv", text), **options).ids.to_pylist()

    assert ids("path,index,image_id,id\na,1,2,x\nb,3,4,y\n") == ["x", "y"]
    assert ids("path,index,image_id,id\na,1,2,x\nb,3,4,x\n") == ["2", "4"]
    assert ids("path,index,id\na,1,x\nb,3,\n") == ["1", "3"]
    assert ids("path\na\nb\n") == ["a", "b"]
    assert ids("path\na\na\n") == ["0", "1"]
    refused(VisleakError, r"id 'x' occurs more than once, in", "path,id\na,x\nb,x\n", ids, id="id")
    refused(VisleakError, r"an id is null", "path,id\na,x\nb,\n", ids, id="id")
    for options, first in (
        ({}, ["0.png", "1.png"]),
        ({"paths": "same.png"}, ["0", "1"]),
        ({"paths": None, "id": pa.array([0.5] * 20)}, ["0", "1"]),
    ):
        path = write(tmp_path / "a.parquet", blobs, **options)
        assert open_images(path).ids.to_pylist()[:2] == first


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("file,label\na,b\n", "needs one column `path` with file names, or `image` with the"),
        ("", "cannot be read as CSV"),
        ("path,label\na\n", "cannot be read as CSV: .*Expected 2 columns, got 1"),
        (b"path\n\xff\xfe\n", "cannot be read as CSV"),
        ("path,label,label\na,b,c\n", "more than one column 'label'; keep one"),
        ("path,frame\na,first\n", "column 'frame' must hold whole numbers, seconds or ISO"),
        ("path,label\n", "m.csv holds no images"),
    ],
)
def test_manifests_that_are_no_good(text, said, put):
    refused(VisleakError, said, put("m.csv", text))


def test_the_layout_of_the_hubs(tmp_path, blobs):
    index = pa.array(np.arange(20)[::-1].astype(np.int32))
    names = pa.array([f"n{i % 3}" for i in range(20)])
    columns = {"label": pa.array([1] * 20), "label_name": names, "index": index}
    path = write(tmp_path / "test.parquet", blobs, **columns)
    images = open_images(path)
    assert images.name == "test"
    assert images.ids.to_pylist() == [str(i) for i in range(19, -1, -1)]
    assert images.labels.to_pylist() == names.to_pylist()
    assert open_images(path, label="label").labels[0].as_py() == "1"
    assert images.locators[7].as_py() == f"{path}!7"
    opener = pickle.loads(pickle.dumps(images.opener))
    assert list(opener.read(range(20))) == blobs
    assert list(opener.read([0, 5, 6, 19])) == [blobs[i] for i in (0, 5, 6, 19)]
    assert list(opener.read([])) == []


def test_only_the_needed_row_groups_are_read_a_huge_one_in_batches(tmp_path, blobs, monkeypatch):
    images = open_images(write(tmp_path / "a.parquet", blobs, rows=4))
    asked = []
    system = pq.ParquetFile.iter_batches

    def spy(self, *args, **kwargs):
        asked.append((kwargs["row_groups"], kwargs["columns"]))
        return system(self, *args, **kwargs)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", spy)
    assert list(images.opener.read([9, 11, 16])) == [blobs[9], blobs[11], blobs[16]]
    assert asked == [([2], ["image.bytes"]), ([4], ["image.bytes"])]
    images = open_images(write(tmp_path / "b.parquet", blobs, rows=20))
    monkeypatch.setattr(tables, "BATCH_BYTES", 3 * len(blobs[0]))
    asked.clear()
    for rows in ([0, 7], [8, 12], [3], [4, 19], [0]):
        assert list(images.opener.read(rows)) == [blobs[i] for i in rows]
    # on from the last row, but from the start for an earlier one and after the end
    assert len(asked) == 3
    # joined shards are closed one after the other
    images.opener.close()
    assert list(images.opener.read([1])) == [blobs[1]]
    assert len(asked) == 4
    one, other = images.opener.read([1, 9]), images.opener.read([5, 6])
    assert [next(each) for each in (one, other, other, one)] == [blobs[i] for i in (1, 5, 6, 9)]


def test_a_plain_binary_column_and_missing_pictures(tmp_path, blobs):
    path, plain = tmp_path / "a.parquet", [None, blobs[0]]
    kind = pa.struct([("path", pa.string()), ("bytes", pa.binary())])
    rows = [{"path": name, "bytes": blob} for name, blob in zip("ab", plain, strict=True)]
    for column, values, ids in (
        ("image", pa.array(plain, pa.binary()), ["0", "1"]),
        ("image", pa.array(plain, pa.large_binary()), ["0", "1"]),
        ("image", pa.array([None, rows[1]], kind), ["0", "1"]),
        ("img", pa.array(rows, kind), ["a", "b"]),
    ):
        pq.write_table(pa.table({column: values}), path)
        images = open_images(path)
        assert images.ids.to_pylist() == ids
        missing = Unreadable("missing", "the row holds no image")
        assert list(images.opener.read([0, 1])) == [missing, blobs[0]]


def test_class_names_from_the_hub(tmp_path, blobs):
    features = {"image": {"_type": "Image"}, "label": {"names": ["cat", "dog"]}}
    meta = {"huggingface": json.dumps({"info": {"features": features}})}
    labels = pa.array([0, 1, -1, None] * 5)
    path = write(tmp_path / "a.parquet", blobs, metadata=meta, label=labels)
    assert open_images(path).labels.to_pylist()[:4] == ["cat", "dog", "-1", None]
    for broken in ("{", "[]", '{"info": 3}', '{"info": {"features": {"label": {"names": 3}}}}'):
        path = write(tmp_path / "b.parquet", blobs, metadata={"huggingface": broken}, label=labels)
        assert open_images(path).labels.to_pylist()[:4] == ["0", "1", "-1", None]


def test_files_that_the_names_of_others_count_are_a_problem(tmp_path, blobs):
    names = ("train-00000-of-00003-0a1b", "train-00002-of-00003-2c3d", "test-00000-of-00001-4e5f")
    kept = [write(tmp_path / f"data/{n}.parquet", blobs[at : at + 1]) for at, n in enumerate(names)]
    for source in (tmp_path, f"{tmp_path}/data/*.parquet"):
        images = open_images(source)
        assert list(images.opener.read(range(3))) == [blobs[2], *blobs[:2]]
        assert images.locators[1].as_py() == f"{kept[0]}!0"
        [problem] = images.problems
        assert problem.reason == "missing"
        assert "train-00001-of-00003" in problem.detail
    for source in (kept[0], f"{tmp_path}/data/test-*.parquet"):
        assert not open_images(source).problems


def test_files_that_are_no_good(tmp_path, blobs, put):
    refused(VisleakError, r"a\.parquet cannot be read as Parquet: ", put("a.parquet", b"PAR1 no"))
    refused(VisleakError, r"b\.parquet holds no images$", write(tmp_path / "b.parquet", []))
    path = write(tmp_path / "c.parquet", blobs)
    refused(UsageError, r"label 'x': .* has no such column; it has", path, label="x")
    images = open_images(path)
    data = bytearray(path.read_bytes())
    data[20:4000] = bytes(3980)
    path.write_bytes(data)
    found = list(open_images(path).opener.read(range(20)))
    assert len(found) == 20
    assert "io-error" in {getattr(f, "reason", "") for f in found}
    path.unlink()
    assert [f.reason for f in images.opener.read([0, 19])] == ["missing", "missing"]


def test_texts_that_are_no_text(tmp_path, blobs):
    bad = pa.array([b"\xff"] * 20).view(pa.binary()).cast(pa.binary())
    text = pa.Array.from_buffers(pa.string(), 20, bad.buffers())
    path = write(tmp_path / "a.parquet", blobs, caption=text)
    refused(VisleakError, r"column 'caption' of type string holds something that", path)
    path = write(tmp_path / "b.parquet", blobs, label=pa.array([[1]] * 20))
    refused(VisleakError, r"column 'label' of type list.* that is not text", path)
    path = write(tmp_path / "c.parquet", blobs, label=pa.array(["x"] * 20).dictionary_encode())
    assert open_images(path).labels[0].as_py() == "x"
