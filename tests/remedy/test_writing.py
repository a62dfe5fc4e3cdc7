"""Writing data sets: in every layout what is kept, its annotations and files; substitutes."""

import csv
import hashlib
import io
import itertools
import json
import os
import pickle
import shutil
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import layout_making as making
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_making import FILES, NUMBERED, PACKED, contents, piece, state, written
from PIL import Image

from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images, tables
from visleak.remedy.manifest import KEPT
from visleak.remedy.writing import Part, Piece, Substitute, write
from visleak.storage import csv_text

HOWS = [(name, how) for name in FILES for how in ("manifest", "link", "copy")]
HOWS += [(name, how) for name in PACKED for how in ("manifest", "copy")]

_NUMBER = itertools.count()

pytestmark = pytest.mark.usefixtures("no_waiting")


def digests(images):
    """What is stored, by an oracle of its own."""
    found = []
    for stored in images.opener.read(range(len(images))):
        assert isinstance(stored, bytes | np.ndarray), stored
        data = stored if isinstance(stored, bytes) else stored.tobytes()
        found.append(hashlib.sha256(data).hexdigest())
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    every = FILES | PACKED
    return {name: make(tmp_path_factory.mktemp(name)) for name, make in every.items()}


def kept_list(folder):
    with (folder / KEPT).open(encoding="utf-8", newline="") as file:
        return [{k: csv_text(v) for k, v in row.items()} for row in csv.DictReader(file)]


@pytest.mark.parametrize(("name", "how"), HOWS)
def test_a_result_holds_exactly_what_is_kept(name, how, made, tmp_path):
    """Ids, labels and bytes in order, for any choice of images; the source is not touched."""
    images = open_images(made[name], name="test")
    root = Path(str(images.opener.root)) if name in FILES else None
    before = {} if root is None else state(root)
    own, labels, ids = digests(images), images.labels, images.ids.to_pylist()

    @settings(max_examples=4)
    @given(st.sets(st.integers(0, len(images) - 1), min_size=1).map(sorted))
    def check(keep):
        out = tmp_path / f"out-{next(_NUMBER)}"
        result = written(out, piece(images, keep), how=how, about={"a": 1})
        listed = kept_list(out)
        assert [row["id"] for row in listed] == [ids[at] for at in keep]
        assert [row["set"] for row in listed] == ["test"] * len(keep)
        if name in PACKED and how == "manifest":
            assert result.sources == {}
            return
        again = open_images(result.sources["test"], name="test")
        found = dict(zip(again.ids.to_pylist(), digests(again), strict=True))
        assert [found[row["new_id"]] for row in listed] == [own[at] for at in keep]
        if name not in NUMBERED:
            assert again.ids.to_pylist() == [ids[at] for at in keep]
        wanted = None if labels is None else labels.take(pa.array(keep)).to_pylist()
        got = [None] * len(keep) if again.labels is None else again.labels.to_pylist()
        assert got == (wanted or [None] * len(keep))
        shutil.rmtree(out)

    check()
    if root is not None:
        assert state(root) == before


def test_links_are_relative(tmp_path):
    source = making.folder(tmp_path / "a")
    written(tmp_path / "b" / "clean", piece(source, [0, 3]), how="link")
    (tmp_path / "moved").mkdir()
    for name in ("a", "b"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    links = list((tmp_path / "moved" / "b" / "clean").rglob("*.png"))
    assert len(links) == 2
    for link in links:
        assert not os.path.isabs(os.readlink(link))
        assert link.read_bytes().startswith(b"\x89PNG")


def test_links_hold_through_linked_folders(tmp_path):
    """`..` in a linked folder must not lead to another folder."""
    source = making.flat_folder(tmp_path / "deep" / "er" / "a")
    (tmp_path / "deep" / "out").mkdir()
    (tmp_path / "short").symlink_to(tmp_path / "deep" / "out")
    result = written(tmp_path / "short" / "clean", piece(source, [1]), how="link")
    assert contents(result.sources["test"]) == {"1.png": making.picture(1)}


def test_a_list_holds_any_name(tmp_path):
    names = ['a,"b".png', "line\nend.png", "carriage\rreturn.png", "=1+1.png"]
    want = {f"x/{name}": making.picture(i) for i, name in enumerate(names)}
    for name, data in want.items():
        making.put(tmp_path / "in" / name, data)
    result = written(tmp_path / "out", piece(str(tmp_path / "in"), range(4)), how="manifest")
    assert contents(result.sources["test"]) == want


def test_parquet_keeps_schema_metadata_and_shards(tmp_path):
    written(tmp_path / "out", piece(making.parquet_shards(tmp_path), [0, 1, 5]))
    old, new = tmp_path / "shards", tmp_path / "out" / "data"
    names = sorted(p.name for p in new.iterdir())
    assert names == [f"test-{i}-of-3.parquet" for i in range(3)]
    for name in names:
        schemas = [pq.read_schema(folder / name) for folder in (old, new)]
        assert schemas[0].equals(schemas[1], check_metadata=True)
    assert [pq.read_metadata(new / n).num_rows for n in names] == [2, 0, 1]
    assert pq.read_table(new).equals(pq.read_table(old).take([0, 1, 5]))


def test_a_large_row_group_is_read_in_blocks_and_packed_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "HELD", 300)
    written(tmp_path / "out", piece(making.parquet(tmp_path), [0, 2, 4, 5, 6]))
    got, whole = (tmp_path / name / "test.parquet" for name in ("out", ""))
    assert pq.read_table(got).equals(pq.read_table(whole).take([0, 2, 4, 5, 6]))
    packed = [pq.read_metadata(path).row_group(0).column(0).compression for path in (got, whole)]
    assert packed == ["ZSTD", "ZSTD"]


