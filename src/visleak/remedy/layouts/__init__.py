"""The layouts of data sets that can be written: which one a set has, and what each can hold."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from visleak.errors import UsageError
from visleak.images.addresses import is_address
from visleak.images.folder import FileOpener
from visleak.images.parquet import ParquetOpener
from visleak.images.sources import locate
from visleak.records import ImageSet
from visleak.remedy.contents import FilledPart
from visleak.remedy.layouts.place import Opened, Place


@dataclass(frozen=True)
class Layout:
    """How a kind of data set lies on disk.

    Attributes:
        name: how messages call it.
        writes: dotted path of the function that writes it.
        holds: how it stores a picture: ``named`` (a file whose ending says the format), ``bytes``
            (encoded, any format) or ``arrays`` (pixels).
        files: its pictures are files, which can be linked.
        mixes: a part may be made of several sets.
        swaps: another picture may take the place of one; not so where boxes belong to pictures.
    """

    name: str
    writes: str
    holds: str = "named"
    files: bool = True
    mixes: bool = True
    swaps: bool = True

    def write(self, parts: Sequence[FilledPart], place: Place) -> list[Opened]:
        """Write parts of this layout and return how each is opened."""
        module, _, function = self.writes.partition(":")
        writer = cast(
            "Callable[[Sequence[FilledPart], Place], list[Opened]]",
            getattr(importlib.import_module(module), function),
        )
        return writer(parts, place)


_FOLDER: Final = Layout("a folder of pictures", "visleak.remedy.layouts.files:write_folder")
_PARQUET: Final = Layout(
    "Parquet with pictures",
    "visleak.remedy.layouts.parquet:write_parquet",
    holds="bytes",
    files=False,
)
_LIST: Final = Layout("a file list", "visleak.remedy.layouts.tables:write_list")
_TABLE: Final = Layout("a table of files", "visleak.remedy.layouts.tables:write_table")
_ZIP: Final = Layout(
    "a zip archive", "visleak.remedy.layouts.zips:write_zip", files=False, mixes=False
)
_TAR: Final = Layout(
    "a tar archive", "visleak.remedy.layouts.tars:write_tar", files=False, mixes=False
)
_SHARDS: Final = Layout(
    "WebDataset shards",
    "visleak.remedy.layouts.tars:write_webdataset",
    holds="bytes",
    files=False,
    mixes=False,
)
_COCO: Final = Layout("COCO", "visleak.remedy.layouts.coco:write_coco", swaps=False)
_YOLO: Final = Layout("YOLO", "visleak.remedy.layouts.yolo:write_yolo", swaps=False)
_KITTI: Final = Layout(
    "KITTI", "visleak.remedy.layouts.kitti:write_kitti", mixes=False, swaps=False
)
_CIFAR: Final = Layout(
    "CIFAR batches",
    "visleak.remedy.layouts.cifar:write_cifar",
    holds="arrays",
    files=False,
    mixes=False,
)
_HUB: Final = Layout(
    "a Hugging Face data set",
    "visleak.remedy.layouts.hub:write_hub",
    holds="bytes",
    files=False,
    mixes=False,
)

#: Function that opens a kind of source: the layout it is written in.
LAYOUTS: Final = {
    "visleak.images.folder:open_folder": _FOLDER,
    "visleak.images.folder:open_file": _FOLDER,
    "visleak.images.lists:open_glob": _FOLDER,
    "visleak.images.remote:open_remote_folder": _FOLDER,
    "visleak.images.remote:open_remote_picture": _FOLDER,
    "visleak.images.lists:open_list": _LIST,
    "visleak.images.manifest:open_manifest": _TABLE,
    "visleak.images.parquet:open_parquet": _PARQUET,
    "visleak.images.archive_zip:open_zip": _ZIP,
    "visleak.images.archive_tar:open_tar": _TAR,
    "visleak.images.annotated:open_coco": _COCO,
    "visleak.images.annotated:open_yolo": _YOLO,
    "visleak.images.kitti:open_kitti": _KITTI,
    "visleak.images.cifar:open_cifar": _CIFAR,
    "visleak.images.hub:open_hub": _HUB,
    "visleak.images.webdataset:open_webdataset": _SHARDS,
    "visleak.images.webdataset:open_shard_list": _SHARDS,
}


def layout_of(images: ImageSet) -> Layout:
    """Return the layout of a set.

    Raises:
        UsageError: the set was given in memory, is gone, or is of a kind that cannot be written.
    """
    if not images.source:
        raise UsageError(
            f"set {images.name!r} was given in memory; a clean copy needs a source on disk"
        )
    layout = LAYOUTS.get(locate(images.source).opens)
    if layout is _PARQUET and not isinstance(images.opener, ParquetOpener):
        return _TABLE  # it names files
    if layout is None:
        raise UsageError(
            f"set {images.name!r}: {images.source} is of a kind that is not written; write the"
            " lists alone with --format manifest"
        )
    return layout


def linkable(images: ImageSet) -> bool:
    """Whether the pictures of a set are files of this machine."""
    return isinstance(images.opener, FileOpener) and not is_address(images.source)
