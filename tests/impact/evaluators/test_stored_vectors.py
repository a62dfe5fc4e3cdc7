"""Vectors made elsewhere, in the files people have them in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from visleak.errors import UsageError, VisleakError
from visleak.impact.evaluators.retrieval_inputs import read_caption_vectors, read_image_vectors

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
    """In every form the id of the image repeats, and the vectors are brought to unit length."""
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
        ({"id": np.array(IDS, object), "vectors": MATRIX}, "cannot be read as .npz (Object arrays"),
    ],
)
def test_archives_that_are_refused(tmp_path, arrays, said):
    np.savez(tmp_path / "i.npz", **arrays)
    with pytest.raises(VisleakError) as caught:
        read_image_vectors(str(tmp_path / "i.npz"))
    assert str(caught.value).startswith(f"--images {tmp_path / 'i.npz'}")
    assert said in str(caught.value)


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
