"""From ``--test``, ``--train``, ``--set`` and DIR to the sets of an audit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from visleak.errors import UsageError
from visleak.images import open_images, open_pictures, open_splits, parse_set
from visleak.images.addresses import redacted
from visleak.images.request import writable
from visleak.images.sources import derived_name
from visleak.records import AnySet, ImageSet


@dataclass(frozen=True, slots=True)
class Asked:
    """One set as the command line gave it.

    Attributes:
        option: that it came with.
        role: of the set, empty for none.
        dataset: as given, or empty.
        source: SOURCE.
        names: what it may be called, best first; one only where it was named.
    """

    option: str
    role: str
    dataset: str
    source: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns to take from tables."""

    id: str | None = None
    label: str | None = None
    group: str | None = None
    frame: str | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """The two sides of an audit."""

    queries: tuple[AnySet, ...]
    references: tuple[AnySet, ...]


def refuse_mixtures(
    folder: str | None, test: Sequence[str], train: Sequence[str], sets: Sequence[str]
) -> None:
    """Refuse a call that gives nothing to compare, or too much.

    Raises:
        UsageError: see its message.
    """
    ways = [bool(folder), bool(test or train), bool(sets)]
    if sum(ways) == 0:
        raise UsageError(
            "nothing to compare: give a folder with train and test in it, or --test S and"
            " --train S, or --set S to look for repeats in one set"
        )
    if sum(ways) > 1:
        raise UsageError("give either DIR, or --test and --train, or --set; not two of them")
    if bool(test) != bool(train):
        there, missing = ("--test", "--train") if test else ("--train", "--test")
        raise UsageError(
            f"{there} needs {missing} to compare with; to look for repeats in one set: --set S"
        )


def from_folder(folder: str, columns: Columns) -> Compared:
    """Open the splits of a data set: test and val against train, or test against val.

    Raises:
        UsageError, VisleakError: as ``open_splits``.
    """
    splits = open_splits(folder, **asdict(columns))
    reference = "train" if "train" in splits else "val"
    queries = tuple(images for name, images in splits.items() if name != reference)
    return Compared(queries, (splits[reference],))


def from_options(
    test: Sequence[str], train: Sequence[str], sets: Sequence[str], columns: Columns
) -> Compared:
    """Open the sets given one by one.

    Raises:
        UsageError, VisleakError: as ``open_images``, or two sets have one name.
    """
    asked = [
        *_asked("--test", "benchmark", "test", test),
        *_asked("--train", "training", "train", train),
        *_asked("--set", "", "", sets),
    ]
    opened = [
        open_images(
            each.source,
            name=name,
            dataset=each.dataset,
            roles=(each.role,) if each.role else (),
            **asdict(columns),
        )
        for each, name in zip(asked, named(asked), strict=True)
    ]
    if sets:
        return Compared(tuple(opened), tuple(opened) if len(opened) > 1 else ())
    return Compared(tuple(opened[: len(test)]), tuple(opened[len(test) :]))


def one(text: str, columns: Columns = Columns()) -> ImageSet:
    """Open the one set of a verb that takes no sides: ``[DATASET:]NAME=SOURCE`` or ``SOURCE``.

    Raises:
        UsageError, VisleakError: as ``open_images``.
    """
    dataset, name, source = parse_set(text)
    return open_pictures(
        source,
        name=writable(name),
        dataset=writable(dataset),
        **asdict(columns),
    )


def _asked(option: str, role: str, alone: str, texts: Sequence[str]) -> list[Asked]:
    """Take the arguments of one option apart.

    A set without a name is called after its side if it is alone there, else after its source.
    """
    result = []
    for text in texts:
        dataset, name, source = parse_set(text)
        names: tuple[str, ...] = (name,)
        if source == text:
            parent = Path(redacted(source).partition("#")[0]).resolve().parent.name
            names = (derived_name(source), f"{parent}/{derived_name(source)}")
            names = (alone, *names) if alone and len(texts) == 1 else names
        names = tuple(writable(name) for name in names)
        result.append(Asked(option, role, writable(dataset), source, names))
    return result


def named(asked: Sequence[Asked]) -> list[str]:
    """Return a name for every set, all different.

    Raises:
        UsageError: two sets were given one name, or nothing tells two apart.

    >>> def unnamed(*names): return Asked("--train", "training", "", "x", names)
    >>> named([unnamed("a", "one/a"), unnamed("a", "two/a"), unnamed("b")])
    ['one/a', 'two/a', 'b']
    """
    level = [0] * len(asked)
    while True:
        names = [each.names[at] for each, at in zip(asked, level, strict=True)]
        counts = Counter(names)
        twice = [row for row, name in enumerate(names) if counts[name] > 1]
        if not twice:
            return names
        moved = [row for row in twice if level[row] + 1 < len(asked[row].names)]
        if not moved:
            first = asked[twice[0]]
            raise UsageError(
                f"two sets are called {names[twice[0]]!r}; names must differ:"
                f" {first.option} NAME={redacted(first.source)}"
            )
        for row in moved:
            level[row] += 1
