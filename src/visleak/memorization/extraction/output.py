"""Writing candidate images: tables, contact sheets, Markdown, and ``extract.json`` last."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from visleak.errors import VisleakError
from visleak.markup import Grid, markdown_cell, markdown_table
from visleak.memorization.extraction.clustering import Group
from visleak.memorization.extraction.image_store import ImageStore, Stored
from visleak.memorization.extraction.records import Cluster, Extraction
from visleak.memorization.extraction.sheets import sheet
from visleak.memorization.extraction.stored import (
    CLUSTERS,
    GENERATED,
    MEDOIDS,
    RESULT,
    UNCLUSTERED,
    as_dict,
    cautions,
    headline,
)
from visleak.pipeline.workplace import Progress, silent
from visleak.store import csv_value, write_bytes, write_json, write_tables, write_text, write_values

#: Contact sheets, a cluster each.
SHEETS: Final = "sheets"
SUMMARY: Final = "extract.md"
CSV: Final = "clusters.csv"

#: Clusters in the Markdown, and those of them with their sheet.
LISTED: Final = 200
SHOWN: Final = 20

GENERATED_SCHEMA: Final = pa.schema(
    [
        ("prompt", pa.string()),
        ("seed", pa.int64()),
        ("digest", pa.string()),
        ("path", pa.string()),
        ("cluster", pa.int64()),
    ]
)
CLUSTER_SCHEMA: Final = pa.schema(
    [
        ("prompt", pa.string()),
        ("cluster", pa.int64()),
        ("size", pa.int64()),
        ("images", pa.int64()),
        ("medoid", pa.string()),
        ("path", pa.string()),
        ("seed", pa.int64()),
        ("cohesion", pa.float64()),
    ]
)
MEDOID_SCHEMA: Final = pa.schema(
    [
        ("id", pa.string()),
        ("path", pa.string()),
        ("prompt", pa.string()),
        ("cluster", pa.int64()),
        ("size", pa.int64()),
        ("seed", pa.int64()),
        ("caption", pa.string()),
    ]
)


def write(
    result: Extraction,
    made: Sequence[Stored],
    groups: Sequence[Sequence[Group]],
    store: ImageStore | None,
    progress: Progress = silent,
) -> None:
    """Write everything about a result into its folder; ``extract.json`` comes last.

    Args:
        result: what was found.
        made: its images, by prompt and number.
        groups: the clusters of each prompt, as places among its images.
        store: with the pictures; ``None`` draws no contact sheets.
        progress: told of the sheets.

    Raises:
        VisleakError: the disk refuses.
    """
    folder = result.folder
    try:
        # a result that is half replaced is none
        (folder / RESULT).unlink(missing_ok=True)
        shutil.rmtree(folder / SHEETS, ignore_errors=True)
        write_tables(folder / GENERATED, GENERATED_SCHEMA, [_generated(result, made, groups)])
        clusters = pa.Table.from_pylist(
            [_row(each) for each in result.clusters], schema=CLUSTER_SCHEMA
        )
        write_tables(folder / CLUSTERS, CLUSTER_SCHEMA, [clusters])
        write_tables(folder / MEDOIDS, MEDOID_SCHEMA, [_medoids(result)])
        write_values(folder / CSV, CLUSTER_SCHEMA.names, _lines(result))
        _write_unclustered(result)
        if store is not None:
            _draw(result, made, groups, store, progress)
        write_text(folder / SUMMARY, markdown(result, sheets=store is not None))
        write_json(folder / RESULT, as_dict(result))
    except OSError as error:
        raise VisleakError(f"{folder} cannot be written ({error.strerror})") from error


def _write_unclustered(result: Extraction) -> None:
    """Write the prompts of high D without a cluster, or remove the list of another result."""
    path = result.folder / UNCLUSTERED
    about: Any = result.about
    if not result.unclustered:
        path.unlink(missing_ok=True)
        return
    rows = [[csv_value(each.prompt), csv_value(each.d)] for each in result.unclustered]
    write_values(path, ("prompt", str(about["d"]["name"])), rows)


def name_of(result: Extraction, cluster: Cluster) -> str:
    """Return the id of a cluster's medoid: the number of its prompt, and its own."""
    return f"{result.prompts.index(cluster.prompt) + 1:05d}-{cluster.number}"


