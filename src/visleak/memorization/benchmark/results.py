"""The result of a benchmark of mitigations: its records, and how they follow from measurements."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from visleak.memorization.metrics import LIMIT, copying
from visleak.records import Float64, Int64
from visleak.stats.group_intervals import (
    Deviation,
    GroupInterval,
    bounded,
    deviation_change,
    deviation_interval,
    group_interval,
    inner_deviation,
    mean_interval,
    mean_of_parts,
    share_of_ideal,
    swap_test,
    whole_deviation,
)
from visleak.stats.permutation import holm

#: The two scenarios (Hong et al. 2024, section 5): prompts that reproduce, and ordinary ones.
TRIGGER: Final = "trigger"
GENERAL: Final = "general"
#: Name of no mitigation.
NONE: Final = "none"


@dataclass(frozen=True, slots=True)
class Change:
    """A number with a method less the same number without any, of the same prompts and noises."""

    value: float  #: their difference; below 0 the method lowers the number
    low: float  #: (low, high) ends of its 95 % interval
    high: float
    p: float  #: of the paired test by groups, see ``swap_test``
    p_holm: float  #: the same, corrected for the number of settings that were tested (Holm 1979)


@dataclass(frozen=True, slots=True)
class Score:
    """One number about the images of a method."""

    scenario: str  #: ``trigger`` or ``general``
    name: str  #: of :data:`visleak.memorization.benchmark.results.SCORES`
    interval: GroupInterval  #: the number, with its interval
    change: Change | None  #: against no mitigation; ``None`` of none itself


@dataclass(frozen=True, slots=True)
class Distance:
    """How far the images of the trigger prompts are, as a set, from a set of real ones."""

    frechet: float  #: FID (Heusel et al. 2017), biased upwards by few images
    kernel: float  #: the unbiased kernel distance (Binkowski et al. 2018), which may be below 0
    kernel_low: float  #: (kernel_low, kernel_high) ends of its 95 % interval
    kernel_high: float
    images: int
    against: int


@dataclass(frozen=True, slots=True)
class MethodRow:
    """A method with one setting: a row of the tables."""

    method: str  #: (method, setting, strength) as in ``Mitigation``; strength is NaN of none
    setting: str
    strength: float
    about: dict[str, Any]  #: all that its images depend on, as plain data
    scores: tuple[Score, ...]
    distance: Distance | None  #: to the set of real images; ``None`` where none was given
    seconds: dict[str, float]  #: mean time an image took to make, by scenario

    def score(self, scenario: str, name: str) -> Score | None:
        """Return one of the numbers; ``None`` where it was not measured."""
        named = (each for each in self.scores if (each.scenario, each.name) == (scenario, name))
        return next(named, None)

    def value(self, scenario: str, name: str) -> float:
        """Return the value of one of the numbers; NaN where it was not measured."""
        found = self.score(scenario, name)
        return math.nan if found is None else found.interval.value

    @property
    def line(self) -> Line:
        """Which trade-off curve it is a point of."""
        return Line.of(self.method, self.setting)


@dataclass(frozen=True, slots=True)
class Line:
    """A method with its options, whose strengths make one trade-off curve."""

    method: str
    variant: str = ""  #: options that are not the default, as settings print them; else empty

    @classmethod
    def of(cls, method: str, setting: str) -> Line:
        """Return the line of a method; the strength comes first in a setting."""
        return cls(method, setting.partition(", ")[2])


@dataclass(frozen=True, slots=True)
class Curve:
    """What all strengths of a method reach together."""

    line: Line  #: the method with its options
    name: str  #: ``clip`` or ``aesthetic``: what is to stay up while similarity falls
    volume: GroupInterval  #: share of the ideal area that is covered, see ``share_of_ideal``
    settings: int  #: how many strengths


@dataclass(frozen=True, slots=True)
class ReferencePoint:
    """What a search for the prompts would have shown instead (Hong et al. 2024, appendix D)."""

    source: str
    similarity: GroupInterval  #: of the image with the best CLIP score to the memorized images
    clip: GroupInterval  #: CLIP score of this image
    about: dict[str, object]  #: of the source, as plain data


@dataclass(frozen=True, slots=True)
class Floor:
    """Similarity of images to memorized images that they do not reproduce."""

    #: whose images: ``trigger``, those of trigger prompts, each compared with the memorized images
    #: of a prompt of another group; ``general``, those of general prompts, each compared with the
    #: memorized images of a trigger prompt
    source: str
    images: int
    top1: GroupInterval  #: (top1, top3, share) as in the tables, without mitigation
    top3: GroupInterval
    share: GroupInterval


@dataclass(frozen=True, slots=True)
class ListSummary:
    """A list of prompts that images were made of."""

    origin: str  #: file and format
    prompts: int
    groups: int  #: of prompts that share memorized images
    effective: float  #: groups of one size that have as much information
    images: int
    referenced: int  #: prompts whose memorized images were at hand; 0 of general prompts
    digest: str  #: of the texts, in their order


@dataclass(frozen=True)
class Benchmark:
    """Several mitigations, side by side."""

    folder: Path  #: with ``benchmark.json``, tables, figures and the images
    #: model, sampling, seed, similarity, alignment, aesthetic head, features of distances and
    #: choices, as plain data
    about: dict[str, Any]
    triggers: ListSummary
    general: ListSummary | None  #: the ordinary ones; ``None`` without
    rows: tuple[MethodRow, ...]  #: none first, then in the order given
    curves: tuple[Curve, ...]  #: by method and what stays up
    reference: ReferencePoint | None  #: ``None`` where no source was given
    notes: tuple[str, ...]  #: what a reader must know, one line each
    key: str  #: of everything in the request; equal keys are equal requests
    floor: Floor | None = None  #: ``None`` where there are no other images to compare with

    @property
    def base(self) -> MethodRow:
        """The row without mitigation."""
        return self.rows[0]

    @property
    def lines(self) -> tuple[Line, ...]:
        """The methods that do something, with their options, in the order given."""
        return tuple(dict.fromkeys(row.line for row in self.rows if row.method != NONE))

    def of(self, line: Line) -> tuple[MethodRow, ...]:
        """Return the rows of a method with its options, from weak to strong."""
        own = [row for row in self.rows if row.line == line]
        return tuple(sorted(own, key=lambda row: row.strength))


@dataclass(frozen=True, slots=True)
class Column:
    """A number about images."""

    short: str  #: its heading
    words: str  #: what it is, in a sentence
    rising: bool  #: larger is better
    places: int = 3  #: decimal places that are shown
    least: float = -1.0  #: (least, most) that it can be
    most: float = 1.0


#: Every number there is, by name.
SCORES: Final[Mapping[str, Column]] = MappingProxyType(
    {
        "top1": Column("top-1", "highest similarity of a prompt's images", False),
        "top3": Column("top-3", "mean similarity of its three most similar images", False),
        "share": Column(
            f"> {LIMIT:g}", f"share of images more similar than {LIMIT:g}", False, 3, 0.0
        ),
        "clip": Column("CLIP", "cosine of image and prompt by the alignment model", True),
        "aesthetic": Column("aes.", "aesthetic score", True, 2, -math.inf, math.inf),
        **{
            f"aesthetic_std_{name}": Column(
                "aes. std", f"standard deviation of the aesthetic score {which}", False, 2, 0.0,
                math.inf,
            )
            for name, which in (
                ("images", "over all images"),
                ("prompts", "over the means of prompts"),
                ("within", "within a prompt: root of the mean variance"),
            )
        },
    }
)  # fmt: skip


def shown_columns(deviation: str) -> tuple[tuple[str, str], ...]:
    """Return scenario and name of the numbers of tables 3 and 5, in the paper's order."""
    # with one image per prompt there is none within: over prompts it is that of all images
    general = "images" if deviation == "within" else deviation
    trigger = ("top1", "top3", "share", "clip", "aesthetic", f"aesthetic_std_{deviation}")
    ordinary = ("clip", "aesthetic", f"aesthetic_std_{general}")
    return (*((TRIGGER, name) for name in trigger), *((GENERAL, name) for name in ordinary))


