"""Candidate images as a document and as files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa

from visleak.memorization.extraction.images import ImageStore, Stored
from visleak.memorization.extraction.records import Cluster, Extraction
from visleak.memorization.extraction.similarity import Group
from visleak.memorization.recall import recall_line, recall_of
from visleak.pipeline.context import Progress, silent
from visleak.reporting import Column, Document, Table, markdown
from visleak.reporting.contact_sheet import Tile, contact_sheet
from visleak.storage import File, RunFolder

#: Tables; ``MEDOIDS`` is a SOURCE, ``UNCLUSTERED`` a list of the prompts of high D without a
#: cluster.
GENERATED: Final = "generated.parquet"
CLUSTERS: Final = "clusters.parquet"
MEDOIDS: Final = "medoids.parquet"
CSV: Final = "clusters.csv"
UNCLUSTERED: Final = "unclustered.csv"

#: Contact sheets, one per cluster.
SHEETS: Final = "sheets"

#: Clusters of the page with their sheet, and images of a sheet: across and in all.
SHOWN: Final = 20
ACROSS: Final = 10
MOST: Final = 60

_GENERATED: Final = (
    Column("prompt"),
    Column("seed", pa.int64()),
    Column("digest"),
    Column("path"),
    Column("cluster", pa.int64()),
)
_MEDOIDS: Final = (
    Column("id"),
    Column("path"),
    Column("prompt"),
    Column("cluster", pa.int64()),
    Column("size", pa.int64()),
    Column("seed", pa.int64()),
    Column("caption"),
)


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
    about: Any = result.about
    return str(about["similarity"].get("name", ""))


def document(result: Extraction, *, sheets: bool = False) -> Document:
    """Return candidate images as a document.

    Args:
        result: what was found.
        sheets: with the contact sheets of the first clusters.
    """
    shown = result.clusters[:SHOWN] if sheets else ()
    return Document(
        title="Candidate images",
        headline=headline(result),
        lines=tuple(cautions(result)),
        tables=(clusters(result), unclustered(result)),
        images=tuple(
            (f"Cluster {name}", f"{SHEETS}/{name}.png")
            for name in (name_of(result, each) for each in shown)
        ),
        notes=tuple(about(result)),
    )


def about(result: Extraction) -> list[str]:
    """Return how images were generated and clustered, a line each."""
    about: Any = result.about
    settings, similarity, sampling = about["settings"], about["similarity"], about["sampling"]
    noises = "the same noises for all prompts" if settings["paired"] else "own noises per prompt"
    return [
        f"model: {about['model']['name']} ({about['model']['precision']})",
        f"images: {result.images:,}, {settings['images']:,} per prompt; {sampling['steps']} steps,"
        f" guidance {sampling['guidance']:g}, seed {settings['seed']}, {noises}",
        f"similarity: {similarity['name']} ({similarity['number']})",
        f"clusters: DBSCAN, eps {settings['eps']:g}, min-samples {settings['min_samples']}, at"
        f" least {settings['min_cluster']:,} images",
        f"cost: {result.calls:,} passes of the network, {result.seconds:,.0f} s",
    ]


def clusters(result: Extraction) -> Table:
    """Return the table of clusters."""
    columns = (
        Column("prompt", heading="prompt"),
        Column(heading="cluster"),
        Column("cluster", pa.int64()),
        Column("size", pa.int64(), "size", number=True),
        Column("images", pa.int64(), "images", number=True),
        Column("medoid"),
        Column("path"),
        Column("seed", pa.int64(), "seed of the medoid", number=True, show=str),
        Column("cohesion", pa.float64(), "cohesion", number=True, show="{:.2f}".format),
    )
    rows = [
        (
            *(each.prompt, name_of(result, each), each.number, each.size, each.images),
            *(each.medoid, each.path, each.seed, each.cohesion),
        )
        for each in result.clusters
    ]
    return Table("Clusters", columns, rows, file=CSV)


def unclustered(result: Extraction) -> Table:
    """Return the table of prompts of high D without a cluster."""
    known: Any = result.about.get("d") or {}
    columns = (
        Column("prompt", heading="prompt"),
        Column(str(known.get("name", "d")), pa.float64(), "D", "{:.4g}".format, number=True),
    )
    rows = [(each.prompt, each.d) for each in result.unclustered]
    return Table("High D, no cluster of images", columns, rows, file=UNCLUSTERED)


def name_of(result: Extraction, cluster: Cluster) -> str:
    """Return the id of a cluster's medoid: the number of its prompt, and its own."""
    return f"{result.prompts.index(cluster.prompt) + 1:05d}-{cluster.number}"


