"""The result of an extraction, as a document and as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from visleak.memorization.extraction.images import ImageStore, StoredImage
from visleak.memorization.extraction.similarity import Group
from visleak.memorization.prompts import PromptScores
from visleak.memorization.recall import recall_line, recall_of
from visleak.progress import Progress, silent
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

#: Contact sheets, one per cluster; clusters that the page shows with theirs, and images of a sheet:
#: across and in all.
SHEETS: Final = "sheets"
SHOWN: Final = 20
ACROSS: Final = 10
MOST: Final = 60

_WHOLE: Final = pa.int64()
_GENERATED: Final = (
    *(Column("prompt"), Column("seed", _WHOLE), Column("digest"), Column("path")),
    Column("cluster", _WHOLE),
)
_MEDOIDS: Final = (
    *(Column("id"), Column("path"), Column("prompt"), Column("cluster", _WHOLE)),
    *(Column("size", _WHOLE), Column("seed", _WHOLE), Column("caption")),
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Images of one prompt that are nearly the same: a candidate for a memorized image."""

    prompt: str
    number: int  #: of the cluster within the prompt, from 0, largest first
    size: int
    images: int  #: generated for the prompt
    medoid: str  #: content digest (hexadecimal) of the image most similar to the others
    path: str  #: of the medoid's file, relative to the extraction's folder
    seed: int  #: the medoid was made from
    cohesion: float  #: median similarity of the medoid to the other images of the cluster


@dataclass(frozen=True, slots=True)
class Unclustered:
    """A prompt of high D whose images gave no cluster: the similarity may have missed one."""

    prompt: str
    d: float


@dataclass(frozen=True)
class Extraction:
    """Images of prompts, and their clusters.

    The folder holds ``extract.json``, ``generated.parquet`` (prompt, seed, digest, path), the
    images as PNG named by their content, ``clusters.parquet``, and ``medoids.parquet``, a manifest
    (id, path, prompt, cluster, size, seed, caption) that is opened as a SOURCE.
    """

    folder: Path
    about: dict[str, Any]  #: model, sampling, similarity, settings; ``d`` where the list has it
    prompts: tuple[str, ...]
    images: int
    clusters: tuple[Cluster, ...]  #: by prompt, largest first
    calls: int  #: passes of the network that the images cost
    seconds: float  #: generating the images, over all runs, and the last comparison
    generating_seconds: float = 0.0
    key: str = ""  #: of everything in the request; equal keys are equal requests

    @property
    def unclustered(self) -> tuple[Unclustered, ...]:
        """The prompts of high D without a cluster, highest D first."""
        return self._high()[0]

    @property
    def high_rule(self) -> str:
        """From where on a D counts as high; empty where no D is known."""
        return self._high()[1]

    def _high(self) -> tuple[tuple[Unclustered, ...], str]:
        known = self.about.get("d")
        if not isinstance(known, Mapping):
            return (), ""
        scores = PromptScores.of(known, self.prompts)
        clustered = {each.prompt for each in self.clusters}
        high, rule = scores.high(clustered)
        # a prompt that reached a threshold may have no D of its own
        found = [Unclustered(t, scores.values.get(t, float("nan"))) for t in high - clustered]
        return tuple(sorted(found, key=lambda each: (-each.d, each.prompt))), rule


def headline(result: Extraction) -> str:
    """Return what was found as one line that can be repeated."""
    settings = result.about["settings"]
    least, images = int(settings["min_cluster"]), int(settings["images"])
    found = len({each.prompt for each in result.clusters})
    total, missed = len(result.prompts), len(result.unclustered)
    some = f"{found:,} of {total:,} prompt{'s' * (total != 1)} gave a cluster"
    if least > 1:
        some += f" of at least {least:,} of {images:,} images that are nearly the same"
    else:
        some += f" among {images:,} images"
    high = f"; {missed:,} of high D gave none" if missed else ""
    if not found:
        return f"{some}: no candidate for a memorized image{high}"
    return f"{some}: candidates, not yet verified (visleak memorization trace){high}"


def cautions(result: Extraction) -> list[str]:
    """Return what must be known of images that are in no cluster, a line each."""
    lines = [recall_line(_similarity_of(result), "extract")]
    if missed := len(result.unclustered):
        lines.append(
            f"{missed:,} prompt{'s' * (missed != 1)}: D is high, no cluster of images was found"
            f" ({result.high_rule}): candidates that the similarity may have missed, in"
            f" {UNCLUSTERED}"
        )
    return lines


def _similarity_of(result: Extraction) -> str:
    return str(result.about["similarity"].get("name", ""))


