"""CSV and Parquet manifests that name files."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images


@pytest.fixture
def pictures(put):
    return [put(f"pics/{i}.png", seed=i).read_bytes() for i in range(4)]


ROWS = (
    "path,label,caption,group,frame,split,code\n"
    'pics/0.png,cat,"a, ""b""",g1,7,train,007\n'
    "pics/1.png,dog,,g1,8,test,008\n"
    "pics/2.png,,c,,,test,009\n"
)


def test_csv_columns(put, pictures):
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


def test_one_split_of_a_manifest(put, pictures):
    path = put("m.csv", ROWS)
    images = open_images(f"{path}#TEST")
    assert images.ids.to_pylist() == ["pics/1.png", "pics/2.png"]
    assert list(images.opener.read([0])) == [pictures[1]]
    assert images.name == "TEST"
    with pytest.raises(UsageError, match=r"no split 'val'; there are test, train$"):
        open_images(f"{path}#val")
    with pytest.raises(UsageError, match=r"#val needs a `split` column; there is none"):
        open_images(f"{put('n.csv', 'path' + chr(10) + 'pics/0.png' + chr(10))}#val")


def test_ids_follow_the_order_of_preference(put, pictures):
    def ids(text, **options):
        return open_images(put("m.csv", text), **options).ids.to_pylist()

    assert ids("path,index,image_id,id\na,1,2,x\nb,3,4,y\n") == ["x", "y"]
    assert ids("path,index,image_id,id\na,1,2,x\nb,3,4,x\n") == ["2", "4"]
    assert ids("path,index,id\na,1,x\nb,3,\n") == ["1", "3"]
    assert ids("path\na\nb\n") == ["a", "b"]
    assert ids("path\na\na\n") == ["0", "1"]
    with pytest.raises(VisleakError, match=r"id 'x' occurs more than once, in rows 0 and 1"):
        ids("path,id\na,x\nb,x\n", id="id")
    with pytest.raises(VisleakError, match=r"an id is null"):
        ids("path,id\na,x\nb,\n", id="id")


def test_a_row_without_a_name_is_missing(put, pictures):
    images = open_images(put("m.csv", "path,id\npics/0.png,a\n,b\n"))
    assert [getattr(x, "reason", "") for x in images.opener.read([0, 1])] == ["", "missing"]


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
    with pytest.raises(VisleakError, match=said) as caught:
        open_images(put("m.csv", text))
    assert "\n" not in str(caught.value)


def test_columns_that_are_not_there(put, pictures):
    path = put("m.csv", ROWS)
    for option in ("id", "label", "group"):
        with pytest.raises(
            UsageError, match=f"{option} 'x': .* has no such column; it has path, label, caption,"
        ):
            open_images(path, **{option: "x"})


def test_tsv_and_parquet_manifests(put, pictures, tmp_path):
    images = open_images(put("m.tsv", "path\tlabel\npics/0.png\ta b\n"))
    assert images.labels.to_pylist() == ["a b"]
    table = pa.table({"path": ["pics/3.png", "pics/1.png"], "label": [5, None], "index": [10, 20]})
    pq.write_table(table, tmp_path / "m.parquet")
    images = open_images(tmp_path / "m.parquet")
    assert images.ids.to_pylist() == ["10", "20"]
    assert images.labels.to_pylist() == ["5", None]
    assert list(images.opener.read([0, 1])) == [pictures[3], pictures[1]]
    pq.write_table(table.drop_columns(["path"]), tmp_path / "m.parquet")
    with pytest.raises(VisleakError, match=r"needs one column `path` .* it has label, index$"):
        open_images(tmp_path / "m.parquet")
