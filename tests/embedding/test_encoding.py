"""Vectors as files: content, resuming after a kill, and anonymous folders."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import visleak
from visleak.embedding import encode
from visleak.encoders import load_encoder
from visleak.encoders.builtin import BuiltinEncoder
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images
from visleak.pipeline.context import RunContext
from visleak.pipeline.fingerprints import fingerprint
from visleak.records import EmbeddingSet

ENCODER = "builtin"


def pictures(folder: Path, count: int, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    for number in range(count):
        place = folder / f"class{number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((40, 32), Image.Resampling.BICUBIC).save(
            place / f"secret-name-{number:02d}.png"
        )
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = pictures(tmp_path / "photos", 7)
    (folder / "class0" / "secret-broken.png").write_bytes(b"no image")
    return folder


def opened(folder: Path) -> EmbeddingSet:
    stored = open_images(f"emb:{folder}")
    assert isinstance(stored, EmbeddingSet)
    return stored


def tree(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_stored_vectors_are_those_of_an_audit(source: Path, tmp_path: Path) -> None:
    images = open_images(source)
    with RunContext.at(tmp_path, 1, None) as place:
        prints = fingerprint(images, load_encoder(ENCODER), place)
        matrix = np.array(prints.matrix)
    done = encode(images, ENCODER, tmp_path / "out", shard=3, dtype="float32", cache=None)
    assert (done.vectors, done.unreadable, done.shards, done.reused) == (7, 1, 3, False)
    names = ["manifest.json", "unreadable.csv", ".visleak.lock"]
    names += [f"img_emb/img_emb_000{n}.npy" for n in range(3)]
    names += [f"metadata/metadata_000{n}.parquet" for n in range(3)]
    assert sorted(tree(done.folder)) == sorted(names)
    stored = opened(done.folder)
    assert (stored.encoder, stored.width) == (load_encoder(ENCODER).digest, 560)
    np.testing.assert_array_equal(
        np.concatenate([part.matrix() for part in stored.partitions]), matrix
    )
    told = [part.columns() for part in stored.partitions]
    flat = {name: [v for part in told for v in part[name].to_pylist()] for name in told[0]}
    assert flat["id"] == prints.ids.to_pylist()
    assert flat["label"] == images.labels.take(prints.rows).to_pylist()
    assert flat["digest"] == [digest.tobytes().hex() for digest in prints.digests]
    assert flat["width"] == [40] * 7
    assert flat["locator"][0] == str(source / flat["id"][0])
    assert "class0/secret-broken.png" in (done.folder / "unreadable.csv").read_text()


def test_workers_and_the_cache_change_no_byte(source: Path, tmp_path: Path) -> None:
    images = open_images(source)
    plain = encode(images, ENCODER, tmp_path / "a", cache=None)
    whole = encode(images, ENCODER, tmp_path / "float32", dtype="float32", cache=None)
    half, exact = (np.load(f.folder / "img_emb" / "img_emb_0000.npy") for f in (plain, whole))
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half, exact.astype(np.float16))
    for name, workers in (("b", 2), ("c", 1)):
        done = encode(images, ENCODER, tmp_path / name, workers=workers, cache=tmp_path / "cache")
        assert tree(done.folder) == tree(plain.folder)


def test_a_finished_folder_is_reused_and_another_set_refused(source: Path, tmp_path: Path) -> None:
    images, out = open_images(source), tmp_path / "out"
    encode(images, ENCODER, out, shard=3, cache=None)
    before = tree(out)
    assert encode(images, ENCODER, out, shard=3, cache=None).reused
    assert tree(out) == before
    for changed in ({"shard": 4}, {"dtype": "float32"}, {"shard": 3, "dtype": "float32"}):
        with pytest.raises(UsageError, match="holds embeddings of another set, encoder or layout"):
            encode(images, ENCODER, out, cache=None, **{"shard": 3, **changed})
    assert encode(images, ENCODER, out, shard=100, cache=None, force=True).shards == 1
    assert [p.name for p in (out / "img_emb").iterdir()] == ["img_emb_0000.npy"]
    alone = encode(images, ENCODER, tmp_path / "fresh", shard=100, cache=None)
    assert tree(out) == tree(alone.folder)


def test_a_shard_without_a_readable_image_is_an_empty_file(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "photos", 4)
    for number in range(2):
        (folder / "class0" / f"a{number}.png").write_bytes(b"no image")
    done = encode(open_images(folder), ENCODER, tmp_path / "out", shard=2, cache=None)
    assert (done.vectors, done.unreadable, done.shards) == (4, 2, 3)
    stored = opened(done.folder)
    assert [part.rows for part in stored.partitions] == [0, 2, 2]
    found = visleak.audit(stored, f"emb:{done.folder}", cache=None)
    assert found.summary.as_dict()["totals"][0]["rates"]["hard"]["count"] == 4


def test_folders_with_other_files_are_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="lies among the images of 'photos'"):
        encode(open_images(source), ENCODER, source / "out", cache=None, force=True)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"that visleak did not write, such as 'a\.txt'; choose"):
        encode(open_images(source), ENCODER, tmp_path / "notes", cache=None, force=True)
    assert tree(tmp_path / "notes") == {"a.txt": b"mine"}


def test_invalid_arguments_are_refused(source: Path, tmp_path: Path) -> None:
    images, out = open_images(source), tmp_path / "out"

    def refused(said: str, **options: object) -> None:
        with pytest.raises(UsageError, match=said):
            encode(images, ENCODER, out, **options)  # type: ignore[arg-type]

    salted = {"anonymous": True, "salt": tmp_path / "salt"}
    refused("dtype must be one of float16, float32; got 'int8'", dtype="int8")
    refused("shard must be 1 image or more; got 0", shard=0)
    refused("a salt is for anonymous ids: give --anonymous too", salt=tmp_path / "salt")
    refused("is not a file; leave --salt out to have one made", **salted)
    (tmp_path / "salt").write_text("short")
    refused("has 5 characters and can be guessed; it needs 16", **salted)
    out.mkdir()
    (out / "salt").write_text("long enough to be a salt")
    refused(r"salt lies in .*, which is published", anonymous=True, salt=out / "salt")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "photos", "salt"]


SCRIPT = """
import sys, time
import visleak.embedding.encoding as room
from visleak.formats import open_images
written = room.write_shard
def slow(shard, *rest):
    note = written(shard, *rest)
    print("wrote", shard.number, flush=True)
    time.sleep(60 if shard.number == 1 else 0)
    return note