#: Names of methods in sentences, tables and figures.
NAMES: Final = {
    **{NONE: "no mitigation", "rna": "RNA", "rta": "RTA"},
    **{"wen": "Wen et al.", "ren": "Ren et al."},
}
#: Folders before the last part of an absolute path, anywhere in a name.
_FOLDERS: Final = re.compile(r"(?<![\w.])~?/(?:[^\s/]+/)*([^\s/]+)/?")


def short(name: str) -> str:
    """Return a name without the folders of a machine's paths.

    >>> short("/home/ann/sd-1.4/"), short("head.pth on clip:/models/vit-l"), short("hub:CompVis/sd")
    ('sd-1.4', 'head.pth on clip:vit-l', 'hub:CompVis/sd')
    """
    return _FOLDERS.sub(r"\1", name)


def line_name(line: Line) -> str:
    """Return the name of a method with its options."""
    return ", ".join(each for each in (name_of(line.method), line.variant) if each)


def name_of(method: str) -> str:
    """Return the name of a method in texts; unknown ones keep their own."""
    return NAMES.get(method, method)


def label_of(row: MethodRow) -> str:
    """Return method and setting as people read them."""
    return f"{name_of(row.method)} {row.setting}".strip()


def number(value: float, places: int = 3) -> str:
    """Return a number as the paper prints it; a dash where it is not known.

    >>> number(0.6412), number(5.249, 2), number(-0.0004), number(float("nan"))
    ('.641', '5.25', '.000', '-')
    """
    if math.isnan(value):
        return "-"
    text = f"{value:.{places}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return re.sub(r"^(-?)0\.", r"\1.", text)


