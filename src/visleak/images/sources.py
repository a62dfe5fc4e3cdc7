"""Which kinds of source there are, and the one function that opens any of them."""

from __future__ import annotations

import glob
import importlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import parse_qsl

from visleak.errors import UsageError
from visleak.images.request import Request
from visleak.records import AnySet, EmbeddingSet, ImageSet

ARCHIVES: Final = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")

#: SOURCE with a prefix: prefix to the function that opens it.
PREFIXES: Final = {
    "cifar": "visleak.images.cifar:open_cifar",
    "coco": "visleak.images.annotated:open_coco",
    "yolo": "visleak.images.annotated:open_yolo",
    "emb": "visleak.images.embeddings:open_embeddings",
}


@dataclass(frozen=True)
class Kind:
    """A kind of source that the file itself tells.

    Attributes:
        shown: how messages call it.
        is_it: whether a path is one.
        opens: dotted path of the function that opens it.
    """

    shown: str
    is_it: Callable[[Path], bool]
    opens: str


def _ends(*suffixes: str) -> Callable[[Path], bool]:
    return lambda path: path.is_file() and path.name.lower().endswith(suffixes)


def _is_glob(path: Path) -> bool:
    return glob.has_magic(str(path)) and not path.exists()


def _is_picture(path: Path) -> bool:
    from visleak.images.folder import is_picture_name

    return path.is_file() and is_picture_name(path.name)


def _holds_shards(path: Path) -> bool:
    """Whether a folder holds Parquet files and no picture files."""
    if not path.is_dir():
        return False
    from visleak.images.folder import Walk
    from visleak.images.parquet import shards_of

    return bool(shards_of(path)) and next(Walk(str(path)).names(), None) is None


#: SOURCE without a prefix, in the order in which they are tried.
KINDS: Final = (
    Kind("a folder of Parquet files", _holds_shards, "visleak.images.parquet:open_parquet"),
    Kind("a folder", Path.is_dir, "visleak.images.folder:open_folder"),
    Kind(
        "a glob",
        lambda path: _is_glob(path) and path.suffix != ".parquet",
        "visleak.images.lists:open_glob",
    ),
    Kind("a glob of .parquet files", _is_glob, "visleak.images.parquet:open_parquet"),
    Kind("a .txt file list", _ends(".txt"), "visleak.images.lists:open_list"),
    Kind("a .csv manifest", _ends(".csv", ".tsv"), "visleak.images.manifest:open_manifest"),
    Kind("a .parquet file", _ends(".parquet"), "visleak.images.parquet:open_parquet"),
    Kind("a .zip archive", _ends(".zip"), "visleak.images.archive_zip:open_zip"),
    Kind("a .tar archive", _ends(*ARCHIVES), "visleak.images.archive_tar:open_tar"),
    Kind("a picture", _is_picture, "visleak.images.folder:open_file"),
)


def open_images(
    source: str | os.PathLike[str] | AnySet | Sequence[Any],
    *,
    name: str | None = None,
    dataset: str = "",
    roles: Iterable[str] = (),
    id: str | None = None,
    label: str | None = None,
    group: str | None = None,
) -> AnySet:
    """List the pictures of a source; no pixel is read.

    Args:
        source: SOURCE text or a path: a folder (sub-folders are labels), a ``.txt`` list, a glob,
            a ``.csv`` or ``.parquet`` manifest, Parquet with image bytes, a ``.zip`` or ``.tar``
            archive, ``cifar:FOLDER#test``, ``coco:FILE``, ``yolo:data.yaml#val``; or a sequence
            of Pillow images or arrays, or of (picture, label); or a set, which is returned.
        name: name of the set; by default after the source.
        dataset: sets of one dataset leak *intra*, of two *inter*.
        roles: what the set is used for, some of ``benchmark``, ``training``, ``pretraining``.
        id, label, group: columns to take these from; ``group`` may be ``/regex/``, whose first
            group is searched in the id.

    Raises:
        UsageError: the source is of no known kind or does not exist, or a column does not.
        VisleakError: it holds no pictures, or cannot be read as what it seems.
    """
    if isinstance(source, ImageSet | EmbeddingSet):
        return source
    if not isinstance(source, str | os.PathLike):
        from visleak.images.memory import open_memory

        chosen = Request(
            "", Path(), "", {}, name or "images", dataset, tuple(roles), id, label, group
        )
        return open_memory(source, chosen)
    text = os.fspath(source)
    opens, path, split, options = locate(text, plain=not isinstance(source, str))
    return cast(
        AnySet,
        _import(opens)(
            Request(
                text=text,
                path=path,
                split=split,
                options=options,
                name=name or derived_name(text),
                dataset=dataset,
                roles=tuple(roles),
                id=id,
                label=label,
                group=group,
            )
        ),
    )


