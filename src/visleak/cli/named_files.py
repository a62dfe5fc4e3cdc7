"""From ``[NAME=]FILE`` to files by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from visleak.errors import UsageError


def named_files(
    option: str, texts: Sequence[str], what: str = "model", *, needs_name: bool = False
) -> dict[str, Path]:
    """Take ``[NAME=]FILE`` apart; an argument whose part before ``=`` holds ``/`` is all FILE."""
    found: dict[str, Path] = {}
    for text in texts:
        name, rest = _parted(text)
        name = name or ("" if needs_name else Path(text).stem)
        if not name or not rest:
            form = f"{'NAME=' if needs_name else '[NAME=]'}FILE"
            raise UsageError(f"{option} is {form} with no part empty; got {text!r}")
        path = Path(rest)
        if not path.is_file():
            why = "does not exist"
            if path.exists():
                why = f"is {'a folder' if path.is_dir() else 'no plain file'}; give a file"
            if Path(text).is_file():
                why += f"; for the file {text} give ./{text}"
            raise UsageError(f"{option}: {path} {why}")
        if name in found:
            raise UsageError(
                f"two {what}s are called {name!r}; names must differ: {option} NAME={path}"
            )
        found[name] = path
    return found


def fair_files(texts: Sequence[str], predictions: Mapping[str, Path]) -> dict[str, Path]:
    """Return the files of ``--fair-predictions``; one without a name is of the only model."""
    found = named_files("--fair-predictions", texts)
    if len(found) == len(predictions) == 1 and not _parted(texts[0])[0]:
        return dict(zip(predictions, found.values(), strict=True))
    for name, path in found.items():
        if name not in predictions:
            raise UsageError(
                f"--fair-predictions {path} is of {name!r}, which has no --predictions; models are"
                f" {', '.join(map(repr, predictions))}: use the same name,"
                f" --fair-predictions NAME={path}"
            )
    return found


def named_folders(option: str, texts: Sequence[str]) -> dict[str, Path]:
    """Take ``NAME=FOLDER`` apart; names are those of folders, too."""
    found: dict[str, Path] = {}
    for text in texts:
        name, _, rest = text.partition("=")
        if not rest or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise UsageError(
                f"{option} is NAME=FOLDER with a name of letters, digits, dots and dashes; got"
                f" {text!r}"
            )
        if not Path(rest).is_dir():
            raise UsageError(f"{option}: there is no folder {rest}")
        if name in found:
            raise UsageError(f"two folders are called {name!r}; names must differ: {option}")
        found[name] = Path(rest)
    return found


def by_prefix(option: str, texts: Sequence[str], names: Iterable[str]) -> dict[str, list[str]]:
    """Sort arguments by the name that they begin with, ``NAME:REST``, and take it off.

    >>> by_prefix("--fair", ["a:m=x.csv", "b:y.csv"], ["a", "b"])
    {'a': ['m=x.csv'], 'b': ['y.csv']}

    Raises:
        UsageError: one begins with none of the names.
    """
    found: dict[str, list[str]] = {name: [] for name in names}
    for text in texts:
        name, colon, rest = text.partition(":")
        if not colon or name not in found:
            every = ", ".join(f"{each}:" for each in found)
            raise UsageError(
                f"{option} must begin with the name of an audit, one of {every} where several are"
                f" given; got {text!r}"
            )
        found[name].append(rest)
    return found


def _parted(text: str) -> tuple[str, str]:
    """Return name and file of an argument; the name is empty where none is given.

    >>> _parted("a=b.csv"), _parted("runs/lr=0.1.csv"), _parted("b.csv")
    (('a', 'b.csv'), ('', 'runs/lr=0.1.csv'), ('', 'b.csv'))
    """
    name, equals, rest = text.partition("=")
    return (name, rest) if name and equals and "/" not in name else ("", text)
