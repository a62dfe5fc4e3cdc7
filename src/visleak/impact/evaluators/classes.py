"""Which output of a model is which class of a set."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError, VisleakError
from visleak.impact.evaluators.classifiers import Names
from visleak.pipeline.labels import normalised
from visleak.records import Bool, Int64

#: A model's own names are the set's classes where they cover this much of its labels.
SHARED: Final = 0.5

#: How it is known what an output means.
IN_FILE: Final = "the names in the file"
OWN: Final = "the model's own names"

#: Targets that are no output: a label that the model has no class for, and no label.
FOREIGN: Final = -1
UNLABELLED: Final = -2


@dataclass(frozen=True)
class Classes:
    """The outputs of a model as classes of a set.

    Attributes:
        names: one an output, as the set's labels spell it where it is a class of the set.
        first: ``int64`` (c,): the first output of the same name; outputs of one name are one class.
        in_set: ``bool`` (c,): the set has images of this class.
        rule: how it is known, in words.
        foreign: labels of the set that no output is called by.
    """

    names: tuple[str, ...]
    first: Int64
    in_set: Bool
    rule: str
    foreign: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    @property
    def digest(self) -> str:
        """Digest of the names in their order."""
        text = json.dumps(self.names)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def repeated(self) -> tuple[str, ...]:
        """Names that several outputs have."""
        several = np.flatnonzero(self.first != np.arange(len(self)))
        return tuple(sorted({self.names[int(self.first[output])] for output in several}))

    def targets(self, labels: pa.StringArray) -> Int64:
        """Return the output of each label (n,), :data:`FOREIGN` or :data:`UNLABELLED`."""
        where = {key: int(f) for key, f in zip(_keys(self.names), self.first, strict=True)}
        encoded = normalised(labels).dictionary_encode()
        known = [where.get(key, FOREIGN) for key in encoded.dictionary.to_pylist()]
        codes = encoded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
        return np.asarray(np.array([*known, UNLABELLED])[codes], np.int64)


def classes_of(
    width: int, labels: pa.StringArray | None, own: Names | None, file: Path | None = None
) -> Classes:
    """Return what the outputs of a model mean in a set.

    In this order: a file of names; the model's own names, if half of the set's labels are among
    them; the labels as numbers of outputs, if all are whole numbers below ``width``; the labels
    sorted as text, if there are ``width`` of them (torchvision's ImageFolder numbers folders so).
    Without labels: the names there are, else the numbers of the outputs.

    Args:
        width: number of outputs.
        labels: of the set's images, or ``None``.
        own: names that the model itself has.
        file: names in the order of the outputs; see :func:`read_names`.

    Raises:
        UsageError: the file cannot be read, or is of another number of classes.
        VisleakError: none of these holds.
    """
    told = _distinct(labels)
    given = read_names(file, width) if file else None
    if not told:
        names = given or own or tuple((str(output),) for output in range(width))
        if given:
            return _matched(names, (), IN_FILE)
        return _matched(names, (), OWN if own else "the numbers of the outputs")
    if given:
        made = _matched(given, told, IN_FILE)
        if not made.in_set.any():
            raise VisleakError(
                f"no label of the set is among the names in {file}: labels are {_few(told)},"
                f" names are {_few(made.names)}"
            )
        return made
    if own:
        made = _matched(own, told, OWN)
        if len(told) - len(made.foreign) >= SHARED * len(told):
            return made
    if all(label.isascii() and label.isdecimal() and _below(label, width) for label in told):
        numbers = {int(label): label for label in told}
        names = tuple((numbers.get(output, str(output)),) for output in range(width))
        return _matched(names, told, "the labels are numbers of outputs")
    if len(told) == width:
        return _matched(tuple((label,) for label in told), told, "the labels in sorted order")
    raise VisleakError(
        f"which of the model's {width:,} outputs is which of the set's {len(told):,} classes is not"
        f" known: labels are {_few(told)}"
        f"{f', the model has {_few([names[0] for names in own])}' if own else ''}; name the outputs"
        " with --classes FILE, one a line in their order"
    )


def read_names(path: Path, width: int) -> Names:
    """Return the names of outputs from a file.

    Args:
        path: text with one name a line in the order of the outputs, or ``.json``: a list of names,
            or ``{"0": NAME}``, ``{"0": [NAME, NAME]}`` or ``{NAME: 0}``.
        width: number of outputs.

    Raises:
        UsageError: it cannot be read, or does not name every output.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        names = _of_json(json.loads(text)) if path.suffix.lower() == ".json" else _of_lines(text)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"--classes {path} cannot be read ({error})") from error
    if len(names) != width:
        raise UsageError(
            f"--classes {path} has {len(names):,} names, and the model {width:,} outputs; give one"
            " name for each output, in their order"
        )
    return names


