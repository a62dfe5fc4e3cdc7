"""What a benchmark of mitigations leaves behind."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from visleak.memorization.intervals import GroupInterval

#: The two scenarios (Hong et al. 2024, section 5): prompts that replay, and ordinary ones.
TRIGGER: Final = "trigger"
GENERAL: Final = "general"

#: The method that is none.
NONE: Final = "none"


@dataclass(frozen=True, slots=True)
class Change:
    """A number with a method less the same number without any, of the same prompts and noises.

    Attributes:
        value: their difference; below 0 the method lowers the number.
        low, high: ends of its 95 % interval.
        p: of the paired test by groups, see
            :func:`visleak.memorization.benchmark.paired.swap_test`.
        p_holm: the same, corrected for the number of settings that were tested (Holm 1979).
    """

    value: float
    low: float
    high: float
    p: float
    p_holm: float


@dataclass(frozen=True, slots=True)
class Score:
    """One number about the images of a method.

    Attributes:
        scenario: ``trigger`` or ``general``.
        name: of :data:`visleak.memorization.benchmark.columns.SCORES`.
        interval: the number, with its interval.
        change: against no mitigation; ``None`` of none itself.
    """

    scenario: str
    name: str
    interval: GroupInterval
    change: Change | None


@dataclass(frozen=True, slots=True)
class Distance:
    """How far the images of the trigger prompts are, as a set, from a set of real ones.

    Attributes:
        frechet: FID (Heusel et al. 2017), biased upwards by few images.
        kernel: the unbiased kernel distance (Binkowski et al. 2018), which may be below 0.
        kernel_low, kernel_high: ends of its 95 % interval.
        images: generated ones.
        against: real ones.
    """

    frechet: float
    kernel: float
    kernel_low: float
    kernel_high: float
    images: int
    against: int


@dataclass(frozen=True, slots=True)
class MethodRow:
    """A method with one setting: a row of the tables.

    Attributes:
        method, setting, strength: as in ``Mitigation``; strength is NaN of none.
        about: all that its images depend on, as plain data.
        scores: of both scenarios.
        distance: to the set of real images; ``None`` where none was given.
        seconds: mean time an image took to make, by scenario.
    """

    method: str
    setting: str
    strength: float
    about: dict[str, Any]
    scores: tuple[Score, ...]
    distance: Distance | None
    seconds: dict[str, float]

    def score(self, scenario: str, name: str) -> Score | None:
        """Return one of the numbers; ``None`` where it was not measured."""
        for each in self.scores:
            if (each.scenario, each.name) == (scenario, name):
                return each
        return None

    def value(self, scenario: str, name: str) -> float:
        """Return the value of one of the numbers; NaN where it was not measured."""
        found = self.score(scenario, name)
        return math.nan if found is None else found.interval.value

    @property
    def line(self) -> Line:
        """Which trade-off curve it is a point of."""
        return Line(self.method, variant_of(self.setting))


@dataclass(frozen=True, slots=True)
class Line:
    """A method with its options, whose strengths make one trade-off curve.

    Attributes:
        method: its name.
        variant: options that are not the default, as settings print them; else empty.
    """

    method: str
    variant: str = ""


def variant_of(setting: str) -> str:
    """Return what a setting says beside the strength, which stands first.

    >>> variant_of("l=3, batch, lr=0.2"), variant_of("n=4")
    ('batch, lr=0.2', '')
    """
    return setting.partition(", ")[2]


@dataclass(frozen=True, slots=True)
class Curve:
    """What all strengths of a method reach together.

    Attributes:
        line: the method with its options.
        name: ``clip`` or ``aesthetic``: what is to stay up while similarity falls.
        volume: share of the ideal area that is covered, see
            :func:`visleak.memorization.benchmark.numbers.share_of_ideal`, with its interval.
        settings: how many strengths.
    """

    line: Line
    name: str
    volume: GroupInterval
    settings: int


@dataclass(frozen=True, slots=True)
class ReferencePoint:
    """What a search for the prompts would have shown instead (Hong et al. 2024, appendix D).

    Attributes:
        source: that was asked.
        count: pictures asked for a prompt, of which the one with the best CLIP score is kept.
        similarity: of the kept ones to the memorized images.
        clip: score of the kept ones.
        about: of the source, as plain data.
    """

    source: str
    count: int
    similarity: GroupInterval
    clip: GroupInterval
    about: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Floor:
    """What a judge says of images that reproduce none of the images they are compared with.

    Attributes:
        source: whose images: ``trigger``, those of trigger prompts, each compared with the
            memorized images of a prompt of another group; ``general``, those of general prompts,
            each compared with the memorized images of a trigger prompt.
        images: how many.
        top1, top3, share: as in the tables, without mitigation.
    """

    source: str
    images: int
    top1: GroupInterval
    top3: GroupInterval
    share: GroupInterval

    def score(self, scenario: str, name: str) -> GroupInterval | None:
        """Return one of the numbers of the tables; ``None`` where there is none."""
        known = {"top1": self.top1, "top3": self.top3, "share": self.share}
        return known.get(name) if scenario == TRIGGER else None


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of prompts that images were made of.

    Attributes:
        origin: file and format.
        prompts: how many.
        groups: of prompts that share memorized images.
        effective: as many groups of one size would say as much.
        images: a prompt.
        referenced: prompts whose memorized images were at hand; 0 of general prompts.
        digest: of the texts, in their order.
    """

    origin: str
    prompts: int
    groups: int
    effective: float
    images: int
    referenced: int
    digest: str


@dataclass(frozen=True)
class Benchmark:
    """Several mitigations, side by side.

    Attributes:
        folder: with ``benchmark.json``, tables, figures and the images.
        about: model, sampling, seed, similarity, alignment, aesthetic head, features of distances
            and choices, as plain data.
        triggers: the trigger prompts.
        general: the ordinary ones; ``None`` without.
        rows: none first, then in the order asked for.
        curves: by method and what stays up.
        reference: the reference performance; ``None`` where no source was asked.
        notes: what a reader has to know beside.
        key: of everything that was asked; equal keys are equal requests.
        floor: of the similarity; ``None`` where there are no other images to compare with.
    """

    folder: Path
    about: dict[str, Any]
    triggers: Listed
    general: Listed | None
    rows: tuple[MethodRow, ...]
    curves: tuple[Curve, ...]
    reference: ReferencePoint | None
    notes: tuple[str, ...]
    key: str
    floor: Floor | None = None

    @property
    def base(self) -> MethodRow:
        """The row without mitigation."""
        return self.rows[0]

    @property
    def lines(self) -> tuple[Line, ...]:
        """The methods that do something, with their options, in the order asked for."""
        return tuple(dict.fromkeys(row.line for row in self.rows if row.method != NONE))

    def of(self, line: Line) -> tuple[MethodRow, ...]:
        """Return the rows of a method with its options, from weak to strong."""
        own = [row for row in self.rows if row.line == line]
        return tuple(sorted(own, key=lambda row: row.strength))
