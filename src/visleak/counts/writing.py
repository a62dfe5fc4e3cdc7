"""Writes the counts as files: json, tables, drawings, and the example pairs as pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from visleak.counts.counting import Counts
from visleak.counts.examples import Example
from visleak.counts.figures import classes_figure, types_figure
from visleak.errors import UsageError, VisleakError
from visleak.gallery import relation, write_card
from visleak.records import Bytes8
from visleak.store import write_csv, write_json, write_text

#: Returns decoded RGB pictures of a set by id, for those that could be read.
Pictures = Callable[[str, list[str]], dict[str, Bytes8]]

TYPES: Final = ("set", "kind", "grade", "pairs", "images", "machine_pairs", "machine_images")
CLASSES: Final = ("set", "class", "images", "machine_images", "of")


def write_counts(counts: Counts, folder: Path, pictures: Pictures | None) -> tuple[Path, ...]:
    """Write ``counts.json``, ``types.csv``, ``classes.csv``, drawings and example pairs.

    Args:
        counts: of an audit.
        folder: to write to; files of these names are replaced, others left alone.
        pictures: called with a set and ids; without it, or where one of two pictures cannot be
            read, there is no picture of an example.

    Returns:
        The files written.

    Raises:
        UsageError: the folder is a file.
        VisleakError: it cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"the output {folder} is a file; choose a folder")
    drawings = {"types.svg": types_figure(counts)}
    for number, own in enumerate(counts.sets, 1):
        drawing = classes_figure(own)
        if drawing is not None:
            drawings[f"classes{_number(counts, number)}.svg"] = drawing
    names = ("counts.json", "types.csv", "classes.csv", *drawings)
    try:
        write_json(folder / names[0], counts.as_dict())
        write_csv(folder / names[1], TYPES, _types(counts))
        write_csv(folder / names[2], CLASSES, _classes(counts))
        for name, text in drawings.items():
            write_text(folder / name, f"{text}\n")
    except OSError as error:
        raise VisleakError(f"{folder} cannot be written ({error.strerror})") from error
    written = [folder / name for name in names]
    for number, own in enumerate(counts.sets, 1):
        for example in own.examples if pictures is not None else ():
            places = "-".join(str(each) for each in example.percentiles)
            path = folder / f"example{_number(counts, number)}-{example.grade}-{places}.png"
            if pictures is not None and _draw(example, path, pictures):
                written.append(path)
    return tuple(written)


def _number(counts: Counts, number: int) -> str:
    """Return what tells the files of several test sets apart; their names are anybody's."""
    return f"-{number}" if len(counts.sets) > 1 else ""


def _types(counts: Counts) -> Iterator[tuple[str, ...]]:
    for own in counts.sets:
        for kind, after in own.after.kinds.items():
            before = own.before.kinds[kind]
            for grade in counts.grades:
                numbers = (
                    after.pairs[grade],
                    after.images[grade],
                    before.pairs[grade],
                    before.images[grade],
                )
                yield own.query_set, kind, grade, *map(str, numbers)


def _classes(counts: Counts) -> Iterator[tuple[str, ...]]:
    for own in counts.sets:
        for each in own.classes:
            numbers = (each.images, each.before, each.size)
            yield own.query_set, each.name or "", *map(str, numbers)


def _draw(example: Example, path: Path, pictures: Pictures) -> bool:
    """Draw an example pair; return whether both pictures could be read."""
    row = example.pair
    sides = []
    for side in ("query", "reference"):
        found = pictures(row[f"{side}_set"], [row[side]])
        if row[side] not in found:
            return False
        sides.append(found[row[side]])
    title = f"{example.grade}: {example.place} of distance ({example.distance:.3f})"
    line = f"{row['query_set']}: {row['query']}   {row['reference_set']}: {row['reference']}"
    write_card(path, sides[0], sides[1], relation(row), title=title, lines=[line])
    return True
