"""Candidate images of prompts: generate them, cluster them, write what was found."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from visleak.errors import UsageError, VisleakError
from visleak.memorization.extraction.document import GENERATED, content, files
from visleak.memorization.extraction.images import (
    ImageStore,
    Job,
    Stored,
    calls_of,
    images_of,
    key_of,
    seeds_of,
)
from visleak.memorization.extraction.records import Cluster, Extraction
from visleak.memorization.extraction.similarity import (
    CopySimilarity,
    Group,
    clusters_of,
    load_similarity,
)
from visleak.memorization.model import DiffusionModel, about_model
from visleak.memorization.prompts import PromptScores
from visleak.memorization.settings import ExtractSettings, Sampling
from visleak.pipeline.context import Progress, silent
from visleak.storage import RunFolder


def request_key(about: dict[str, Any], prompts: Sequence[str]) -> str:
    """Return the key of a request; on which device it is carried out is not part of it."""
    model, similarity = about["model"], about["similarity"]
    asked = {name: value for name, value in about["settings"].items() if name != "rule"}
    parts = (model["digest"], model["precision"], similarity["digest"])
    d = [about["d"]] if "d" in about else []
    return key_of("extract", 1, *parts, about["sampling"], asked, list(prompts), *d)


def about_clusters(similarity: CopySimilarity, settings: ExtractSettings) -> dict[str, object]:
    """Return how images are clustered, as plain data."""
    return {
        "similarity": {
            "name": similarity.name,
            "number": similarity.number,
            "digest": similarity.digest,
        },
        "settings": {**settings.about(), "eps": eps_of(settings, similarity)},
    }


def eps_of(settings: ExtractSettings, similarity: CopySimilarity) -> float:
    """Return the largest distance of neighbours: as asked, else the similarity's own.

    Raises:
        UsageError: none was given, and it has none.
    """
    eps = similarity.eps if settings.eps is None else settings.eps
    if eps is None:
        raise UsageError(
            f"similarity {similarity.name} has no threshold of its own; give --eps, the largest"
            " distance (1 - similarity) of images that are nearly the same"
        )
    return float(eps)


def like_before(settings: ExtractSettings, before: Extraction) -> ExtractSettings:
    """Return settings with the images and seeds that are there."""
    known: Any = before.about["settings"]
    found = replace(
        settings,
        images=int(known["images"]),
        seed=int(known["seed"]),
        paired=bool(known["paired"]),
    )
    found.refuse_small()
    return found


def sampling_of(before: Extraction) -> Sampling:
    """Return how the images of an extraction were made."""
    known: Any = before.about["sampling"]
    return Sampling(int(known["steps"]), float(known["guidance"]))


KIND = "visleak memorization extract"

#: What the step is called.
COMPARING = "comparing images of prompts"


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
    about = {
        "model": about_model(model),
        "sampling": {"steps": sampling.steps, "guidance": float(sampling.guidance)},
        **about_clusters(measure, settings),
        **({} if scores is None else {"d": scores.about(texts)}),
    }
    key = request_key(about, texts)
    run = RunFolder(folder, KIND)
    found = run.reused(Extraction, key, force=force, keeps="and keeps its images", folder=run.path)
    if found is not None:
        return found
    # another result may be replaced, and its images may serve again
    with run.claimed(), ImageStore(run.path) as store:
        jobs = list(_jobs(texts, settings))
        made = images_of(store, model, jobs, sampling, progress=progress)
        work = _Work(store, measure, settings, texts, made)
        return work.finished(run, about, key, sampling, sheets=sheets, progress=progress)


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
        settings = like_before(settings, before)
        made = generated_of(run.path)
        sampling = sampling_of(before)
        about = {
            "model": before.about["model"],
            "sampling": before.about["sampling"],
            **about_clusters(measure, settings),
            **({"d": before.about["d"]} if "d" in before.about else {}),
        }
        work = _Work(store, measure, settings, before.prompts, made)
        return work.finished(
            run,
            about,
            request_key(about, before.prompts),
            sampling,
            sheets=sheets,
            progress=progress,
            seconds=before.generating_seconds,
        )


def read_extraction(folder: str | os.PathLike[str]) -> Extraction:
    """Return the result that a folder holds.

    Raises:
        UsageError: there is none.
        VisleakError: it is damaged, or a newer visleak wrote it.
    """
    return RunFolder(folder, KIND).read(Extraction, folder=Path(folder))


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


def _jobs(prompts: Sequence[str], settings: ExtractSettings) -> Iterator[Job]:
    for prompt in prompts:
        own = None if settings.paired else prompt
        for seed in seeds_of(settings.seed, settings.images, own):
            yield Job(prompt, seed)


@dataclass(frozen=True)
class _Work:
    """Images that are there, to be clustered."""

    store: ImageStore
    similarity: CopySimilarity
    settings: ExtractSettings
    prompts: tuple[str, ...]
    made: Sequence[Stored]

    def finished(
        self,
        run: RunFolder,
        about: dict[str, Any],
        key: str,
        sampling: Sampling,
        *,
        sheets: bool,
        progress: Progress,
        seconds: float | None = None,
    ) -> Extraction:
        """Cluster, write, and return the result."""
        began = time.perf_counter()
        count = self.settings.images
        groups: list[list[Group]] = []
        for number in range(len(self.prompts)):
            groups.append(self._groups(self.made[number * count : (number + 1) * count]))
            progress(COMPARING, number + 1, len(self.prompts))
        clusters = tuple(self._clusters(groups))
        making = sum(each.seconds for each in self.made) if seconds is None else seconds
        result = Extraction(
            folder=self.store.folder,
            about=about,
            prompts=self.prompts,
            images=len(self.made),
            clusters=clusters,
            calls=calls_of(len(self.made), sampling),
            seconds=making + time.perf_counter() - began,
            generating_seconds=making,
            key=key,
        )
        store = self.store if sheets else None
        written = files(result, self.made, groups, store, progress)
        run.finish(content(run, result), written)
        return result

    def _groups(self, images: Sequence[Stored]) -> list[Group]:
        """Return the clusters of one prompt's images; similarities are computed once."""
        digests = [each.digest for each in images]
        key = key_of("similarity", self.similarity.digest, digests)
        similarity = self.store.similarities(key, len(images))
        if similarity is None:
            pixels = [self.store.pixels(digest) for digest in digests]
            self.store.keep_similarities(key, self.similarity.matrix(pixels))
            # what was kept is what counts, so that a second run finds the same
            similarity = self.store.similarities(key, len(images))
        return clusters_of(
            similarity if similarity is not None else (),
            [each.seed for each in images],
            eps=eps_of(self.settings, self.similarity),
            min_samples=self.settings.min_samples,
            min_cluster=self.settings.min_cluster,
        )

    def _clusters(self, groups: Sequence[Sequence[Group]]) -> Iterator[Cluster]:
        """Yield the clusters as records, by prompt, largest first."""
        count = self.settings.images
        for place, (prompt, found) in enumerate(zip(self.prompts, groups, strict=True)):
            for number, group in enumerate(found):
                medoid = self.made[place * count + group.medoid]
                yield Cluster(
                    prompt=prompt,
                    number=number,
                    size=len(group.members),
                    images=count,
                    medoid=medoid.digest,
                    path=medoid.path,
                    seed=medoid.seed,
                    cohesion=group.cohesion,
                )
