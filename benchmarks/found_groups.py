"""Groups found unasked on nine sets: what is believed, what it means, and what is rejected.

usage: VISLEAK_DATA=FOLDER python benchmarks/found_groups.py

CamVid with its official split, and two thirds of the skin and leaf images against the other third,
drawn at random as users draw splits. No group may be believed on the six sets of unrelated images.
Names, vectors and labels are those of an audit; pairs are not verified, as groups do not depend on
grades.

Writes ``found_groups.json``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from record import Bar, data_folder, write

import visleak
from visleak.documents import as_plain
from visleak.formats import open_images
from visleak.formats.files import chosen
from visleak.grouping.document import sentences
from visleak.records import ImageSet
from visleak.storage.audit_folder import GroupingSummary, Hypothesis

#: Sets on which no group may be believed, and where they are.
UNRELATED = {
    "cifar10": "cifar10/test.parquet",
    "photos": "photos",
    "coco128": "coco128/images/train2017",
    "receipts": "domains/receipts",
    "clothing": "domains/clothing",
    "steel": "domains/steel",
}


def main() -> None:
    """Audit every set and write what was found."""
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
    for name in ("camvid", "skin", "leaf"):
        for each in found[name].believed:
            print("\n".join(f"{name}: {line}" for line in sentences(each)))
    write(__file__, bars(found), {"sets": {k: described(each) for k, each in found.items()}})


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


def described(found: GroupingSummary) -> list[dict[str, Any]]:
    """Return every hypothesis, with what it means in words where it is believed."""
    return [
        as_plain(each) | {"sentences": list(sentences(each)) if each.believed else []}
        for each in found.hypotheses
    ]


def bars(found: dict[str, GroupingSummary]) -> list[Bar]:
    """Return the bars of the task."""
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
    ]


def _queries(found: Hypothesis) -> int:
    return found.shared[0].queries


if __name__ == "__main__":
    main()
