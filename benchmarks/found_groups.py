"""Groups that audits of ten sets find in names: hypotheses that are confirmed or rejected.

usage: VISLEAK_DATA=FOLDER python benchmarks/found_groups.py

CamVid with its official split, and two thirds of the skin and leaf images against the other third,
drawn at random. No group may be confirmed on the six sets of unrelated images, nor on these and
Fashion-MNIST in one folder under names that state only the class or the place in a list sorted by
class. Names, vectors and labels are those of an audit; pairs are not verified, as groups do not
depend on grades.

Writes ``found_groups.json``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from record import Bar, data_folder, write

import visleak
from visleak.documents import as_plain
from visleak.formats import open_images
from visleak.formats.files import chosen
from visleak.grouping.document import sentences
from visleak.records import ImageSet
from visleak.storage.audit_folder import GroupingSummary, Hypothesis

#: Sets on which no group may be confirmed, with their places.
UNRELATED = {
    "cifar10": "cifar10/test.parquet",
    "photos": "photos",
    "coco128": "coco128/images/train2017",
    "receipts": "domains/receipts",
    "clothing": "domains/clothing",
    "steel": "domains/steel",
}
#: Names of a class in words (w) or as a number (c), of the place in it (i) and in the list (n,
#: late, pair, side, clock), and random ones (h).
NAMES = (
    "{w} ({i}).jpg", "class {c} ({i}).jpg", "{w}/images ({i}).jpg", "{w}_crop{i}.png",
    "{c}_{i:04}.png", "class{c}_{i}.jpg", "n{c:08}_{i}.JPEG", "{w}{i:03}.jpg", "{w}/r{i}_c{c}.png",
    "{n:012}.jpg", "IMG_{late}.jpg", "{pair:05}_{side}.png", "{h}.jpg", "2021-03-04 09.{clock}.jpg",
)  # fmt: skip
#: Most images of a set that are renamed.
RENAMED = 2000


def main() -> None:
    """Audit every set and write the groups found."""
    data = data_folder()
    found: dict[str, GroupingSummary] = {}
    with tempfile.TemporaryDirectory() as folder:
        found["camvid"] = audited([data / "domains/camvid"], Path(folder) / "camvid")
        places = {"skin": "domains/skin", "leaf": "domains/leaf"} | UNRELATED
        for name, place in places.items():
            whole = open_images(data / place)
            assert isinstance(whole, ImageSet)
            found[name] = audited(halves(whole), Path(folder) / name)
            print(name, "believed:", len(found[name].believed), flush=True)
        renamed = believed_of_names({**UNRELATED, "fashion": "domains/fashion"}, data, Path(folder))
    for name in ("camvid", "skin", "leaf"):
        for each in found[name].believed:
            print("\n".join(f"{name}: {line}" for line in sentences(each)))
    sets = {name: described(each) for name, each in found.items()}
    write(__file__, bars(found, renamed), {"sets": sets, "believed of names of classes": renamed})


def audited(sets: Sequence[Any], out: Path) -> GroupingSummary:
    """Return the groups that an audit of two sides, or of a folder with splits, finds."""
    fast = {"verify": False, "candidates": "nearest", "out": out}
    made = visleak.audit(*sets, **fast)
    return made.summary.grouping or GroupingSummary()


def halves(images: ImageSet) -> tuple[ImageSet, ImageSet]:
    """Return a third of the images as a test set, the rest as a training set."""
    test = np.random.default_rng(0).random(len(images)) < 1 / 3
    return (
        chosen(images, np.flatnonzero(test), "test"),
        chosen(images, np.flatnonzero(~test), "train"),
    )


def believed_of_names(places: dict[str, str], data: Path, folder: Path) -> dict[str, list[str]]:
    """Return the names of classes and lists that are taken for groups, by set."""
    believed: dict[str, list[str]] = {}
    for name, place in places.items():
        whole = open_images(data / place)
        assert isinstance(whole, ImageSet)
        found = []
        for number, pattern in enumerate(NAMES):
            known = audited(halves(renamed(whole, pattern)), folder / f"{name}-{number}").believed
            found += [f"{pattern}: {each.kind}" for each in known]
        believed[name] = found
        print(name, "under other names, believed:", found, flush=True)
    return believed


def renamed(images: ImageSet, pattern: str) -> ImageSet:
    """Return images under other names, sorted by class, in random order within."""
    rng = np.random.default_rng(0)
    drawn = rng.permutation(len(images))[:RENAMED]
    known = images.labels.to_pylist() if images.labels is not None else []
    labels = [str(known[row]) if known else str(row % 7) for row in drawn.tolist()]
    classes = sorted(set(labels))
    order = np.argsort([classes.index(label) for label in labels], kind="stable")
    counts, ids = dict.fromkeys(classes, 0), []
    for n, place in enumerate(order.tolist()):
        counts[labels[place]] += 1
        c = classes.index(labels[place])
        ids.append(
            pattern.format(
                w="".join("abcdefghij"[int(digit)] for digit in f"{c:02}"),
                c=c,
                i=counts[labels[place]],
                n=977 * n,
                late=4000 + n,
                pair=n // 2,
                side=n % 2,
                h=rng.bytes(16).hex(),
                clock=f"{n // 60 % 60:02}.{n % 60:02}",
            )
        )
    made = chosen(images, drawn[order], images.name)
    return replace(made, ids=pa.array(ids, pa.string()), labels=None, groups=None, columns={})


def described(found: GroupingSummary) -> list[dict[str, Any]]:
    """Return every hypothesis, with a description of each confirmed one."""
    return [
        as_plain(each) | {"sentences": list(sentences(each)) if each.believed else []}
        for each in found.hypotheses
    ]


def bars(found: dict[str, GroupingSummary], names: dict[str, list[str]]) -> list[Bar]:
    """Return the results with limits."""
    (camvid,), (skin,), (leaf,) = (found[name].believed for name in ("camvid", "skin", "leaf"))
    sides = {each.set: each for each in camvid.sides}
    shared = {each.query_set: each for each in camvid.shared}
    false = sum(len(found[name].believed) for name in UNRELATED)
    return [
        Bar("camvid: drives of val", sides["val"].groups, 1),
        Bar("camvid: val images of a drive in train", shared["val"].queries, 101, most=False),
        Bar("camvid: independent units of val", sides["val"].units, 1),
        Bar("camvid: test images of a drive in train", shared["test"].queries, 62, most=False),
        Bar("skin: copies across the split", _queries(skin), 1, most=False),
        Bar("leaf: test shots next to a training shot", leaf.shared[0].close or 0, 1, most=False),
        Bar("false groupings on six sets", false, 0),
        Bar("false groupings under names of classes", sum(map(len, names.values())), 0),
    ]


def _queries(found: Hypothesis) -> int:
    return found.shared[0].queries


if __name__ == "__main__":
    main()
