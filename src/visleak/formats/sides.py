"""The sets that an audit compares, from texts such as ``[DATASET:]NAME=SOURCE``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from visleak.errors import UsageError
from visleak.formats.addresses import redacted
from visleak.formats.opening import open_image_set, open_images, open_splits
from visleak.formats.request import check_frames, check_groups, writable
from visleak.formats.sources import derived_name, parse_set
from visleak.options import Columns
from visleak.records import AnySet, ImageSet
from visleak.settings import Sides

_NO_COLUMNS: Final = Columns()
#: How near frames leak: fields of the settings.
FRAME_BOUNDS: Final = frozenset({"within_frames", "within_seconds"})


@dataclass(frozen=True, slots=True)
class Named:
    """One set as a text names it."""

    option: str  # that it came with
    role: str  # of the set, empty for none
    dataset: str  # as given, or empty
    source: str  # SOURCE
    names: tuple[str, ...]  # that it may have, best first; one only where it was named


@dataclass(frozen=True, slots=True)
class OpenSides:
    """The two sides of an audit, opened."""

    queries: tuple[AnySet, ...]
    references: tuple[AnySet, ...]


def open_sides(sides: Sides) -> OpenSides:
    """Open what an audit compares."""
    _refuse_mixtures(sides)
    columns = asdict(sides.columns)
    if sides.folder:
        splits = open_splits(sides.folder, **columns)
        side = "train" if "train" in splits else "val"
        queries: tuple[AnySet, ...] = tuple(
            images for name, images in splits.items() if name != side
        )
        references: tuple[AnySet, ...] = (splits[side],)
    else:
        queries, references = _open_named(sides, columns)
    check_groups((*queries, *references), sides.columns.group)
    check_frames((*queries, *references), sides.columns.frame)
    return OpenSides(queries, references)


def open_set(text: str, columns: Columns = _NO_COLUMNS) -> ImageSet:
    """Open one set: ``[DATASET:]NAME=SOURCE`` or ``SOURCE``."""
    dataset, name, source = parse_set(text)
    return open_image_set(source, name=writable(name), dataset=writable(dataset), **asdict(columns))


def _open_named(
    sides: Sides, columns: dict[str, Any]
) -> tuple[tuple[AnySet, ...], tuple[AnySet, ...]]:
    asked = [
        *named_sets("--test", "benchmark", "test", sides.test),
        *named_sets("--train", "training", "train", sides.train),
        *named_sets("--set", "", "", sides.sets),
    ]
    opened = tuple(
        open_images(
            each.source,
            name=name,
            dataset=each.dataset,
            roles=(each.role,) if each.role else (),
            **columns,
        )
        for each, name in zip(asked, distinct_names(asked), strict=True)
    )
    if sides.sets:
        return opened, opened if len(opened) > 1 else ()
    return opened[: len(sides.test)], opened[len(sides.test) :]


def both_have(
    columns: Sequence[str], queries: Sequence[AnySet], references: Sequence[AnySet]
) -> bool:
    """Whether two sets of one data set, one a side, have all of some columns."""
    return any(
        query is not reference
        and query.dataset == reference.dataset
        and all(getattr(s, c, None) is not None for s in (query, reference) for c in columns)
        for query in queries
        for reference in references
    )


def frame_notes(sides: OpenSides, given: Collection[str]) -> Iterator[str]:
    """Yield a line for each option on frames that has no effect, and for numbers taken as times."""
    queries, references = sides.queries, sides.references
    others = [images for images in references if all(images is not query for query in queries)]
    framed: list[Any] = [
        images for images in (*queries, *others) if getattr(images, "frames", None) is not None
    ]
    for unit in dict.fromkeys(images.stamps for images in framed if images.stamps):
        names = ", ".join(images.name for images in framed if images.stamps == unit)
        yield f"frames of {names}: their whole numbers are taken for {unit} since 1970, as times"
    if "frame" in given and not both_have(("groups",), queries, references):
        yield "--frame is not used: no recordings are known on both sides; give --group"
    for field, option, timed, other, kind in (
        ("within_frames", "--max-frame-gap", False, "--max-time-gap", "times"),
        ("within_seconds", "--max-time-gap", True, "--max-frame-gap", "numbers"),
    ):
        if field in given and all(images.timed != timed for images in framed):
            why = f"the frames are {kind}; use {other}" if framed else "no frames; give --frame"
            yield f"{option} is not used: {why}"


def _refuse_mixtures(sides: Sides) -> None:
    ways = [bool(sides.folder), bool(sides.test or sides.train), bool(sides.sets)]
    if sum(ways) == 0:
        raise UsageError(
            "nothing to compare: give a folder with train and test in it, or --test S and"
            " --train S, or --set S to search for duplicates inside one set"
        )
    if sum(ways) > 1:
        raise UsageError("give either DIR, or --test and --train, or --set; not two of them")
    if bool(sides.test) != bool(sides.train):
        there, missing = ("--test", "--train") if sides.test else ("--train", "--test")
        raise UsageError(
            f"{there} needs {missing} to compare with; for duplicates inside one set use --set S"
        )


def named_sets(option: str, role: str, alone: str, texts: Sequence[str]) -> list[Named]:
    """Return the sets that the values of one option name.

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
        result.append(Named(option, role, writable(dataset), source, names))
    return result


def distinct_names(asked: Sequence[Named]) -> list[str]:
    """Return a name for every set, all different.

    >>> def unnamed(*names): return Named("--train", "training", "", "x", names)
    >>> distinct_names([unnamed("a", "one/a"), unnamed("a", "two/a"), unnamed("b")])
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
