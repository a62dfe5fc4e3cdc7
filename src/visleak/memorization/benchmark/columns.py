"""The numbers of the tables, and which way each is to go."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from visleak.memorization.benchmark.records import GENERAL, TRIGGER
from visleak.memorization.metrics.copying import LIMIT

#: Which deviation of the aesthetic score stands in the tables: that of all images, of the means
#: of prompts, or that of images within a prompt. The paper does not say which its own is.
DEVIATIONS: Final = ("images", "prompts", "within")


@dataclass(frozen=True, slots=True)
class Column:
    """A number about images.

    Attributes:
        short: its heading.
        words: what it is, in a sentence.
        rising: larger is better.
        places: decimal places that are shown.
        least, most: that it can be.
    """

    short: str
    words: str
    rising: bool
    places: int = 3
    least: float = -1.0
    most: float = 1.0


def _deviation(which: str) -> Column:
    words = f"standard deviation of the aesthetic score {which}"
    return Column("aes. std", words, False, 2, 0.0, math.inf)


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
        "aesthetic_std_images": _deviation("over all images"),
        "aesthetic_std_prompts": _deviation("over the means of prompts"),
        "aesthetic_std_within": _deviation("within a prompt: root of the mean variance"),
    }
)


def shown_columns(deviation: str) -> tuple[tuple[str, str], ...]:
    """Return scenario and name of the numbers of tables 3 and 5, in the paper's order.

    Args:
        deviation: one of :data:`DEVIATIONS`.

    >>> [name for scenario, name in shown_columns("images") if scenario == "general"]
    ['clip', 'aesthetic', 'aesthetic_std_images']
    """
    # with one image a prompt there is none within: over prompts it is that of all images
    general = "images" if deviation == "within" else deviation
    trigger = ("top1", "top3", "share", "clip", "aesthetic", f"aesthetic_std_{deviation}")
    ordinary = ("clip", "aesthetic", f"aesthetic_std_{general}")
    return (
        *((TRIGGER, name) for name in trigger),
        *((GENERAL, name) for name in ordinary),
    )
