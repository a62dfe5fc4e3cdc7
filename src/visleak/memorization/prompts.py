"""Lists of prompts, with what is known of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from visleak.errors import VisleakError
from visleak.groups import components


@dataclass(frozen=True)
class Prompts:
    """Prompts, in the order of their file.

    Attributes:
        texts: the prompts; each at least one character, none twice.
        labels: whether a prompt is known to be memorized, ``None`` where nobody knows; empty where
            the file says nothing at all.
        sources: the memorized images of each prompt (URLs or names), several for one image too;
            empty where the file names none.
        columns: further columns by name, as text.
        origin: file and format they were read from.
        notes: what a reader must know of the file, a line each: what came twice, what was empty.
    """

    texts: tuple[str, ...]
    labels: tuple[bool | None, ...] = ()
    sources: tuple[tuple[str, ...], ...] = ()
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    origin: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        lengths = {
            "labels": len(self.labels),
            "sources": len(self.sources),
            **{name: len(column) for name, column in self.columns.items()},
        }
        for name, length in lengths.items():
            if length not in (0, len(self.texts)):
                raise VisleakError(
                    f"{name} of prompts has {length} entries for {len(self.texts)} prompts"
                )
        if len(set(self.texts)) != len(self.texts):
            raise VisleakError("a prompt stands twice in a list of prompts; give each once")
        if not all(text.strip() for text in self.texts):
            raise VisleakError("a prompt is empty; remove it")

    def __len__(self) -> int:
        return len(self.texts)

    def groups(self) -> npt.NDArray[np.int64]:
        """Return a group number for each prompt: prompts that share an image are one group.

        Intervals draw whole groups: the 3,000 prompts of MemBench share 151 images in 53 groups.
        Prompts without a source are groups of their own.
        """
        places: dict[str, int] = {}
        left, right = [], []
        for number, images in enumerate(self.sources):
            for image in images:
                left.append(number)
                right.append(len(self.texts) + places.setdefault(image, len(places)))
        count = len(self.texts) + len(places)
        ties = [(np.asarray(left, np.int64), np.asarray(right, np.int64))]
        return components(count, ties)[: len(self.texts)]