def test_a_substitute_changes_the_image_only(tmp_path):
    """Order, labels and all other columns stay (fair test set, Barz & Denzler 2020)."""
    pool = open_images(making.flat_folder(tmp_path, 50), name="pool")
    instead = {1: Substitute(pool, 4), 5: Substitute(pool, 0)}
    source = making.parquet(tmp_path)
    written(tmp_path / "out", piece(source, range(7), instead))
    whole, got = (pq.read_table(p / "test.parquet") for p in (tmp_path, tmp_path / "out"))
    assert got.drop_columns(["image"]).equals(whole.drop_columns(["image"]))
    old, new = whole["image"].to_pylist(), got["image"].to_pylist()
    assert [row["path"] for row in new] == [row["path"] for row in old]
    for at in range(7):
        want = making.picture({1: 54, 5: 50}.get(at, at))
        assert new[at]["bytes"] == want
    rows = (tmp_path / "out" / "kept.csv").read_text().splitlines()
    assert ",replaced,pool/4.png," in rows[2]


@pytest.mark.parametrize(
    ("make", "how"),
    [
        *((making.folder, how) for how in ("copy", "link", "manifest")),
        *((make, "copy") for make in (making.zipped, making.tarred, making.shards)),
        *((make, "copy") for make in (making.table, making.table_with_ids, making.txt)),
    ],
)
def test_a_substitute_keeps_the_name(make, how, tmp_path):
    pool = open_images(making.flat_folder(tmp_path / "p", 50), name="pool")
    source = make(tmp_path)
    result = written(tmp_path / "out", piece(source, [0, 4], {4: Substitute(pool, 6)}), how=how)
    old, new = contents(source), contents(result.sources["test"])
    assert list(new) == [next(iter(old)), list(old)[4]]
    assert list(new.values()) == [next(iter(old.values())), making.picture(56)]


def test_pixels_and_files_replace_each_other(tmp_path):
    """CIFAR batches hold pixels, Parquet encoded images: lossless in both directions."""
    batches = making.cifar(tmp_path)
    cifar = open_images(batches, name="pool")
    pixels = next(iter(cifar.opener.read([3])))
    into = written(tmp_path / "a", piece(making.parquet(tmp_path), [0], {0: Substitute(cifar, 3)}))
    (data,) = contents(into.sources["test"]).values()
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(data))), pixels)
    making.put(tmp_path / "p" / "x.png", making.picture(9, side=32))
    pool = open_images(str(tmp_path / "p"), name="pool")
    back = written(tmp_path / "b", piece(batches, [2, 5], {5: Substitute(pool, 0)}))
    new = list(contents(back.sources["test"]).values())
    assert np.array_equal(new[1], np.asarray(Image.open(io.BytesIO(making.picture(9, side=32)))))


