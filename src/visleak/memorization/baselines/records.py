"""What a comparison of searches leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visleak.memorization.search.task import Candidate


@dataclass(frozen=True, slots=True)
class Replayed:
    """A memorized image that the images of a candidate turned out to be copies of.

    Attributes:
        reference: SOURCE/id of the closest image of the source.
        number: of the memorized image within the attempt, from 0.
        prompt: the candidate.
    """

    reference: str
    number: int
    prompt: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What became of the images of candidates.

    Attributes:
        images: made.
        clustered: candidates that gave a cluster of nearly the same images.
        replayed: what was verified, one a candidate and memorized image.
        calls: passes of the network that the images cost.
        seconds: making and comparing the images, and looking for their sources.
    """

    images: int
    clustered: tuple[str, ...]
    replayed: tuple[Replayed, ...]
    calls: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """One method with one seed: its search, and what became of its candidates.

    Attributes:
        method: its name.
        seed: of everything random in it.
        about: settings of the method, as plain data.
        candidates: prompts that images were made of, different ones, by ``checked``, highest first;
            the ``score`` of each is D as its search found it.
        checked: D of each under noises that no search has met, common to all methods.
        complete: whether the search ran to its own end within the budget.
        search_calls: passes of the search, a gradient counted by ``GRADIENT_CALLS``.
        search_seconds: of wall time.
        check_calls: passes for ``checked``; they are part of neither cost.
        verified: what became of the images.
    """

    method: str
    seed: int
    about: dict[str, Any]
    candidates: tuple[Candidate, ...]
    checked: tuple[float, ...]
    complete: bool
    search_calls: int
    search_seconds: float
    check_calls: int
    verified: Verified

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
        """Return how many memorized images were known after so many passes, a step a pair.

        Candidates are looked at in their order, each at its share of the cost of all images.
        """
        steps: list[tuple[float, int]] = [(0.0, 0)]
        seen: set[int] = set()
        share = self.verified.calls / max(len(self.candidates), 1)
        for place, candidate in enumerate(self.candidates, 1):
            new = {
                each.number for each in self.verified.replayed if each.prompt == candidate.prompt
            } - seen
            if new:
                seen |= new
                steps.append((self.search_calls + place * share, len(seen)))
        return [*steps, (float(self.calls), len(seen))]


@dataclass(frozen=True)
class Comparison:
    """Several methods at one budget.

    Attributes:
        model: as plain data.
        score: settings of D, as plain data, with the timestep.
        norm: which of the two norms is called D here.
        budget: ``calls`` and ``seconds`` of every search.
        chains: candidates of a method, at most.
        seeds: that every method ran with.
        verification: how images were made, clustered and looked up, as plain data.
        attempts: by seed, then in the order the methods were asked for.
        folder: with ``compare.json``, the tables, the figure, and a folder a method and seed.
        key: of everything that was asked; equal keys are equal requests.
    """

    model: dict[str, Any]
    score: dict[str, Any]
    norm: str
    budget: dict[str, Any]
    chains: int
    seeds: tuple[int, ...]
    verification: dict[str, Any]
    attempts: tuple[Attempt, ...]
    folder: Path
    key: str

    @property
    def methods(self) -> tuple[str, ...]:
        """Names, in the order they were asked for."""
        return tuple(dict.fromkeys(each.method for each in self.attempts))

    def of(self, method: str) -> tuple[Attempt, ...]:
        """Return the attempts of a method, one a seed."""
        return tuple(each for each in self.attempts if each.method == method)
