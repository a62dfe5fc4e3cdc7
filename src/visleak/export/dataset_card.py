"""What the card of a published data set says of its leaks: a section in Markdown, and Croissant."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from visleak.export.csv_files import write_table
from visleak.records import GRADES
from visleak.reporting.markup import Grid, markdown_cell, markdown_table
from visleak.storage import AuditSummary, replacing_text, write_json
from visleak.verdicts import judged_summary
from visleak.verdicts.level import Level, leaks

#: Columns of the list of leaks, what they hold, and their type in Croissant.
COLUMNS: Final = {
    "split": ("the test set", "sc:Text"),
    "image": ("id of the test image", "sc:Text"),
    "reference_split": ("the set that has the other image", "sc:Text"),
    "reference": ("id of the other image", "sc:Text"),
    "grade": (f"one of {', '.join(GRADES)}; by people where they judged", "sc:Text"),
    "probability": ("of a near-duplicate, in [0, 1]; empty where not measured", "sc:Float"),
}

#: Rates of the section, and their headings.
RATES: Final = {"exact": "exact", "near_or_exact": "near or exact"}

#: Terms of Croissant 1.0 that are in its own vocabulary, and the context of a description.
_TERMS: Final = (
    *("citeAs", "column", "equivalentProperty", "extract", "field", "fileProperty", "fileObject"),
    *("fileSet", "format", "includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField"),
    *("path", "recordSet", "references", "regex", "repeated", "replace", "samplingRate"),
    *("separator", "source", "subField", "transform"),
)
CONTEXT: Final[dict[str, object]] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "sc": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{name: f"cr:{name}" for name in _TERMS},
}


def list_path(out: Path) -> Path:
    """Return where the list of leaks beside a description goes."""
    return out.with_suffix(".csv")


def write_section(
    folder: Path, out: Path, grade: str | None, query_set: str | None
) -> tuple[Path, ...]:
    """Write the section of a dataset card."""
    summary = judged_summary(folder)
    rows = [
        [total.query_set, *(str(total.rates.get(name) or "not graded") for name in RATES)]
        for total in summary.totals
        if query_set in (None, total.query_set)
    ]
    text = [
        "## Data leakage",
        "",
        "Images of a split that are also in another one, as the same image or as a changed copy of"
        " it (cropped, mirrored, recoloured, compressed, covered in part):",
        "",
        *markdown_table(Grid("", ["split", *RATES.values()], rows)),
        "",
        _method(summary),
    ]
    with replacing_text(out) as lines:
        lines.write("\n".join(text) + "\n")
    return (out,)


def _method(summary: AuditSummary) -> str:
    sides = " and ".join(
        f"{markdown_cell(each.name)} ({each.readable:,} images)" for each in summary.sets
    )
    judged = f" People judged {summary.review.judged:,} pairs." if summary.review else ""
    return (
        f"Found by visleak {summary.visleak} in {sides}: similar images by"
        f" {markdown_cell(summary.encoder.name)}, each pair of them verified by its pixels."
        f"{judged} CI: confidence interval."
    )


def write_croissant(
    folder: Path, out: Path, grade: str | None, query_set: str | None
) -> tuple[Path, ...]:
    """Write the list of leaks and its description as Croissant (``cr:1.0``)."""
    summary, path = judged_summary(folder), list_path(out)
    table = _listed(folder, summary, Level(grade or "near"), query_set)
    write_table(path, table.rename_columns(list(COLUMNS)))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    write_json(out, _described(summary, path.name, digest))
    return out, path


def _listed(folder: Path, summary: AuditSummary, level: Level, query_set: str | None) -> pa.Table:
    names = ["query_set", "query", "reference_set", "reference", "grade", "probability"]
    table = leaks(folder, summary, level, names)
    if query_set is not None:
        table = table.filter(pc.equal(table["query_set"], query_set))
    return table.sort_by([(name, "ascending") for name in names[:4]])


def _described(summary: AuditSummary, file: str, digest: str) -> dict[str, object]:
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"leaks/{name}",
            "description": meaning,
            "dataType": kind,
            "source": {"fileObject": {"@id": file}, "extract": {"column": name}},
        }
        for name, (meaning, kind) in COLUMNS.items()
    ]
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "name": "leaks",
        "description": summary.headline,
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "datePublished": datetime.now(UTC).date().isoformat(),
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": file,
                "name": file,
                "contentUrl": file,
                "encodingFormat": "text/csv",
                "sha256": digest,
            }
        ],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "leaks", "field": fields}],
    }