def content(run: RunFolder, result: Extraction) -> dict[str, Any]:
    """Return the content of ``extract.json``."""
    return run.document(headline(result), result) | {
        "high_d": result.high_rule,
        "unclustered": [{"prompt": each.prompt, "d": each.d} for each in result.unclustered],
        "recall": recall_of(_similarity_of(result), "extract"),
        "cautions": cautions(result),
    }


def files(
    result: Extraction,
    made: Sequence[Stored],
    groups: Sequence[Sequence[Group]],
    store: ImageStore | None,
    progress: Progress = silent,
) -> dict[str, File]:
    """Return the tables, contact sheets and the page of candidate images, by name of file.

    Args:
        result: what was found.
        made: its images, by prompt and number.
        groups: the clusters of each prompt, as places among its images.
        store: with the images; ``None`` draws no contact sheets.
        progress: called for each sheet.
    """
    count = len(made) // max(1, len(result.prompts))
    within: list[int | None] = [None] * len(made)
    members: list[list[Stored]] = []
    for place, found in enumerate(groups):
        for number, group in enumerate(found):
            members.append([made[place * count + member] for member in group.members])
            for member in group.members:
                within[place * count + member] = number
    rows = [
        (each.prompt, each.seed, each.digest, each.path, cluster)
        for each, cluster in zip(made, within, strict=True)
    ]
    medoids = [
        (
            *(name_of(result, each), each.path, each.prompt, each.number, each.size, each.seed),
            each.prompt,
        )
        for each in result.clusters
    ]
    table = clusters(result).arrow()
    written: dict[str, File] = {
        GENERATED: Table("", _GENERATED, rows).arrow(),
        CLUSTERS: table,
        MEDOIDS: Table("", _MEDOIDS, medoids).arrow(),
        CSV: table,
        UNCLUSTERED: unclustered(result).arrow() if result.unclustered else None,
        SHEETS: None,
    }
    if store is not None:
        for done, (each, images) in enumerate(zip(result.clusters, members, strict=True), 1):
            written[f"{SHEETS}/{name_of(result, each)}.png"] = sheet(each, images, store)
            progress("drawing contact sheets", done, len(result.clusters))
    return written | {"extract.md": markdown(document(result, sheets=store is not None))}


def sheet(cluster: Cluster, images: Sequence[Stored], store: ImageStore) -> bytes:
    """Return the contact sheet of a cluster as PNG.

    Args:
        cluster: what is stated of it.
        images: its images, the medoid first, then by falling similarity to it.
        store: with the pixels.
    """
    shown = images[1 : MOST + 1]
    tiles = [Tile("", partial(store.pixels, each.digest)) for each in images[: MOST + 1]]
    rows = [(f"medoid, seed {cluster.seed}", tiles[:1])]
    for start in range(1, len(tiles), ACROSS):
        rows.append(("by falling similarity" if start == 1 else "", tiles[start : start + ACROSS]))
    more = len(images) - 1 - len(shown)
    below = (
        f"{cluster.size:,} of {cluster.images:,} images are nearly the same; median similarity to"
        f" the medoid {cluster.cohesion:.2f}{f'; {more:,} more' if more else ''}"
    )
    return contact_sheet(cluster.prompt, below, rows)
