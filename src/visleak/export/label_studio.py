"""Pairs to judge as tasks of Label Studio."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from visleak.auditing import Audit, apply_verdicts
from visleak.errors import VisleakError
from visleak.records import GRADES, PairRow
from visleak.reporting.gallery import Detail, thumb
from visleak.storage import IMAGES, read_table, replacing_text
from visleak.verdicts.label_studio import CONTROL

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
    stronger = pa.array(GRADES[: GRADES.index(grade or "similar") + 1])
    table = audit.pairs()
    table = table.filter(
        pc.and_(pc.equal(table["query_set"], query_set), pc.is_in(table["grade"], stronger))
    )
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
    for start in range(0, table.num_rows, CHUNK):
        rows: list[PairRow] = table.slice(start, CHUNK).to_pylist()
        images = _images(audit, rows)
        for row in rows:
            query = (row["query_set"], row["query"])
            reference = (row["reference_set"], row["reference"])
            for name, id_ in (query, reference):
                if (name, id_) not in images:
                    raise VisleakError(
                        f"{id_} of {name} cannot be read again, and tasks contain the images; give"
                        " back its files, or judge in visleak review"
                    )
            yield _task(row, images[query], images[reference])


def _images(audit: Audit, rows: list[PairRow]) -> dict[tuple[str, str], tuple[str, str]]:
    """Return digest and image, as an address without a file, of the images of some pairs."""
    wanted: dict[str, set[str]] = {}
    for row in rows:
        wanted.setdefault(row["query_set"], set()).add(row["query"])
        wanted.setdefault(row["reference_set"], set()).add(row["reference"])
    found = {}
    for name, ids in wanted.items():
        where = (pc.field("set") == name) & pc.field("id").isin(pa.array(sorted(ids)))
        known = read_table(audit.folder, IMAGES, ["id", "digest"], where)
        digests = dict(zip(known["id"].to_pylist(), known["digest"].to_pylist(), strict=True))
        for id_, pixels in audit.readable_images(name, sorted(ids)).items():
            if digests.get(id_):
                found[name, id_] = digests[id_], thumb(pixels, DETAIL.side, DETAIL).uri
    return found


def _task(row: PairRow, query: tuple[str, str], reference: tuple[str, str]) -> dict[str, object]:
    choice = {"choices": [row["grade"]]}
    predicted = {"from_name": CONTROL, "to_name": "query", "type": "choices", "value": choice}
    return {
        "data": {
            "caption": f"{row['query']} ({row['query_set']}) and {row['reference']}"
            f" ({row['reference_set']})",
            "query_image": query[1],
            "reference_image": reference[1],
            "query_digest": query[0],
            "reference_digest": reference[0],
            **{name: row[name] for name in ("query_set", "query", "reference_set", "reference")},
        },
        "predictions": [
            {"model_version": "visleak", "score": row["probability"], "result": [predicted]}
        ],
    }
