"""What is traced: medoids of an extraction, all of its images, or any set of pictures."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from visleak.documents import read_document
from visleak.errors import UsageError, VisleakError
from visleak.images import open_pictures
from visleak.records import ImageSet

#: Name of the set of generated images in the audit.
GENERATED: Final = "generated"

#: Files of an extraction's folder, and what ``extract.json`` says it is.
EXTRACTION: Final = "extract.json"
KIND: Final = "visleak memorization extract"
OTHER_KIND: Final = re.compile(rb'"kind": "visleak memorization ([a-z]{1,20})"')
MEDOIDS: Final = "medoids.parquet"
IMAGES: Final = "generated.parquet"

_AGAIN: Final = "run visleak memorization extract again"


@dataclass(frozen=True)
class Queries:
    """Generated images, and where they come from.

    Attributes:
        images: the set; ``None`` where there are none to trace.
        prompts: by image, in the order of the set; empty texts where nobody knows.
        sizes: images in the cluster of each.
        every: all images of the prompts, not one per cluster.
        clusters: each image stands for a cluster.
        origin: what ``extract.json`` says of model and sampling; empty without an extraction.
    """

    images: ImageSet | None
    prompts: tuple[str, ...]
    sizes: tuple[int, ...]
    every: bool = False
    clusters: bool = False
    origin: Mapping[str, Any] = field(default_factory=dict)


def open_queries(target: str | os.PathLike[str], *, every: bool = False) -> Queries:
    """Open what is to be traced.

    Args:
        target: folder of ``visleak memorization extract``, or a SOURCE of pictures, whose captions
            are taken for the prompts.
        every: all images of an extraction, not one per cluster.

    Raises:
        UsageError: there is no such source, or it is a result of another verb; or ``every``
            without an extraction.
        VisleakError: the extraction is damaged.
    """
    folder = Path(target)
    if (folder / EXTRACTION).is_file():
        return _extracted(folder, every=every)
    _refuse_other_verb(folder)
    if every:
        raise UsageError(
            f"--all is for a folder of visleak memorization extract; {os.fspath(target)} has no"
            f" {EXTRACTION}, and of a SOURCE all pictures are traced anyway"
        )
    images = open_pictures(target, name=GENERATED, roles=("benchmark",))
    captions = [] if images.captions is None else images.captions.to_pylist()
    prompts = tuple(caption or "" for caption in captions) or ("",) * len(images)
    return Queries(images, prompts, (1,) * len(images))


def _refuse_other_verb(folder: Path) -> None:
    # its figures would be taken for generated images
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        with path.open("rb") as file:
            found = OTHER_KIND.search(file.read(1000))
        if found:
            raise UsageError(
                f"{folder} is a result of visleak memorization {found[1].decode()}, not of extract;"
                " make images of its prompts first (visleak memorization extract), or name a SOURCE"
                " of pictures"
            )


def _extracted(folder: Path, *, every: bool) -> Queries:
    content = read_document(
        folder / EXTRACTION, KIND, 1, "it is not a result of visleak memorization extract"
    )
    about = content.get("about")
    origin = about if isinstance(about, dict) else {}
    path = folder / (IMAGES if every else MEDOIDS)
    rows = _rows(path, ["prompt"] if every else ["prompt", "size"])
    if not rows:
        return Queries(None, (), (), every, not every, origin)
    paths = _rows(path, ["path"]) if every else []
    # an image that came twice is one file: then its path names no single row
    named = every and len({row["path"] for row in paths}) == len(paths)
    images = open_pictures(
        str(path), name=GENERATED, roles=("benchmark",), id="path" if named else None
    )
    if len(images) != len(rows):
        raise VisleakError(f"{path} lists files that cannot be; {_AGAIN}")
    sizes = (1,) * len(rows) if every else tuple(int(row["size"]) for row in rows)
    prompts = tuple(str(row["prompt"]) for row in rows)
    return Queries(images, prompts, sizes, every, not every, origin)


def _rows(path: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    try:
        table = pq.read_table(path, columns=list(columns))
        return [dict(row) for row in table.to_pylist()]
    except (OSError, pa.ArrowException, KeyError) as error:
        raise VisleakError(f"{path} cannot be read ({error}); {_AGAIN}") from error
