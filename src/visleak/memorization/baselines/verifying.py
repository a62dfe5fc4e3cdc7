"""Are the candidates of a search memorized images? Make images, cluster them, find their sources.

High D alone is not memorization (Hong et al. 2024, table 2: PEZ), so only what is verified counts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from visleak.memorization.baselines.records import Replayed, Verified
from visleak.memorization.extraction import CopySimilarity, ExtractSettings, extract
from visleak.memorization.model import DiffusionModel, Sampling
from visleak.memorization.tracing import Original, Trace, trace
from visleak.pipeline.folder import stamp_of
from visleak.pipeline.workplace import Progress
from visleak.records import AnySet


class Verifier(Protocol):
    """Says which candidates give memorized images, and which images these are."""

    def about(self) -> dict[str, object]:
        """Return everything that its answers depend on, as plain data: a part of the key."""
        ...

    def verify(self, prompts: Sequence[str], folder: Path, progress: Progress) -> Verified:
        """Make and look up images of prompts; what is in the folder already is not made again."""
        ...


@dataclass(frozen=True)
class TracedImages:
    """The product's own way: ``extract``, then ``trace`` of one image per cluster.

    Attributes:
        model: makes the images.
        sources: training images, sets or SOURCE text.
        settings: images per prompt and what is a cluster.
        sampling: steps, guidance, images per batch.
        similarity: that clusters are made by.
        tracing: further arguments of :func:`visleak.memorization.tracing.trace`: ``tau``,
            ``similarity``, ``views``, ``layouts``, ``workers``, ``cache``, ``device``.
    """

    model: DiffusionModel
    sources: Sequence[AnySet | str]
    settings: ExtractSettings
    sampling: Sampling
    similarity: CopySimilarity
    tracing: dict[str, Any] = field(default_factory=dict)

    def about(self) -> dict[str, object]:
        """Return how images are made, clustered and looked up."""
        told = {
            name: value
            for name, value in self.tracing.items()
            if name in ("tau", "similarity", "views", "layouts")
        }
        return {
            "images": {**self.settings.about(), "similarity": self.similarity.name},
            "similarity": self.similarity.digest,
            "sampling": {"steps": self.sampling.steps, "guidance": float(self.sampling.guidance)},
            "tracing": told,
            "sources": [_told(each) for each in self.sources],
        }

    def verify(self, prompts: Sequence[str], folder: Path, progress: Progress) -> Verified:
        """Make images of prompts, cluster them, and trace the clusters."""
        # the folder is that of one attempt, which knows by its key what may stay
        made = extract(
            self.model,
            prompts,
            self.settings,
            folder / "images",
            similarity=self.similarity,
            sampling=self.sampling,
            pictures=False,
            progress=progress,
            force=True,
        )
        began = time.perf_counter()
        clustered = tuple(dict.fromkeys(each.prompt for each in made.clusters))
        replayed: tuple[Replayed, ...] = ()
        if clustered:
            replayed = self._traced(folder, progress)
        seconds = made.seconds + time.perf_counter() - began
        return Verified(made.images, clustered, replayed, made.calls, seconds)

    def _traced(self, folder: Path, progress: Progress) -> tuple[Replayed, ...]:
        found = trace(
            folder / "images",
            self.sources,
            folder / "trace",
            progress=progress,
            force=True,
            **self.tracing,
        )
        originals = {each.number: _reference(found, each) for each in found.originals}
        once = {
            (match.memorized, match.prompt): None
            for match in found.verified
            if match.memorized is not None
        }
        return tuple(Replayed(originals[number], number, prompt) for number, prompt in once)


def _reference(found: Trace, original: Original) -> str:
    """Return SOURCE/id of the closest image of a memorized one.

    Where several sets are asked, references name their set already.
    """
    sets: Any = found.about["sets"]
    closest = original.references[0]
    return closest if len(sets) > 1 else f"{original.source}/{closest}"


def _told(source: AnySet | str) -> dict[str, object]:
    """Return name, source and state of a source; another state is another comparison."""
    if isinstance(source, str):
        return {"source": source}
    return {
        "name": source.name,
        "source": source.source,
        "images": len(source),
        "stamp": stamp_of(source),
    }