def test_a_substitute_of_another_format_is_refused(tmp_path):
    making.put(tmp_path / "p" / "x.jpg", making.picture(1, "JPEG"))
    making.put(tmp_path / "p" / "y.png", making.picture(1, side=40))
    pool = open_images(str(tmp_path / "p"), name="pool")
    source = making.flat_folder(tmp_path)
    with pytest.raises(VisleakError, match=r"set 'pool': image 'x\.jpg' is JPEG and cannot have"):
        written(tmp_path / "out", piece(source, [0], {0: Substitute(pool, 0)}))
    with pytest.raises(VisleakError, match=r"image 'y.png' has 40 x 40 pixels, and the layout"):
        written(tmp_path / "out", piece(making.cifar(tmp_path), [0], {0: Substitute(pool, 1)}))
    with pytest.raises(UsageError, match=r"set 'test' is COCO, whose images have annotations of"):
        written(tmp_path / "out", piece(making.coco(tmp_path), [0], {0: Substitute(pool, 1)}))
    assert not (tmp_path / "out").exists()
    listed = written(tmp_path / "out", piece(source, [0], {0: Substitute(pool, 0)}), how="manifest")
    assert list(contents(listed.sources["test"]).values()) == [making.picture(1, "JPEG")]


def test_members_of_a_zip_stay_except_those_of_removed_images(tmp_path):
    source = making.zipped(tmp_path)
    written(tmp_path / "out", piece(source, [1, 2]))
    gone = set(np.delete(open_images(source).ids.to_pylist(), [1, 2]))
    gone |= {name.replace(".png", ".txt") for name in gone}
    old_path, new_path = tmp_path / "data.zip", tmp_path / "out" / "data.zip"
    with zipfile.ZipFile(old_path) as old, zipfile.ZipFile(new_path) as new:
        assert new.testzip() is None
        assert new.comment == old.comment
        assert new.namelist() == [name for name in old.namelist() if name not in gone]
        for info in new.infolist():
            assert info.compress_type == old.getinfo(info.filename).compress_type
            assert info.date_time == old.getinfo(info.filename).date_time
            assert new.read(info) == old.read(info.filename)


@pytest.mark.parametrize("how", ["copy", "link"])
def test_captions_are_written_with_their_images(how, tmp_path):
    source = making.flat_folder(tmp_path)
    for name in ("1.txt", "1.xml", "2.txt", ".1.txt", "notes.md", "1"):
        making.put(tmp_path / "flat" / name, name)
    written(tmp_path / "out", piece(source, [1, 4]), how=how)
    lists = {"files.csv", "kept.csv", "manifest.json", "removed.csv"}
    names = {p.name for p in (tmp_path / "out").iterdir()} - lists
    assert names == {"1.png", "4.png", "1.txt", "1.xml"}
    assert (tmp_path / "out" / "1.xml").read_text() == "1.xml"


def test_a_tar_keeps_links_whose_target_goes(tmp_path):
    """Of two links to a removed image, one becomes the file and the other a link to it."""
    source = making.tarred(tmp_path)
    ids = open_images(source).ids.to_pylist()
    keep = [ids.index(name) for name in ("cat/link.png", "dog/1.png", "dog/hard.png")]
    result = written(tmp_path / "out", piece(source, sorted(keep)))
    numbers = {"cat/link.png": 2, "dog/hard.png": 2, "dog/1.png": 1}
    pictures = {name: making.picture(number) for name, number in numbers.items()}
    assert contents(result.sources["test"]) == pictures
    with tarfile.open(tmp_path / "out" / "data.tar") as archive:
        kinds = {m.name: m.type for m in archive.getmembers()}
    assert kinds["README.md"] == kinds["cat/link.png"] == kinds["dog/1.json"] == tarfile.REGTYPE
    assert kinds["dog/hard.png"] == tarfile.LNKTYPE
    assert "cat/2.json" not in kinds


def test_packed_tars_stay_packed_and_the_same(tmp_path):
    """The gzip header has no time."""
    source = making.tar_gz(tmp_path)
    for name in ("a", "b"):
        written(tmp_path / name, piece(source, [0, 2]))
    one, two = ((tmp_path / name / "data.tar.gz").read_bytes() for name in ("a", "b"))
    assert one == two
    assert one[:8] == b"\x1f\x8b\x08\0\0\0\0\0"


def test_samples_keep_all_their_members(tmp_path):
    source = making.shards(tmp_path)
    result = written(tmp_path / "out", piece(source, [1, 5]))
    assert result.sources["test"] == f"wds:{tmp_path}/out/*.tar"
    names = []
    for shard in sorted((tmp_path / "out").glob("*.tar")):
        with tarfile.open(shard) as archive:
            names.append(archive.getnames())
    members = [[f"{k:04d}.{e}" for e in ("cls", "png", "json")] for k in (1, 5)]
    assert names == [[*members[0], "__meta__.txt"], [*members[1], "__meta__.txt"]]


