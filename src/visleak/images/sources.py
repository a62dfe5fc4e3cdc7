"""Which kinds of source there are, and the one function that opens any of them."""

from __future__ import annotations

import glob
import importlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import parse_qsl

from visleak.errors import UsageError
from visleak.images.addresses import is_address, known_scheme, path_of, redacted
from visleak.images.archive import TARS
from visleak.images.kinds import KINDS, REMOTE, is_glob
from visleak.images.patterns import names_shards
from visleak.images.request import Request
from visleak.records import AnySet, EmbeddingSet, ImageSet

#: SOURCE with a prefix: prefix to the function that opens it.
PREFIXES: Final = {
    "cifar": "visleak.images.cifar:open_cifar",
    "coco": "visleak.images.annotated:open_coco",
    "yolo": "visleak.images.annotated:open_yolo",
    "kitti": "visleak.images.kitti:open_kitti",
    "wds": "visleak.images.webdataset:open_webdataset",
    "hf": "visleak.images.hub:open_hub",
    "emb": "visleak.images.embeddings:open_embeddings",
}


#: Prefixes after which no path of this machine need stand.
FREE: Final = ("hf", "wds")


@dataclass(frozen=True)
class Located:
    """A SOURCE taken apart.

    Attributes:
        opens: dotted path of the function that opens it.
        place: path, address or pattern, as given.
        split: what stands after ``#``.
        options: what stands after ``?``.
    """

    opens: str
    place: str
    split: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


def open_images(
    source: str | os.PathLike[str] | AnySet | Sequence[Any],
    *,
    name: str | None = None,
    dataset: str = "",
    roles: Iterable[str] = (),
    id: str | None = None,
    label: str | None = None,
    group: str | None = None,
    frame: str | None = None,
) -> AnySet:
    """List the pictures of a source; no pixel is read.

    Args:
        source: SOURCE text or a path: a folder (sub-folders are labels), a ``.txt`` list, a glob,
            a ``.csv`` or ``.parquet`` manifest, Parquet with image bytes, a ``.zip`` or ``.tar``
            archive, WebDataset shards (``train-{000..146}.tar``, a glob, a union ``A::B``,
            ``wds:FILE``), any of these in a remote store (``https://``, ``s3://``, ``gs://``),
            ``hf:NAME#split``, ``cifar:FOLDER#test``, ``coco:FILE``, ``yolo:data.yaml#val``,
            ``kitti:FOLDER``, or embeddings
            (``emb:FOLDER?encoder=clip``), which make an :class:`EmbeddingSet`; or a list of
            shards; or a Hugging Face ``Dataset`` or ``IterableDataset``; or a sequence of Pillow
            images, arrays or tensors, or of (picture, label), such as a torchvision data set; or
            a set, which is returned.
        name: name of the set; by default after the source.
        dataset: sets of one dataset leak *intra*, of two *inter*.
        roles: what the set is used for, some of ``benchmark``, ``training``, ``pretraining``.
        id, label, group, frame: columns to take these from; ``group`` and ``frame`` may be
            ``/regex/``, whose first group is searched in the id. Frames are frame numbers, or
            times: seconds, or dates as of ISO 8601.

    Raises:
        UsageError: the source is of no known kind or does not exist, or a column does not.
        VisleakError: it holds no pictures, or cannot be read as what it seems.
    """
    if isinstance(source, ImageSet | EmbeddingSet):
        return source
    if not isinstance(source, str | os.PathLike):
        if not _is_list_of_names(source):
            return _open_object(
                source,
                Request(
                    text="",
                    path=Path(),
                    name=name or "images",
                    dataset=dataset,
                    roles=tuple(roles),
                    id=id,
                    label=label,
                    group=group,
                    frame=frame,
                ),
            )
        source = _union(cast(Sequence[Any], source))
    text = os.fspath(cast(str, source))
    found = locate(text, plain=not isinstance(source, str))
    return cast(
        AnySet,
        _import(found.opens)(
            Request(
                text=redacted(text),
                path=Path(found.place),
                place=found.place,
                split=found.split,
                options=found.options,
                name=name or derived_name(text),
                dataset=dataset,
                roles=tuple(roles),
                id=id,
                label=label,
                group=group,
                frame=frame,
            )
        ),
    )


