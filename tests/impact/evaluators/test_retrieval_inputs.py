"""Captions and stored vectors of images and captions."""

import json

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
        lines = [f'{id_},"{text}"' for id_, text in ROWS]
        path.write_text("\n".join(["id,caption", *lines]))
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
        *[("csv", ".csv"), ("tsv", ".tsv"), ("token", ".token"), ("parquet", ".parquet")],
        *[("lists", ".parquet"), ("karpathy", ".json"), ("coco", ".json"), ("plain", ".json")],
    ],
)
def test_every_form_says_the_same(tmp_path, kind, ending):
    write(tmp_path / f"c{ending}", kind)
    captions = read_captions(tmp_path / f"c{ending}")
    assert sorted(pairs(captions)) == sorted(ROWS)
    assert pairs(captions.chosen("first")) == ROWS[:2]
    assert pairs(captions.chosen("2")) == [ROWS[2]]
    assert captions.chosen("all") is captions


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
    ("name", "content", "said"),
    [
        ("c.csv", "image,other\na,b\n", "has no column 'caption'; it has image, oth"),
        ("c.csv", "id,caption\n,b\n", "c.csv: number 1 has no image id"),
        ("c.csv", "id,caption\na,\n", "c.csv: there are none; give a .csv, .tsv"),
        ("c.token", "a.jpg a dog\n", "line 1: it is not NAME#N<TAB>CAPTION"),
        ("c.json", "[1]", "c.json holds a list; give a .csv"),
        ("c.json", "{", "c.json cannot be read (Expecting property name"),
        ("c.json", '{"images": [{"filename": "a"}]}', "(KeyError: 'sentences')"),
        ("c.json", '{"a": 3}', "TypeError: '3' is not a caption"),
        ("c.parquet", "none", "cannot be read as Parquet"),
        ("c.xml", "<x/>", "c.xml has an unknown format"),
    ],
)
def test_files_that_are_refused(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    message = refusal(VisleakError, read_captions, tmp_path / name)
    assert said in message
    assert str(tmp_path / name) in message


def test_a_missing_file_is_refused(tmp_path):
    assert "no such file" in refusal(VisleakError, read_captions, tmp_path / "absent.csv")


def test_choices_that_cannot_be():
    made = Captions(("a", "a"), ("x", "y"), 0, "c.csv")
    for wrong in ("last", "0", "٣"):
        with pytest.raises(UsageError, match=f"must be first, all or a number .* got '{wrong}'"):
            made.chosen(wrong)
    with pytest.raises(VisleakError, match=r"no image of c\.csv has as many .* most is 2"):
        made.chosen("3")


IDS = ["7", "10", "7"]
MATRIX = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)


def npy(folder):
    np.save(folder / "t.npy", MATRIX)
    (folder / "t.ids.txt").write_text("".join(f"{id_}\n" for id_ in IDS))
    return str(folder / "t.npy")


def npz(folder):
    ids = np.array(IDS).astype(int)
    np.savez(folder / "t.npz", vectors=MATRIX.astype(np.float64), image_id=ids)
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


@pytest.mark.parametrize("write", [npy, npz, parquet, folder_of_shards])
def test_captions_of_one_image_may_be_several(tmp_path, write):
    found = read_caption_vectors(write(tmp_path))
    assert found.ids.to_pylist() == IDS
    unit = MATRIX / np.linalg.norm(MATRIX, axis=1, keepdims=True)
    tolerance = 2e-3 if write is folder_of_shards else 1e-6
    np.testing.assert_allclose(found.matrix, unit, atol=tolerance)
    assert found.usable.all()


def test_vectors_without_a_direction_are_marked(tmp_path):
    matrix = MATRIX.copy()
    matrix[0, 3], matrix[2] = np.nan, 0
    np.save(tmp_path / "i.npy", matrix)
    found = read_image_vectors(str(tmp_path / "i.npy"))
    assert (found.ids.to_pylist(), found.usable.tolist()) == (list("012"), [False, True, False])
    np.save(tmp_path / "i.npy", matrix * np.nan)
    with pytest.raises(VisleakError, match=r"i\.npy holds no vector with a direction"):
        read_image_vectors(str(tmp_path / "i.npy"))


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"id": IDS, "vectors": MATRIX}, "id '7' occurs more than once; give one vector"),
        ({"vectors": MATRIX}, "needs arrays id and vectors; it has vectors"),
        ({"id": np.arange(2), "vectors": MATRIX}, "with n ids; got float32 (3, 6) and ids (2,)"),
        ({"id": IDS, "vectors": np.eye(3, dtype=int)}, "vectors must be floats (n, width)"),
        ({"id": [1.0, 2, 3], "vectors": MATRIX}, "ids must be text or whole numbers; got"),
        ({"id": np.array(IDS, object), "vectors": MATRIX}, "cannot be read as .npz: Object arrays"),
    ],
)
def test_archives_that_are_refused(tmp_path, arrays, said):
    np.savez(tmp_path / "i.npz", **arrays)
    message = refusal(VisleakError, read_image_vectors, str(tmp_path / "i.npz"))
    assert message.startswith(f"--images {tmp_path / 'i.npz'}")
    assert said in message


def test_files_that_are_none(tmp_path):
    with pytest.raises(UsageError, match=r"gone\.npz: there is no such file"):
        read_caption_vectors(str(tmp_path / "gone.npz"))
    (tmp_path / "i.npz").write_bytes(b"no archive")
    with pytest.raises(VisleakError, match=r"cannot be read as \.npz"):
        read_caption_vectors(str(tmp_path / "i.npz"))
    (tmp_path / "i.bin").write_bytes(b"")
    with pytest.raises(UsageError, match=r"i\.bin is neither \.npy nor \.parquet"):
        read_caption_vectors(str(tmp_path / "i.bin"))
