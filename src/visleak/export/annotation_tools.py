"""Pairs to judge as tasks of Label Studio and as images of CVAT."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from visleak.auditing import Audit, apply_verdicts
from visleak.errors import VisleakError
from visleak.records import GRADES, Bytes8, GradeName, PairRow, ends_of
from visleak.reporting.contact_sheet import pair_card
from visleak.reporting.gallery import Detail, decoded, relation, thumb
from visleak.storage import replacing, replacing_text, write_text
from visleak.verdicts import digests_of
from visleak.verdicts.annotation_tools import CONTROL, DIGESTS, NAMES, image_name

#: The labelling interface of the project that the tasks are imported into.
INTERFACE: Final = """<View>
  <Header value="$caption"/>
  <View style="display: flex; gap: 1em">
    <Image name="query" value="$query_image"/>
    <Image name="reference" value="$reference_image"/>
  </View>
  <Choices name="grade" toName="query" choice="single" showInline="true" required="true">
    <Choice value="exact"/>
    <Choice value="near"/>
    <Choice value="similar"/>
    <Choice value="different"/>
  </Choices>
</View>
"""

#: How finely images are stored in tasks: long side in pixels, and bytes.
DETAIL: Final = Detail(512, 40_000)


def interface_path(out: Path) -> Path:
    """Return where the labelling interface of a file of tasks goes."""
    return out.with_suffix(".xml")


def write_tasks(
    folder: Path, out: Path, grade: str | None, query_set: str | None
) -> tuple[Path, ...]:
    """Write the pairs of a test set with small copies of their images, the likeliest leaks first.

    The automatic grade is a prediction. A file beside it, ``.xml`` in place of the suffix, is the
    labelling interface.
    """
    with replacing_text(out) as lines:
        lines.write("[")
        for number, pair in enumerate(pairs_to_judge(folder, grade, query_set)):
            lines.write(f"{',' if number else ''}\n{json.dumps(_task(pair))}")
        lines.write("\n]\n")
    with replacing_text(interface_path(out)) as lines:
        lines.write(INTERFACE)
    return out, interface_path(out)


def _task(pair: PairToJudge) -> dict[str, object]:
    """Return the task of a pair: what shows its images, and the automatic grade."""
    row = pair.row
    shown = [thumb(image, DETAIL.side, DETAIL).uri for image in pair.images]
    choice = {"choices": [row["grade"]]}
    predicted = {"from_name": CONTROL, "to_name": "query", "type": "choices", "value": choice}
    return {
        "data": {
            "caption": pair.caption,
            "query_image": shown[0],
            "reference_image": shown[1],
            **dict(zip(DIGESTS, pair.digests, strict=True)),
            **{name: row[name] for name in NAMES},
        },
        "predictions": [
            {"model_version": "visleak", "score": row["probability"], "result": [predicted]}
        ],
    }


# -- the pairs that another tool shows to people: rows, images and content digests ----------------


#: Pairs whose images are decoded at a time.
CHUNK: Final = 64


class PairToJudge(NamedTuple):
    """A pair with its images, query first."""

    row: PairRow
    images: tuple[Bytes8, Bytes8]
    digests: tuple[str, str]

    @property
    def caption(self) -> str:
        """Both images by name."""
        (query_set, query), (reference_set, reference) = ends_of(self.row)
        return f"{query} ({query_set}) and {reference} ({reference_set})"


def pairs_to_judge(folder: Path, grade: str | None, query_set: str | None) -> Iterator[PairToJudge]:
    """Yield the pairs of a test set, the likeliest leaks first."""
    audit = apply_verdicts(Audit(folder))
    table = audit.pairs(grade=cast(GradeName, grade or "similar"))
    table = table.filter(pc.equal(table["query_set"], query_set))
    keys = [("probability", "descending"), ("similarity", "descending"), ("query", "ascending")]
    table = table.take(pc.sort_indices(table, keys))
    digests = zip(*(side.to_pylist() for side in digests_of(audit.folder, table)), strict=True)
    for start in range(0, table.num_rows, CHUNK):
        yield from _decoded(audit, table.slice(start, CHUNK), digests)


def _decoded(
    audit: Audit, table: pa.Table, digests: Iterator[tuple[str, str]]
) -> Iterator[PairToJudge]:
    rows: list[PairRow] = table.to_pylist()
    images = decoded(rows, audit.readable_images)
    for row in rows:
        ends = ends_of(row)
        for end in ends:
            if end not in images:
                raise VisleakError(
                    f"{end[1]} of {end[0]} cannot be read again, and tasks contain the images;"
                    " give back its files, or judge in visleak review"
                )
        yield PairToJudge(row, (images[ends[0]], images[ends[1]]), next(digests))


# -- pairs to judge as images of a CVAT task ------------------------------------------------------


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