room.write_shard = slow
room.encode(open_images(sys.argv[1]), "builtin", sys.argv[2], shard=2, cache=None)
"""


def test_a_killed_run_resumes_with_the_first_missing_shard(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(source), str(out)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert [child.stdout.readline().strip() for _ in range(2)] == ["wrote 0", "wrote 1"]
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    with pytest.raises(VisleakError, match="is not finished; run the same `visleak encode` again"):
        open_images(f"emb:{out}")
    first = out / "img_emb" / "img_emb_0000.npy"
    half_written = out / "img_emb" / f".img_emb_0002.npy.{child.pid}.part"
    half_written.write_bytes(b"half")
    stamp, now = first.stat().st_mtime_ns, time.time_ns()
    images = open_images(source)
    with pytest.raises(UsageError, match="holds embeddings of another set"):
        encode(images, ENCODER, out, shard=3, cache=None)
    done = encode(images, ENCODER, out, shard=2, cache=None)
    assert first.stat().st_mtime_ns == stamp < now
    assert (out / "img_emb" / "img_emb_0002.npy").stat().st_mtime_ns > now
    whole = encode(images, ENCODER, tmp_path / "whole", shard=2, cache=None)
    assert tree(done.folder) == tree(whole.folder)


def test_a_set_in_memory_is_never_reused(tmp_path: Path) -> None:
    images = open_images([np.zeros((32, 32, 3), np.uint8)])
    encode(images, ENCODER, tmp_path / "out", cache=None)
    with pytest.raises(UsageError, match="holds embeddings of another set"):
        encode(images, ENCODER, tmp_path / "out", cache=None)


def test_an_anonymous_folder_does_not_identify_its_images(source: Path, tmp_path: Path) -> None:
    images = open_images(source)
    done = encode(images, ENCODER, tmp_path / "pub", shard=3, anonymous=True, cache=None)
    plain = encode(images, ENCODER, tmp_path / "plain", cache=None)
    assert done.salt is not None
    table = pq.read_table(plain.folder / "metadata" / "metadata_0000.parquet")
    secrets = {value for name in ("id", "label", "locator", "digest") for value in table[name]}
    words = {str(value).encode() for value in secrets} | {b"secret", b"photos", b"class0"}
    words |= {done.salt.read_bytes().strip(), str(tmp_path).encode()}
    words |= {bytes.fromhex(str(value)) for value in table["digest"]}
    files = tree(done.folder)
    told = [*files.values(), *(name.encode() for name in files)]
    for path in done.folder.glob("metadata/*.parquet"):
        shard = pq.read_table(path)
        assert shard.column_names == ["id", "flat"]
        told.append(repr(shard.to_pydict()).encode())
        told.append(repr(pq.read_metadata(path).metadata).encode())
    assert [word for word in words for data in told if word in data] == []
    manifest = json.loads(files["manifest.json"])
    assert not {"set", "source", "dataset"} & set(manifest)
    assert files["unreadable.csv"].count(b"\n") == 2


def test_the_owner_can_map_ids_back(source: Path, tmp_path: Path) -> None:
    images = open_images(source)
    done = encode(images, ENCODER, tmp_path / "pub", shard=3, anonymous=True, cache=None)
    plain = encode(images, ENCODER, tmp_path / "plain", dtype="float16", cache=None)
    assert done.mapping is not None
    assert done.salt is not None
    assert done.salt.stat().st_mode & 0o077 == 0
    assert done.mapping.stat().st_mode & 0o077 == 0
    lines = done.mapping.read_text().splitlines()
    assert lines[0] == "hashed,id,locator"
    back = {line.split(",")[0]: line.split(",")[1] for line in lines[1:]}
    assert sorted(back.values()) == sorted(images.ids.to_pylist())
    vectors = {}
    for folder in (done.folder, plain.folder):
        for part in opened(folder).partitions:
            ids = part.columns()["id"].to_pylist()
            assert folder == plain.folder or ids == sorted(ids)  # the order of the set is hidden
            vectors |= {(folder, id_): row for id_, row in zip(ids, part.matrix(), strict=True)}
    for hashed, id_ in back.items():
        if "broken" not in id_:
            left, right = vectors[done.folder, hashed], vectors[plain.folder, id_]
            np.testing.assert_array_equal(left, right)


def test_ids_depend_on_the_salt(source: Path, tmp_path: Path) -> None:
    images = open_images(source)

    def ids(folder: Path, salt: Path | None = None) -> list[str]:
        done = encode(images, ENCODER, folder, anonymous=True, salt=salt, cache=None)
        table = pq.read_table(done.folder / "metadata" / "metadata_0000.parquet")
        return [str(value) for value in table["id"].to_pylist()]

    first = ids(tmp_path / "a")
    assert ids(tmp_path / "b", tmp_path / "a.salt") == first
    assert not set(ids(tmp_path / "c")) & set(first)
    assert encode(images, ENCODER, tmp_path / "a", anonymous=True, cache=None).reused


def pairs(audit: visleak.Audit) -> list[dict[str, object]]:
    rows = audit.pairs().to_pylist()
    kept = ("query", "reference", "similarity", "background", "view", "degree", "query_label")
    found = [{name: row[name] for name in kept} for row in rows if row["coverage"] != "within"]
    return [row for row in found if row["degree"] is not None]


def totals(audit: visleak.Audit) -> dict[str, int]:
    """How many pairs each test image has; of blank ones only the best is looked for."""
    rows = [row for row in audit.images().to_pylist() if row["set"] == "test"]
    return {row["id"]: row["pairs_total"] for row in rows if not row["flat"]}


@pytest.fixture
def leaking(tmp_path: Path, natural: dict[str, np.ndarray]) -> tuple[Path, Path]:
    """Two folders with copies, mirrored copies and blank images between them."""
    test, train = tmp_path / "test" / "x", tmp_path / "train" / "x"
    for folder in (test, train):
        folder.mkdir(parents=True)
    for number, picture in enumerate(natural.values()):
        image = Image.fromarray(picture).resize((96, 80))
        image.save(train / f"t{number}.png")
        if number < 3:
            image.save(test / f"copy{number}.jpg", quality=80)
        elif number < 5:
            image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(test / f"mirrored{number}.png")
        else:
            image.crop((0, 0, 48, 40)).save(test / f"part{number}.png")
    for folder in (test, train):
        for colour in (20, 200):
            Image.new("RGB", (96, 80), (colour, colour, 0)).save(folder / f"blank{colour}.png")
    return test.parent, train.parent


def test_an_audit_of_embeddings_is_that_of_their_images(
    leaking: tuple[Path, Path], tmp_path: Path
) -> None:
    test, train = leaking
    settings = visleak.Settings(verify=False)
    expected = visleak.audit(test, train, settings=settings, cache=None)
    for folder, name in ((test, "e"), (train, "f")):
        encode(open_images(folder), ENCODER, tmp_path / name, shard=4, dtype="float32", cache=None)
    known = pairs(expected)
    assert len(known) >= 7
    assert {row["view"] for row in known} >= {"original", "mirror"}
    for left, right in (("e", "f"), (test, "f"), ("e", train)):
        sides = [f"emb:{tmp_path / s}" if isinstance(s, str) else s for s in (left, right)]
        found = visleak.audit(*sides, settings=settings, cache=None)
        assert pairs(found) == known, (left, right)
        assert totals(found) == totals(expected), (left, right)
        assert found.summary.totals[0].rates == expected.summary.totals[0].rates
    # half precision moves similarities by less than a thousandth
    encode(open_images(train), ENCODER, tmp_path / "half", cache=None)
    found = visleak.audit(test, f"emb:{tmp_path / 'half'}", settings=settings, cache=None)
    key = {(row["query"], row["reference"]): row["similarity"] for row in known}
    rounded = {(row["query"], row["reference"]): row["similarity"] for row in pairs(found)}
    assert rounded == pytest.approx(key, abs=1e-3)


def test_an_anonymous_manifest_lacks_the_folder_of_the_encoder(
    source: Path, tmp_path: Path
) -> None:
    weights = tmp_path / "home" / "weights"
    weights.mkdir(parents=True)

    class Learned(BuiltinEncoder):
        name = f"clip:{weights}?prep=laion"
        digest = "of its own"

    names = {}
    for anonymous in (True, False):
        folder = tmp_path / str(anonymous)
        encode(open_images(source), Learned(), folder, anonymous=anonymous, cache=None)
        names[anonymous] = opened(folder).encoder_name
    assert names == {True: "clip:weights?prep=laion", False: Learned.name}
    assert str(tmp_path).encode() not in (tmp_path / "True" / "manifest.json").read_bytes()
    found = visleak.audit(f"emb:{tmp_path / 'True'}", f"emb:{tmp_path / 'False'}", cache=None)
    assert found.summary.as_dict()["totals"][0]["rates"]["hard"]["count"] == 7
