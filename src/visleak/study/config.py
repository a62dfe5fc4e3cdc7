"""What a study asks for: named sets with their roles, settings, and the matrix of figure 3."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from visleak.settings import Settings

#: A count as tables print it: 118k is 118,000 or more, below 119,000.
_THOUSANDS: Final = re.compile(r"([0-9]+)k", re.ASCII)


@dataclass(frozen=True, slots=True)
class Inclusion:
    """Another set that is known to be part of this one.

    Attributes:
        set: name of the other set.
        match: empty where the pair of sets is not compared at all; else how to tell an image's
            own copy: ``id`` for equal ids, ``/regex/`` for ids whose first group is equal.
    """

    set: str
    match: str = ""


@dataclass(frozen=True, slots=True)
class StudySet:
    """One named set of the file.

    Attributes:
        name: unique in the study.
        dataset: sets of one dataset leak *intra*, of two *inter*.
        split: for people.
        roles: some of ``benchmark``, ``training``, ``pretraining``.
        source: SOURCE as it stands in the file; empty where the user has not filled it in.
        encoder: of the audit against this set, where it is not that of the study.
        images: how many images it should hold, as published (``31783`` or ``118k``), or empty.
        contains: sets that are known to be part of it.
        columns: ``id``, ``label``, ``group``, ``frame`` as :func:`visleak.open_images` takes them.
    """

    name: str
    dataset: str
    split: str
    roles: tuple[str, ...]
    source: str = ""
    encoder: str = ""
    images: str = ""
    contains: tuple[Inclusion, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()

    @property
    def is_benchmark(self) -> bool:
        """Whether its images may be queries."""
        return "benchmark" in self.roles

    @property
    def is_training(self) -> bool:
        """Whether its images may be references."""
        return "training" in self.roles or "pretraining" in self.roles


@dataclass(frozen=True, slots=True)
class Study:
    """A file of sets, read and checked.

    Attributes:
        path: the file; relative sources count from its folder.
        title: for people.
        sets: in the order of the file.
        settings: of every audit; ``within`` is asked for once, apart.
        thresholds: file of ``visleak calibrate``, or ``None``.
        references, queries: which sets take part in the comparisons between datasets, in the
            order of the figure's rows and columns; empty where the roles decide.
        paper: file of published values to print beside, or ``None``.
    """

    path: Path
    title: str
    sets: tuple[StudySet, ...]
    settings: Settings
    thresholds: Path | None = None
    references: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()
    paper: Path | None = None

    @property
    def folder(self) -> Path:
        """Where relative sources count from."""
        return self.path.parent

    def named(self, name: str) -> StudySet:
        """Return the set of a name."""
        return next(each for each in self.sets if each.name == name)


def fits(published: str, count: int) -> bool:
    """Whether a number of images is the published one; nothing published fits everything.

    >>> fits("31783", 31_783), fits("118k", 118_287), fits("118k", 117_999), fits("", 3)
    (True, True, False, True)
    """
    if not published:
        return True
    thousands = _THOUSANDS.fullmatch(published)
    return count // 1000 == int(thousands[1]) if thousands else count == int(published)


def is_count(text: str) -> bool:
    """Whether a text is a published number of images.

    >>> is_count("118k"), is_count("31783"), is_count("3.3 M")
    (True, True, False)
    """
    return bool(_THOUSANDS.fullmatch(text)) or (text.isascii() and text.isdigit())
