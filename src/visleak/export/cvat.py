"""Pairs to judge as images of a CVAT task, each pair one image whose name holds the digests."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Final

from visleak.export.pairs_to_judge import PairToJudge, pairs_to_judge
from visleak.records import GRADES
from visleak.reporting.contact_sheet import pair_card
from visleak.reporting.gallery import relation
from visleak.storage import replacing, write_text
from visleak.verdicts.cvat import image_name

#: Labels of the task: a tag per grade, as the constructor of CVAT takes them.
LABELS: Final[list[dict[str, object]]] = [
    {"name": grade, "type": "tag", "attributes": []} for grade in GRADES
]


def labels_path(out: Path) -> Path:
    """Return where the labels of an archive of images go."""
    return out.with_suffix(".json")


def write_images(
    folder: Path, out: Path, grade: str | None, query_set: str | None
) -> tuple[Path, ...]:
    """Write the pairs of a test set as an archive of images, the likeliest leaks first by name.

    A file beside it, ``.json`` in place of the suffix, has the labels. Automatic grades are in
    neither: every tag that comes back is a verdict.
    """
    with replacing(out) as beside, zipfile.ZipFile(beside, "w") as archive:
        for number, pair in enumerate(pairs_to_judge(folder, grade, query_set), 1):
            archive.writestr(image_name(number, pair.digests), _card(pair))
    write_text(labels_path(out), json.dumps(LABELS, indent=2) + "\n")
    return out, labels_path(out)


def _card(pair: PairToJudge) -> bytes:
    return pair_card(*pair.images, relation(pair.row), title=pair.caption, kind="JPEG")
