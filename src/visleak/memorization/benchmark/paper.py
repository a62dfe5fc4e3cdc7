"""Tables 3 to 5 of Hong et al. 2024, to be printed beside one's own."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from visleak.memorization.benchmark.records import NONE, MethodRow

FILE: Final = "membench_tables.json"

#: The row of the reference performance.
REFERENCE: Final = "reference"

#: Options without which a setting is another one than the paper's of the same strength.
_OPTIONS: Final[Mapping[str, Mapping[str, object]]] = {
    "wen": {"scope": "batch", "steps": 10, "lr": 0.05, "optimiser": "adam", "output": "raw"}
}

#: Images a trigger prompt in the paper: l of Wen et al. is one norm over all of them.
_IMAGES: Final = 10

#: How models are called whose results the paper prints, and nothing else: a fine-tune of one has
#: more to its name. Which Stable Diffusion 2 it is the paper does not say.
_NAME: Final = r"(?:(?:compvis|stabilityai)[-_])?(?:stable[-_ ]?diffusion|sd)?[-_ ]?v?{}"
_WEIGHTS: Final = r"(?:[-_.](?:fp16|bf16|ema|diffusers|base|full))*"
_SD1: Final = re.compile(_NAME.format(r"1[-_.]4") + _WEIGHTS, re.IGNORECASE)
_SD2: Final = re.compile(_NAME.format(r"2(?:[-_.][01])?") + _WEIGHTS, re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Printed:
    """A row of the paper.

    Attributes:
        method: as here; ``reference`` for the reference performance.
        value: n of rna and rta, l of wen, C of ren; ``None`` of none and the reference.
        values: by scenario and name; ``None`` where a digit is lost in print.
        doubtful: names, with their scenario, whose digits are hard to read.
    """

    method: str
    value: float | None
    values: Mapping[tuple[str, str], float | None]
    doubtful: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class PaperTable:
    """What the paper prints of one model.

    Attributes:
        model: its name.
        table: number of the table.
        rows: of it.
        frechet: FID by method, table 4; empty of models without.
        source: where it is printed.
    """

    model: str
    table: int
    rows: tuple[Printed, ...]
    frechet: Mapping[str, float]
    source: str

    def row(self, method: str, strength: float = math.nan) -> Printed | None:
        """Return the row of a method at a strength; ``None`` where the paper has none."""
        for each in self.rows:
            same = each.value is None or math.isclose(each.value, abs(strength), rel_tol=1e-6)
            if each.method == method and same:
                return each
        return None

    def beside(self, row: MethodRow, images: int) -> Printed | None:
        """Return the paper's row of the same method and setting.

        Its l of Wen et al. is one norm over the ten images of a prompt, so that it is beside no l
        that is compared with each image's own D, or with that of another number of images, nor
        beside one with other steps.

        Args:
            row: a method and setting.
            images: that each trigger prompt has.
        """
        if row.method == NONE:
            return self.row(NONE)
        options = row.about.get("options", {})
        wanted = _OPTIONS.get(row.method, {})
        if any(options.get(name) != value for name, value in wanted.items()):
            return None
        if wanted.get("scope") == "batch" and images != _IMAGES:
            return None
        return self.row(row.method, row.strength)


def paper_table(about: Mapping[str, Any]) -> PaperTable | None:
    """Return the paper's table of a model, if it is one that the paper measured.

    Args:
        about: of the model, as plain data.

    >>> names = ("CompVis/stable-diffusion-v1-4", "sd-2.1/", "sd-1.4/", "sdxl", "mine-v1.4")
    >>> [found.table if found else None for found in (paper_table({"name": n}) for n in names)]
    [3, 5, 3, None, None]
    """
    shape = tuple(about.get("shape") or (4, 64, 64))
    # a toy may have the name, and not the size
    if about.get("family", "sd") != "sd" or shape[0] != 4 or shape[1] < 64:
        return None
    name = re.split(r"[/\\:]", str(about.get("name", "")).rstrip("/\\"))[-1]
    which = "sd2" if _SD2.fullmatch(name) else "sd1" if _SD1.fullmatch(name) else ""
    return _tables().get(which)


@cache
def _tables() -> dict[str, PaperTable]:
    place = resources.files("visleak.memorization.benchmark") / FILE
    content = json.loads(place.read_text(encoding="utf-8"))
    frechet = content["frechet"]
    return {
        key: PaperTable(
            model=held["name"],
            table=held["table"],
            rows=tuple(map(_row, held["rows"])),
            frechet=frechet["values"] if frechet["model"] == key else {},
            source=content["source"],
        )
        for key, held in content["models"].items()
    }


def _row(held: dict[str, Any]) -> Printed:
    values = {
        (scenario, name): value
        for scenario in ("trigger", "general")
        for name, value in held[scenario].items()
    }
    doubtful = (tuple(each.split(".")) for each in held["doubtful"])
    return Printed(
        held["method"], held["value"], values, frozenset((pair[0], pair[1]) for pair in doubtful)
    )
