"""The formats of ``export`` and the one function that writes any of them."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.auditing import Audit, apply_verdicts
from visleak.errors import UsageError, VisleakError, not_one_of
from visleak.records import GRADES, Bytes8, GradeName, PairRow, ends_of
from visleak.reporting.contact_sheet import pair_card
from visleak.reporting.gallery import Detail, decoded, relation, thumb
from visleak.reporting.markup import Grid, markdown_cell, markdown_table
from visleak.storage import (
    IMAGES,
    AuditSummary,
    csv_cell,
    free_file,
    read_summary,
    read_table,
    replacing,
    replacing_text,
    write_cells,
    write_json,
    write_text,
)
from visleak.verdicts import digests_of, judged_pairs, judged_summary, read_verdicts
from visleak.verdicts.exchange import (
    CONTROL,
    DIGESTS,
    NAMES,
    as_listed,
    image_name,
    second_path,
    write_list,
)
from visleak.verdicts.overlay import Level, alone, leaks, write_accepted

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
    interface = BESIDE["labelstudio"](out)
    with replacing_text(interface) as lines:
        lines.write(INTERFACE)
    return out, interface


def _task(pair: PairToJudge) -> dict[str, object]:
    row = pair.row
    query, reference = (thumb(image, DETAIL.side, DETAIL).uri for image in pair.images)
    choice = {"choices": [row["grade"]]}
    predicted = {"from_name": CONTROL, "to_name": "query", "type": "choices", "value": choice}
    return {
        "data": {
            "caption": pair.caption,
            "query_image": query,
            "reference_image": reference,
            **dict(zip(DIGESTS, pair.digests, strict=True)),
            **{name: row[name] for name in NAMES},
        },
        "predictions": [
            {"model_version": "visleak", "score": row["probability"], "result": [predicted]}
        ],
    }


# -- the pairs that another tool shows to people: rows, images and content digests ----------------


#: Pairs whose images are decoded at a time.
TASKS: Final = 64


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
    for start in range(0, table.num_rows, TASKS):
        rows: list[PairRow] = table.slice(start, TASKS).to_pylist()
        images = decoded(rows, audit.readable_images)
        for row in rows:
            query, reference = ends = ends_of(row)
            for name, id_ in ends:
                if (name, id_) not in images:
                    raise VisleakError(
                        f"{id_} of {name} cannot be read again, and tasks contain the images;"
                        " give back its files, or judge in visleak review"
                    )
            yield PairToJudge(row, (images[query], images[reference]), next(digests))


# -- pairs to judge as images of a CVAT task ------------------------------------------------------


def write_images(
    folder: Path, out: Path, grade: str | None, query_set: str | None
) -> tuple[Path, ...]:
    """Write the pairs of a test set as an archive of images, the likeliest leaks first by name.

    A file beside it, ``.json`` in place of the suffix, has the labels: a tag per grade, as the
    constructor of CVAT takes them. Automatic grades are in neither: every tag that comes back is a
    verdict.
    """
    with replacing(out) as beside, zipfile.ZipFile(beside, "w") as archive:
        for number, pair in enumerate(pairs_to_judge(folder, grade, query_set), 1):
            card = pair_card(*pair.images, relation(pair.row), title=pair.caption, kind="JPEG")
            archive.writestr(image_name(number, pair.digests), card)
    labels = [{"name": each, "type": "tag", "attributes": list[str]()} for each in GRADES]
    path = BESIDE["cvat"](out)
    write_text(path, json.dumps(labels, indent=2) + "\n")
    return out, path


# -- formats ---------------------------------------------------------------------------------------


#: Grades of the lists of ciFAIR (Barz & Denzler 2020).
CIFAIR_GRADES: Final = GRADES[:3]

#: Formats that hold several test sets.
WHOLE: Final = ("csv", "accepted", "card", "croissant")


def export(
    folder: str | os.PathLike[str],
    format: str,
    out: str | os.PathLike[str],
    *,
    grade: str | None = None,
    query_set: str | None = None,
    force: bool = False,
) -> tuple[Path, ...]:
    """Write the findings of an audit as a file for other tools, with the verdicts of people.

    Args:
        folder: an audit folder.
        format: ``cifair``: pairs as ``TestID,TrainID,Distance,Judgment``, closest first, with
            ``Distance = sqrt(2 - 2 * similarity)`` and ``Judgment`` 0 exact, 1 near, 2 similar;
            repeats within the test set go to a second file beside it, ``_within_test`` before the
            suffix, whose TrainID is a test id. Pairs that only people found have no ``Distance``,
            and come last. ``ids``: the leaking images of the test set, one per line, those that
            the headline counts. ``csv``: every column of every
            pair, with ``machine_grade`` and ``judged``.
            ``issues``: each image of the test set with ``is_leak_issue`` and ``leak_score`` (0
            worst, 1 no leak), as tables of cleanlab and cleanvision have them.
            ``labelstudio``: pairs to judge as tasks of Label Studio with small copies of their
            images, and the labelling interface beside them, ``.xml`` in place of the suffix.
            ``cvat``: the same as an archive of images for CVAT, with the labels beside it,
            ``.json`` in place of the suffix. ``card``: a section in Markdown for the card of a
            published data set. ``croissant``: the leaks as a table (``.csv`` in place of the
            suffix) and its description as Croissant.
            ``accepted``: leaking pairs by content digest, for ``--baseline``.
        out: file to write.
        grade: weakest grade to write, or stronger; by default ``near``, and every pair for ``csv``.
            The lists of the paper hold ``similar`` ones too, and so do tasks by default.
        query_set: the test set to write; needed by ``cifair`` and ``ids`` where there are several.
        force: replace older files, in one step each; never those of the audit.

    Returns:
        The files written.

    Raises:
        UsageError: an argument has an invalid value, the audit has no grades, or a file
            exists.
        VisleakError: the folder is damaged, or the format cannot hold what is in it.
    """
    if format not in FORMATS:
        raise not_one_of("the format", format, FORMATS)
    if grade is not None and grade not in GRADES:
        raise not_one_of("grade", grade, GRADES)
    path = Path(out)
    summary = read_summary(Path(folder))
    graded = summary.grader is not None or bool(read_verdicts(Path(folder)))
    if not graded and (format != "csv" or grade is not None):
        raise UsageError(
            f"{folder} was audited without verification, so no pair has a grade; only all pairs"
            " as csv can be exported until people judge them"
        )
    names = [total.query_set for total in summary.totals]
    if query_set is not None and query_set not in names:
        raise not_one_of("set", query_set, names)
    if query_set is None and format not in WHOLE and len(names) > 1:
        raise UsageError(
            f"{format} holds one test set, this audit has {', '.join(names)}; choose one with --set"
        )
    beside = BESIDE[format](path) if format in BESIDE else path
    for file in dict.fromkeys((path, beside)):
        free_file(file, force=force, audit=Path(folder))
    wanted = query_set if query_set is not None or format in WHOLE else names[0]
    return FORMATS[format](Path(folder), path, grade, wanted)


def _cifair(folder: Path, out: Path, grade: str | None, query_set: str | None) -> tuple[Path, ...]:
    columns = ["query_set", "query", "reference_set", "reference", "similarity", "grade"]
    table = _pairs(folder, [*columns, "coverage"], grade or "near", query_set)
    table = table.filter(pc.is_in(table["grade"], pa.array(CIFAIR_GRADES)))
    # of a pair within the test set, the first is to be removed, as in the list of the paper
    table = as_listed(table, read_verdicts(folder))
    inside = pc.equal(table["coverage"], "within")
    leaks = table.filter(pc.invert(inside))
    references = leaks["reference_set"].unique().to_pylist()
    if len(references) > 1:
        raise UsageError(
            f"cifair holds one training set, the pairs are with {', '.join(sorted(references))};"
            " export as csv"
        )
    write_list(out, leaks)
    write_list(second_path(out), table.filter(inside))
    return out, second_path(out)


def _ids(folder: Path, out: Path, grade: str | None, query_set: str | None) -> tuple[Path, ...]:
    columns = ["query_set", "query", "reference", "grade", "coverage"]
    table = _pairs(folder, columns, grade or "near", query_set)
    comparisons = read_summary(folder).comparisons
    if any(each.query_set == query_set and each.coverage != "within" for each in comparisons):
        found = set(table.filter(pc.not_equal(table["coverage"], "within"))["query"].to_pylist())
    else:
        # compared only with itself: both images of a pair are of the set
        found = {*table["query"].to_pylist(), *table["reference"].to_pylist()}
    # blank images are in no rate
    blank = (pc.field("set") == query_set) & pc.field("flat")
    found -= set(read_table(folder, IMAGES, ["id"], blank)["id"].to_pylist())
    for id_ in found:
        if "\n" in id_ or "\r" in id_:
            raise VisleakError(
                f"the id {id_!r} holds a line break, which ids cannot; export as csv"
            )
    with replacing_text(out) as lines:
        lines.writelines(f"{id_}\n" for id_ in sorted(found))
    return (out,)


def _issues(folder: Path, out: Path, grade: str | None, query_set: str | None) -> tuple[Path, ...]:
    """Write a row per image, as the issue tables of cleanlab and cleanvision have them."""
    summary = judged_summary(folder)
    table = _leaks(folder, summary, grade, query_set)
    both = query_set is not None and alone(summary, query_set)
    worst: dict[str, tuple[float, str, str]] = {}
    for row in table.to_pylist():
        ends = [(row["query"], f"{row['reference_set']}: {row['reference']}")]
        if both:
            ends.append((row["reference"], f"{row['query_set']}: {row['query']}"))
        for id_, other in ends:
            # a low score is a severe issue; of equal ones the first by name
            found = (1.0 - (row["probability"] or 0.0), row["grade"], other)
            worst[id_] = min(worst.get(id_, found), found)
    images = read_table(folder, IMAGES, ["set", "id"], pc.field("set") == query_set)
    rows = []
    for id_ in images["id"].to_pylist():
        score, own, other = worst.get(id_, (1.0, "", ""))
        cells = (id_, str(id_ in worst), f"{score:.4f}", own, other)
        rows.append(tuple(map(csv_cell, cells)))
    write_cells(out, ("id", "is_leak_issue", "leak_score", "leak_grade", "leak_reference"), rows)
    return (out,)


def _leaks(
    folder: Path, summary: AuditSummary, grade: str | None, query_set: str | None
) -> pa.Table:
    """Return the leaks of a test set, or of all, by name."""
    names = ["query_set", "query", "reference_set", "reference", "grade", "probability"]
    table = leaks(folder, summary, Level(grade or "near"), names)
    if query_set is not None:
        table = table.filter(pc.equal(table["query_set"], query_set))
    return table.sort_by([(name, "ascending") for name in names[:4]])


def _csv(folder: Path, out: Path, grade: str | None, query_set: str | None) -> tuple[Path, ...]:
    write_table(out, _pairs(folder, None, grade, query_set))
    return (out,)


def _pairs(
    folder: Path, columns: list[str] | None, grade: str | None, query_set: str | None
) -> pa.Table:
    table = judged_pairs(folder, columns)
    if query_set is not None:
        table = table.filter(pc.equal(table["query_set"], query_set))
    if grade is not None:
        stronger = pa.array(GRADES[: GRADES.index(grade) + 1])
        table = table.filter(pc.is_in(table["grade"], stronger))
    return table


# -- tables as CSV files for other tools, with all their digits -----------------------------------


#: Rows turned into text at a time.
CHUNK: Final = 50_000


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table, its column names first; numbers keep all their digits."""

    def cells(column: pa.ChunkedArray) -> list[str]:
        if pa.types.is_string(column.type):
            return [csv_cell(value or "") for value in column.to_pylist()]
        return [_number(value) for value in column.to_pylist()]

    parts = (table.slice(start, CHUNK) for start in range(0, table.num_rows, CHUNK))
    rows = (zip(*map(cells, part.columns), strict=True) for part in parts)
    write_cells(path, table.column_names, chain.from_iterable(rows))


