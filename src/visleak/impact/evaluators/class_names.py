"""What the classes of a set are called in sentences."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.delimited import dialect_of, encoding_of
from visleak.errors import UsageError, VisleakError
from visleak.impact.evaluators.classes import SHARED, Classes
from visleak.pipeline.labels import normalised

#: How a file of names is written, for messages.
WRITTEN: Final = (
    "one name a line, or LABEL<TAB>NAME; a .csv with columns label and name; a .json list of names"
    " or object {LABEL: NAME}"
)

#: Labels that stand for names and are none: numbers, and WordNet's ids of ImageNet's folders.
_CODE: Final = re.compile(r"\d+|n\d{8}")


@dataclass(frozen=True)
class ClassNames:
    """The classes that an image may be of.

    Attributes:
        classes: their labels, as the set spells them where it has them, in the order of ``names``.
        names: what they are called in a sentence.
    """

    classes: Classes
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.classes):
            raise ValueError("each class must have one name")

    @property
    def digest(self) -> str:
        """Digest of the names in their order."""
        return hashlib.blake2b(json.dumps(self.names).encode(), digest_size=16).hexdigest()

    @property
    def shared(self) -> tuple[str, ...]:
        """Names that several classes have: nothing in a sentence tells these apart."""
        seen = sorted(self.names)
        return tuple(sorted({a for a, b in pairwise(seen) if a == b}))


def class_names(labels: pa.StringArray | None, file: Path | None) -> ClassNames:
    """Return the classes and their names: those of a file, else the labels themselves.

    Args:
        labels: of the set's images, or ``None``.
        file: with names; see :data:`WRITTEN`.

    Raises:
        UsageError: there are neither names nor labels, or labels are no names.
        VisleakError: the file cannot be used, or has no class of the set.
    """
    told = sorted(pc.unique(labels).drop_null().to_pylist()) if labels is not None else []
    if file is None:
        return _by_labels(told)
    found = read_class_names(file)
    if isinstance(found, Mapping):
        return _by_file(file, list(found), tuple(found.values()), told, "labels in the file")
    keys = _keys(found)
    matched = sum(key in set(keys) for key in _keys(told))
    numbered = all(label.isascii() and label.isdecimal() for label in told)
    if told and numbered and matched < SHARED * len(told):
        places = [str(place) for place in range(len(found))]
        return _by_file(file, places, tuple(found), told, "labels are the numbers of the lines")
    return _by_file(file, found, tuple(found), told, "names in the file are the labels")


def read_class_names(path: Path) -> Mapping[str, str] | Sequence[str]:
    """Return names by label, or names alone in the order of the file.

    Raises:
        UsageError: the file does not exist.
        VisleakError: it is not written as :data:`WRITTEN` says.
    """
    if not path.is_file():
        raise UsageError(f"--classes {path}: there is no such file; write {WRITTEN}")
    try:
        content = path.read_bytes()
        text = content.decode(encoding_of(content[:64]))
        if path.suffix.lower() == ".json":
            found = _of_json(json.loads(text))
        elif path.suffix.lower() in (".csv", ".tsv"):
            with path.open("rb") as file:
                found = _of_table(text, dialect_of(file, path.name).delimiter)
        else:
            found = _of_lines(text)
    except (OSError, ValueError, RecursionError, csv.Error) as error:
        said = " ".join(str(error).split())
        raise VisleakError(f"--classes {path}: {said}; write {WRITTEN}") from error
    if len(found) < 2:
        raise VisleakError(
            f"--classes {path}: a classifier needs two classes, there is {len(found)}"
        )
    return found


def _of_lines(text: str) -> Mapping[str, str] | Sequence[str]:
    lines = [(n, line) for n, line in enumerate(text.splitlines(), start=1) if line.strip()]
    tabbed = ["\t" in line for _, line in lines]
    if not any(tabbed):
        return _listed((n, line.strip()) for n, line in lines)
    if not all(tabbed):
        raise ValueError(f"line {lines[tabbed.index(False)][0]} has no tab, other lines have")
    return _pairs((f"line {n}", *line.partition("\t")[::2]) for n, line in lines)


def _of_table(text: str, delimiter: str) -> Mapping[str, str]:
    rows = csv.DictReader(text.splitlines(), delimiter=delimiter)
    header = rows.fieldnames or []
    if "label" not in header or "name" not in header:
        raise ValueError(
            f"its columns are {', '.join(header) or 'none'}, label and name are needed"
        )
    return _pairs(
        (f"row {n}", row["label"] or "", row["name"] or "") for n, row in enumerate(rows, 1)
    )


def _of_json(content: Any) -> Mapping[str, str] | Sequence[str]:
    if isinstance(content, Mapping) and all(isinstance(name, str) for name in content.values()):
        return _pairs((f"label {label!r}", label, name) for label, name in content.items())
    if isinstance(content, list) and all(isinstance(name, str) for name in content):
        return _listed((n, name.strip()) for n, name in enumerate(content, start=1))
    raise ValueError("it is neither a list of names nor an object of names by label")


def _pairs(rows: Iterable[tuple[str, str, str]]) -> Mapping[str, str]:
    """Return names by label, checked."""
    found: dict[str, str] = {}
    for where, label, name in rows:
        if not (label.strip() and name.strip()):
            raise ValueError(f"{where} has no {'name' if label.strip() else 'label'}")
        if found.setdefault(label.strip(), name.strip()) != name.strip():
            raise ValueError(f"{where}: label {label.strip()!r} has two names")
    return found


def _listed(numbered: Iterable[tuple[int, str]]) -> Sequence[str]:
    """Return names, checked; equal ones are kept: OpenAI's list for ImageNet has two missiles."""
    names = []
    for place, name in numbered:
        if not name:
            raise ValueError(f"name {place} is empty")
        names.append(name)
    return names


