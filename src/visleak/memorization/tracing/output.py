"""Writing a trace: CSV, Markdown, the section of the audit's report, and ``trace.json`` last."""

from __future__ import annotations

from typing import Final

from visleak.errors import VisleakError
from visleak.memorization.tracing.markup import markdown
from visleak.memorization.tracing.records import Match, Original, Trace
from visleak.memorization.tracing.section import NAME, section
from visleak.memorization.tracing.sets import AUDIT_FOLDER
from visleak.memorization.tracing.stored import RESULT, as_dict
from visleak.store import (
    AUDIT,
    SECTIONS,
    csv_value,
    replacing_text,
    write_csv_rows,
    write_json,
    write_text,
)

CSV: Final = "trace.csv"
SUMMARY: Final = "trace.md"

HEADER: Final = (
    "image",
    "prompt",
    "size",
    "source",
    "reference",
    "similarity",
    "grade",
    "probability",
    "verified",
    "memorized",
    "layout_variants",
    "category",
    "nearest_similarity",
    "structure",
    "colour_difference",
    "judged",
    "reason",
)


def write(result: Trace) -> None:
    """Write everything about a trace into its folder.

    Raises:
        VisleakError: the disk refuses.
    """
    folder = result.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # a result that is half replaced is none
        (folder / RESULT).unlink(missing_ok=True)
        originals = {each.number: each for each in result.originals}
        with replacing_text(folder / CSV) as lines:
            write_csv_rows(lines, [HEADER, *(_row(match, originals) for match in result.matches)])
        write_text(folder / SUMMARY, markdown(result))
        audit = folder / AUDIT_FOLDER
        if (audit / AUDIT).is_file():
            write_json(audit / SECTIONS / NAME, section(result))
        write_json(folder / RESULT, as_dict(result))
    except OSError as error:
        raise VisleakError(f"{folder} cannot be written ({error.strerror})") from error


def _row(match: Match, originals: dict[int, Original]) -> tuple[str, ...]:
    original = originals.get(-1 if match.memorized is None else match.memorized)
    values: tuple[str | int | float | None, ...] = (
        match.image,
        match.prompt,
        match.size,
        match.source,
        match.reference,
        match.similarity,
        match.grade,
        match.probability,
        match.verified,
        match.memorized,
        None if original is None else original.variants,
        None if original is None else original.category,
        match.nearest,
        match.structure,
        match.colour,
        match.judged,
        match.reason,
    )
    return tuple("" if value is None else csv_value(value) for value in values)
