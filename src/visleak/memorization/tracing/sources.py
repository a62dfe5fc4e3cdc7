"""Who is asked for the source of a generated image.

A source is an :class:`ImageSource`. Built in are sets of pictures and published fingerprints, all
of one trace in one audit (``audited.py``), and what a user plugs in (``services.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from visleak.memorization.tracing.queries import Queries
from visleak.pipeline.workplace import Progress


@dataclass(frozen=True, slots=True)
class Hit:
    """A possible source of a generated image.

    Attributes:
        image: id of the generated image.
        source: name of the set or service that has it.
        reference: id there, or address.
        similarity: by the similarity of the trace; NaN where it was not measured.
        grade: of :data:`visleak.records.GRADES`, or ``layout``; empty without pictures.
        probability: as in the audit; ``None`` without pictures.
        reason: one line in words.
        judged: ``human``, ``disputed`` or empty.
        view: of the generated image that was compared.
        tiny: both are pictures of up to 48 pixels.
        digest: content digest of the source's image; empty where it is not known.
        structure, colour: as in :class:`visleak.memorization.tracing.records.Match`.
        refused: why a grade of near does not count; empty where it does.
    """

    image: str
    source: str
    reference: str
    similarity: float
    grade: str = ""
    probability: float | None = None
    reason: str = ""
    judged: str = ""
    view: str = "original"
    tiny: bool = False
    digest: str = ""
    structure: float | None = None
    colour: float | None = None
    refused: str = ""

    @property
    def copy(self) -> bool:
        """Whether it counts as a copy of the source's image."""
        return self.grade in ("exact", "near") and not self.refused


@dataclass(frozen=True)
class Answer:
    """What a source says of generated images.

    Attributes:
        hits: possible sources, in any order.
        nearest: similarity to the most similar image of the source, by generated image; images
            that were not compared are left out.
        notes: what a reader has to know, one line each.
    """

    hits: Sequence[Hit]
    nearest: Mapping[str, float]
    notes: tuple[str, ...] = ()


class ImageSource(Protocol):
    """Finds pictures that generated images may be copies of.

    Attributes:
        name: as the user named it.
        training: whether it is a set of pictures or fingerprints that was compared, so that what
            is verified there may be called memorized.
    """

    name: str
    training: bool

    def about(self) -> Mapping[str, object]:
        """Return everything a result has to name, as plain data."""
        ...

    def find(self, queries: Queries, images: Sequence[str], progress: Progress) -> Answer:
        """Return what may be the sources of some of the generated images."""
        ...


class PromptSource(Protocol):
    """Finds pictures by words: what a search for a prompt would have shown instead."""

    name: str

    def find_by_prompt(self, prompts: Sequence[str], count: int) -> Sequence[Sequence[str]]:
        """Return the ids of up to ``count`` pictures a prompt, the best first."""
        ...
