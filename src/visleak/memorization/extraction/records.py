"""What extraction is given and what it returns: settings, clusters, prompts without a cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from visleak.errors import UsageError
from visleak.memorization.prompts import PromptScores

Rule = Literal["paper", "code"]

#: Images per prompt and least size of a cluster: as the paper says and as its authors' code does,
#: where every cluster of DBSCAN is kept.
RULES: Final = {"paper": (100, 20), "code": (50, 1)}

#: Neighbours that make an image a core of DBSCAN, itself counted (the authors' code; the paper
#: names none).
MIN_SAMPLES: Final = 3

MOST_IMAGES: Final = 100_000


@dataclass(frozen=True, slots=True)
class ExtractSettings:
    """What candidate images are taken from (Hong et al. 2024, section 4).

    Attributes:
        images: made of each prompt.
        eps: largest distance (1 - similarity) of neighbours; ``None`` is that of the similarity.
        min_samples: neighbours within ``eps``, itself counted, that make an image a core.
        min_cluster: least images of a cluster that is kept.
        seed: of the noises.
        paired: all prompts start from the same noises; else each prompt has its own.
        rule: whose numbers stand in for those nobody named: ``paper`` or ``code``.
    """

    images: int = RULES["paper"][0]
    eps: float | None = None
    min_samples: int = MIN_SAMPLES
    min_cluster: int = RULES["paper"][1]
    seed: int = 0
    paired: bool = True
    rule: Rule = "paper"

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise UsageError(f"rule is one of {', '.join(RULES)}; got {self.rule!r}")
        if not 1 <= self.images <= MOST_IMAGES:
            raise UsageError(f"images is 1 to {MOST_IMAGES:,} a prompt; got {self.images}")
        if self.eps is not None and not (math.isfinite(self.eps) and 0.0 < self.eps <= 2.0):
            raise UsageError(f"eps, a distance (1 - similarity), is above 0 to 2; got {self.eps}")
        if self.min_samples < 1:
            raise UsageError(f"min-samples is at least 1; got {self.min_samples}")
        if not 1 <= self.min_cluster <= self.images:
            raise UsageError(
                f"min-cluster is 1 to the number of images ({self.images}), or no cluster could"
                f" be found; got {self.min_cluster}"
            )
        if self.seed < 0:
            raise UsageError(f"seed is a whole number from 0; got {self.seed}")

    @classmethod
    def by(
        cls,
        rule: Rule,
        *,
        images: int | None = None,
        min_cluster: int | None = None,
        eps: float | None = None,
        min_samples: int = MIN_SAMPLES,
        seed: int = 0,
        paired: bool = True,
    ) -> ExtractSettings:
        """Return settings whose missing numbers are the paper's or its authors' code's.

        >>> ExtractSettings.by("code").images, ExtractSettings.by("paper").min_cluster
        (50, 20)

        Raises:
            UsageError: a value that cannot be.
        """
        if rule not in RULES:
            raise UsageError(f"rule is one of {', '.join(RULES)}; got {rule!r}")
        usual, least = RULES[rule]
        made = usual if images is None else images
        kept = least if min_cluster is None else min_cluster
        return cls(made, eps, min_samples, kept, seed, paired, rule)

    def about(self) -> dict[str, object]:
        """Return the settings as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Images of one prompt that are nearly the same: a candidate for a memorized image.

    Attributes:
        prompt: its text.
        number: of the cluster within the prompt, from 0, largest first.
        size: images in it.
        images: generated for the prompt.
        medoid: content digest (hexadecimal) of the image most similar to the others.
        path: of the medoid's file, relative to the extraction's folder.
        seed: the medoid was made from.
        cohesion: median similarity of the medoid to the other images of the cluster.
    """

    prompt: str
    number: int
    size: int
    images: int
    medoid: str
    path: str
    seed: int
    cohesion: float


@dataclass(frozen=True, slots=True)
class Unclustered:
    """A prompt of high D whose images gave no cluster: the similarity may have missed one.

    Attributes:
        prompt: its text.
        d: its D.
    """

    prompt: str
    d: float


@dataclass(frozen=True)
class Extraction:
    """Images of prompts, and their clusters.

    Attributes:
        folder: with ``extract.json``, ``generated.parquet`` (prompt, seed, digest, path), the
            images as PNG named by their content, ``clusters.parquet``, and ``medoids.parquet``, a
            manifest (id, path, prompt, cluster, size, seed, caption) that is opened as a SOURCE.
        about: model, sampling, similarity and settings, as plain data; ``d`` of the prompts where
            their list has it.
        prompts: texts for which images were made.
        images: how many there are.
        clusters: by prompt, largest first.
        calls: passes of the network that the images cost.
        seconds: of wall time, over all runs: making the images, and comparing them in the last.
        generating_seconds: those of making the images.
        key: of everything that was asked; equal keys are equal requests.
    """

    folder: Path
    about: dict[str, Any]
    prompts: tuple[str, ...]
    images: int
    clusters: tuple[Cluster, ...]
    calls: int
    seconds: float
    generating_seconds: float = 0.0
    key: str = ""

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
        about: Mapping[str, Any] = known
        scores = PromptScores.of(about, self.prompts)
        clustered = {each.prompt for each in self.clusters}
        high, rule = scores.high(clustered)
        # a prompt that reached a threshold may have no D of its own
        found = [Unclustered(t, scores.values.get(t, float("nan"))) for t in high - clustered]
        return tuple(sorted(found, key=lambda each: (-each.d, each.prompt))), rule
