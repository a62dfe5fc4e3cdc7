"""SOURCE texts, and the table of formats: how each is recognised, opened, annotated and written.

A new format is one module of this package and one entry of :data:`FORMATS`. Functions are given as
``module:function`` and imported on use.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

from visleak.errors import UsageError, VisleakError, did_you_mean
from visleak.formats.remote import is_address, known_scheme, path_of, redacted
from visleak.images.encodings import SUFFIXES
from visleak.lazy import load

#: Endings of tar archives.
TARS: Final = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
#: Endings of files of arrays.
ARRAYS: Final = (".npy", ".npz", ".h5", ".hdf5", "-ubyte", ".idx", "-ubyte.gz", ".idx.gz")
#: Endings of videos.
VIDEOS: Final = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg", ".wmv", ".flv")

#: Options in the text of a source, which differ from set to set, with an example.
IN_SOURCE: Final = {
    "axis": "nifti:FILE#axis=2",
    "camera": "kitti:FOLDER?camera=3",
    "column": "emb:FILE?column=NAME",
    "every": "video:FILE#every=1s",
    "expect": "emb:FOLDER?expect=N",
    "image": "hf:NAME?image=COLUMN",
    "images": "coco:FILE?images=FOLDER",
    "key": "array:FILE#key=NAME",
    "level": "tiff:FILE#level=1",
    "remote": "TABLE.csv?remote=yes",
    "revision": "hf:NAME?revision=COMMIT",
    "tile": "tiff:FILE#tile=1024",
}


@dataclass(frozen=True)
class Layout:
    """How a data set is written."""

    name: str  # used in messages
    writes: str  # the function that writes a part: (OutputPart, Destination) -> OutputSource
    # named (a file with the ending of its encoding), bytes (encoded, any encoding) or arrays
    holds: str = "named"
    files: bool = True  # images are files, which can be linked
    mixes: bool = True  # a part may be made of several sets
    swaps: bool = True  # an image may be replaced; not where boxes belong to images
    together: bool = False  # one call writes all parts: (parts, Destination) -> list[OutputSource]

    def write(self, parts: Sequence[object], destination: object) -> list[Any]:
        """Write parts of this layout and return how each is opened."""
        writer = _load(self.writes)
        if self.together:
            return list(writer(parts, destination))
        return [writer(part, destination) for part in parts]


@dataclass(frozen=True)
class Format:
    """A format of sources."""

    name: str  # used in messages
    opens: str  # the function that lists it: Request -> ImageSet
    layout: Layout | None = None  # how it is written, None where it is not
    # its endings, or the function that recognises a path; empty for formats with a prefix
    detects: str | tuple[str, ...] = ()
    options: tuple[str, ...] = ()  # what may follow ? where there is no prefix
    boxes: str = ""  # the function that reads its boxes: (ImageSet, Request) -> Boxes | None
    anywhere: bool = False  # what follows the prefix need not be a path of this machine

    def matches(self, path: Path) -> bool:
        """Whether a path, without a prefix, is of this format."""
        if isinstance(self.detects, str):
            return bool(_load(self.detects)(path))
        return path.is_file() and path.name.lower().endswith(self.detects)

    def open(self, request: object) -> object:
        """Return the set that a request names."""
        return _load(self.opens)(request)

    def read_boxes(self, images: object, request: object) -> object:
        """Return the boxes of a set, ``None`` where the format has none."""
        return _load(self.boxes)(images, request) if self.boxes else None


def _load(place: str) -> Any:
    return load(f"visleak.formats.{place}")


_CSV: Final = (".csv", ".tsv")
_FOLDER: Final = Layout("a folder of images", "folders:write_folder")
_PARQUET: Final = Layout("Parquet with images", "tables:write_parquet", holds="bytes", files=False)
_LIST: Final = Layout("a file list", "folders:write_list")
#: Also of Parquet files that name image files.
TABLE: Final = Layout("a table of files", "tables:write_table")
_ZIP: Final = Layout("a zip archive", "archives:write_zip", files=False, mixes=False)
_TAR: Final = Layout("a tar archive", "archives:write_tar", files=False, mixes=False)
_SHARDS: Final = Layout(
    "WebDataset shards", "webdataset:write_webdataset", holds="bytes", files=False, mixes=False
)
_COCO: Final = Layout("COCO", "coco:write_coco", swaps=False)
_YOLO: Final = Layout("YOLO", "yolo:write_yolo", swaps=False, together=True)
_KITTI: Final = Layout("KITTI", "kitti:write_kitti", mixes=False, swaps=False)
_CIFAR: Final = Layout(
    "CIFAR batches", "cifar:write_cifar", holds="arrays", files=False, mixes=False
)
_HUB: Final = Layout(
    "a Hugging Face data set", "hub:write_hub", holds="bytes", files=False, mixes=False
)
#: Formats that are recognised from the file or folder, in the order in which they are tried.
PLAIN: Final = (
    Format(
        "a folder of Parquet files", "tables:open_parquet", _PARQUET, "tables:is_parquet_folder"
    ),
    Format(
        "a folder of DICOM files",
        "dicom:open_dicom",
        detects="dicom:is_dicom_folder",
        options=("group", "names"),
    ),
    Format(
        "a folder of videos",
        "video:open_video",
        detects="video:is_video_folder",
        options=("every",),
    ),
    Format("a folder", "folders:open_folder", _FOLDER, "folders:is_folder"),
    Format("a glob", "folders:open_glob", _FOLDER, "folders:is_image_glob"),
    Format("a glob of .parquet files", "tables:open_parquet", _PARQUET, "tables:is_parquet_glob"),
    Format(
        "a .txt list of .tar shards",
        "webdataset:open_shard_list",
        _SHARDS,
        "webdataset:is_shard_list",
        options=("image", "remote"),
    ),
    Format("a .txt file list", "folders:open_list", _LIST, (".txt",), options=("remote",)),
    Format("a .csv manifest", "tables:open_manifest", TABLE, _CSV, options=("remote",)),
    Format("a .parquet file", "tables:open_parquet", _PARQUET, (".parquet",), options=("remote",)),
    Format("a .zip archive", "archives:open_zip", _ZIP, (".zip",)),
    Format("a .tar archive", "archives:open_tar", _TAR, TARS),
    Format("an image", "folders:open_file", _FOLDER, "folders:is_image_path"),
    Format("a video", "video:open_video", detects=VIDEOS, options=("every",)),
    Format("a NIfTI volume", "nifti:open_nifti", detects=(".nii", ".nii.gz"), options=("axis",)),
    Format("a file of arrays", "arrays:open_arrays", detects=ARRAYS, options=("key",)),
)
#: Formats of addresses, in addition to those of PLAIN with endings.
REMOTE_IMAGE: Final = Format(
    "a remote image", "folders:open_remote_image", _FOLDER, tuple(SUFFIXES)
)
REMOTE_FOLDER: Final = Format("a remote folder", "folders:open_remote_folder", _FOLDER)
#: Formats whose SOURCE has a prefix, by prefix.
PREFIXED: Final = {
    "cifar": Format("CIFAR", "cifar:open_cifar", _CIFAR),
    "coco": Format("COCO", "coco:open_coco", _COCO, boxes="coco:coco_boxes"),
    "yolo": Format("YOLO", "yolo:open_yolo", _YOLO, boxes="yolo:yolo_boxes"),
    "kitti": Format("KITTI", "kitti:open_kitti", _KITTI, boxes="kitti:kitti_boxes"),
    "wds": Format("WebDataset", "webdataset:open_webdataset", _SHARDS, anywhere=True),
    "hf": Format("Hugging Face", "hub:open_hub", _HUB, anywhere=True),
    "emb": Format("embeddings", "embeddings:open_embeddings"),
    "video": Format("videos", "video:open_video"),
    "dicom": Format("DICOM", "dicom:open_dicom"),
    "nifti": Format("NIfTI", "nifti:open_nifti"),
    "tiff": Format("pages of TIFF", "tiff:open_tiff"),
    "array": Format("arrays", "arrays:open_arrays"),
}
#: Receives a record per source that is read, as the log of the command line must not be in one.
reads: Final = logging.getLogger(__name__)
FORMATS: Final = (*PLAIN, REMOTE_IMAGE, REMOTE_FOLDER, *PREFIXED.values())  # all formats


@dataclass(frozen=True)
class SourceParts:
    """A SOURCE taken apart."""

    format: Format  # what it is, which opens it
    place: str  # path, address or pattern, as given
    split: str = ""  # what stands after #
    options: Mapping[str, str] = field(default_factory=dict)  # what stands after ?


def locate(text: str, plain: bool = False) -> SourceParts:
    """Take a SOURCE apart and find what opens it."""
    if not text:
        raise UsageError(f"a source is empty; {_supported()}")
    if plain or Path(text).exists():
        return _local(text)
    prefix, rest = split_prefix(text)
    if prefix not in PREFIXED:
        pattern, _, split = text.partition("#")
        if names_shards(pattern):
            return SourceParts(PREFIXED["wds"], pattern, split)
        if is_address(text):
            return _remote(text)
        if not prefix:
            return _local(text)
        raise UsageError(
            f"source {redacted(text)!r}: {prefix}: is not a kind of source; {_supported()}"
        )
    found = PREFIXED[prefix]
    if found.anywhere and is_address(rest):
        return SourceParts(found, rest)
    path, split, options = _parts(rest)
    if not found.anywhere and not Path(path).exists():
        raise UsageError(redacted(f"source {text!r}: {path} does not exist{beside(path)}"))
    refuse_closed(Path(path), text)
    return SourceParts(found, path, split, options)


def announce(source: str, base: Path = Path()) -> None:
    """Log a source that is about to be read; relative ones count from ``base``."""
    reads.debug("reads %s", redacted(source), extra={"source": source, "base": base})


def announce_folders(source: str, folders: Callable[[], Iterable[Path]]) -> None:
    """Log the folders of the images of a source, if debug messages are logged."""
    if reads.isEnabledFor(logging.DEBUG):
        found = frozenset(folders())
        text = redacted(source)
        reads.debug("folders of images of %s: %d", text, len(found), extra={"folders": found})


def beside(place: str | os.PathLike[str]) -> str:
    """Return the end of an error on a missing path: an existing one of a similar name."""
    path = Path(place)
    with contextlib.suppress(OSError):
        return did_you_mean(path.name, (each.name for each in path.parent.iterdir()))
    return ""


def refuse_closed(path: Path, text: str) -> None:
    """Refuse a folder that this user may not list."""
    if path.is_dir() and not os.access(path, os.R_OK | os.X_OK):
        raise VisleakError(f"source {text!r}: the system does not let this user read the folder")


def _remote(text: str) -> SourceParts:
    """Take an address apart; a query after ``?`` belongs to the store."""
    known_scheme(text)
    place, _, split = text.partition("#")
    name = path_of(place).lower()
    for each in (*PLAIN, REMOTE_IMAGE):
        if isinstance(each.detects, tuple) and name.endswith(each.detects):
            return SourceParts(each, place, split)
    return SourceParts(REMOTE_FOLDER, place, split)


def _local(text: str) -> SourceParts:
    place, split, options = _parts(text)
    if not Path(place).exists():
        place, split, options = text, "", {}
        before, _, after = text.rpartition("#")
        if glob.has_magic(before):
            place, split = before, after
    path = Path(place)
    refuse_closed(path, text)
    found = next((each for each in PLAIN if each.matches(path)), None)
    if found is None:
        missing = f"does not exist{beside(place)}" if not path.exists() else "is of no known kind"
        raise UsageError(f"source {redacted(text)!r} {missing}; {_supported()}")
    for option in options:
        if option not in found.options:
            raise UsageError(f"source {text!r}: ?{option}= is not an option of {found.name}")
    return SourceParts(found, place, split, options)


def _supported() -> str:
    return (
        f"a source is {', '.join(each.name for each in PLAIN)}, a pattern of .tar shards, an"
        " address (https://, s3://, gs://), or begins with"
        f" {', '.join(f'{prefix}:' for prefix in PREFIXED)}"
    )


def split_prefix(text: str) -> tuple[str, str]:
    """Return the prefix of a SOURCE (empty if there is none) and the rest.

    >>> split_prefix("cifar:data#test"), split_prefix("data/a:b")
    (('cifar', 'data#test'), ('', 'data/a:b'))
    """
    found = re.match(r"([a-z][a-z0-9]+):", text)
    return (found[1], text[found.end() :]) if found else ("", text)


def _parts(rest: str) -> tuple[str, str, dict[str, str]]:
    """Split ``path?name=value#split``, of which any but the path may be missing.

    >>> _parts("a.mp4#every=1s"), _parts("c10?a=b#test")
    (('a.mp4', '', {'every': '1s'}), ('c10', 'test', {'a': 'b'}))
    """
    path, split, options = rest, "", {}
    if not Path(path).exists() and "#" in path:
        path, _, split = path.rpartition("#")
        if re.match(r"\w+=", split):
            path, split = f"{path}?{split}", ""
    query_start = re.search(r"\?\w+=", path)
    if query_start is not None and not Path(path).exists():
        # an option may itself be a text with options: emb:laion?encoder=clip?prep=laion
        path, query = path[: query_start.start()], path[query_start.start() + 1 :]
        options = dict(parse_qsl(query, keep_blank_values=True))
    return path, split, options


def derived_name(text: str) -> str:
    """Return the name of a set that was not named: its split, else the stem of its file or folder.

    >>> derived_name("data/cats.tar.gz"), derived_name("cifar:c10#test"), derived_name("a/**/*.png")
    ('cats', 'test', 'a')
    >>> derived_name("a/train-{00..11}.tar"), derived_name("https://me:secret@host/val.zip?sig=1")
    ('train', 'val')
    """
    if Path(text).exists():
        return _stem(text)
    prefix, rest = split_prefix(redacted(text))
    if prefix not in PREFIXED:
        prefix, rest = "", redacted(text)
    path, split, _ = _parts(rest) if prefix or "#" in rest else (rest, "", {})
    if split:
        return split
    first = path.partition("::")[0]
    if is_address(first):
        first = path_of(first).strip("/") or first.partition("://")[2]
    return _stem(first)


def _stem(place: str) -> str:
    path = Path(place)
    if is_glob(path) or (names_shards(place) and not path.exists()):
        parts = place.split("/")
        first = next((i for i, part in enumerate(parts) if re.search(r"[*?\[{}]", part)), -1)
        stem = re.split(r"[*?\[{}]", parts[first])[0].strip("-_. ")
        return stem or (parts[first - 1] if first else "") or "images"
    stem = path.resolve().name or "images"
    plain = without_tar(stem)
    return plain if plain != stem or path.is_dir() else Path(stem).stem


def without_tar(name: str) -> str:
    """Return a name without the ending of a tar archive.

    >>> without_tar("a.b.tar.gz"), without_tar("a.png"), without_tar(".tar")
    ('a.b', 'a.png', '.tar')
    """
    endings = (ending for ending in TARS if name.lower().endswith(ending))
    return name[: -len(max(endings, key=len, default=""))] or name


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
    """Return the file or folder of a stored SOURCE, ``None`` where it is not a single local one.

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


def is_glob(path: Path) -> bool:
    """Whether a path is a pattern and not the name of something."""
    return glob.has_magic(str(path)) and not path.exists()


def names_shards(text: str) -> bool:
    """Whether a text is a pattern of tar archives, or a union of them or of such patterns.

    >>> [names_shards(text) for text in ("train-{000..146}.tar", "a.tar::b-*.tar", "a.tar")]
    [True, True, False]
    """
    parts = text.split("::")
    several = len(parts) > 1 or "{" in text or "}" in text or has_wildcards(text)
    return several and all(part.partition("?")[0].lower().endswith(TARS) for part in parts)


def has_wildcards(text: str) -> bool:
    """Whether a path or an address is a pattern."""
    # a question mark begins the query of an address
    return "*" in text or "[" in text if is_address(text) else glob.has_magic(text)