def open_pictures(
    source: str | os.PathLike[str] | AnySet | Sequence[Any], **wishes: Any
) -> ImageSet:
    """As :func:`open_images`, for what cannot be done without looking at pictures.

    Raises:
        UsageError: also where the source is a set of embeddings.
    """
    images = open_images(source, **wishes)
    if isinstance(images, EmbeddingSet):
        raise UsageError(
            f"{images.source or images.name} is a set of embeddings: there are no pictures to look"
            " at; give the pictures that they were made of"
        )
    return images


def locate(text: str, plain: bool = False) -> tuple[str, Path, str, dict[str, str]]:
    """Return what opens a SOURCE (dotted path), its path, its split and its options.

    Args:
        text: the SOURCE.
        plain: it is a path and cannot have a prefix.

    Raises:
        UsageError: the source is of no known kind, or does not exist.
    """
    if not text:
        raise UsageError(f"a source is empty; {_supported()}")
    prefix, rest = ("", text) if plain or Path(text).exists() else split_prefix(text)
    if prefix:
        if prefix not in PREFIXES:
            raise UsageError(f"source {text!r}: {prefix}: is no kind of source; {_supported()}")
        path, split, options = _parts(rest)
        if not path.exists():
            raise UsageError(f"source {text!r}: {path} does not exist")
        return PREFIXES[prefix], path, split, options
    path, split = Path(text), ""
    if not path.exists() and "#" in text:
        before, _, after = text.rpartition("#")
        if Path(before).exists() or glob.has_magic(before):
            path, split = Path(before), after
    for kind in KINDS:
        if kind.is_it(path):
            return kind.opens, path, split, {}
    if not path.exists():
        raise UsageError(f"source {text!r} does not exist; {_supported()}")
    raise UsageError(f"source {text!r} is of no known kind; {_supported()}")


def _supported() -> str:
    prefixed = ", ".join(f"{prefix}:" for prefix in PREFIXES)
    return f"a source is {', '.join(kind.shown for kind in KINDS)}, or begins with {prefixed}"


def split_prefix(text: str) -> tuple[str, str]:
    """Return the prefix of a SOURCE (empty if there is none) and the rest.

    >>> split_prefix("cifar:data#test"), split_prefix("data/a:b")
    (('cifar', 'data#test'), ('', 'data/a:b'))
    """
    found = re.match(r"([a-z][a-z0-9]+):", text)
    return (found[1], text[found.end() :]) if found else ("", text)


def _parts(rest: str) -> tuple[Path, str, dict[str, str]]:
    """Split ``path?name=value#split``, of which any but the path may be missing."""
    path, split, options = rest, "", {}
    if not Path(path).exists() and "#" in path:
        path, _, split = path.rpartition("#")
    if not Path(path).exists() and "?" in path:
        path, _, query = path.rpartition("?")
        options = dict(parse_qsl(query, keep_blank_values=True))
    return Path(path), split, options


def derived_name(text: str) -> str:
    """Return the name of a set that nobody named: its split, else the stem of its file or folder.

    >>> derived_name("data/cats.tar.gz"), derived_name("cifar:c10#test"), derived_name("a/**/*.png")
    ('cats', 'test', 'a')
    """
    prefix, rest = ("", text) if Path(text).exists() else split_prefix(text)
    path, split, _ = _parts(rest) if prefix or "#" in rest else (Path(rest), "", {})
    if split:
        return split
    if _is_glob(path):
        parts = str(path).split("/")
        first = next(i for i, part in enumerate(parts) if glob.has_magic(part))
        stem = re.split(r"[*?\[]", parts[first])[0].strip("-_. ")
        return stem or (parts[first - 1] if first else "") or "images"
    stem = path.resolve().name or "images"
    ending = next((e for e in ARCHIVES if stem.lower().endswith(e) and len(stem) > len(e)), "")
    if ending:
        return stem[: -len(ending)]
    return stem if path.is_dir() else Path(stem).stem


def parse_set(text: str) -> tuple[str, str, str]:
    """Take ``[DATASET:]NAME=SOURCE`` apart; NAME= may be missing.

    An argument whose part before ``=`` holds ``/`` or ``?`` is all SOURCE.

    Returns:
        Dataset (empty where none is given), name (after the source where none is given), source.

    Raises:
        UsageError: a part is empty.

    >>> parse_set("voc:val=lists/val.txt")
    ('voc', 'val', 'lists/val.txt')
    >>> parse_set("cifar:cifar-10#test")
    ('', 'test', 'cifar:cifar-10#test')
    """
    head, equals, source = text.partition("=")
    if not equals or "/" in head or "?" in head:
        if not text:
            raise UsageError("a set is [DATASET:]NAME=SOURCE; got an empty argument")
        return "", derived_name(text), text
    dataset, colon, name = head.rpartition(":")
    if not name or not source or (colon and not dataset):
        raise UsageError(f"a set is [DATASET:]NAME=SOURCE with no part empty; got {text!r}")
    return dataset, name, source


def _import(dotted: str) -> Any:
    module, _, function = dotted.partition(":")
    return getattr(importlib.import_module(module), function)
