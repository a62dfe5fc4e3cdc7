"""A test set as the impact of its leaks is asked of it: its images, and which of them leak how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from visleak.impact.scores import Float64
from visleak.records import Bool, Int8

#: Label of a test image against that of its most similar leaked training image.
RELATIONS: Final = ("same", "different", "unknown")


@dataclass(frozen=True)
class Leak:
    """Which images of a test set leak, in one sense of the word.

    Attributes:
        name: ``hard``, ``hard or soft``, ``soft only``, ``exact``, ``near or exact`` and so on;
            what somebody gave as a list of ids has the list's name.
        leaked: ``bool`` (n,), by image.
        relation: ``int8`` (n,): place in :data:`RELATIONS`, -1 where an image does not leak.
    """

    name: str
    leaked: Bool
    relation: Int8

    def __post_init__(self) -> None:
        if self.leaked.ndim != 1 or self.leaked.shape != self.relation.shape:
            raise ValueError(
                f"leak {self.name!r}: leaked and relation must be columns of one length; got"
                f" {self.leaked.shape} and {self.relation.shape}"
            )
        if ((self.relation >= 0) & ~self.leaked).any():
            raise ValueError(f"leak {self.name!r}: an image that does not leak has a relation")

    @property
    def compared(self) -> bool:
        """Whether the label of any leaking image could be compared with its copy's."""
        return bool(((self.relation >= 0) & (self.relation != RELATIONS.index("unknown"))).any())


@dataclass(frozen=True)
class Benchmark:
    """The readable images of a test set, in the order of the audit, and how they leak.

    Attributes:
        name: of the test set.
        references: names of the training sets whose leaks count.
        ids: Arrow string array (n,), unique.
        labels: Arrow string array (n,), or ``None`` where the set has none.
        leaks: each as long as ``ids``.
        judged: people have judged pairs, and their verdicts are counted.
        difficulty: ``float64`` (n,), larger is harder, NaN where it is not known; ``None`` where
            leaked images are not compared with others that are as difficult.
    """

    name: str
    references: tuple[str, ...]
    ids: pa.StringArray
    labels: pa.StringArray | None
    leaks: tuple[Leak, ...]
    judged: bool = False
    difficulty: Float64 | None = None

    def __post_init__(self) -> None:
        wrong = [leak.name for leak in self.leaks if len(leak.leaked) != len(self.ids)]
        others = [each for each in (self.labels, self.difficulty) if each is not None]
        if wrong or any(len(each) != len(self.ids) for each in others):
            raise ValueError(f"set {self.name!r}: all columns must have {len(self.ids)} rows")

    def __len__(self) -> int:
        return len(self.ids)
