"""Results of a comparison of searches: one row per method."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from visleak.memorization.search.driver import Candidate
from visleak.stats.means import t_interval


@dataclass(frozen=True, slots=True)
class Replayed:
    """A memorized image that the images of a candidate are copies of."""

    reference: str  #: SOURCE/id of the closest image of the source
    number: int  #: of the memorized image within the attempt, from 0
    prompt: str


@dataclass(frozen=True, slots=True)
class Verified:
    """Result of making and looking up the images of candidates."""

    images: int
    clustered: tuple[str, ...]  #: candidates that gave a cluster of nearly the same images
    replayed: tuple[Replayed, ...]  #: what was verified, one per candidate and memorized image
    calls: int  #: passes of the network that the images cost
    seconds: float  #: making and comparing the images, and looking for their sources


@dataclass(frozen=True, slots=True)
class Attempt:
    """One method with one seed: its search, and the result of its candidates."""

    method: str
    seed: int  #: of everything random in it
    about: dict[str, Any]  #: settings of the method, as plain data
    #: prompts that images were made of, different ones, by ``checked``, highest first; the
    #: ``score`` of each is D as its search found it
    candidates: tuple[Candidate, ...]
    #: D of each under noises that no search has met, common to all methods
    checked: tuple[float, ...]
    complete: bool  #: whether the search ran to its own end within the budget
    search_calls: int  #: passes of the search, a gradient counted by ``GRADIENT_CALLS``
    search_seconds: float  #: of wall time
    check_calls: int  #: passes for ``checked``; they are part of neither cost
    verified: Verified  #: the result of the images

    @property
    def found(self) -> int:
        """Distinct memorized images, verified."""
        return len({each.number for each in self.verified.replayed})

    @property
    def calls(self) -> int:
        """Passes of search and images."""
        return self.search_calls + self.verified.calls

    @property
    def seconds(self) -> float:
        """Of search, images and verification."""
        return self.search_seconds + self.verified.seconds

    def discoveries(self) -> list[tuple[float, int]]:
        """Return how many memorized images were known after how many passes, a step per pair.

        Candidates come in their order, each at its share of the cost of all images.
        """
        steps: list[tuple[float, int]] = [(0.0, 0)]
        seen: set[int] = set()
        share = self.verified.calls / max(len(self.candidates), 1)
        for place, candidate in enumerate(self.candidates, 1):
            own = (r.number for r in self.verified.replayed if r.prompt == candidate.prompt)
            if new := set(own) - seen:
                seen |= new
                steps.append((self.search_calls + place * share, len(seen)))
        return [*steps, (float(self.calls), len(seen))]


@dataclass(frozen=True)
class Comparison:
    """Several methods at one budget."""

    model: dict[str, object]
    score: dict[str, object]  #: settings of D, as plain data, with the timestep
    norm: str  #: which of the two norms is called D here
    budget: dict[str, Any]  #: ``calls`` and ``seconds`` of every search
    chains: int  #: candidates of a method, at most
    seeds: tuple[int, ...]  #: that every method ran with
    verification: dict[str, object]  #: how images were made, clustered and looked up, as plain data
    attempts: tuple[Attempt, ...]  #: by seed, then in the order of the methods
    folder: Path  #: with ``compare.json``, the tables, the figure, and a folder per method and seed
    key: str

    @property
    def methods(self) -> tuple[str, ...]:
        """Names, in the order they were given."""
        return tuple(dict.fromkeys(each.method for each in self.attempts))

    def of(self, method: str) -> tuple[Attempt, ...]:
        """Return the attempts of a method, one per seed."""
        return tuple(each for each in self.attempts if each.method == method)


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over seeds."""

    value: float
    low: float  #: (low, high) ends of Student's 95 % interval over seeds; NaN with fewer than two
    high: float


@dataclass(frozen=True, slots=True)
class Row:
    """A method over all seeds."""

    method: str
    seeds: int
    found: Mean  #: distinct memorized images, verified, of a seed
    candidates: float  #: prompts that images were made of, of a seed
    clustered: Mean  #: candidates whose images gave a cluster
    search_calls: float  #: (search_calls, image_calls) passes of a seed
    image_calls: float
    seconds: float  #: of search, images and verification
    #: (calls_an_image, seconds_an_image) all passes and seconds of all seeds by all images found;
    #: NaN where there is none
    calls_an_image: float
    seconds_an_image: float
    #: (best_d, median_d) highest and median D of a seed's candidates, under noises that no search
    #: has met
    best_d: Mean
    median_d: Mean
    complete: bool  #: whether every search ran to its own end


def rows_of(result: Comparison) -> list[Row]:
    """Return a row per method, in the order they were given."""
    return [row_of(name, result.of(name)) for name in result.methods]


def row_of(method: str, attempts: Sequence[Attempt]) -> Row:
    """Return the figures of one method's attempts, one per seed."""
    images = sum(each.found for each in attempts) or math.nan
    most = max((len(each.candidates) for each in attempts), default=math.inf)
    known = [each.checked or (math.nan,) for each in attempts]
    return Row(
        method=method,
        seeds=len(attempts),
        found=mean_of((each.found for each in attempts), 0.0),
        candidates=mean_of(len(each.candidates) for each in attempts).value,
        clustered=mean_of((len(each.verified.clustered) for each in attempts), 0.0, most),
        search_calls=mean_of(each.search_calls for each in attempts).value,
        image_calls=mean_of(each.verified.calls for each in attempts).value,
        seconds=mean_of(each.seconds for each in attempts).value,
        calls_an_image=sum(each.calls for each in attempts) / images,
        seconds_an_image=sum(each.seconds for each in attempts) / images,
        best_d=mean_of(map(max, known), 0.0),
        median_d=mean_of((float(np.median(each)) for each in known), 0.0),
        complete=all(each.complete for each in attempts),
    )


def mean_of(values: Iterable[float], least: float = -math.inf, most: float = math.inf) -> Mean:
    """Return the mean with its interval over seeds; NaNs are left out.

    >>> mean_of([2.0, 4.0]).value, mean_of([0.0, 4.0], 0.0).low
    (3.0, 0.0)
    """
    known = [value for value in map(float, values) if not math.isnan(value)]
    if not known:
        return Mean(math.nan, math.nan, math.nan)
    low, high = t_interval(known)
    low, high = (least if low < least else low), (most if high > most else high)
    return Mean(sum(known) / len(known), low, high)
