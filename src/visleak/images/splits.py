"""Sources that hold several splits of one data set."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from visleak.errors import UsageError
from visleak.images.columns import SPLITS, canonical_split
from visleak.images.sources import open_pictures, split_prefix
from visleak.records import ImageSet

_TABLES: Final = (".csv", ".tsv", ".parquet")
_YAMLS: Final = (".yaml", ".yml")


def open_splits(
    source: str | os.PathLike[str],
    *,
    dataset: str = "",
    id: str | None = None,
    label: str | None = None,
    group: str | None = None,
    frame: str | None = None,
) -> dict[str, ImageSet]:
    """Open every split of a source as a set of its own.

    Args:
        source: a folder with ``train``, ``val`` and ``test`` folders (or ``images/train`` ...) or
            with ``train*.parquet`` ... files; a manifest or Parquet file with a ``split`` column;
            a YOLO ``data.yaml``; ``cifar:FOLDER``.
        dataset: name of the data set; by default the folder's.
        id, label, group, frame: as for :func:`visleak.images.open_pictures`.

    Returns:
        The sets by split, ``train``, ``val`` and ``test`` first. ``train`` has the role
        ``training``, every other one ``benchmark``.

    Raises:
        UsageError: the source does not exist, or holds fewer than two splits.
    """
    text = os.fspath(source)
    prefix, rest = ("", text) if Path(text).exists() else split_prefix(text)
    path = Path(rest)
    if not path.exists():
        raise UsageError(f"source {text!r} does not exist")
    finder = _finder(prefix, path)
    sources = {} if finder is None else finder(path)
    if len(sources) < 2:
        found = f"only {next(iter(sources))}" if sources else "none"
        raise UsageError(
            f"source {text!r} does not hold two splits (found {found}): it must be a folder with"
            " train, val or test folders or Parquet files, a table with a `split` column, or a"
            " YOLO data.yaml; or give the sets one by one (--test S --train S), or one to look for"
            " repeats in it (--set S)"
        )
    folder = path if path.is_dir() else path.resolve().parent
    return {
        split: open_pictures(
            sources[split],
            name=split,
            dataset=dataset or folder.resolve().name,
            roles=("training",) if split == "train" else ("benchmark",),
            id=id,
            label=label,
            group=group,
            frame=frame,
        )
        for split in sorted(sources, key=_rank)
    }


def _rank(split: str) -> tuple[int, str]:
    order = list(SPLITS)
    return (order.index(split) if split in order else len(order), split)


def _finder(prefix: str, path: Path) -> Callable[[Path], dict[str, str]] | None:
    """Return the function that finds the SOURCE text of each split."""
    if prefix == "cifar":
        return lambda folder: {split: f"cifar:{folder}#{split}" for split in ("train", "test")}
    if path.is_file() and (prefix == "yolo" or path.suffix.lower() in _YAMLS):
        return _yolo
    if path.is_file() and path.suffix.lower() in _TABLES:
        return _table
    return _folder if path.is_dir() and not prefix else None


def _named(names: Iterable[tuple[str, str]], where: Path) -> dict[str, str]:
    """Return the sources whose names are a split's, by split.

    Raises:
        UsageError: two names mean the same split.
    """
    found: dict[str, str] = {}
    for name, source in sorted(names):
        split = canonical_split(name)
        if split not in SPLITS:
            continue
        if found.setdefault(split, source) != source:
            raise UsageError(
                f"{where} holds the split {split} twice: {found[split]} and {source}; give the"
                " sets one by one"
            )
    return found


def _folder(path: Path) -> dict[str, str]:
    if len(found := _yolo_inside(path)) > 1:
        return found
    for place in (path, path / "images"):
        if not place.is_dir():
            continue
        folders = [(entry.name, str(entry)) for entry in place.iterdir() if entry.is_dir()]
        if len(found := _named(folders, place)) > 1:
            return found
    for place in (path, path / "data"):
        if len(found := _shards(place)) > 1:
            return found
    return _named([(entry.name, str(entry)) for entry in path.iterdir() if entry.is_dir()], path)


def _yolo_inside(path: Path) -> dict[str, str]:
    """Return the splits of a folder's ``data.yaml``, if all that it names is there.

    So the boxes are known to be part of the sets, which the folders alone do not tell.
    """
    from visleak.images.annotated import yolo_base, yolo_content, yolo_splits

    file = path / "data.yaml"
    if not file.is_file():
        return {}
    content = yolo_content(file, str(path))
    splits = yolo_splits(content)
    base = yolo_base(file, content)
    if not all((base / entry).exists() for entries in splits.values() for entry in entries):
        return {}
    return {split: f"yolo:{file}#{split}" for split in splits}


def _shards(place: Path) -> dict[str, str]:
    """Return a glob for each split that ``train-00000-of-00002.parquet`` and the like name."""
    words: dict[str, list[str]] = {}
    for file in sorted(place.glob("*.parquet")):
        if word := _first_word(file.name):
            words.setdefault(word, []).append(str(file))
    pattern = glob.escape(str(place))
    return _named(
        (
            (word, files[0] if len(files) == 1 else f"{pattern}/{word}*.parquet")
            for word, files in words.items()
        ),
        place,
    )


def _first_word(name: str) -> str:
    """Return the letters a name begins with, if something that is no letter follows.

    >>> _first_word("train-00000-of-00002.parquet")
    'train'
    """
    found = re.match(r"[A-Za-z]+(?=[-_.])", name)
    return found[0] if found else ""


def _table(path: Path) -> dict[str, str]:
    from visleak.images.manifest import read_csv
    from visleak.images.parquet import read_footer, read_tables

    if path.suffix.lower() == ".parquet":
        if "split" not in read_footer(path).schema.to_arrow_schema().names:
            return {}
        column = read_tables([path], ["split"])["split"]
    else:
        table = read_csv(path)
        if "split" not in table.column_names:
            return {}
        column = table["split"]
    values = {canonical_split(str(value)) for value in column.unique().to_pylist() if value}
    return {split: f"{path}#{split}" for split in values}


def _yolo(path: Path) -> dict[str, str]:
    from visleak.images.annotated import yolo_content, yolo_splits

    return {split: f"yolo:{path}#{split}" for split in yolo_splits(yolo_content(path, str(path)))}