def _is_list_of_names(source: Any) -> bool:
    return (
        isinstance(source, list | tuple)
        and bool(source)
        and all(isinstance(item, str | os.PathLike) for item in source)
    )


def _union(shards: Sequence[Any]) -> str:
    names = [os.fspath(shard) for shard in shards]
    other = next((name for name in names if not name.partition("?")[0].lower().endswith(TARS)), "")
    if other:
        raise UsageError(
            f"a list of names is one of .tar shards; got {redacted(other)!r}: give other sources"
            " one by one, or a .txt file list"
        )
    return "wds:" + "::".join(names)


def _open_object(source: Any, request: Request) -> ImageSet:
    """Open what a Python program holds."""
    # by name, so that nobody's object makes a heavy package load
    of_hub = any(base.__module__.partition(".")[0] == "datasets" for base in type(source).__mro__)
    module = "visleak.images.hub:open_object" if of_hub else "visleak.images.mapped:open_mapped"
    return cast(ImageSet, _import(module)(source, request))


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


def locate(text: str, plain: bool = False) -> Located:
    """Take a SOURCE apart and find what opens it.

    Args:
        text: the SOURCE.
        plain: it is a path and cannot have a prefix.

    Raises:
        UsageError: the source is of no known kind, or does not exist.
    """
    if not text:
        raise UsageError(f"a source is empty; {_supported()}")
    if plain or Path(text).exists():
        return _local(text)
    prefix, rest = split_prefix(text)
    if prefix not in PREFIXES:
        pattern, _, split = text.partition("#")
        if names_shards(pattern):
            return Located(PREFIXES["wds"], pattern, split)
        if is_address(text):
            return _remote(text)
        if not prefix:
            return _local(text)
        raise UsageError(
            f"source {redacted(text)!r}: {prefix}: is no kind of source; {_supported()}"
        )
    if prefix in FREE and is_address(rest):
        return Located(PREFIXES[prefix], rest)
    path, split, options = _parts(rest)
    if prefix not in FREE and not Path(path).exists():
        raise UsageError(redacted(f"source {text!r}: {path} does not exist"))
    return Located(PREFIXES[prefix], path, split, options)


def _remote(text: str) -> Located:
    """Take an address apart; what stands after its ``?`` is the store's."""
    known_scheme(text)
    place, _, split = text.partition("#")
    name = path_of(place).lower()
    opens = next((opens for endings, opens in REMOTE if name.endswith(endings)), None)
    return Located(opens or "visleak.images.remote:open_remote_folder", place, split)


def _local(text: str) -> Located:
    """Take a SOURCE without a prefix apart."""
    place, split, options = _parts(text)
    if not Path(place).exists():
        place, split, options = text, "", {}
        before, _, after = text.rpartition("#")
        if glob.has_magic(before):
            place, split = before, after
    path = Path(place)
    for kind in KINDS:
        if kind.is_it(path):
            other = next((option for option in options if option not in kind.options), None)
            if other is not None:
                raise UsageError(f"source {text!r}: ?{other}= is no option of {kind.shown}")
            return Located(kind.opens, place, split, options)
    if not path.exists():
        raise UsageError(f"source {redacted(text)!r} does not exist; {_supported()}")
    raise UsageError(f"source {text!r} is of no known kind; {_supported()}")


def _supported() -> str:
    prefixed = ", ".join(f"{prefix}:" for prefix in PREFIXES)
    shown = ", ".join(kind.shown for kind in KINDS)
    return (
        f"a source is {shown}, a pattern of .tar shards, an address (https://, s3://, gs://), or"
        f" begins with {prefixed}"
    )


def split_prefix(text: str) -> tuple[str, str]:
    """Return the prefix of a SOURCE (empty if there is none) and the rest.

    >>> split_prefix("cifar:data#test"), split_prefix("data/a:b")
    (('cifar', 'data#test'), ('', 'data/a:b'))
    """
    found = re.match(r"([a-z][a-z0-9]+):", text)
    return (found[1], text[found.end() :]) if found else ("", text)


