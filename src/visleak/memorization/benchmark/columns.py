"""The numbers of the tables: which way each is to go, and how names and values are printed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from visleak.memorization.benchmark.records import GENERAL, NONE, TRIGGER, Line, MethodRow
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
    # with one image per prompt there is none within: over prompts it is that of all images
    general = "images" if deviation == "within" else deviation
    trigger = ("top1", "top3", "share", "clip", "aesthetic", f"aesthetic_std_{deviation}")
    ordinary = ("clip", "aesthetic", f"aesthetic_std_{general}")
    return (
        *((TRIGGER, name) for name in trigger),
        *((GENERAL, name) for name in ordinary),
    )


#: Names of methods in sentences, tables and figures.
NAMES: Final = {
    NONE: "no mitigation",
    "rna": "RNA",
    "rta": "RTA",
    "wen": "Wen et al.",
    "ren": "Ren et al.",
}


#: Folders before the last part of an absolute path, wherever it stands in a name.
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
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def signed(value: float, places: int = 3) -> str:
    """Return a change with its sign.

    >>> signed(0.0123), signed(-0.5), signed(0.0)
    ('+.012', '-.500', '.000')
    """
    text = number(value, places)
    return f"+{text}" if value > 0 and float(text) != 0 else text


def p_value(value: float) -> str:
    """Return a probability in words.

    >>> p_value(0.0421), p_value(0.00003), p_value(float("nan"))
    ('p = .042', 'p < .001', 'p is not known')
    """
    if math.isnan(value):
        return "p is not known"
    return "p < .001" if value < 0.001 else f"p = {number(value)}"