@pytest.mark.parametrize("how", ["manifest", "copy"])
def test_coco_keeps_annotations_of_kept_images_and_all_else(how, tmp_path):
    source = making.coco(tmp_path)
    old = json.loads((tmp_path / "coco" / "instances.json").read_text())
    images = open_images(source)
    written(tmp_path / "out", piece(source, [0, 2, 6]), how=how)
    new = json.loads((tmp_path / "out" / "instances.json").read_text())
    names = set(images.ids.take([0, 2, 6]).to_pylist())
    assert new["images"] == [row for row in old["images"] if row["file_name"] in names]
    numbers = {row["id"] for row in new["images"]}
    assert new["annotations"] == [r for r in old["annotations"] if r["image_id"] in numbers]
    assert new["annotations"]
    assert new["info"] == old["info"]
    assert new["categories"] == old["categories"]


def test_coco_ids_stay_unique(tmp_path):
    """Images and boxes that were moved between sets get free ids."""
    one, two = making.coco(tmp_path / "a"), making.coco(tmp_path / "b", 100)
    result = written(tmp_path / "out", piece(one, range(7)), piece(two, [1, 2, 5], name="train"))
    new = json.loads((tmp_path / "out" / "instances.json").read_text())
    for name in ("images", "annotations"):
        numbers = [row["id"] for row in new[name]]
        assert len(set(numbers)) == len(numbers)
    old = json.loads((tmp_path / "b" / "coco" / "instances.json").read_text())
    numbers = {row["file_name"]: row["id"] for row in old["images"]}
    boxes, before = (Counter(r["image_id"] for r in each["annotations"]) for each in (new, old))
    for row in new["images"][7:]:
        assert boxes[row["id"]] == before[numbers[row["file_name"].replace("train-", "")]]
    assert len(contents(result.sources["test"])) == 10


def test_yolo_is_one_data_set_of_its_splits(tmp_path):
    """Labels are in the usual folder; splits that are not written refer to the source."""
    source = making.yolo(tmp_path)
    written(tmp_path / "out", piece(source, [0, 3, 4]))
    content = yaml.safe_load((tmp_path / "out" / "data.yaml").read_text())
    splits = {"train": ["../yolo/images/train"], "val": "images/val"}
    assert content == {"names": ["cat", "dog"]} | splits
    left = open_images(f"yolo:{tmp_path}/out/data.yaml#train")
    assert list(left.opener.read([0])) == [making.picture(99)]
    labels = tmp_path / "out" / "labels" / "val"
    assert sorted(p.name for p in labels.iterdir()) == ["a0.txt", "a4.txt"]
    assert (labels / "a4.txt").read_bytes() == (tmp_path / "yolo/labels/val/a4.txt").read_bytes()
    train = piece(f"{source.removesuffix('#val')}#train", [0], name="train")
    parts = [Part("val", (piece(source, [1, 2], name="val"),)), Part("train", (train,))]
    both = write(parts, tmp_path / "both", "link", about={})
    assert both.sources == {n: f"yolo:{tmp_path}/both/data.yaml#{n}" for n in ("val", "train")}
    assert sorted(contents(both.sources["val"])) == ["a1.png", "a2.png"]


def test_parts_with_images_of_several_splits_keep_the_split_of_their_own_set(tmp_path):
    """Training reads ``val``, so the repaired images of that split must keep its name."""
    source = making.yolo(tmp_path)
    train = source.replace("#val", "#train")
    making.put(tmp_path / "yolo" / "images" / "train" / "more.png", making.picture(98))
    moved, stays = (piece(train, [row], name="train") for row in (0, 1))
    parts = [Part("test", (piece(source, [1, 2], name="test"), moved)), Part("train", (stays,))]
    done = write(parts, tmp_path / "out", "copy", about={})
    content = yaml.safe_load((tmp_path / "out" / "data.yaml").read_text())
    splits = [content.get(key) for key in ("train", "val", "test")]
    assert splits == ["images/train", "images/val", None]
    assert done.sources["test"].endswith("data.yaml#val")
    assert len(contents(done.sources["test"])) == 3


