"""Pairs to judge as tasks of Label Studio."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from visleak.auditing import Audit, apply_verdicts
from visleak.errors import VisleakError
from visleak.records import GradeName, PairRow, ends_of
from visleak.reporting.gallery import Detail, decoded, thumb
from visleak.storage import replacing_text
from visleak.verdicts import digests_of
from visleak.verdicts.label_studio import CONTROL, DIGESTS, NAMES

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

#: Pairs whose images are decoded at a time.
CHUNK: Final = 64


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
    audit = apply_verdicts(Audit(folder))
    table = audit.pairs(grade=cast(GradeName, grade or "similar"))
    table = table.filter(pc.equal(table["query_set"], query_set))
    keys = [("probability", "descending"), ("similarity", "descending"), ("query", "ascending")]
    table = table.take(pc.sort_indices(table, keys))
    with replacing_text(out) as lines:
        lines.write("[")
        for number, task in enumerate(_tasks(audit, table)):
            lines.write(f"{',' if number else ''}\n{json.dumps(task)}")
        lines.write("\n]\n")
    with replacing_text(interface_path(out)) as lines:
        lines.write(INTERFACE)
    return out, interface_path(out)


def _tasks(audit: Audit, table: pa.Table) -> Iterator[dict[str, object]]:
    """Yield a task per pair."""
    digests = zip(*(side.to_pylist() for side in digests_of(audit.folder, table)), strict=True)
    for start in range(0, table.num_rows, CHUNK):
        rows: list[PairRow] = table.slice(start, CHUNK).to_pylist()
        images = decoded(rows, audit.readable_images)
        for row, own in zip(rows, digests, strict=False):
            for end in ends_of(row):
                if end not in images:
                    raise VisleakError(
                        f"{end[1]} of {end[0]} cannot be read again, and tasks contain the images;"
                        " give back its files, or judge in visleak review"
                    )
            shown = [thumb(images[end], DETAIL.side, DETAIL).uri for end in ends_of(row)]
            yield _task(row, shown, own)


def _task(row: PairRow, shown: Sequence[str], digests: Sequence[str]) -> dict[str, object]:
    """Return the task of a pair, with what shows its two images and their digests."""
    choice = {"choices": [row["grade"]]}
    predicted = {"from_name": CONTROL, "to_name": "query", "type": "choices", "value": choice}
    (query_set, query), (reference_set, reference) = ends_of(row)
    return {
        "data": {
            "caption": f"{query} ({query_set}) and {reference} ({reference_set})",
            "query_image": shown[0],
            "reference_image": shown[1],
            **dict(zip(DIGESTS, digests, strict=True)),
            **{name: row[name] for name in NAMES},
        },
        "predictions": [
            {"model_version": "visleak", "score": row["probability"], "result": [predicted]}
        ],
    }
