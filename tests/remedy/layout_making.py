"""A small data set in each layout that can be written."""

import csv
import hashlib
import io
import itertools
import json
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from PIL import Image

from visleak.formats import open_images
from visleak.remedy.writing import Part, Piece, write

#: Images of a made set.
COUNT = 7


def picture(seed, kind="PNG", side=6):
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, kind)
    return data.getvalue()


def put(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def state(root):
    """Return the target of every link below a folder, and the digest of every other file."""
    found = {}
    for top, _, names in os.walk(root):
        for path in (Path(top, name) for name in names):
            link = os.readlink(path) if path.is_symlink() else ""
            digest = link or hashlib.sha256(path.read_bytes()).hexdigest()
            found[path.relative_to(root).as_posix()] = digest
    return found


def piece(source, keep=(0, 2, 3), instead=None, name="test"):
    images = open_images(source, name=name)
    return Piece(images, np.array(list(keep), np.int64), instead or {})


def written(out, *pieces, how="copy", name="test", **more):
    return write([Part(name, pieces)], out, how, **{"about": {}, **more})


def contents(source):
    """Return what is stored of each image, by id."""
    images = open_images(source)
    return dict(zip(images.ids.to_pylist(), images.opener.read(range(len(images))), strict=True))


def folder(root, start=0):
    for i in range(COUNT):
        put(root / "pics" / ("cat", "dog")[i % 2] / f"{i}=ü .png", picture(start + i))
    return str(root / "pics")


def flat_folder(root, start=0):
    for i in range(COUNT):
        put(root / "flat" / f"{i}.png", picture(start + i))
    return str(root / "flat")


def unnamed(root, start=0):
    """Write images whose names do not say so, beside one of the same stem that does."""
    for i in range(COUNT):
        put(root / "unnamed" / f"{i // 2}{('.png', '.large')[i % 2]}", picture(start + i))
    return str(root / "unnamed")


def glob(root, start=0):
    return folder(root, start) + "/**/*.png"


def txt(root, start=0):
    folder(root, start)
    names = sorted(p.relative_to(root).as_posix() for p in (root / "pics").rglob("*.png"))
    return str(put(root / "list.txt", "".join(f"{name}\n" for name in reversed(names))))


def txt_outside(root, start=0):
    folder(root, start)
    names = sorted((root / "pics").rglob("*.png"))
    lines = "".join(
        f"{n}\n" if i % 2 else f"../pics/{n.relative_to(root / 'pics')}\n"
        for i, n in enumerate(names)
    )
    return str(put(root / "lists" / "list.txt", lines))


def table_rows(root, start, outside):
    folder(root, start)
    rows = []
    for i, path in enumerate(sorted((root / "pics").rglob("*.png"))):
        name = f"../{path.relative_to(root)}" if outside else str(path.relative_to(root))
        rows.append({"note": f'a "{i}", =b', "path": name, "label": f"l{i % 3}", "group": f"g{i}"})
    return rows


def write_table(path, rows, delimiter=","):
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return str(put(path, text.getvalue()))


def table(root, start=0):
    return write_table(root / "data.csv", table_rows(root, start, False))


def table_outside(root, start=0):
    return write_table(root / "in" / "data.tsv", table_rows(root, start, True), "\t")


def table_with_ids(root, start=0):
    rows = table_rows(root, start, True)
    for i, row in enumerate(rows):
        row |= {"id": f"x{i}", "split": "test" if i != 2 else "train"}
    return write_table(root / "in" / "data.csv", rows) + "#test"


def parquet_of_files(root, start=0):
    rows = table_rows(root, start, False)
    pq.write_table(pa.Table.from_pylist(rows), root / "data.parquet")
    return str(root / "data.parquet")


def rows_with_pictures(start, count=COUNT):
    label = {"_type": "ClassLabel", "names": ["cat", "dog"]}
    names = json.dumps({"info": {"features": {"label": label}}})
    images = [{"bytes": picture(start + i), "path": f"{i % 3}.png"} for i in range(count)]
    columns = {
        "image": pa.array(images),
        "label": pa.array([i % 2 for i in range(count)], pa.int64()),
        "weight": pa.array([i / 3 for i in range(count)], pa.float32()),
        "split": pa.array(["train" if i == 1 else "test" for i in range(count)]),
    }
    return pa.table(columns).replace_schema_metadata({"huggingface": names, "own": "kept"})


def parquet(root, start=0):
    root.mkdir(parents=True, exist_ok=True)
    path = root / "test.parquet"
    pq.write_table(rows_with_pictures(start), path, row_group_size=3, compression="zstd")
    return str(path)


def parquet_with_ids(root, start=0):
    root.mkdir(parents=True, exist_ok=True)
    table = rows_with_pictures(start)
    table = table.append_column("image_id", pa.array([9 * i for i in range(COUNT)]))
    pq.write_table(table, root / "test.parquet", row_group_size=2)
    return f"{root / 'test.parquet'}#test"


def parquet_shards(root, start=0):
    table = rows_with_pictures(start)
    (root / "shards").mkdir()
    for i, (low, high) in enumerate(((0, 3), (3, 4), (4, COUNT))):
        pq.write_table(table.slice(low, high - low), root / "shards" / f"test-{i}-of-3.parquet")
    return str(root / "shards")


def zipped(root, start=0):
    root.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(root / "data.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = b"about"
        archive.writestr("README.md", "about")
        archive.writestr("cat/", "")
        for i in range(COUNT):
            name = f"{('cat', 'dog')[i % 2]}/{(5 * i) % COUNT}"
            archive.writestr(f"{name}.png", picture(start + i), zipfile.ZIP_STORED)
            archive.writestr(f"{name}.txt", f"caption {i}")
    return str(root / "data.zip")


def add(archive, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def tarred(root, start=0, mode="w", name="data.tar"):
    with tarfile.open(root / name, mode) as archive:
        add(archive, "README.md", b"about")
        for i in range(COUNT - 2):
            add(archive, f"{('cat', 'dog')[i % 2]}/{i}.png", picture(start + i))
            add(archive, f"{('cat', 'dog')[i % 2]}/{i}.json", b"{}")
        for link, kind in (("cat/link.png", tarfile.SYMTYPE), ("dog/hard.png", tarfile.LNKTYPE)):
            info = tarfile.TarInfo(link)
            info.type = kind
            info.linkname = "2.png" if kind == tarfile.SYMTYPE else "cat/2.png"
            archive.addfile(info)
    return str(root / name)


def tar_gz(root, start=0):
    return tarred(root, start, "w:gz", "data.tar.gz")


def shards(root, start=0):
    for shard, (low, high) in enumerate(((0, 3), (3, COUNT))):
        with tarfile.open(root / f"train-{shard:03d}.tar", "w") as archive:
            for i in range(low, high):
                add(archive, f"{i:04d}.cls", str(i % 2).encode())
                add(archive, f"{i:04d}.png", picture(start + i))
                add(archive, f"{i:04d}.json", json.dumps({"n": i}).encode())
            add(archive, "__meta__.txt", b"kept")
    return f"{root}/train-{{000..001}}.tar"


def coco(root, start=0):
    content = {
        "info": {"year": 2014, "by": "ü"},
        "images": [],
        "annotations": [],
        "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
    }
    for i in range(COUNT):
        name = f"sub/{(3 * i) % COUNT}.png"
        put(root / "coco" / "images" / name, picture(start + i))
        content["images"].append({"id": 10 + i, "file_name": name, "width": 6, "height": 6})
        for box in range(i % 3):
            row = {"id": 100 + 3 * i + box, "image_id": 10 + i, "category_id": 1 + i % 2}
            content["annotations"].append(row | {"bbox": [0, 0, 1, 1]})
    return f"coco:{put(root / 'coco' / 'instances.json', json.dumps(content))}"


def yolo(root, start=0):
    for i in range(COUNT):
        put(root / "yolo" / "images" / "val" / f"a{i}.png", picture(start + i))
        if i != 3:
            put(root / "yolo" / "labels" / "val" / f"a{i}.txt", f"{i % 2} .5 .5 .1 .1\n")
    put(root / "yolo" / "images" / "train" / "t.png", picture(start + 99))
    content = {"path": ".", "train": "images/train", "val": "images/val", "names": ["cat", "dog"]}
    return f"yolo:{put(root / 'yolo' / 'data.yaml', yaml.safe_dump(content))}#val"


def yolo_list(root, start=0):
    yolo(root, start)
    names = "".join(f"images/val/a{i}.png\n" for i in (4, 1, 6, 0, 2, 3, 5))
    put(root / "yolo" / "val.txt", names)
    content = {"val": "val.txt", "names": {0: "cat", 1: "dog"}, "nc": 2}
    return f"yolo:{put(root / 'yolo' / 'data.yaml', yaml.safe_dump(content))}#val"


def kitti(root, start=0):
    for i in range(COUNT):
        base = root / "kitti" / "training"
        put(base / "image_2" / f"{i:06d}.png", picture(start + i))
        put(base / "label_2" / f"{i:06d}.txt", "Car 0 0\n" if i % 2 else "Van 0 0\n")
        put(base / "calib" / f"{i:06d}.txt", f"P{i}")
    lines = [f"2011_09_26 2011_09_26_drive_{i % 3:04d}_sync {i:010d}\n" for i in range(COUNT)]
    put(root / "kitti" / "devkit" / "mapping" / "train_mapping.txt", "".join(lines))
    order = ",".join(str(COUNT - i) for i in range(COUNT))
    put(root / "kitti" / "devkit" / "mapping" / "train_rand.txt", order)
    return f"kitti:{root / 'kitti'}"


def kitti_tracking(root, start=0):
    base = root / "kitti" / "training"
    for i in range(COUNT):
        put(base / "image_02" / f"{i % 2:04d}" / f"{i:06d}.png", picture(start + i))
        put(base / "oxts" / f"{i % 2:04d}.txt", "whole")
    for sequence in (0, 1):
        rows = [f"{i} 1 Car 0\n" for i in range(sequence, COUNT, 2)]
        put(base / "label_02" / f"{sequence:04d}.txt", "".join(rows))
    return f"kitti:{root / 'kitti'}#training"


def kitti_raw(root, start=0):
    for i in range(COUNT):
        drive = f"2011_09_26/2011_09_26_drive_{i % 2:04d}_sync"
        put(root / "raw" / drive / "image_02" / "data" / f"{i:010d}.png", picture(start + i))
    return f"kitti:{root / 'raw'}"


def as_python_2(content):
    return pickle.dumps(content, protocol=2).replace(b"numpy._core", b"numpy.core")


def cifar(root, start=0):
    rows = np.random.default_rng(start).integers(0, 256, (COUNT, 3072), dtype=np.uint8)
    bounds = (0, 2, 3, 5, 6, COUNT)
    for batch, (low, high) in enumerate(itertools.pairwise(bounds), 1):
        content = {
            "data": rows[low:high],
            "labels": [i % 3 for i in range(low, high)],
            "filenames": [f"f{i}.png" for i in range(low, high)],
            "batch_label": f"training batch {batch} of 5",
        }
        put(root / "cifar" / f"data_batch_{batch}", as_python_2(content))
    meta = {"label_names": ["airplane", "bird", "cat"], "num_vis": 3072}
    put(root / "cifar" / "batches.meta", as_python_2(meta))
    return f"cifar:{root / 'cifar'}#train"


def cifar_100(root, start=0):
    rows = np.random.default_rng(start).integers(0, 256, (COUNT, 3072), dtype=np.uint8)
    labels = {"fine_labels": [i % 2 for i in range(COUNT)], "coarse_labels": [0] * COUNT}
    for part in ("test", "train"):
        put(root / "c100" / part, as_python_2({"data": rows} | labels))
    meta = {"fine_label_names": ["apple", "bed"], "coarse_label_names": ["things"]}
    put(root / "c100" / "meta", as_python_2(meta))
    return f"cifar:{root / 'c100'}#test"


#: Sets whose images are files, and sets whose images lie inside of files.
_FILES = (folder, flat_folder, unnamed, glob, txt, txt_outside, table, table_outside)
_FILES += (table_with_ids, parquet_of_files, coco, yolo, yolo_list, kitti, kitti_tracking)
_PACKED = (parquet, parquet_with_ids, parquet_shards, zipped, tarred, tar_gz, shards, cifar)
_PACKED += (cifar_100,)
FILES: dict[str, Callable[..., str]] = {each.__name__: each for each in (*_FILES, kitti_raw)}
PACKED: dict[str, Callable[..., str]] = {each.__name__: each for each in _PACKED}

#: Rows that have no id of their own and are numbered.
NUMBERED = ("parquet", "parquet_shards", "cifar", "cifar_100")