def document(result: Extraction, *, sheets: bool = False) -> Document:
    """Return candidate images as a document, on demand with the sheets of the first clusters."""
    about = result.about
    settings, similarity, sampling = about["settings"], about["similarity"], about["sampling"]
    noises = "the same noises for all prompts" if settings["paired"] else "own noises per prompt"
    names = [name_of(result, each) for each in result.clusters[:SHOWN]] if sheets else ()
    return Document(
        title="Candidate images",
        headline=headline(result),
        lines=tuple(cautions(result)),
        tables=(clusters(result), unclustered(result)),
        images=tuple((f"Cluster {name}", f"{SHEETS}/{name}.png") for name in names),
        notes=(
            f"model: {about['model']['name']} ({about['model']['precision']})",
            f"images: {result.images:,}, {settings['images']:,} per prompt; {sampling['steps']}"
            f" steps, guidance {sampling['guidance']:g}, seed {settings['seed']}, {noises}",
            f"similarity: {similarity['name']} ({similarity['number']})",
            f"clusters: DBSCAN, eps {settings['eps']:g}, min-samples {settings['min_samples']}, at"
            f" least {settings['min_cluster']:,} images",
            f"cost: {result.calls:,} passes of the network, {result.seconds:,.0f} s",
        ),
    )


def clusters(result: Extraction) -> Table:
    """Return the table of clusters."""
    columns = (
        *(Column("prompt", heading="prompt"), Column(heading="cluster")),
        Column("cluster", _WHOLE),
        *(Column(name, _WHOLE, name, number=True) for name in ("size", "images")),
        *(Column("medoid"), Column("path")),
        Column("seed", _WHOLE, "seed of the medoid", number=True, show=str),
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
    name = str((result.about.get("d") or {}).get("name", "d"))
    columns = (
        Column("prompt", heading="prompt"),
        Column(name, pa.float64(), "D", "{:.4g}".format, number=True),
    )
    rows = [(each.prompt, each.d) for each in result.unclustered]
    return Table("High D, no cluster of images", columns, rows, file=UNCLUSTERED)


def name_of(result: Extraction, cluster: Cluster) -> str:
    """Return the id of a cluster's medoid: the number of its prompt, and its own."""
    return f"{result.prompts.index(cluster.prompt) + 1:05d}-{cluster.number}"


def content(run: RunFolder, result: Extraction) -> dict[str, object]:
    """Return the content of ``extract.json``."""
    return run.document(
        headline(result),
        result,
        high_d=result.high_rule,
        unclustered=result.unclustered,
        recall=recall_of(_similarity_of(result), "extract"),
        cautions=cautions(result),
    )


def files(
    result: Extraction,
    made: Sequence[StoredImage],
    groups: Sequence[Sequence[Group]],
    store: ImageStore | None,
    progress: Progress = silent,
) -> dict[str, File]:
    """Return the tables, contact sheets and the page of candidate images, by name of file."""
    count = len(made) // max(1, len(result.prompts))
    within: dict[int, int] = {}
    members: list[list[StoredImage]] = []
    for place, found in enumerate(groups):
        for number, group in enumerate(found):
            rows = [place * count + member for member in group.members]
            members.append([made[row] for row in rows])
            within |= dict.fromkeys(rows, number)
    generated = [
        (each.prompt, each.seed, each.digest, each.path, within.get(row))
        for row, each in enumerate(made)
    ]
    medoids = [
        (name_of(result, c), c.path, c.prompt, c.number, c.size, c.seed, c.prompt)
        for c in result.clusters
    ]
    table = clusters(result).arrow()
    written: dict[str, File] = {
        GENERATED: Table("", _GENERATED, generated).arrow(),
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


def sheet(cluster: Cluster, images: Sequence[StoredImage], store: ImageStore) -> bytes:
    """Return the contact sheet of a cluster as PNG: the medoid, then the most similar images."""
    tiles = [Tile("", partial(store.pixels, each.digest)) for each in images[: MOST + 1]]
    rows = [(f"medoid, seed {cluster.seed}", tiles[:1])]
    for start in range(1, len(tiles), ACROSS):
        rows.append(("by falling similarity" if start == 1 else "", tiles[start : start + ACROSS]))
    more = len(images) - len(tiles)
    below = (
        f"{cluster.size:,} of {cluster.images:,} images are nearly the same; median similarity to"
        f" the medoid {cluster.cohesion:.2f}{f'; {more:,} more' if more else ''}"
    )
    return contact_sheet(cluster.prompt, below, rows)
