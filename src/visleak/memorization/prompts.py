"""Lists of prompts, with what is known of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from visleak.errors import VisleakError
from visleak.groups import components
from visleak.records import Int64


@dataclass(frozen=True, slots=True)
class PromptScores:
    """D of prompts, and which of them count as high."""

    name: str  #: of the column that D comes from, such as ``d_l2``
    values: Mapping[str, float]  #: D by prompt; prompts without one are missing
    reached: frozenset[str] | None = None  #: that reached a threshold, if one is known
    threshold: str = ""  #: what they reached, in words

    def high(self, clustered: Collection[str]) -> tuple[frozenset[str], str]:
        """Return the prompts whose D is high, and the rule.

        ``clustered``: prompts whose images gave a cluster: without a threshold, a D is high from
        the lowest of theirs on. Without these, the highest tenth is.
        """
        if self.reached is not None:
            return self.reached, f"D reached {self.threshold}"
        if not self.values:
            return frozenset(), "no D is known"
        own = [self.values[prompt] for prompt in clustered if prompt in self.values]
        ranked = sorted(self.values.values(), reverse=True)
        least = min(own) if own else ranked[(len(ranked) - 1) // 10]
        which = ", the lowest D with a cluster" if own else ", in the highest tenth"
        high = frozenset(text for text, d in self.values.items() if d >= least)
        return high, f"D ({self.name}) is at least {least:.4g}{which}"

    def about(self, prompts: Sequence[str]) -> dict[str, object]:
        """Return D of some prompts as plain data, in their order."""
        known = None if self.reached is None else [text in self.reached for text in prompts]
        return {
            "name": self.name,
            "values": [self.values.get(text) for text in prompts],
            "reached": known,
            "threshold": self.threshold,
        }

    @classmethod
    def of(cls, about: Mapping[str, Any], prompts: Sequence[str]) -> PromptScores:
        """Return what :meth:`about` made plain."""
        pairs = zip(prompts, about["values"], strict=True)
        values = {text: float(value) for text, value in pairs if value is not None}
        reached = None
        if about["reached"] is not None:
            flags = zip(prompts, about["reached"], strict=True)
            reached = frozenset(text for text, flag in flags if flag)
        return cls(str(about["name"]), values, reached, str(about["threshold"]))


@dataclass(frozen=True)
class Prompts:
    """Prompts, in the order of their file."""

    texts: tuple[str, ...]  #: the prompts; each at least one character, none twice
    labels: tuple[bool | None, ...] = ()  #: whether memorized; empty where all are unknown
    sources: tuple[tuple[str, ...], ...] = ()  #: memorized images of each prompt; empty without any
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  #: further ones, as text
    origin: str = ""  #: file and format they were read from
    notes: tuple[str, ...] = ()  #: what came twice, what was empty, one line each

    def __post_init__(self) -> None:
        for name, column in {
            "labels": self.labels,
            "sources": self.sources,
            **self.columns,
        }.items():
            if len(column) not in (0, len(self.texts)):
                raise VisleakError(
                    f"{name} of prompts has {len(column)} entries for {len(self.texts)} prompts"
                )
        if len(set(self.texts)) != len(self.texts):
            raise VisleakError("a prompt is listed twice; give each once")
        if not all(text.strip() for text in self.texts):
            raise VisleakError("a prompt is empty; remove it")

    def __len__(self) -> int:
        return len(self.texts)

    def groups(self) -> Int64:
        """Return a group number for each prompt: prompts that share an image are one group.

        Intervals draw whole groups: the 3,000 prompts of MemBench share 151 images in 53 groups.
        Prompts without a source are groups of their own.
        """
        count, places = len(self.texts), dict[str, int]()
        left = np.repeat(np.arange(len(self.sources)), [len(each) for each in self.sources])
        every = (image for images in self.sources for image in images)
        right = np.array([places.setdefault(each, count + len(places)) for each in every], np.int64)
        return components(count + len(places), [(left, right)])[:count]
