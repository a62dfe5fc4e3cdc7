"""What an extraction is asked for: as plain data for its result, and as a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from visleak.errors import UsageError
from visleak.memorization.extraction.image_store import key_of
from visleak.memorization.extraction.records import Extraction
from visleak.memorization.extraction.settings import ExtractSettings
from visleak.memorization.extraction.similarity import CopySimilarity
from visleak.memorization.model import DiffusionModel, Sampling


def request_key(about: dict[str, Any], prompts: Sequence[str]) -> str:
    """Return the key of a request; on which device it is carried out is no part of it."""
    model, similarity = about["model"], about["similarity"]
    asked = {name: value for name, value in about["settings"].items() if name != "rule"}
    parts = (model["digest"], model["precision"], similarity["digest"])
    d = [about["d"]] if "d" in about else []
    return key_of("extract", 1, *parts, about["sampling"], asked, list(prompts), *d)


def about_model(model: DiffusionModel) -> dict[str, object]:
    """Return what a model says of itself, and at least its name, digest and precision."""
    known = {"name": model.name, "digest": model.digest, "precision": model.precision}
    return {**model.about(), **known}


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
        UsageError: nobody asked, and it has none.
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
    return ExtractSettings(
        images=int(known["images"]),
        eps=settings.eps,
        min_samples=settings.min_samples,
        min_cluster=settings.min_cluster,
        seed=int(known["seed"]),
        paired=bool(known["paired"]),
        rule=settings.rule,
    )


def sampling_of(before: Extraction) -> Sampling:
    """Return how the images of an extraction were made."""
    known: Any = before.about["sampling"]
    return Sampling(int(known["steps"]), float(known["guidance"]))