def _parts(rest: str) -> tuple[str, str, dict[str, str]]:
    """Split ``path?name=value#split``, of which any but the path may be missing."""
    path, split, options = rest, "", {}
    if not Path(path).exists() and "#" in path:
        path, _, split = path.rpartition("#")
    asked = re.search(r"\?\w+=", path)
    if asked is not None and not Path(path).exists():
        # an option may itself be a text with options: emb:laion?encoder=clip?prep=laion
        path, query = path[: asked.start()], path[asked.start() + 1 :]
        options = dict(parse_qsl(query, keep_blank_values=True))
    return path, split, options


def derived_name(text: str) -> str:
    """Return the name of a set that nobody named: its split, else the stem of its file or folder.

    >>> derived_name("data/cats.tar.gz"), derived_name("cifar:c10#test"), derived_name("a/**/*.png")
    ('cats', 'test', 'a')
    >>> derived_name("a/train-{00..11}.tar"), derived_name("https://me:secret@host/val.zip?sig=1")
    ('train', 'val')
    """
    if Path(text).exists():
        return _stem(text)
    prefix, rest = split_prefix(redacted(text))
    if prefix not in PREFIXES:
        prefix, rest = "", redacted(text)
    path, split, _ = _parts(rest) if prefix or "#" in rest else (rest, "", {})
    if split:
        return split
    first = path.partition("::")[0]
    if is_address(first):
        first = path_of(first).strip("/") or first.partition("://")[2]
    return _stem(first)


def _stem(place: str) -> str:
    """Return the name of a path or of a pattern, without ending."""
    path = Path(place)
    if is_glob(path) or (names_shards(place) and not path.exists()):
        parts = place.split("/")
        first = next((i for i, part in enumerate(parts) if re.search(r"[*?\[{}]", part)), -1)
        stem = re.split(r"[*?\[{}]", parts[first])[0].strip("-_. ")
        return stem or (parts[first - 1] if first else "") or "images"
    stem = path.resolve().name or "images"
    ending = next((e for e in TARS if stem.lower().endswith(e) and len(stem) > len(e)), "")
    if ending:
        return stem[: -len(ending)]
    return stem if path.is_dir() else Path(stem).stem


def resolved(source: str, base: Path) -> str:
    """Return a stored SOURCE as seen from here: relative paths count from where it was given.

    >>> resolved("cifar:c10#test", Path("/data")), resolved("a-{0..3}.tar::s3://b.tar", Path("/x"))
    ('cifar:/data/c10#test', '/x/a-{0..3}.tar::s3://b.tar')
    """
    prefix, colon, rest = "", "", source
    if not is_address(source) and not (base / source).exists():
        prefix, rest = split_prefix(source)
        colon = ":" if prefix else ""
    if prefix == "hf" and not (base / _parts(rest)[0]).exists():
        return source  # a name on the hub
    parts = rest.split("::") if prefix == "wds" or names_shards(rest) else [rest]
    seen = (part if is_address(part) else f"{base / part}" for part in parts)
    return f"{prefix}{colon}{'::'.join(seen)}"


def place_of(source: str, base: Path) -> Path | None:
    """Return the file or folder of a stored SOURCE, ``None`` where it is no single one of here.

    >>> place_of("cifar:c10?a=b#test", Path("/data")), place_of("s3://b/a.zip", Path("/data"))
    (PosixPath('/data/c10'), None)
    """
    if is_address(source) or names_shards(source):
        return None
    if (base / source).exists():
        return base / source
    rest = split_prefix(source)[1]
    return None if is_address(rest) else base / _parts(rest)[0]


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
        raise UsageError(
            f"a set is [DATASET:]NAME=SOURCE with no part empty; got {redacted(text)!r}"
        )
    return dataset, name, source


def _import(dotted: str) -> Any:
    module, _, function = dotted.partition(":")
    return getattr(importlib.import_module(module), function)
