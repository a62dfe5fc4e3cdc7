"""Candidate images of prompts: generate them, cluster them, write what was found."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from visleak.diffusion.model import DiffusionModel, Sampling, about_model
from visleak.documents import digest_of
from visleak.errors import UsageError, VisleakError
from visleak.memorization.extraction.document import GENERATED, Cluster, Extraction, content, files
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
)
from visleak.memorization.prompts import PromptScores
from visleak.memorization.settings import ExtractSettings
from visleak.progress import Progress, silent
from visleak.storage import RunFolder

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
        model: makes the images.
        prompts: texts; one that stands twice counts once.
        settings: images per prompt, and what counts as a cluster.
        folder: of the result; see :class:`Extraction` for what is written.
        similarity: that distances are made of, or its name, see :func:`load_similarity`.
        sampling: steps, guidance, images per batch.
        scores: D of the prompts: those of high D without a cluster are then listed.
        sheets: also draw a contact sheet of each cluster.
        progress: called for images and of prompts.
        force: write over another result in the folder; its images stay.

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
    measure = load_similarity(similarity) if isinstance(similarity, str) else similarity
    request = {
        "model": about_model(model),
        "sampling": {"steps": sampling.steps, "guidance": float(sampling.guidance)},
        **({} if scores is None else {"d": scores.about(texts)}),
    }
    work = _Clustering(RunFolder(folder, KIND), measure, settings, texts, request, sheets, progress)
    path, keeps = work.run.path, "and keeps its images"
    found = work.run.reused(Extraction, work.key, force=force, keeps=keeps, folder=path)
    if found is not None:
        return found
    # another result may be replaced, and its images may serve again
    with work.run.claimed(), ImageStore(path) as store:
        jobs = [Job(prompt, seed) for prompt in texts for seed in _seeds(prompt, settings)]
        made = images_of(store, model, jobs, sampling, progress=progress)
        return work.finished(store, made, sum(each.seconds for each in made))


def reclustered(
    folder: str | os.PathLike[str],
    settings: ExtractSettings,
    *,
    similarity: CopySimilarity | str = "builtin",
    sheets: bool = True,
    progress: Progress = silent,
) -> Extraction:
    """Cluster the images of a finished extraction again, and write over its result.

    No model is loaded and no image is made.

    Args:
        folder: of the extraction.
        settings: their ``eps``, ``min_samples`` and ``min_cluster`` count; images and seeds are
            those that are there.
        similarity: that distances are made of, or its name.
        sheets: also draw a contact sheet of each cluster.
        progress: called for prompts.

    Raises:
        UsageError: the folder holds no finished extraction, or fewer images per prompt than
            ``min_cluster``.
        VisleakError: a file is damaged.
    """
    run = RunFolder(folder, KIND)
    measure = load_similarity(similarity) if isinstance(similarity, str) else similarity
    before = read_extraction(run.path)
    with run.claimed(), ImageStore(run.path) as store:
        known = before.about["settings"]
        settings = replace(settings, **{name: known[name] for name in ("images", "seed", "paired")})
        settings.refuse_small()
        made = _generated(run.path)
        other = ("similarity", "settings")
        request = {name: value for name, value in before.about.items() if name not in other}
        work = _Clustering(run, measure, settings, before.prompts, request, sheets, progress)
        return work.finished(store, made, before.generating_seconds)


def read_extraction(folder: str | os.PathLike[str]) -> Extraction:
    """Return the result that a folder holds."""
    return RunFolder(folder, KIND).read(Extraction, folder=Path(folder))


def _generated(folder: Path) -> list[StoredImage]:
    path = folder / GENERATED
    try:
        table = pq.read_table(path, columns=["prompt", "seed", "digest"])
    except (OSError, pa.ArrowException) as error:
        raise VisleakError(
            f"{path} cannot be read ({error}); run visleak memorization extract again"
        ) from error
    return [
        StoredImage(row["prompt"], row["seed"], row["digest"], 0.0) for row in table.to_pylist()
    ]


def _seeds(prompt: str, settings: ExtractSettings) -> list[int]:
    return seeds_of(settings.seed, settings.images, None if settings.paired else prompt)


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
        """The largest distance of neighbours: as given, else the similarity's own."""
        eps = self.similarity.eps if self.settings.eps is None else self.settings.eps
        if eps is None:
            raise UsageError(
                f"similarity {self.similarity.name} has no threshold of its own; give --eps, the"
                " largest distance (1 - similarity) of images that are nearly the same"
            )
        return float(eps)

    @property
    def about(self) -> dict[str, Any]:
        """Everything but the prompts, as plain data."""
        used = {name: getattr(self.similarity, name) for name in ("name", "number", "digest")}
        settings = {**self.settings.about(), "eps": self.eps}
        return {**self.request, "similarity": used, "settings": settings}

    @property
    def key(self) -> str:
        """Key of the request; on which device it is carried out is not part of it."""
        model, about = self.request["model"], self.about
        settings = {name: value for name, value in about["settings"].items() if name != "rule"}
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
        for number in range(len(self.prompts)):
            groups.append(self._groups(store, made[number * count : (number + 1) * count]))
            self.progress("comparing images of prompts", number + 1, len(self.prompts))
        sampling = self.request["sampling"]
        result = Extraction(
            folder=store.folder,
            about=self.about,
            prompts=self.prompts,
            images=len(made),
            clusters=tuple(self._clusters(made, groups)),
            calls=calls_of(len(made), Sampling(sampling["steps"], sampling["guidance"])),
            seconds=seconds + time.perf_counter() - began,
            generating_seconds=seconds,
            key=self.key,
        )
        written = files(result, made, groups, store if self.sheets else None, self.progress)
        self.run.finish(content(self.run, result), written)
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

    def _clusters(
        self, made: Sequence[StoredImage], groups: Sequence[Sequence[Group]]
    ) -> Iterator[Cluster]:
        count = self.settings.images
        for place, (prompt, found) in enumerate(zip(self.prompts, groups, strict=True)):
            for number, group in enumerate(found):
                medoid = made[place * count + group.medoid]
                own = (medoid.digest, medoid.path, medoid.seed, group.cohesion)
                yield Cluster(prompt, number, len(group.members), count, *own)
