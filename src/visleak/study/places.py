"""Where the sets of a file lie: environment variables, ``~`` and relative paths."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from visleak.images.sources import split_prefix
from visleak.study.config import Study, StudySet

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

#: Prefixes whose rest need not be a path of this machine.
_ELSEWHERE: Final = ("hf",)


@dataclass(frozen=True, slots=True)
class Located:
    """A set's source as ``open_images`` takes it, or why there is none.

    Attributes:
        source: SOURCE with variables and ``~`` replaced, relative paths from the file's folder.
        missing: in words; empty where the source is there.
    """

    source: str
    missing: str = ""


def locate(study: Study, environment: Mapping[str, str] | None = None) -> dict[str, Located]:
    """Return where each set of a study lies, by name; nothing is opened."""
    known = os.environ if environment is None else environment
    # absolute: a source is the same wherever the command runs
    folder = study.folder.absolute()
    return {each.name: _located(each, folder, known) for each in study.sets}


def _located(each: StudySet, folder: Path, environment: Mapping[str, str]) -> Located:
    if not each.source.strip():
        return Located("", "source is not filled in")
    for name in _VARIABLE.findall(each.source):
        if not environment.get(name):
            return Located("", f"environment variable {name} is not set")
    text = _VARIABLE.sub(lambda found: environment[found[1]], each.source)
    prefix, rest = ("", text) if (folder / text).exists() else split_prefix(text)
    if rest.startswith("//") or prefix in _ELSEWHERE:
        return Located(text)
    # joined as text: a Path would tidy up what stands after ? or #
    rest = os.path.join(folder, os.path.expanduser(rest))
    found = f"{prefix}:{rest}" if prefix else rest
    return Located(found, "" if _is_there(rest) else f"source {each.source} does not exist")


def _is_there(text: str) -> bool:
    """Whether ``path``, ``path#split`` or ``path?options`` exists, or a pattern that may match."""
    if any(Path(text[:end]).exists() for end in _ends(text)):
        return True
    # braces are ranges of shards, which whoever opens them knows
    return "{" in text or (glob.has_magic(text) and next(glob.iglob(text), None) is not None)


def _ends(text: str) -> list[int]:
    """Return where the path of a source may end: at the text's end, or before a mark.

    >>> [("a?x#y")[:end] for end in _ends("a?x#y")]
    ['a?x#y', 'a?x', 'a']
    """
    return [len(text), *(at for at in range(len(text) - 1, 0, -1) if text[at] in "#?")]