def _generated(
    result: Extraction, made: Sequence[Stored], groups: Sequence[Sequence[Group]]
) -> pa.Table:
    count = len(made) // max(1, len(result.prompts))
    within: list[int | None] = [None] * len(made)
    for place, found in enumerate(groups):
        for number, group in enumerate(found):
            for member in group.members:
                within[place * count + member] = number
    columns: dict[str, list[Any]] = {
        "prompt": [each.prompt for each in made],
        "seed": [each.seed for each in made],
        "digest": [each.digest for each in made],
        "path": [each.path for each in made],
        "cluster": within,
    }
    return pa.table(columns, schema=GENERATED_SCHEMA)


def _row(cluster: Cluster) -> dict[str, Any]:
    return {
        "prompt": cluster.prompt,
        "cluster": cluster.number,
        "size": cluster.size,
        "images": cluster.images,
        "medoid": cluster.medoid,
        "path": cluster.path,
        "seed": cluster.seed,
        "cohesion": cluster.cohesion,
    }


def _lines(result: Extraction) -> Iterator[list[str]]:
    for cluster in result.clusters:
        yield [csv_value(value) for value in _row(cluster).values()]


def _medoids(result: Extraction) -> pa.Table:
    rows = [
        {
            "id": name_of(result, each),
            "path": each.path,
            "prompt": each.prompt,
            "cluster": each.number,
            "size": each.size,
            "seed": each.seed,
            "caption": each.prompt,
        }
        for each in result.clusters
    ]
    return pa.Table.from_pylist(rows, schema=MEDOID_SCHEMA)


def _draw(
    result: Extraction,
    made: Sequence[Stored],
    groups: Sequence[Sequence[Group]],
    store: ImageStore,
    progress: Progress,
) -> None:
    """Draw the contact sheet of each cluster."""
    count = len(made) // max(1, len(result.prompts))
    clusters = iter(result.clusters)
    done = 0
    for place, found in enumerate(groups):
        for group in found:
            cluster = next(clusters)
            digests = [made[place * count + member].digest for member in group.members]
            data = sheet(cluster, digests, store.picture)
            write_bytes(result.folder / SHEETS / f"{name_of(result, cluster)}.png", data)
            done += 1
            progress("drawing contact sheets", done, len(result.clusters))


def markdown(result: Extraction, *, sheets: bool = True) -> str:
    """Return the result as Markdown."""
    about: Any = result.about
    settings, similarity, sampling = about["settings"], about["similarity"], about["sampling"]
    lines = [
        "# Candidate images",
        "",
        f"{markdown_cell(headline(result))}.",
        "",
        f"- model: {markdown_cell(str(about['model']['name']))}"
        f" ({markdown_cell(str(about['model']['precision']))})",
        f"- images: {result.images:,}, {settings['images']:,} a prompt; {sampling['steps']} steps,"
        f" guidance {sampling['guidance']:g}, seed {settings['seed']},"
        f" {'the same noises for all prompts' if settings['paired'] else 'noises a prompt'}",
        f"- similarity: {markdown_cell(similarity['name'])}"
        f" ({markdown_cell(similarity['number'])})",
        f"- clusters: DBSCAN, eps {settings['eps']:g}, min-samples {settings['min_samples']}, at"
        f" least {settings['min_cluster']:,} images",
        f"- cost: {result.calls:,} passes of the network, {result.seconds:,.0f} s",
        *(f"- {markdown_cell(line)}" for line in cautions(result)),
        "",
    ]
    if result.clusters:
        lines += [*markdown_table(_grid(result)), ""]
    if len(result.clusters) > LISTED:
        lines += [f"{len(result.clusters) - LISTED:,} more are in {CSV}.", ""]
    if result.unclustered:
        grid = _unclustered_grid(result)
        lines += [f"## {grid.title}", "", *markdown_table(grid), ""]
    if len(result.unclustered) > LISTED:
        lines += [f"{len(result.unclustered) - LISTED:,} more are in {UNCLUSTERED}.", ""]
    if sheets:
        for each in result.clusters[:SHOWN]:
            lines += [f"![cluster]({SHEETS}/{name_of(result, each)}.png)", ""]
    return "\n".join(lines)


def _grid(result: Extraction) -> Grid:
    rows = [
        [
            each.prompt,
            name_of(result, each),
            f"{each.size:,} of {each.images:,}",
            f"{each.cohesion:.2f}",
            str(each.seed),
        ]
        for each in result.clusters[:LISTED]
    ]
    header = ["prompt", "cluster", "images", "cohesion", "seed of the medoid"]
    return Grid("clusters", header, rows, texts=2)


def _unclustered_grid(result: Extraction) -> Grid:
    rows = [[each.prompt, f"{each.d:.4g}"] for each in result.unclustered[:LISTED]]
    return Grid("High D, no cluster of images", ["prompt", "D"], rows)
