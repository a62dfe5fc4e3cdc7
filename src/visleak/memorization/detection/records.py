"""What detection finds: D of two lists of prompts, how well it separates them, a threshold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from visleak.errors import UsageError
from visleak.memorization.prompts import Prompts
from visleak.quantities import counted
from visleak.records import Bool, Int64
from visleak.stats.bootstrap import Estimate
from visleak.stats.separation import Separation, Threshold

#: Column of the squared score by one noise, counted from 1.
NOISE: Final = "squared_noise_"
#: Labels of prompts in texts, and lists that prompts come from.
LABELS: Final = {True: "memorized", False: "not memorized", None: ""}
LISTED: Final = "prompts"
GENERAL: Final = "general"


@dataclass(frozen=True, slots=True)
class Throughput:
    """What the scores cost."""

    prompts: int  #: that were passed through the model
    passes: int  #: rows that went through the network
    seconds: float  #: that this took, text encoder included
    reused: int = 0  #: prompts whose scores were there already

    @property
    def prompts_per_second(self) -> float:
        """Prompts a second; 0 where none was passed."""
        return self.prompts / self.seconds if self.seconds else 0.0

    @property
    def passes_per_second(self) -> float:
        """Passes a second; 0 where there were none."""
        return self.passes / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Spread:
    """How D is distributed over some prompts."""

    kind: str  #: ``memorized``, ``not memorized``, ``prompts`` (nothing known) or ``general``
    count: int
    least: float  #: (least, median, p95, most) of D
    median: float
    p95: float
    most: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """A prompt of the list."""

    prompt: str
    d: float  #: its D, by the norm of the settings
    label: bool | None  #: whether it is known to be memorized


@dataclass(frozen=True, slots=True)
class Attribution:
    """How much each token of a prompt has to do with its D."""

    prompt: str
    method: str  #: ``gradient`` (Wen et al. 2024, section 4.1) or ``leave-one-out``
    d: float  #: L2 score of the prompt
    tokens: tuple[str, ...]  #: texts; words for ``leave-one-out``
    values: tuple[float, ...]  #: norms of gradients, or what D loses without the word
    #: norm over all positions after the last token; ``None`` for ``leave-one-out``
    rest: float | None = None


@dataclass(frozen=True)
class Detection:
    """D of prompts by one model."""

    key: str  #: of all that the result depends on
    scores_key: str  #: of all that the scores depend on
    settings: dict[str, Any]  #: what D is made of, as plain data
    timestep: float  #: of the network's prediction
    model: dict[str, object]  #: what the model is, as plain data
    origin: str  #: (origin, general_origin) the files; empty where there is none
    general_origin: str
    prompts: int  #: (prompts, general) how many prompts there are in either list
    general: int
    reached: int  #: prompts of the list that reach the threshold; 0 without one
    known: int  #: of the list, how many are labelled memorized
    known_reached: int  #: how many of these reach the threshold
    threshold: Threshold | None
    separation: Separation | None  #: if there are prompts of two kinds
    spreads: tuple[Spread, ...]  #: one per kind of prompts
    top: tuple[Ranked, ...]  #: the prompts of the list with the largest D, largest first
    tokens: tuple[Attribution, ...]  #: of the first prompts, if asked for
    throughput: Throughput
    notes: tuple[str, ...]  #: what a reader must know, one line each


@dataclass(frozen=True)
class Listing:
    """Prompts of both lists, first the list, then the general ones."""

    texts: tuple[str, ...]  #: the prompts, none twice
    labels: tuple[bool | None, ...]  #: whether each is known to be memorized; ``None`` if unknown
    sources: tuple[tuple[str, ...], ...]  #: memorized images of each prompt, often none
    general: Bool  #: (n,), whether a prompt is from the general list
    groups: Int64  #: (n,), number of the group of shared images
    notes: tuple[str, ...] = ()  #: what was left out, one line each

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def ordinary(self) -> Bool:
        """Whether a prompt counts as one that reproduces nothing, (n,)."""
        return self.general | np.array([label is False for label in self.labels], np.bool_)

    @property
    def memorized(self) -> Bool:
        """Whether a prompt is known to be memorized, (n,)."""
        return np.array([label is True for label in self.labels], np.bool_)

    @property
    def kinds(self) -> list[str]:
        """What each prompt is, in a word or two."""
        words = {**LABELS, None: LISTED}
        pairs = zip(self.general, self.labels, strict=True)
        return [GENERAL if general else words[label] for general, label in pairs]

    @property
    def by(self) -> str:
        """What tells prompts apart: ``labels``, or ``lists`` where these have none."""
        return "labels" if self.memorized.any() or not self.general.any() else "lists"

    @property
    def told_apart(self) -> tuple[Bool, Bool]:
        """Which prompts are told from the ordinary ones, and which are either, (n,) each."""
        ordinary = self.ordinary
        positive = self.memorized if self.by == "labels" else ~self.general & ~ordinary
        return positive, positive | ordinary


def listing_of(prompts: Prompts, general: Prompts | None = None) -> Listing:
    """Return both lists as one; a prompt of both is taken from the list alone, and noted."""
    count = len(prompts)
    if not count:
        raise UsageError(f"prompts {prompts.origin or 'of the list'}: there is none to score")
    labels, sources = prompts.labels or (None,) * count, prompts.sources or ((),) * count
    if general is None:
        return Listing(prompts.texts, labels, sources, np.zeros(count, np.bool_), prompts.groups())
    name = f"general {general.origin or 'list'}"
    if wrong := sum(label is True for label in general.labels):
        raise UsageError(
            f"{name}: {wrong:,} of its prompts are labelled memorized; give ordinary prompts only"
        )
    images = dict(zip(general.texts, general.sources or ((),) * len(general), strict=True))
    for text in prompts.texts:
        images.pop(text, None)
    if not images:
        raise UsageError(
            f"{name}: no prompt in it that is not in the other list too; give ordinary prompts"
        )
    texts, sources = (*prompts.texts, *images), (*sources, *images.values())
    dropped = len(general) - len(images)
    are = counted(dropped, "general prompt", "is", "are")
    return Listing(
        texts,
        labels + (False,) * len(images),
        sources,
        np.arange(len(texts)) >= count,
        Prompts(texts, sources=sources).groups(),
        (f"{are} in the list too, and count as the list's",) if dropped else (),
    )


def number(value: float) -> str:
    """Return a D with four digits.

    >>> number(0.93128), number(26.7312), number(0.0), number(1234.5)
    ('0.9313', '26.73', '0', '1234')
    """
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"


def name_of_d(settings: Mapping[str, object]) -> str:
    """Return what D is called: squares are on another scale than norms."""
    return "D (squared)" if settings.get("norm") == "squared" else "D"


def estimate(found: Estimate) -> str:
    """Return a figure with its interval; one that is not 1 never reads as 1.

    >>> estimate(Estimate(0.99996, 0.99, 1.0)), estimate(Estimate(1.0, 0.9148, 1.0))
    ('>0.9999 (95 % CI 0.9900-1.0000)', '1.0000 (95 % CI 0.9148-1.0000)')
    """
    return f"{_share(found.value)} (95 % CI {_share(found.low)}-{_share(found.high)})"


def _share(value: float) -> str:
    if 0.99995 <= value < 1.0:
        return ">0.9999"
    return "<0.0001" if 0.0 < value < 0.00005 else f"{value:.4f}"