def _number(value: float | list[float] | None) -> str:
    """Return a number, or a list of them in brackets, in the fewest digits that keep a float32.

    >>> _number([-1.0, 0.1]), _number(0.10000000149011612), _number(None)
    ('[-1.0 0.1]', '0.1', '')
    """
    if value is None:
        return ""
    if isinstance(value, list):
        # brackets, because a cell that begins with a minus reads as a formula
        return f"[{' '.join(_number(each) for each in value)}]"
    return str(np.float32(value))


# -- the card of a published data set, and its description as Croissant ----------------------------


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
    sides = " and ".join(
        f"{markdown_cell(each.name)} ({each.readable:,} images)" for each in summary.sets
    )
    judged = f" People judged {summary.review.judged:,} pairs." if summary.review else ""
    text = [
        "## Data leakage",
        "",
        "Images of a split that are also in another one, as the same image or as a changed copy of"
        " it (cropped, mirrored, recoloured, compressed, covered in part):",
        "",
        *markdown_table(Grid("", ["split", *RATES.values()], rows)),
        "",
        f"Found by visleak {summary.visleak} in {sides}: similar images by"
        f" {markdown_cell(summary.encoder.name)}, each pair of them verified by its pixels."
        f"{judged} CI: confidence interval.",
    ]
    with replacing_text(out) as lines:
        lines.write("\n".join(text) + "\n")
    return (out,)


