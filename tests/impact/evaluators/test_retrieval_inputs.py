"""Captions and stored vectors of images and captions."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refusals import refusal
from visleak.errors import UsageError, VisleakError
from visleak.impact.evaluators.retrieval_inputs import (
    Captions,
    captions_of,
    read_caption_vectors,
    read_captions,
    read_image_vectors,
)
from visleak.records import ImageSet

#: Two images, of two captions and one.
ROWS = [("a.jpg", "Two dogs, running."), ("b.jpg", "A tree."), ("a.jpg", "Dogs on grass")]


def pairs(captions):
    return list(zip(captions.ids, captions.texts, strict=True))


def write(path, kind):
    """Write :data:`ROWS` in one of the forms."""
    ids, texts = zip(*ROWS, strict=True)
    if kind == "csv":
        path.write_text(
            'id,caption\na.jpg,"Two dogs, running."\nb.jpg,A tree.\na.jpg,Dogs on grass\n'
        )
    elif kind == "tsv":
        lines = [f"{id_}\t0\t{text}" for id_, text in ROWS]
        path.write_text("\n".join(["image_name\tcomment_number\tcomment", *lines]))
    elif kind == "token":
        path.write_text("\n".join(f"{id_}#{n}\t{text}" for n, (id_, text) in enumerate(ROWS)))
    elif kind == "parquet":
        pq.write_table(pa.table({"image_id": ids, "text": texts}), path)
    elif kind == "lists":
        # one row an image, as the hub has Flickr30k
        held = {"filename": ["a.jpg", "b.jpg"], "caption": [[texts[0], texts[2]], [texts[1]]]}
        pq.write_table(pa.table(held), path)
    else:
        path.write_text(json.dumps(documents()[kind]))


def documents():
    sentences = {"a.jpg": [ROWS[0][1], ROWS[2][1]], "b.jpg": [ROWS[1][1]]}
    karpathy = [
        {"filename": name, "split": "test", "sentences": [{"raw": text} for text in texts]}
        for name, texts in sentences.items()
    ]
    images = [{"id": 7, "file_name": "a.jpg"}, {"id": 9, "file_name": "b.jpg"}]
    told = [{"image_id": 7 if id_ == "a.jpg" else 9, "caption": text} for id_, text in ROWS]
    return {
        "karpathy": {"dataset": "flickr30k", "images": karpathy},
        "coco": {"images": images, "annotations": told},
        "plain": {"a.jpg": sentences["a.jpg"], "b.jpg": ROWS[1][1]},
    }


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        *[("csv", ".csv"), ("tsv", ".tsv"), ("token", ".token"), ("token", ".txt")],
        *[("parquet", ".parquet"), ("lists", ".parquet")],
        *[("karpathy", ".json"), ("coco", ".json"), ("plain", ".json")],
    ],
)
def test_every_form_says_the_same(tmp_path, kind, ending):
    write(tmp_path / f"c{ending}", kind)
    captions = read_captions(tmp_path / f"c{ending}")
    assert sorted(pairs(captions)) == sorted(ROWS)
    assert pairs(captions.chosen("first")) == ROWS[:2]
    assert pairs(captions.chosen("2")) == [ROWS[2]]
    assert captions.chosen("all") is captions


def test_captions_that_are_empty_are_counted(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text('id,caption\na,\nb,"  "\nc,"two\nlines"\n')
    captions = read_captions(path)
    assert pairs(captions) == [("c", "two lines")]
    assert captions.empty == 2


def test_captions_of_several_images_are_counted():
    made = Captions(("a", "a", "b", "c"), ("x", "x", "y", "y"), 0, "here")
    assert made.repeated == 2
    assert Captions(("a", "a"), ("x", "x"), 0, "here").repeated == 0


def test_captions_of_a_set():
    ids = pa.array(["a", "b", "c"])
    texts = pa.array(["one", None, ""], pa.string())
    images = ImageSet("set", ids, ids, None, captions=texts)
    captions = captions_of(images)
    assert pairs(captions) == [("a", "one")]
    assert captions.empty == 1
    with pytest.raises(UsageError, match=r"set 'set' has no captions; give them with --captions"):
        captions_of(ImageSet("set", ids, ids, None))


@pytest.mark.parametrize(
    ("name", "content", "kind", "said"),
    [
        ("c.csv", "image,other\na,b\n", VisleakError, "has no column 'caption'; it has image, oth"),
        ("c.csv", "id,caption\n,b\n", VisleakError, "c.csv: number 1 has no image id"),
        ("c.csv", "id,caption\na,\n", VisleakError, "c.csv: there are none; give a .csv, .tsv"),
        ("c.token", "a.jpg a dog\n", VisleakError, "line 1: it is not NAME#N<TAB>CAPTION"),
        ("c.json", "[1]", VisleakError, "c.json holds a list; give a .csv"),
        ("c.json", "{", VisleakError, "c.json cannot be read (Expecting property name"),
        ("c.json", '{"images": [{"filename": "a"}]}', VisleakError, "(KeyError: 'sentences')"),
        ("c.json", '{"a": 3}', VisleakError, "TypeError: '3' is not a caption"),
        ("c.parquet", "none", VisleakError, "cannot be read as Parquet"),
        ("c.xml", "<x/>", UsageError, "c.xml has an unknown format"),
    ],
)
def test_files_that_are_refused(tmp_path, name, content, kind, said):
    (tmp_path / name).write_text(content)
    message = refusal(kind, read_captions, tmp_path / name)
    assert said in message
    assert str(tmp_path / name) in message


def test_choices_that_cannot_be():
    with pytest.raises(UsageError, match=r"there is no such file; give a \.csv"):
        read_captions(Path("nowhere.csv"))
    made = Captions(("a", "a"), ("x", "y"), 0, "c.csv")
    for wrong in ("last", "0", "-1", "1.5", "٣"):
        with pytest.raises(UsageError, match=f"must be first, all or a number .* got '{wrong}'"):
            made.chosen(wrong)
    with pytest.raises(VisleakError, match=r"no image of c\.csv has as many .* most is 2"):
        made.chosen("3")


IDS = ["b.jpg", "a.jpg", "b.jpg"]
MATRIX = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)


def npy(folder):
    np.save(folder / "t.npy", MATRIX)
    (folder / "t.ids.txt").write_text("".join(f"{id_}\n" for id_ in IDS))
    return str(folder / "t.npy")


def npz(folder):
    np.savez(folder / "t.npz", vectors=MATRIX.astype(np.float64), image_id=np.array(IDS))
    return str(folder / "t.npz")


def parquet(folder):
    table = pa.table({"id": [1, 2, 3], "image_id": IDS, "embedding": MATRIX.tolist()})
    pq.write_table(table, folder / "t.parquet", row_group_size=2)
    return str(folder / "t.parquet")


def folder_of_shards(folder):
    place = folder / "emb"
    (place / "img_emb").mkdir(parents=True)
    (place / "metadata").mkdir()
    for number, part in enumerate((slice(0, 2), slice(2, 3))):
        np.save(place / "img_emb" / f"img_emb_{number}.npy", MATRIX[part].astype(np.float16))
        pq.write_table(
            pa.table({"id": IDS[part]}), place / "metadata" / f"metadata_{number}.parquet"
        )
    return f"emb:{place}"


def check(found, tolerance):
    assert found.ids.to_pylist() == IDS
    unit = MATRIX / np.linalg.norm(MATRIX, axis=1, keepdims=True)
    np.testing.assert_allclose(found.matrix, unit, atol=tolerance)
    assert found.usable.all()


@pytest.mark.parametrize("write", [npy, npz, parquet, folder_of_shards])
def test_captions_of_one_image_may_be_several(tmp_path, write):
    text = write(tmp_path)
    check(read_caption_vectors(text), 2e-3 if write is folder_of_shards else 1e-6)


@pytest.mark.parametrize("write", [npy, npz])
def test_images_are_there_once(tmp_path, write):
    with pytest.raises(VisleakError, match=r"id 'b\.jpg' occurs more than once; give one vector"):
        read_image_vectors(write(tmp_path))


def test_rows_without_ids_are_numbered(tmp_path):
    np.save(tmp_path / "i.npy", MATRIX)
    np.save(tmp_path / "t.npy", MATRIX[::-1])
    assert read_image_vectors(str(tmp_path / "i.npy")).ids.to_pylist() == ["0", "1", "2"]
    assert read_caption_vectors(f"emb:{tmp_path}/t.npy").ids.to_pylist() == ["0", "1", "2"]


def test_numbers_are_ids_as_decimal_text(tmp_path):
    np.savez(tmp_path / "i.npz", id=np.array([7, 10, 2]), features=MATRIX)
    assert read_image_vectors(str(tmp_path / "i.npz")).ids.to_pylist() == ["7", "10", "2"]


def test_vectors_without_a_direction_are_marked(tmp_path):
    matrix = MATRIX.copy()
    matrix[0, 3], matrix[2] = np.nan, 0
    np.save(tmp_path / "i.npy", matrix)
    assert read_image_vectors(str(tmp_path / "i.npy")).usable.tolist() == [False, True, False]
    np.save(tmp_path / "i.npy", matrix * np.nan)
    with pytest.raises(VisleakError, match=r"i\.npy holds no vector with a direction"):
        read_image_vectors(str(tmp_path / "i.npy"))


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"vectors": MATRIX}, "needs arrays id and vectors; it has vectors"),
        ({"id": np.arange(2), "vectors": MATRIX}, "with n ids; got float32 (3, 6) and ids (2,)"),
        (
            {"id": np.arange(3), "vectors": np.eye(3, dtype=int)},
            "vectors must be floats (n, width)",
        ),
        (
            {"id": np.array([1.0, 2, 3]), "vectors": MATRIX},
            "ids must be text or whole numbers; got",
        ),
        ({"id": np.array(IDS, object), "vectors": MATRIX}, "cannot be read as .npz: Object arrays"),
    ],
)
def test_archives_that_are_refused(tmp_path, arrays, said):
    np.savez(tmp_path / "i.npz", **arrays)
    message = refusal(VisleakError, read_image_vectors, str(tmp_path / "i.npz"))
    assert message.startswith(f"--images {tmp_path / 'i.npz'}")
    assert said in message


def test_files_that_are_none(tmp_path):
    for name in ("i.npz", "i.npy", "folder"):
        with pytest.raises(UsageError, match=f"--texts {tmp_path / name}: there is no"):
            read_caption_vectors(str(tmp_path / name))
    (tmp_path / "i.npz").write_bytes(b"no archive")
    with pytest.raises(VisleakError, match=r"cannot be read as \.npz"):
        read_caption_vectors(str(tmp_path / "i.npz"))
    (tmp_path / "i.bin").write_bytes(b"")
    with pytest.raises(UsageError, match=r"i\.bin is neither \.npy nor \.parquet"):
        read_caption_vectors(str(tmp_path / "i.bin"))