def signed(value: float, places: int = 3) -> str:
    """Return a change with its sign.

    >>> signed(0.0123), signed(-0.5), signed(0.0)
    ('+.012', '-.500', '.000')
    """
    text = number(value, places)
    return f"+{text}" if value > 0 and float(text) != 0 else text


def p_value(value: float) -> str:
    """Return a probability in words."""
    if math.isnan(value):
        return "p is not known"
    return "p < .001" if value < 0.001 else f"p = {number(value)}"


# -- from measurements to rows of the tables -------------------------------------------------------


#: Numbers whose lowest value is that of the similarity.
SIMILARITIES: Final = frozenset({"top1", "top3"})


@dataclass(frozen=True)
class Measurements:
    """What was measured of the images of one method in one scenario, (prompts, images) each."""

    similarity: Float64  #: to the memorized images; NaN of prompts that have none at hand
    clip: Float64  #: (clip, aesthetic) NaN where the model is missing
    aesthetic: Float64
    seconds: Float64  #: that an image took to make
    digests: tuple[tuple[str, ...], ...]  #: of the images


@dataclass(frozen=True)
class Entry:
    """A method with all that was measured of it."""

    method: str  #: (method, setting, strength, about) as in ``Mitigation``
    setting: str
    strength: float
    about: dict[str, object]
    measured: Mapping[str, Measurements]  #: by scenario
    distance: Distance | None = None  #: of its trigger images to real ones


def rows_of(
    entries: Sequence[Entry], groups: Mapping[str, Int64], least: float = -1.0
) -> tuple[MethodRow, ...]:
    """Return a row per method; the first entry is none, which the others are compared with."""
    base = entries[0]
    found: list[list[Score]] = []
    for entry in entries:
        scores: list[Score] = []
        for scenario, measured in entry.measured.items():
            before = None if entry is base else base.measured[scenario]
            scores += _means(scenario, measured, before, groups[scenario], least)
            if np.isfinite(measured.aesthetic).all():
                table = None if before is None else before.aesthetic
                scores += _deviations(scenario, measured.aesthetic, table, groups[scenario])
        found.append(scores)
    return tuple(
        MethodRow(
            *(entry.method, entry.setting, entry.strength, entry.about),
            tuple(scores),
            entry.distance,
            {name: float(each.seconds.mean()) for name, each in entry.measured.items()},
        )
        for entry, scores in zip(entries, _corrected(found), strict=True)
    )


