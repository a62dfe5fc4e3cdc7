"""Writes the counts as files: JSON, tables, figures, and the example pairs as images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from visleak.errors import UsageError, VisleakError
from visleak.records import Bytes8, ends_of
from visleak.report.counts.counting import Counts, Example, SetCounts, State
from visleak.reporting.charts import Bar, bar_chart
from visleak.reporting.contact_sheet import write_card
from visleak.reporting.gallery import ImageLoader, decoded, relation
from visleak.storage import write_bytes, write_csv, write_json

COUNTS: Final = "counts.json"
EXAMPLE: Final = "example"
TYPES: Final = ("set", "kind", "grade", "pairs", "images", "machine_pairs", "machine_images")
CLASSES: Final = ("set", "class", "images", "machine_images", "of")

MOST_CLASSES: Final = 12  # most classes of a drawing; the table has all

#: What the kinds of duplicates are called.
KINDS: Final = {"train-test": "train-test", "within": "within the set"}


def write_counts(counts: Counts, folder: Path, read: ImageLoader | None) -> tuple[Path, ...]:
    """Write ``counts.json``, ``types.csv``, ``classes.csv``, figures and example pairs.

    Files of these names are replaced, and examples of an earlier run go.

    Args:
        counts: of an audit.
        folder: to write to.
        read: called once per set with sorted ids; without it, or where an image cannot be read,
            an example is not drawn.

    Returns:
        The files written.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"the output {folder} is a file; choose a folder")
    drawings = {"types.svg": types_figure(counts)}
    for number, own in enumerate(counts.sets, 1):
        if by_class := classes_figure(own):
            drawings[f"classes{_number(counts, number)}.svg"] = by_class
    names = (COUNTS, "types.csv", "classes.csv", *drawings)
    try:
        for old in folder.glob(f"{EXAMPLE}*.png"):
            old.unlink()
        write_json(folder / names[0], counts.as_dict())
        write_csv(folder / names[1], TYPES, _types(counts))
        write_csv(folder / names[2], CLASSES, _classes(counts))
        for name, drawing in drawings.items():
            write_bytes(folder / name, drawing)
    except OSError as error:
        where = error.filename or folder
        raise VisleakError(f"{where} cannot be written ({error.strerror})") from error
    written = [folder / name for name in names]
    examples = [(n, each) for n, own in enumerate(counts.sets, 1) for each in own.examples]
    pixels = decoded([each.pair for _, each in examples], read) if read else {}
    for number, example in examples:
        places = "-".join(str(each) for each in example.percentiles)
        path = folder / f"{EXAMPLE}{_number(counts, number)}-{example.grade}-{places}.png"
        if _draw(example, path, pixels):
            written.append(path)
    return tuple(written)


def _number(counts: Counts, number: int) -> str:
    """Return the suffix of the files of a test set; names of sets are not used in file names."""
    return f"-{number}" if len(counts.sets) > 1 else ""


def _types(counts: Counts) -> Iterator[tuple[str, ...]]:
    for own in counts.sets:
        for kind, after in own.after.kinds.items():
            before = own.before.kinds[kind]
            for grade in counts.grades:
                counted = (after.pairs, after.images, before.pairs, before.images)
                yield own.query_set, kind, grade, *(str(each[grade]) for each in counted)


def _classes(counts: Counts) -> Iterator[tuple[str, ...]]:
    for own in counts.sets:
        for each in own.classes:
            numbers = (each.images, each.before, each.size)
            yield own.query_set, each.name or "", *map(str, numbers)


def _draw(example: Example, path: Path, pixels: Mapping[tuple[str, str], Bytes8]) -> bool:
    """Draw an example pair; return whether both images are available."""
    row = example.pair
    query, reference = map(pixels.get, ends_of(row))
    if query is None or reference is None:
        return False
    title = f"{example.grade}: {example.place} of distance ({example.distance:.3f})"
    line = f"{row['query_set']}: {row['query']}   {row['reference_set']}: {row['reference']}"
    write_card(path, query, reference, relation(row), title=title, lines=[line])
    return True


# -- figures: per type (figure 4 of the paper) and per class (table 1) ----------------------------


def types_figure(counts: Counts) -> bytes:
    """Draw the pairs of each kind by type, automatic grades above those after review."""
    bars = [_bar(*row) for own in counts.sets for row in _rows(own, counts)]
    return bar_chart(bars, "types", label="pairs", legend=counts.grades)["svg"]


def _bar(name: str, counted: Mapping[str, int]) -> Bar:
    note = " + ".join(f"{count:,}" for count in counted.values())
    note += f" = {sum(counted.values()):,}" if len(counted) > 1 else ""
    return Bar(name, note, tuple(counted.items()))


def _rows(own: SetCounts, counts: Counts) -> Iterator[tuple[str, dict[str, int]]]:
    before = f"{own.query_set}: " if len(counts.sets) > 1 else ""
    states: list[tuple[str, State]] = [("", own.after)]
    if counts.review is not None:
        states = [(", machine alone", own.before), (", after review", own.after)]
    for kind in own.after.kinds:
        for words, state in states:
            yield f"{before}{KINDS[kind]}{words}", dict(state.kinds[kind].pairs)


def classes_figure(own: SetCounts) -> bytes | None:
    """Draw a test set's images with a duplicate by class; ``None`` where no class has any."""
    rows = [(c.name or "(no label)", {"total": c.images}) for c in own.classes if c.images]
    if not rows:
        return None
    bars = [_bar(*row) for row in rows[:MOST_CLASSES]]
    return bar_chart(bars, f"classes {own.query_set}", label="images with a duplicate")["svg"]