def write_croissant(
    folder: Path, out: Path, grade: str | None, query_set: str | None
) -> tuple[Path, ...]:
    """Write the list of leaks and its description as Croissant (``cr:1.0``)."""
    summary, path = judged_summary(folder), BESIDE["croissant"](out)
    table = _leaks(folder, summary, grade, query_set)
    write_table(path, table.rename_columns(list(COLUMNS)))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    write_json(out, _described(summary, path.name, digest))
    return out, path


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


# -- all formats -----------------------------------------------------------------------------------


#: Name of a format to the function that writes it.
FORMATS: Final[dict[str, Callable[[Path, Path, str | None, str | None], tuple[Path, ...]]]] = {
    "cifair": _cifair,
    "ids": _ids,
    "csv": _csv,
    "accepted": write_accepted,
    "issues": _issues,
    "labelstudio": write_tasks,
    "cvat": write_images,
    "card": write_section,
    "croissant": write_croissant,
}

#: Name of a format to the path of its second file.
BESIDE: Final[dict[str, Callable[[Path], Path]]] = {
    "cifair": second_path,
    "labelstudio": lambda out: out.with_suffix(".xml"),
    "cvat": lambda out: out.with_suffix(".json"),
    "croissant": lambda out: out.with_suffix(".csv"),
}
