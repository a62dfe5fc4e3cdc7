"""What a folder of candidate images says of itself: ``extract.json`` and its tables, and back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

import visleak
from visleak.documents import as_plain, from_plain, read_document
from visleak.errors import UsageError, VisleakError
from visleak.memorization.extraction.image_store import Stored
from visleak.memorization.extraction.records import Cluster, Extraction
from visleak.memorization.recall import recall_line, recall_of

SCHEMA: Final = 1
KIND: Final = "visleak memorization extract"

#: The files; ``RESULT`` is written last.
RESULT: Final = "extract.json"
GENERATED: Final = "generated.parquet"
CLUSTERS: Final = "clusters.parquet"
MEDOIDS: Final = "medoids.parquet"

#: A list of the prompts of high D without a cluster, which other verbs read.
UNCLUSTERED: Final = "unclustered.csv"


def headline(result: Extraction) -> str:
    """Return what was found as one line that can be repeated."""
    settings: Any = result.about["settings"]
    least, images = int(settings["min_cluster"]), int(settings["images"])
    found = len({each.prompt for each in result.clusters})
    total = len(result.prompts)
    some = f"{found:,} of {total:,} prompt{'s' * (total != 1)} gave a cluster"
    if least > 1:
        some += f" of at least {least:,} of {images:,} images that are nearly the same"
    else:
        some += f" among {images:,} images"
    missed = len(result.unclustered)
    high = f"; {missed:,} of high D gave none" if missed else ""
    if not found:
        return f"{some}: no candidate for a memorized image{high}"
    return f"{some}: candidates, not yet verified (visleak memorization trace){high}"


def cautions(result: Extraction) -> list[str]:
    """Return what must be known of images that are in no cluster, a line each."""
    lines = [recall_line(_similarity_of(result), "extract")]
    missed = len(result.unclustered)
    if missed:
        many = f"{missed:,} prompt{'s' * (missed != 1)}"
        lines.append(
            f"{many}: D is high, no cluster of images was found ({result.high_rule}): candidates"
            f" that the similarity may have missed, in {UNCLUSTERED}"
        )
    return lines


def _similarity_of(result: Extraction) -> str:
    """Return the name of the similarity that clusters were made by."""
    about: Any = result.about
    return str(about["similarity"].get("name", ""))


def as_dict(result: Extraction) -> dict[str, Any]:
    """Return the content of ``extract.json``."""
    recall = recall_of(_similarity_of(result), "extract")
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "visleak": visleak.__version__,
        "headline": headline(result),
        "key": result.key,
        "about": as_plain(result.about),
        "images": result.images,
        "calls": result.calls,
        "seconds": round(result.seconds, 3),
        "generating_seconds": round(result.generating_seconds, 3),
        "clusters": as_plain(result.clusters),
        "high_d": result.high_rule,
        "unclustered": as_plain(result.unclustered),
        "recall": None if recall is None else recall.as_dict(),
        "cautions": cautions(result),
        "prompts": list(result.prompts),
    }


def read_extraction(folder: str | os.PathLike[str]) -> Extraction:
    """Return the result that a folder holds.

    Raises:
        UsageError: there is none.
        VisleakError: it is damaged, or a newer visleak wrote it.
    """
    path = Path(folder) / RESULT
    if not path.is_file():
        raise UsageError(
            f"{os.fspath(folder)} holds no finished extraction (no {RESULT}); run `visleak"
            " memorization extract` first"
        )
    content = read_document(path, KIND, SCHEMA, "it is no result of visleak memorization extract")
    try:
        about = content["about"]
        for name in ("model", "sampling", "similarity", "settings"):
            about[name].keys()  # what is no mapping is refused below
        return Extraction(
            folder=Path(folder),
            about=about,
            prompts=from_plain(tuple[str, ...], content["prompts"]),
            images=from_plain(int, content["images"]),
            clusters=from_plain(tuple[Cluster, ...], content["clusters"]),
            calls=from_plain(int, content["calls"]),
            seconds=from_plain(float, content["seconds"]),
            generating_seconds=from_plain(float, content["generating_seconds"]),
            key=from_plain(str, content["key"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VisleakError(
            f"{path} is damaged ({error}); run visleak memorization extract again"
        ) from error


def generated_of(folder: Path) -> list[Stored]:
    """Return all images of an extraction, by prompt and number.

    Raises:
        VisleakError: the table is missing or damaged.
    """
    path = folder / GENERATED
    try:
        table = pq.read_table(path, columns=["prompt", "seed", "digest"])
    except (OSError, pa.ArrowException) as error:
        raise VisleakError(
            f"{path} cannot be read ({error}); run visleak memorization extract again"
        ) from error
    return [Stored(row["prompt"], row["seed"], row["digest"], 0.0) for row in table.to_pylist()]