def _by_labels(told: Sequence[str]) -> ClassNames:
    if len(told) < 2:
        raise UsageError(
            f"the set has {'no labels' if not told else 'one label'} to take names of classes from;"
            f" give --classes FILE: {WRITTEN}"
        )
    if all(_CODE.fullmatch(label) for label in told):
        raise UsageError(
            f"the set's labels are {_few(told)}, which are no names to put into a sentence; give"
            f" --classes FILE: {WRITTEN}"
        )
    names = tuple(" ".join(label.replace("_", " ").split()) or label for label in told)
    return ClassNames(_classes(told, told, "the set's labels, underscores as spaces"), names)


def _by_file(
    file: Path, labels: Sequence[str], names: tuple[str, ...], told: Sequence[str], rule: str
) -> ClassNames:
    made = _classes(labels, told, rule)
    if told and not made.in_set.any():
        raise VisleakError(
            f"--classes {file} names none of the set's classes: labels are {_few(told)}, the file"
            f" has {_few(labels)}; write LABEL<TAB>NAME"
        )
    if made.repeated:
        raise VisleakError(
            f"--classes {file}: {made.repeated[0]!r} stands for two classes; write LABEL<TAB>NAME"
        )
    return ClassNames(made, names)


def _classes(labels: Sequence[str], told: Sequence[str], rule: str) -> Classes:
    """Return classes by their labels, in the set's spelling."""
    spelt = dict(zip(_keys(told), told, strict=True))
    keys = _keys(labels)
    first: dict[str, int] = {}
    places = [first.setdefault(key, place) for place, key in enumerate(keys)]
    return Classes(
        tuple(spelt.get(key, label) for key, label in zip(keys, labels, strict=True)),
        np.array(places, np.int64),
        np.array([key in spelt for key in keys], np.bool_),
        rule,
        tuple(label for key, label in spelt.items() if key not in first),
    )


def _keys(labels: Sequence[str]) -> list[str]:
    """Return labels as they are compared."""
    keys: list[str] = normalised(pa.array(list(labels), pa.string())).to_pylist()
    return keys


def _few(names: Sequence[str]) -> str:
    """Return the first names, on one line."""
    told = ", ".join(repr(name[:40]) for name in names[:3])
    return f"{told} ..." if len(names) > 3 else told