def _corrected(found: Sequence[Sequence[Score]]) -> list[list[Score]]:
    """Return scores of methods, probabilities corrected for how many settings were tested."""
    p: dict[tuple[str, str], list[float]] = {}
    for each in chain.from_iterable(found):
        if each.change is not None:
            p.setdefault((each.scenario, each.name), []).append(each.change.p)
    corrected = {name: iter(holm(values).tolist()) for name, values in p.items()}

    def score(each: Score) -> Score:
        if each.change is None:
            return each
        adjusted = next(corrected[each.scenario, each.name])
        return replace(each, change=replace(each.change, p_holm=adjusted))

    return [[score(each) for each in scores] for scores in found]


def _deviations(
    scenario: str, table: Float64, before: Float64 | None, groups: Int64
) -> Iterator[Score]:
    prompts, images = table.shape
    # squares are summed around what both have nearly in common, or they would swallow the spread
    centre = float(table.mean() if before is None else before.mean())
    kinds: tuple[tuple[str, bool, Callable[[Float64], Deviation]], ...] = (
        ("images", table.size > 1, lambda rows: whole_deviation(rows, centre)),
        ("prompts", prompts > 1, lambda rows: whole_deviation(rows.mean(1, keepdims=True), centre)),
        ("within", images > 1, inner_deviation),
    )
    for name, known, made in kinds:
        if known:
            found, change = made(table), None
            if before is not None:
                base = made(before)
                p = swap_test(base.parts, found.parts, groups, found.number)
                moved = deviation_change(base, found, groups)
                change = Change(moved.value, moved.low, moved.high, p, p)
            yield Score(
                scenario, f"aesthetic_std_{name}", deviation_interval(found, groups), change
            )


def by_prompt(measured: Measurements) -> dict[str, Float64]:
    """Return the numbers that are means over prompts, each (prompts,); NaN where there is none."""
    similarity = measured.similarity
    # a prompt is compared with its memorized images, or it is not
    found = copying(np.where(np.isfinite(similarity).all(1, keepdims=True), similarity, np.nan))
    return {
        **{"top1": found.top1, "top3": found.top3, "share": found.share},
        **{"clip": measured.clip.mean(1), "aesthetic": measured.aesthetic.mean(1)},
    }


def _means(
    scenario: str, measured: Measurements, before: Measurements | None, groups: Int64, least: float
) -> Iterator[Score]:
    """Yield means over prompts, and their changes; intervals end where the number does."""
    values, base = by_prompt(measured), {} if before is None else by_prompt(before)
    for name, column in values.items():
        # of prompts that have none, and where a model is missing, there is nothing
        rows = np.flatnonzero(np.isfinite(column))
        if not len(rows):
            continue
        low, high = least if name in SIMILARITIES else SCORES[name].least, SCORES[name].most
        own, grouped, change = column[rows], groups[rows], None
        if base:
            ones, other = np.ones(len(rows)), base[name][rows]
            pair = np.column_stack([ones, other]), np.column_stack([ones, own])
            p = swap_test(*pair, grouped, mean_of_parts)
            moved = bounded(mean_interval(own - other, grouped), low - high, high - low)
            change = Change(moved.value, moved.low, moved.high, p, p)
        yield Score(scenario, name, bounded(group_interval(own, grouped), low, high), change)


def curves_of(entries: Sequence[Entry], groups: Int64) -> tuple[Curve, ...]:
    """Return what each method's settings cover together, against alignment and aesthetic score."""

    def covered(rows: Float64) -> float:
        """Return the share from rows of (similarity, number) pairs, that of none first."""
        means = rows.mean(0)
        return share_of_ideal(means[2::2], means[3::2], (float(means[0]), float(means[1])))

    tables = [by_prompt(each.measured[TRIGGER]) for each in entries]
    known = np.isfinite(tables[0]["top1"])
    curves = []
    lines = [Line.of(each.method, each.setting) for each in entries]
    for line in dict.fromkeys(lines[1:]):
        own = [0, *(at for at, each in enumerate(lines) if at and each == line)]
        for name in ("clip", "aesthetic"):
            if not known.any() or not np.isfinite(tables[0][name][known]).all():
                continue
            columns = [tables[at][what][known] for at in own for what in ("top1", name)]
            found = group_interval(np.column_stack(columns), groups[known], covered)
            # without a base above 0 there is nothing to have a share of
            if np.isfinite(found.value):
                curves.append(Curve(line, name, bounded(found, 0.0), len(own) - 1))
    return tuple(curves)