def test_yolo_labels_beside_their_images_are_moved_to_their_folder(tmp_path):
    """Without a folder ``images``, label files are beside their images."""
    for i in range(3):
        making.put(tmp_path / "yolo" / "val" / f"a{i}.png", making.picture(i))
        making.put(tmp_path / "yolo" / "val" / f"a{i}.txt", f"{i % 2} .5 .5 .1 .1\n")
    content = yaml.safe_dump({"val": "val", "names": ["cat", "dog"]})
    source = f"yolo:{making.put(tmp_path / 'yolo' / 'data.yaml', content)}#val"
    written(tmp_path / "out", piece(source, [0, 2]))
    labels = tmp_path / "out" / "labels" / "val"
    assert sorted(p.name for p in labels.iterdir()) == ["a0.txt", "a2.txt"]
    assert open_images(f"yolo:{tmp_path}/out/data.yaml#val").labels.to_pylist() == ["cat", "cat"]


def test_yolo_of_other_classes_is_not_mixed(tmp_path):
    one, two = making.yolo(tmp_path / "a"), making.yolo(tmp_path / "b", 100)
    path = tmp_path / "b" / "yolo" / "data.yaml"
    path.write_text(path.read_text().replace("dog", "cow"))
    with pytest.raises(VisleakError, match="have different classes and"):
        written(tmp_path / "out", piece(one, [0]), piece(two, [1], name="train"))


def test_kitti_takes_all_files_of_a_frame(tmp_path):
    written(tmp_path / "out", piece(making.kitti(tmp_path), [2, 5]))
    names = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.*")}
    kinds = ("calib/{}.txt", "image_2/{}.png", "label_2/{}.txt")
    frames = {f"training/{kind.format(f)}" for kind in kinds for f in ("000002", "000005")}
    mapping = {"mapping/train_mapping.txt", "mapping/train_rand.txt"}
    lists = {"kept.csv", "removed.csv", "files.csv", "manifest.json"}
    assert names == frames | mapping | lists
    groups = open_images(f"kitti:{tmp_path / 'out'}").groups
    assert groups.equals(open_images(f"kitti:{tmp_path / 'kitti'}").groups.take([2, 5]))


def test_labels_of_removed_frames_are_removed_from_tracks(tmp_path):
    images = open_images(making.kitti_tracking(tmp_path))
    keep = [images.ids.to_pylist().index(n) for n in ("0000/000002.png", "0000/000006.png")]
    written(tmp_path / "out", piece(images, keep))
    base = tmp_path / "out" / "training"
    assert (base / "label_02" / "0000.txt").read_text() == "2 1 Car 0\n6 1 Car 0\n"
    assert (base / "oxts" / "0000.txt").read_text() == "whole"
    assert not (base / "label_02" / "0001.txt").exists()


@pytest.mark.filterwarnings("ignore:numpy.core")  # its name in old pickles
def test_cifar_batches_are_pickles(tmp_path):
    """As torchvision reads them."""
    written(tmp_path / "out", piece(making.cifar(tmp_path), [0, 3, 4, 6]))
    rows = np.random.default_rng(0).integers(0, 256, (making.COUNT, 3072), dtype=np.uint8)
    for batch, positions in enumerate(([0], [], [3, 4], [], [6]), 1):
        with open(tmp_path / "out" / f"data_batch_{batch}", "rb") as file:
            content = pickle.load(file, encoding="latin1")
        assert np.array_equal(content["data"], rows[positions].reshape(-1, 3072))
        assert content["data"].flags.writeable
        assert content["labels"] == [p % 3 for p in positions]
        assert content["filenames"] == [f"f{p}.png" for p in positions]
        assert content["batch_label"] == f"training batch {batch} of 5"


@pytest.mark.parametrize("how", ["copy", "link", "manifest"])
@pytest.mark.parametrize("make", [making.folder, making.txt, making.table, making.parquet_of_files])
def test_images_of_two_sets_become_one(make, how, tmp_path):
    one, two = make(tmp_path / "a"), make(tmp_path / "b", 100)
    pieces = piece(one, [0, 1, 4]), piece(two, [1, 2], name="train")
    result = written(tmp_path / "out", *pieces, how=how)
    first, second = (list(contents(source).values()) for source in (one, two))
    want = [first[0], first[1], first[4], second[1], second[2]]
    assert sorted(contents(result.sources["test"]).values()) == sorted(want)
    lines = (tmp_path / "out" / "kept.csv").read_text().splitlines()[1:]
    assert [line.split(",")[0] for line in lines] == ["test"] * 3 + ["train"] * 2


