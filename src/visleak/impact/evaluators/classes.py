"""The classes of a set: which output of a model is which class, and names for prompts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.delimited import encoding_of
from visleak.documents import digest_of
from visleak.errors import UsageError, VisleakError, one_line
from visleak.pipeline.comparison import normalised
from visleak.records import Bool, Int64
from visleak.storage import open_rows

#: Names of each output of a network, the usual one first.
Names = tuple[tuple[str, ...], ...]

#: A model's own names are the set's classes where they cover this much of its labels.
SHARED: Final = 0.5
IN_FILE: Final = "the names in the file"  # why an output has its meaning
OWN: Final = "the model's own names"
FOREIGN: Final = -1  # target of a label without a class of the model
UNLABELLED: Final = -2  # target of no label


@dataclass(frozen=True)
class Classes:
    """The outputs of a model as classes of a set."""

    # one per output, as the set's labels spell it where it is a class of the set
    names: tuple[str, ...]
    first: Int64  # (c,): the first output of the same name; outputs of one name are one class
    in_set: Bool  # (c,): the set has images of this class
    rule: str  # why, in words
    foreign: tuple[str, ...] = ()  # labels of the set without an output

    def __len__(self) -> int:
        return len(self.names)

    @property
    def digest(self) -> str:
        """Digest of the names in their order."""
        return digest_of(self.names)

    def about(self) -> dict[str, object]:
        """Return their number, why they mean what they mean, and their digest."""
        return {"count": len(self), "rule": self.rule, "digest": self.digest}

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
    """Return the meaning of the outputs of a model in a set.

    In this order: a file of names; the model's own names, if half of the set's labels are among
    them; the labels as numbers of outputs, if all are whole numbers below ``width``; the labels
    sorted as text, if there are ``width`` of them (torchvision's ImageFolder numbers folders so).
    Without labels: the names, else the numbers of the outputs.
    """
    every = sorted(pc.unique(labels).drop_null().to_pylist()) if labels is not None else []
    spelt: dict[str, str] = {}
    for key, label in zip(_keys(every), every, strict=True):
        spelt.setdefault(key, label)
    distinct = tuple(spelt.values())
    if given := read_names(file, width) if file else None:
        made = _matched(given, distinct, IN_FILE)
        if distinct and not made.in_set.any():
            raise VisleakError(
                f"no label of the set is among the names in {file}: labels are {_few(distinct)},"
                f" names are {_few(made.names)}"
            )
        return made
    if not distinct:
        numbers = tuple((str(output),) for output in range(width))
        return _matched(own or numbers, (), OWN if own else "the numbers of the outputs")
    if own:
        made = _matched(own, distinct, OWN)
        if len(distinct) - len(made.foreign) >= SHARED * len(distinct):
            return made
    # int() would refuse a label of a thousand digits
    if all(_is_number(label) and len(label) < 10 and int(label) < width for label in distinct):
        by_number = {int(label): label for label in distinct}
        names = tuple((by_number.get(output, str(output)),) for output in range(width))
        return _matched(names, distinct, "the labels are numbers of outputs")
    if len(distinct) == width:
        return _matched(_alone(distinct), distinct, "the labels in sorted order")
    has = f", the model has {_few([names[0] for names in own])}" if own else ""
    raise VisleakError(
        f"which of the model's {width:,} outputs is which of the set's {len(distinct):,} classes is"
        f" not known: labels are {_few(distinct)}{has}; name the outputs with --classes FILE, one"
        " per line in their order"
    )


def _is_number(label: str) -> bool:
    return label.isascii() and label.isdecimal()


def read_names(path: Path, width: int) -> Names:
    """Return the names of outputs from a file, which must name all of them.

    Text with one name per line in the order of the outputs, or ``.json``: a list of names, or
    ``{"0": NAME}``, ``{"0": [NAME, NAME]}`` or ``{NAME: 0}``.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        is_json = path.suffix.lower() == ".json"
        names = _output_json(json.loads(text)) if is_json else _output_lines(text)
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


def _output_lines(text: str) -> Names:
    lines = [line.strip() for line in text.rstrip().splitlines()]
    if "" in lines:
        raise ValueError(f"line {lines.index('') + 1} is empty")
    return tuple(synonyms(line) for line in lines)


def _output_json(content: object) -> Names:
    if isinstance(content, Mapping):
        if content and all(type(value) is int for value in content.values()):
            content = {str(number): name for name, number in content.items()}
        wanted = [str(number) for number in range(len(content))]
        if lacking := [number for number in wanted if number not in content]:
            raise ValueError(f"output {lacking[0]} has no name")
        content = [content[number] for number in wanted]
    if not isinstance(content, list):
        raise ValueError("it must be a list of names, or names by number")
    return tuple(_one(value) for value in content)


def _one(value: object) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    names = tuple(name for name in values if isinstance(name, str) and name.strip())
    if not names or len(names) < len(values):
        raise ValueError(f"{json.dumps(value)[:60]} is not a name")
    return names if len(names) > 1 else synonyms(names[0])


def _matched(names: Names, distinct: Sequence[str], rule: str) -> Classes:
    """Return outputs by their names, in the set's spelling."""
    spelt = dict(zip(_keys(distinct), distinct, strict=True))
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
    keys: list[str] = normalised(pa.array(list(names), pa.string())).to_pylist()
    return keys


#: How a file of names is written, for messages.
WRITTEN: Final = (
    "one name per line, or LABEL<TAB>NAME; a .csv with columns label and name; a .json list of"
    " names or object {LABEL: NAME}"
)

#: Labels that are not names: numbers, and WordNet ids as of ImageNet's folders.
_CODE: Final = re.compile(r"\d+|n\d{8}")


@dataclass(frozen=True)
class ClassNames:
    """The classes of a zero-shot classifier."""

    # their labels, as the set spells them where it has them, in the order of `names`
    classes: Classes
    names: tuple[str, ...]  # of the classes in prompts

    @property
    def digest(self) -> str:
        """Digest of the names in their order."""
        return digest_of(self.names)

    @property
    def shared(self) -> tuple[str, ...]:
        """Names that several classes have, whose prompts are equal."""
        counts = Counter(self.names)
        return tuple(sorted(name for name, count in counts.items() if count > 1))


def class_names(labels: pa.StringArray | None, file: Path | None) -> ClassNames:
    """Return the classes and their names: those of a file, else the labels themselves."""
    distinct = sorted(pc.unique(labels).drop_null().to_pylist()) if labels is not None else []
    if file is None:
        return _by_labels(distinct)
    found = read_class_names(file)
    known, names, rule = list(found), tuple(found), "names in the file are the labels"
    if isinstance(found, Mapping):
        names, rule = tuple(found.values()), "labels in the file"
    elif distinct and all(map(_is_number, distinct)):
        keys = set(_keys(known))
        if sum(key in keys for key in _keys(distinct)) < SHARED * len(distinct):
            known = [str(place) for place in range(len(found))]
            rule = "labels are the numbers of the lines"
    made = _matched(_alone(known), distinct, rule)
    if distinct and not made.in_set.any():
        raise VisleakError(
            f"--classes {file} names none of the set's classes: labels are {_few(distinct)}, the"
            f" file has {_few(known)}; write LABEL<TAB>NAME"
        )
    if made.repeated:
        raise VisleakError(
            f"--classes {file}: {made.repeated[0]!r} names two classes; write LABEL<TAB>NAME"
        )
    return ClassNames(made, names)


def read_class_names(path: Path) -> Mapping[str, str] | Sequence[str]:
    """Return names by label, or names alone in the order of the file."""
    if not path.is_file():
        raise UsageError(f"--classes {path}: file not found; write {WRITTEN}")
    try:
        if path.suffix.lower() in (".csv", ".tsv"):
            with open_rows(path, padded=True) as rows:
                rows.need(("label", "name"))
                named = enumerate(((row["label"], row["name"]) for row in rows), start=1)
                pairs = ((f"row {n}", *pair) for n, pair in named)
                found: Mapping[str, str] | Sequence[str] = _pairs(pairs)
        else:
            content = path.read_bytes()
            text = content.decode(encoding_of(content[:64]))
            json_file = path.suffix.lower() == ".json"
            found = _name_json(json.loads(text)) if json_file else _name_lines(text)
    except VisleakError as error:
        raise VisleakError(f"--classes {error}; write {WRITTEN}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise VisleakError(
            f"--classes {path}: {one_line(error, str(path))}; write {WRITTEN}"
        ) from error
    if len(found) < 2:
        raise VisleakError(
            f"--classes {path}: a classifier needs two classes, there is {len(found)}"
        )
    return found


def _name_lines(text: str) -> Mapping[str, str] | Sequence[str]:
    lines = [(n, line) for n, line in enumerate(text.splitlines(), start=1) if line.strip()]
    tabbed = ["\t" in line for _, line in lines]
    if not any(tabbed):
        return _listed((n, line.strip()) for n, line in lines)
    if not all(tabbed):
        raise ValueError(f"line {lines[tabbed.index(False)][0]} has no tab, other lines have")
    return _pairs((f"line {n}", *line.partition("\t")[::2]) for n, line in lines)


def _name_json(content: object) -> Mapping[str, str] | Sequence[str]:
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
    names = dict(numbered)
    if empty := [place for place, name in names.items() if not name]:
        raise ValueError(f"name {empty[0]} is empty")
    return list(names.values())


def _by_labels(distinct: Sequence[str]) -> ClassNames:
    why = ""
    if len(distinct) < 2:
        count = "one label" if distinct else "no labels"
        why = f"the set has {count} to take names of classes from"
    elif all(_CODE.fullmatch(label) for label in distinct):
        why = f"the set's labels are {_few(distinct)}, which are not names for prompts"
    if why:
        raise UsageError(f"{why}; give --classes FILE: {WRITTEN}")
    names = tuple(" ".join(label.replace("_", " ").split()) or label for label in distinct)
    rule = "the set's labels, underscores as spaces"
    return ClassNames(_matched(_alone(distinct), distinct, rule), names)


def _alone(labels: Sequence[str]) -> Names:
    return tuple((label,) for label in labels)


def _few(names: Sequence[str]) -> str:
    text = ", ".join(repr(name[:40]) for name in names[:3])
    return f"{text} ..." if len(names) > 3 else text
