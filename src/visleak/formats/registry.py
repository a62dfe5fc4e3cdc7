"""The table of formats: how each is recognised, opened, annotated and written.

A new format is one module of this package and one entry of :data:`FORMATS`. Functions are given as
``module:function`` and imported on use.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from visleak.images.encodings import SUFFIXES

#: Endings of tar archives.
TARS: Final = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")


@dataclass(frozen=True)
class Layout:
    """How a data set is written."""

    name: str  # used in messages
    writes: str  # the function that writes a part: (OutputPart, Destination) -> OutputSource
    # how an image is stored: named (a file whose ending tells the encoding), bytes (encoded, any
    # encoding) or arrays (pixels)
    holds: str = "named"
    files: bool = True  # images are files, which can be linked
    mixes: bool = True  # a part may be made of several sets
    swaps: bool = True  # an image may be replaced; not where boxes belong to images
    together: bool = False  # one call writes all parts: (parts, Destination) -> list[OutputSource]

    def write(self, parts: Sequence[Any], destination: Any) -> list[Any]:
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
    prefix: str = ""  # what a SOURCE begins with, such as coco; empty where the file itself tells
    # the function that tells a path of this format; empty where the ending does
    recognises: str = ""
    endings: tuple[str, ...] = ()  # of its files
    options: tuple[str, ...] = ()  # what may follow ? where there is no prefix
    boxes: str = ""  # the function that reads its boxes: (ImageSet, Request) -> Boxes | None
    anywhere: bool = False  # what follows the prefix need not be a path of this machine

    def matches(self, path: Path) -> bool:
        """Whether a path, without a prefix, is of this format."""
        if self.recognises:
            return bool(_load(self.recognises)(path))
        return path.is_file() and path.name.lower().endswith(self.endings)

    def open(self, request: Any) -> Any:
        """Return the set that a request names."""
        return _load(self.opens)(request)

    def read_boxes(self, images: Any, request: Any) -> Any:
        """Return the boxes of a set, ``None`` where the format has none."""
        return _load(self.boxes)(images, request) if self.boxes else None


def _load(dotted: str) -> Any:
    module, _, function = dotted.partition(":")
    return getattr(importlib.import_module(f"visleak.formats.{module}"), function)


_FOLDER: Final = Layout("a folder of images", "folders:write_folder")
_PARQUET: Final = Layout("Parquet with images", "parquet:write_parquet", holds="bytes", files=False)
_LIST: Final = Layout("a file list", "folders:write_list")
#: Also of Parquet files that name image files.
TABLE: Final = Layout("a table of files", "tables:write_table")
_ZIP: Final = Layout("a zip archive", "zips:write_zip", files=False, mixes=False)
_TAR: Final = Layout("a tar archive", "tars:write_tar", files=False, mixes=False)
_SHARDS: Final = Layout(
    "WebDataset shards",
    "webdataset:write_webdataset",
    holds="bytes",
    files=False,
    mixes=False,
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
#: Formats that a file or folder itself tells, in the order in which they are tried.
PLAIN: Final = (
    Format(
        "a folder of Parquet files",
        "parquet:open_parquet",
        _PARQUET,
        recognises="tables:is_parquet_folder",
    ),
    Format("a folder", "folders:open_folder", _FOLDER, recognises="folders:is_folder"),
    Format("a glob", "folders:open_glob", _FOLDER, recognises="folders:is_image_glob"),
    Format(
        "a glob of .parquet files",
        "parquet:open_parquet",
        _PARQUET,
        recognises="tables:is_parquet_glob",
    ),
    Format(
        "a .txt list of .tar shards",
        "webdataset:open_shard_list",
        _SHARDS,
        recognises="webdataset:is_shard_list",
        options=("image", "remote"),
    ),
    Format("a .txt file list", "folders:open_list", _LIST, endings=(".txt",), options=("remote",)),
    Format(
        "a .csv manifest",
        "tables:open_manifest",
        TABLE,
        endings=(".csv", ".tsv"),
        options=("remote",),
    ),
    Format(
        "a .parquet file",
        "parquet:open_parquet",
        _PARQUET,
        endings=(".parquet",),
        options=("remote",),
    ),
    Format("a .zip archive", "zips:open_zip", _ZIP, endings=(".zip",)),
    Format("a .tar archive", "tars:open_tar", _TAR, endings=TARS),
    Format("an image", "folders:open_file", _FOLDER, recognises="folders:is_image_path"),
)
#: Formats of addresses, in addition to those of PLAIN with endings.
REMOTE_IMAGE: Final = Format(
    "a remote image", "folders:open_remote_image", _FOLDER, endings=tuple(SUFFIXES)
)
REMOTE_FOLDER: Final = Format("a remote folder", "folders:open_remote_folder", _FOLDER)
#: Formats whose SOURCE has a prefix, by prefix.
PREFIXED: Final = {
    found.prefix: found
    for found in (
        Format("CIFAR", "cifar:open_cifar", _CIFAR, "cifar"),
        Format("COCO", "coco:open_coco", _COCO, "coco", boxes="coco:coco_boxes"),
        Format("YOLO", "yolo:open_yolo", _YOLO, "yolo", boxes="yolo:yolo_boxes"),
        Format("KITTI", "kitti:open_kitti", _KITTI, "kitti", boxes="kitti:kitti_boxes"),
        Format("WebDataset", "webdataset:open_webdataset", _SHARDS, "wds", anywhere=True),
        Format("Hugging Face", "hub:open_hub", _HUB, "hf", anywhere=True),
        Format("embeddings", "embeddings:open_embeddings", prefix="emb"),
    )
}
FORMATS: Final = (*PLAIN, REMOTE_IMAGE, REMOTE_FOLDER, *PREFIXED.values())  # all formats