def synonyms(name: str) -> tuple[str, ...]:
    """Return the names in a name: the whole, and the parts between commas.

    >>> synonyms("tench, Tinca tinca")
    ('tench, Tinca tinca', 'tench', 'Tinca tinca')
    """
    parts = [part.strip() for part in name.split(",")]
    return (name, *(part for part in parts if part and len(parts) > 1))


def _of_lines(text: str) -> Names:
    lines = [line.strip() for line in text.rstrip().splitlines()]
    if "" in lines:
        raise ValueError(f"line {lines.index('') + 1} is empty")
    return tuple(synonyms(line) for line in lines)


def _of_json(content: Any) -> Names:
    if isinstance(content, Mapping):
        numbers = list(content.values())
        if numbers and all(type(value) is int for value in numbers):
            content = {str(number): name for name, number in content.items()}
        wanted = [str(number) for number in range(len(content))]
        lacking = [number for number in wanted if number not in content]
        if lacking:
            raise ValueError(f"output {lacking[0]} has no name")
        content = [content[number] for number in wanted]
    if not isinstance(content, list):
        raise ValueError("it must be a list of names, or names by number")
    return tuple(_one(value) for value in content)


def _one(value: object) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    names = tuple(name for name in values if isinstance(name, str) and name.strip())
    if not names or len(names) < len(values):
        raise ValueError(f"{json.dumps(value)[:60]} is no name")
    return names if len(names) > 1 else synonyms(names[0])


def _distinct(labels: pa.StringArray | None) -> tuple[str, ...]:
    """Return the labels there are, sorted; of those that are compared as one, the first."""
    if labels is None:
        return ()
    told = sorted(pc.unique(labels).drop_null().to_pylist())
    found: dict[str, str] = {}
    for key, label in zip(_keys(told), told, strict=True):
        found.setdefault(key, label)
    return tuple(found.values())


def _matched(names: Names, told: Sequence[str], rule: str) -> Classes:
    """Return outputs by their names, in the set's spelling."""
    spelt = dict(zip(_keys(told), told, strict=True))
    every = [name for each in names for name in each]
    keys = iter(_keys(every))
    chosen, first, in_set = [], [], []
    seen: dict[str, int] = {}
    for output, each in enumerate(names):
        own = [next(keys) for _ in each]
        key = next((key for key in own if key in spelt), own[0])
        chosen.append(spelt.get(key, each[0]))
        first.append(seen.setdefault(key, output))
        in_set.append(key in spelt)
    foreign = tuple(label for key, label in spelt.items() if key not in seen)
    return Classes(
        tuple(chosen), np.array(first, np.int64), np.array(in_set, np.bool_), rule, foreign
    )


def _keys(names: Sequence[str]) -> list[str]:
    """Return names as they are compared."""
    keys: list[str] = normalised(pa.array(list(names), pa.string())).to_pylist()
    return keys


def _below(label: str, width: int) -> bool:
    # a label of a thousand digits is no number of an output, and int() would refuse it
    return len(label) < 10 and int(label) < width


def _few(names: Sequence[str]) -> str:
    """Return the first names, on one line."""
    told = ", ".join(repr(name) for name in names[:3])
    return f"{told} ..." if len(names) > 3 else told
