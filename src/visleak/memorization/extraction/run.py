"""Candidate images of prompts: generate them, cluster them, write what was found."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from visleak.diffusion.model import DiffusionModel, Sampling, about_model
from visleak.documents import digest_of
from visleak.errors import UsageError, VisleakError
from visleak.memorization.extraction.images import (
    ImageStore,
    Job,
    StoredImage,
    calls_of,
    images_of,
    seeds_of,
)
from visleak.memorization.extraction.similarity import (
    CopySimilarity,
    Group,
    clusters_of,
    load_similarity,
    recall_line,
    recall_of,
)
from visleak.memorization.prompts import PromptScores
from visleak.memorization.settings import ExtractSettings
from visleak.progress import Progress, silent
from visleak.quantities import counted
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
    found, missed = len({each.prompt for each in result.clusters}), len(result.unclustered)
    text = f"{found:,} of {counted(len(result.prompts), 'prompt')} gave a cluster"
    if least > 1:
        text += f" of at least {least:,} of {images:,} images that are nearly the same"
    else:
        text += f" among {images:,} images"
    if found:
        text += ": candidates, not yet verified (visleak memorization trace)"
    else:
        text += ": no candidate for a memorized image"
    return text + (f"; {missed:,} of high D gave none" if missed else "")


def cautions(result: Extraction) -> list[str]:
    """Return why images without a cluster may be reproductions too, one line each."""
    lines = [recall_line(result.about["similarity"]["name"], "extract")]
    if missed := len(result.unclustered):
        lines.append(
            f"{counted(missed, 'prompt')}: D is high, no cluster of images was found"
            f" ({result.high_rule}): candidates that the similarity may have missed, in"
            f" {UNCLUSTERED}"
        )
    return lines


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


KIND = "visleak memorization extract"


def extract(
    model: DiffusionModel,
    prompts: Sequence[str],
    settings: ExtractSettings | None = None,
    folder: str | os.PathLike[str] = "visleak-extract",
    *,
    similarity: CopySimilarity | str = "builtin",
    sampling: Sampling | None = None,
    scores: PromptScores | None = None,
    sheets: bool = True,
    progress: Progress = silent,
    force: bool = False,
) -> Extraction:
    """Make many images of each prompt and return the clusters of those nearly the same.

    Every image is kept in the folder under all that it depends on: an interrupted run resumes,
    more images or prompts generate only what is missing, and another similarity or ``eps``
    generates none. A finished result of the same request is returned as it is.

    Args:
        model: generates the images.
        prompts: texts; repeated ones count once.
        settings: images per prompt, and the rule of clusters.
        folder: of the result; see :class:`Extraction` for its files.
        similarity: of images, or its name, see :func:`load_similarity`.
        sampling: steps, guidance, images per batch.
        scores: D of the prompts; those of high D without a cluster are listed.
        sheets: draw a contact sheet of each cluster.
        progress: called for images and prompts.
        force: replace another result in the folder; its images stay.

    Raises:
        UsageError: an argument does not fit, or the folder holds another result.
        VisleakError: the model fails, or the disk refuses.

    Source: Hong et al. 2024, "MemBench", section 4; see also Carlini et al. 2023, section 4.2.
    """
    settings, sampling = settings or ExtractSettings(), sampling or Sampling()
    settings.refuse_small()
    texts = tuple(dict.fromkeys(prompts))
    if not texts:
        raise UsageError("there are no prompts to make images of; give at least one")
    request: dict[str, Any] = {
        "model": about_model(model),
        "sampling": {"steps": sampling.steps, "guidance": float(sampling.guidance)},
    }
    if scores is not None:
        request["d"] = scores.about(texts)
    run = RunFolder(folder, KIND)
    work = _Clustering(run, _measure(similarity), settings, texts, request, sheets, progress)
    found = run.reused(
        Extraction, work.key, force=force, keeps="and keeps its images", folder=run.path
    )
    if found is not None:
        return found
    # another result may be replaced, and its images may serve again
    with run.claimed(), ImageStore(run.path) as store:
        jobs = [
            Job(prompt, seed)
            for prompt in texts
            for seed in seeds_of(
                settings.seed, settings.images, None if settings.paired else prompt
            )
        ]
        made = images_of(store, model, jobs, sampling, progress=progress)
        return work.finished(store, made, sum(each.seconds for each in made))


def _measure(similarity: CopySimilarity | str) -> CopySimilarity:
    return load_similarity(similarity) if isinstance(similarity, str) else similarity


def reclustered(
    folder: str | os.PathLike[str],
    settings: ExtractSettings,
    *,
    similarity: CopySimilarity | str = "builtin",
    sheets: bool = True,
    progress: Progress = silent,
) -> Extraction:
    """Cluster the images of a finished extraction again without a model, over its result.

    Of the settings ``eps``, ``min_samples`` and ``min_cluster`` count; images and seeds are those
    that are there. Other arguments are as of :func:`extract`.

    Raises:
        UsageError: the folder holds no finished extraction, or fewer images per prompt than
            ``min_cluster``.
        VisleakError: a file is damaged.
    """
    run, measure = RunFolder(folder, KIND), _measure(similarity)
    before = read_extraction(run.path)
    with run.claimed(), ImageStore(run.path) as store:
        known = before.about["settings"]
        settings = replace(settings, **{name: known[name] for name in ("images", "seed", "paired")})
        settings.refuse_small()
        path = run.path / GENERATED
        try:
            rows = pq.read_table(path, columns=["prompt", "seed", "digest"]).to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise VisleakError(
                f"{path} cannot be read ({error}); run visleak memorization extract again"
            ) from error
        made = [StoredImage(**row, seconds=0.0) for row in rows]
        other = ("similarity", "settings")
        request = {name: value for name, value in before.about.items() if name not in other}
        work = _Clustering(run, measure, settings, before.prompts, request, sheets, progress)
        return work.finished(store, made, before.generating_seconds)


def read_extraction(folder: str | os.PathLike[str]) -> Extraction:
    """Return the result that a folder holds."""
    return RunFolder(folder, KIND).read(Extraction, folder=Path(folder))


@dataclass(frozen=True)
class _Clustering:
    run: RunFolder
    similarity: CopySimilarity
    settings: ExtractSettings
    prompts: tuple[str, ...]
    request: Mapping[str, Any]  #: model, sampling and D of the prompts
    sheets: bool
    progress: Progress

    @property
    def eps(self) -> float:
        eps = self.similarity.eps if self.settings.eps is None else self.settings.eps
        if eps is None:
            raise UsageError(
                f"similarity {self.similarity.name} has no threshold of its own; give --eps, the"
                " largest distance (1 - similarity) of images that are nearly the same"
            )
        return float(eps)

    @property
    def about(self) -> dict[str, Any]:
        used = {name: getattr(self.similarity, name) for name in ("name", "number", "digest")}
        settings = asdict(self.settings) | {"eps": self.eps}
        return {**self.request, "similarity": used, "settings": settings}

    @property
    def key(self) -> str:
        """Key of the request; on which device it is carried out is not part of it."""
        model, settings = self.request["model"], self.about["settings"]
        parts = (model["digest"], model["precision"], self.similarity.digest)
        d = [self.request["d"]] if "d" in self.request else []
        sampling = self.request["sampling"]
        return digest_of(["extract", 1, *parts, sampling, settings, list(self.prompts), *d])

    def finished(
        self, store: ImageStore, made: Sequence[StoredImage], seconds: float
    ) -> Extraction:
        """Cluster, write, and return the result; ``seconds`` went into making the images."""
        began = time.perf_counter()
        count = self.settings.images
        groups: list[list[Group]] = []
        found: list[Cluster] = []
        for place, prompt in enumerate(self.prompts):
            images = made[place * count : (place + 1) * count]
            groups.append(self._groups(store, images))
            for number, group in enumerate(groups[-1]):
                medoid = images[group.medoid]
                own = (medoid.digest, medoid.path, medoid.seed, group.cohesion)
                found.append(Cluster(prompt, number, len(group.members), count, *own))
            self.progress("comparing images of prompts", place + 1, len(self.prompts))
        sampling = self.request["sampling"]
        result = Extraction(
            folder=store.folder,
            about=self.about,
            prompts=self.prompts,
            images=len(made),
            clusters=tuple(found),
            calls=calls_of(len(made), Sampling(sampling["steps"], sampling["guidance"])),
            seconds=seconds + time.perf_counter() - began,
            generating_seconds=seconds,
            key=self.key,
        )
        written = files(result, made, groups, store if self.sheets else None, self.progress)
        content = self.run.document(
            headline(result),
            result,
            high_d=result.high_rule,
            unclustered=result.unclustered,
            recall=recall_of(self.similarity.name, "extract"),
            cautions=cautions(result),
        )
        self.run.finish(content, written)
        return result

    def _groups(self, store: ImageStore, images: Sequence[StoredImage]) -> list[Group]:
        """Return the clusters of one prompt's images; similarities are computed once."""
        digests = [each.digest for each in images]
        key = digest_of(["similarity", self.similarity.digest, digests])
        similarity = store.similarities(key, len(images))
        if similarity is None:
            pixels = [store.pixels(digest) for digest in digests]
            store.keep_similarities(key, self.similarity.matrix(pixels))
            # what was kept is what counts, so that a second run finds the same
            similarity = store.similarities(key, len(images))
        return clusters_of(
            similarity if similarity is not None else (),
            [each.seed for each in images],
            eps=self.eps,
            min_samples=self.settings.min_samples,
            min_cluster=self.settings.min_cluster,
        )
