"""What extraction returns: clusters, and prompts without a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visleak.memorization.prompts import PromptScores


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
