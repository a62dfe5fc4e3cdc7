"""Vectors as files: content, resuming after a kill, and anonymous folders."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import visleak
from refusals import refusal
from visleak.embedding import encode
from visleak.encoders import load_encoder
from visleak.encoders.builtin import BuiltinEncoder
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images
from visleak.integrity import check_audit
from visleak.pipeline.context import RunContext
from visleak.pipeline.fingerprints import fingerprint

ENCODER = "builtin"


@pytest.fixture
def source(tmp_path):
    """Seven images of two classes and a broken one."""
    rng = np.random.default_rng(0)
    for number in range(7):
        place = tmp_path / "photos" / f"class{number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        pixels = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
        pixels = pixels.resize((40, 32), Image.Resampling.BICUBIC)
        pixels.save(place / f"secret-name-{number:02d}.png")
    (tmp_path / "photos" / "class0" / "secret-broken.png").write_bytes(b"no image")
    return tmp_path / "photos"


def written(images, folder, **options):
    return encode(images, ENCODER, folder, **({"cache": None} | options))


def opened(folder):
    return open_images(f"emb:{folder}")


def tree(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_stored_vectors_are_those_of_an_audit(source, tmp_path):
    images = open_images(source)
    with RunContext.at(tmp_path, 1, None) as place:
        prints = fingerprint(images, load_encoder(ENCODER), place)
        matrix = np.array(prints.matrix)
    done = written(images, tmp_path / "out", shard=3, dtype="float32")
    assert (done.vectors, done.unreadable, done.shards, done.reused) == (7, 1, 3, False)
    names = ["manifest.json", "unreadable.csv", ".visleak.lock"]
    names += [f"img_emb/img_emb_000{n}.npy" for n in range(3)]
    names += [f"metadata/metadata_000{n}.parquet" for n in range(3)]
    assert sorted(tree(done.folder)) == sorted(names)
    stored = opened(done.folder)
    assert (stored.encoder, stored.width) == (load_encoder(ENCODER).digest, 560)
    joined = np.concatenate([part.matrix() for part in stored.partitions])
    np.testing.assert_array_equal(joined, matrix)
    columns = [part.columns() for part in stored.partitions]
    flat = {name: [v for part in columns for v in part[name].to_pylist()] for name in columns[0]}
    assert flat["id"] == prints.ids.to_pylist()
    assert flat["label"] == images.labels.take(prints.rows).to_pylist()
    assert flat["digest"] == [digest.tobytes().hex() for digest in prints.digests]
    assert flat["width"] == [40] * 7
    assert flat["locator"][0] == str(source / flat["id"][0])
    assert "class0/secret-broken.png" in (done.folder / "unreadable.csv").read_text()


def test_workers_and_the_cache_change_no_byte(source, tmp_path):
    images = open_images(source)
    plain = written(images, tmp_path / "a")
    whole = written(images, tmp_path / "float32", dtype="float32")
    half, exact = (np.load(f.folder / "img_emb" / "img_emb_0000.npy") for f in (plain, whole))
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half, exact.astype(np.float16))
    for name, workers in (("b", 2), ("c", 1)):
        done = written(images, tmp_path / name, workers=workers, cache=tmp_path / "cache")
        assert tree(done.folder) == tree(plain.folder)


def test_a_finished_folder_is_reused_and_another_set_refused(source, tmp_path):
    images, out = open_images(source), tmp_path / "out"
    written(images, out, shard=3)
    before = tree(out)
    assert written(images, out, shard=3).reused
    assert tree(out) == before
    for changed in ({"shard": 4}, {"shard": 3, "dtype": "float32"}):
        with pytest.raises(UsageError, match="holds embeddings of another set, encoder or layout"):
            written(images, out, **changed)
    assert written(images, out, shard=100, force=True).shards == 1
    assert tree(out) == tree(written(images, tmp_path / "fresh", shard=100).folder)
    # of images in memory nobody knows whether they are the same
    images = open_images([np.zeros((32, 32, 3), np.uint8)])
    written(images, tmp_path / "memory")
    with pytest.raises(UsageError, match="holds embeddings of another set"):
        written(images, tmp_path / "memory")


def test_a_shard_without_a_readable_image_is_an_empty_file(source, tmp_path):
    for number in range(3):
        (source / "class0" / f"a{number}.png").write_bytes(b"no image")
    done = written(open_images(source), tmp_path / "out", shard=2)
    assert (done.vectors, done.unreadable, done.shards) == (7, 4, 6)
    stored = opened(done.folder)
    assert [part.rows for part in stored.partitions] == [0, 0, 2, 2, 2, 1]
    found = visleak.audit(stored, f"emb:{done.folder}", cache=None)
    assert found.summary.totals[0].rates["hard"].count == 7
    # what has no vector was not compared
    about = [(each.images, each.readable, each.unreadable) for each in found.summary.sets]
    assert about == [(11, 7, 4)] * 2
    assert check_audit(found.folder).findings == ()
    (done.folder / "unreadable.csv").unlink()
    with pytest.raises(VisleakError, match="counts 4 unreadable images"):
        opened(done.folder)


def test_folders_with_other_files_and_invalid_arguments_are_refused(source, tmp_path):
    images, out, salt = open_images(source), tmp_path / "out", tmp_path / "salt"

    def refused(words, folder=out, **options):
        assert words in refusal(UsageError, written, images, folder, **options)

    refused("lies among the images of 'photos'", source / "out", force=True)
    refused("dtype must be one of float16, float32; got 'int8'", dtype="int8")
    refused("shard must be 1 image or more; got 0", shard=0)
    refused("a salt is for anonymous ids: give --anonymous too", salt=salt)
    refused("is not a file; leave --salt out to have one made", anonymous=True, salt=salt)
    salt.write_text("short")
    refused("has 5 characters and can be guessed; it needs 16", anonymous=True, salt=salt)
    out.mkdir()
    (out / "salt").write_text("long enough to be a salt")
    refused(", which is published", anonymous=True, salt=out / "salt")
    refused("that visleak did not write, such as 'salt'; choose", force=True)
    assert tree(out) == {"salt": b"long enough to be a salt"}
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


def test_a_killed_run_resumes_with_the_first_missing_shard(source, tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-c", SCRIPT, str(source), str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert [child.stdout.readline().strip() for _ in range(2)] == ["wrote 0", "wrote 1"]
        os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(VisleakError, match="is not finished; run the same `visleak encode` again"):
        opened(out)
    first, third = (out / "img_emb" / f"img_emb_000{number}.npy" for number in (0, 2))
    third.with_name(f".{third.name}.{child.pid}.part").write_bytes(b"half")
    stamp = first.stat().st_mtime_ns
    images = open_images(source)
    with pytest.raises(UsageError, match="holds embeddings of another set"):
        written(images, out, shard=3)
    written(images, out, shard=2)
    assert first.stat().st_mtime_ns == stamp < third.stat().st_mtime_ns
    assert tree(out) == tree(written(images, tmp_path / "whole", shard=2).folder)


class Learned(BuiltinEncoder):
    digest = "of its own"

    def __init__(self, folder):
        super().__init__()
        folder.mkdir()
        self.name = f"clip:{folder}?prep=laion"


def test_an_anonymous_folder_does_not_identify_its_images(source, tmp_path):
    images, encoder = open_images(source), Learned(tmp_path / "weights")
    done = encode(images, encoder, tmp_path / "pub", shard=3, anonymous=True, cache=None)
    plain = encode(images, encoder, tmp_path / "plain", cache=None)
    table = pq.read_table(plain.folder / "metadata" / "metadata_0000.parquet")
    secrets = {value for name in ("id", "label", "locator", "digest") for value in table[name]}
    words = {str(value).encode() for value in secrets} | {b"secret", b"photos", b"class0"}
    words |= {done.salt.read_bytes().strip(), str(tmp_path).encode()}
    words |= {bytes.fromhex(str(value)) for value in table["digest"]}
    files = tree(done.folder)
    published = [*files.values(), *(name.encode() for name in files)]
    for path in done.folder.glob("metadata/*.parquet"):
        shard = pq.read_table(path)
        assert shard.column_names == ["id", "flat"]
        published.append(repr(shard.to_pydict()).encode())
        published.append(repr(pq.read_metadata(path).metadata).encode())
    assert [word for word in words for data in published if word in data] == []
    assert not {"set", "source", "dataset"} & set(json.loads(files["manifest.json"]))
    assert files["unreadable.csv"].count(b"\n") == 2
    names = [opened(each.folder).encoder_name for each in (done, plain)]
    assert names == ["clip:weights?prep=laion", encoder.name]
    found = visleak.audit(f"emb:{done.folder}", f"emb:{plain.folder}", cache=None)
    assert found.summary.totals[0].rates["hard"].count == 7


def test_the_owner_can_map_ids_back(source, tmp_path):
    images = open_images(source)
    done = written(images, tmp_path / "pub", shard=3, anonymous=True)
    plain = written(images, tmp_path / "plain", dtype="float16")
    assert not any(path.stat().st_mode & 0o077 for path in (done.salt, done.mapping))
    lines = done.mapping.read_text().splitlines()
    assert lines[0] == "hashed,id,locator"
    back = dict(line.split(",")[:2] for line in lines[1:])
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
    # ids depend on the salt
    again = written(images, tmp_path / "again", anonymous=True, salt=done.salt)
    assert again.mapping.read_text() == done.mapping.read_text()
    other = written(images, tmp_path / "other", anonymous=True)
    lines = other.mapping.read_text().splitlines()[1:]
    assert not set(back) & {line.split(",")[0] for line in lines}
    assert written(images, tmp_path / "other", anonymous=True).reused


def pairs(audit):
    kept = ("query", "reference", "similarity", "background", "view", "degree", "query_label")
    rows = audit.pairs().to_pylist()
    rows = [row for row in rows if row["coverage"] != "within" and row["degree"] is not None]
    return [{name: row[name] for name in kept} for row in rows]


def totals(audit):
    """How many pairs each test image has; of blank ones only the best is looked for."""
    rows = [row for row in audit.images().to_pylist() if row["set"] == "test"]
    return {row["id"]: row["pairs_total"] for row in rows if not row["flat"]}


@pytest.fixture
def leaking(tmp_path, natural):
    """Two folders with copies, mirrored copies and blank images between them."""
    test, train = tmp_path / "test" / "x", tmp_path / "train" / "x"
    for folder in (test, train):
        folder.mkdir(parents=True)
        for colour in (20, 200):
            Image.new("RGB", (96, 80), (colour, colour, 0)).save(folder / f"blank{colour}.png")
    for number, picture in enumerate(natural.values()):
        image = Image.fromarray(picture).resize((96, 80))
        image.save(train / f"t{number}.png")
        if number < 3:
            image.save(test / f"copy{number}.jpg", quality=80)
        elif number < 5:
            image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(test / f"mirrored{number}.png")
        else:
            image.crop((0, 0, 48, 40)).save(test / f"part{number}.png")
    return test.parent, train.parent


def test_an_audit_of_embeddings_is_that_of_their_images(leaking, tmp_path):
    test, train = leaking
    settings = visleak.Settings(verify=False)
    expected = visleak.audit(test, train, settings=settings, cache=None)
    for folder, name in ((test, "e"), (train, "f")):
        written(open_images(folder), tmp_path / name, shard=4, dtype="float32")
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
    written(open_images(train), tmp_path / "half")
    found = visleak.audit(test, f"emb:{tmp_path / 'half'}", settings=settings, cache=None)
    key = {(row["query"], row["reference"]): row["similarity"] for row in known}
    rounded = {(row["query"], row["reference"]): row["similarity"] for row in pairs(found)}
    assert rounded == pytest.approx(key, abs=1e-3)