def test_rows_of_another_split_change_their_split(tmp_path):
    rows = making.table_rows(tmp_path, 0, False)
    for i, row in enumerate(rows):
        row |= {"id": f"x{i}", "split": "test" if i < 4 else "train"}
    source = making.write_table(tmp_path / "data.csv", rows)
    pieces = piece(f"{source}#test", [0, 2]), piece(f"{source}#train", [1], name="train")
    result = written(tmp_path / "out", *pieces)
    assert result.sources == {"test": f"{tmp_path}/out/data.csv#test"}
    table = pyarrow.csv.read_csv(tmp_path / "out" / "data.csv")
    assert table["split"].to_pylist() == ["test"] * 3
    assert table["id"].to_pylist() == ["x0", "x2", "x5"]


def test_parquet_of_two_sets(tmp_path):
    one, two = making.parquet(tmp_path / "a"), making.parquet_with_ids(tmp_path / "b", 100)
    with pytest.raises(VisleakError, match="part 'test': sets 'test' and 'train' have different"):
        written(tmp_path / "out", piece(one, [0]), piece(two, [1], name="train"))
    two = making.parquet(tmp_path / "c", 100)
    result = written(tmp_path / "out", piece(one, [0, 3]), piece(two, [1], name="train"))
    table = pq.read_table(Path(result.sources["test"]))
    data = [row["bytes"] for row in table["image"].to_pylist()]
    assert data == [making.picture(n) for n in (0, 3, 101)]


def test_unreadable_images_are_listed(tmp_path):
    rows = making.table_rows(tmp_path, 0, False)
    rows[2]["path"] = "gone.png"
    source = making.write_table(tmp_path / "data.csv", rows)
    result = written(tmp_path / "out", piece(source, range(7)))
    assert [(p.id, p.reason) for p in result.unreadable] == [("gone.png", "missing")]
    assert result.counts == {"test": 6}
    assert "test,gone.png,," in (tmp_path / "out" / "removed.csv").read_text()
    assert "unreadable: missing" in (tmp_path / "out" / "removed.csv").read_text()


def test_links_to_packed_images_are_refused(tmp_path):
    with pytest.raises(UsageError, match="is a zip archive, and there are no files to link to;"):
        written(tmp_path / "out", piece(making.zipped(tmp_path), [0]), how="link")


def test_archives_and_sets_in_memory_are_not_mixed(tmp_path):
    images = open_images([Image.new("RGB", (4, 4))], name="mine")
    for said, one, other in (
        ("part 'test': images cannot be moved from set", making.zipped, making.zipped),
        ("part 'test': set 'test' is a folder of images and", making.folder, making.table),
    ):
        pieces = piece(one(tmp_path / "a"), [0]), piece(other(tmp_path / "b"), [0], name="train")
        with pytest.raises(UsageError, match=said):
            written(tmp_path / "out", *pieces)
    with pytest.raises(UsageError, match="set 'mine' was given in memory; a clean copy needs"):
        written(tmp_path / "out", Piece(images, np.array([0])))


@pytest.mark.filterwarnings("ignore")  # the library's own
def test_a_hugging_face_data_set_becomes_its_parquet(tmp_path):
    """From a folder of `save_to_disk`, with an image in another folder."""
    datasets = pytest.importorskip("datasets")
    making.put(tmp_path / "beside" / "0.png", making.picture(0))
    rows = {
        "image": [str(tmp_path / "beside" / "0.png")]
        + [{"bytes": making.picture(i), "path": None} for i in range(1, 7)],
        "fine": [i % 2 for i in range(7)],
    }
    features = {"image": datasets.Image(), "fine": datasets.ClassLabel(names=["cat", "dog"])}
    made = datasets.Dataset.from_dict(rows, features=datasets.Features(features))
    made.save_to_disk(str(tmp_path / "hub"))
    pool = open_images(making.flat_folder(tmp_path / "p", 50), name="pool")
    given = piece(f"hf:{tmp_path / 'hub'}", [0, 2, 5], {2: Substitute(pool, 1)})
    result = written(tmp_path / "out", given)
    images = open_images(result.sources["test"], label="fine")
    want = [making.picture(i) for i in (0, 51, 5)]
    assert list(images.opener.read(range(3))) == want
    assert images.labels.to_pylist() == ["cat", "cat", "dog"]
    again = datasets.Dataset.from_parquet(result.sources["test"], cache_dir=str(tmp_path / "c"))
    assert again.features == made.features
