"""Options of ``robustness`` and ``calibrate``; this module imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from visleak.errors import UsageError
from visleak.options import METHOD, Options, Printed, Replaced, option, output


def _conditions(default: str) -> str:
    return option(
        default,
        "Changes applied to images: paper (the 19 of Ramos et al.), beyond, all, or names such as"
        " crop-50,jpeg-30.",
        metavar="NAME,..",
        panel=METHOD,
    )


def _queries(default: int) -> int:
    return option(
        default,
        "Images that are changed, drawn with the seed; 0 takes all.",
        metavar="N",
        panel=METHOD,
        least=0,
    )


@dataclass(frozen=True)
class Changes(Options, panel=METHOD):
    """How the images of an experiment are changed."""

    conditions: str = _conditions("all")
    queries: int = _queries(200)
    seed: int = option(0, "Seed of that draw.", metavar="K", least=0)
    verify: bool = option(
        True,
        "Skip pixel verification; duplicates within the set are then detected by byte equality"
        " only and otherwise counted as errors, and robustness omits the row of the pipeline.",
        "--no-verify",
    )

    def chosen(self) -> dict[str, Any]:
        """Return the keyword arguments of the public functions."""
        names = [name for name in self.conditions.split(",") if name]
        own = {field.name: getattr(self, field.name) for field in fields(Changes)}
        return own | {"conditions": names}


@dataclass(frozen=True)
class Robustness(Changes, Printed, Replaced):
    """Options of ``robustness``."""

    encoders: tuple[str, ...] = option(
        (), "Encoder; may be repeated. Default: builtin.", "--encoder", metavar="NAME", panel=METHOD
    )
    thresholds: tuple[float, ...] = option(
        (),
        "Similarity at which true- and false-positive rates are reported, in addition to the"
        " encoder's own thresholds. May be repeated.",
        "--report-at",
        metavar="X",
        panel=METHOD,
    )
    out: Path = output(Path("visleak-robustness"), "Folder of the result.")


def _rates(text: str) -> tuple[float, ...]:
    try:
        return tuple(map(float, text.split(",")))
    except ValueError:
        raise UsageError(
            f"--fpr must be one rate or two, such as 1e-6 or 1e-6,1e-4; got {text!r}"
        ) from None


@dataclass(frozen=True)
class Calibrate(Changes, Printed, Replaced):
    """Options of ``calibrate``."""

    fpr: tuple[float, ...] = option(
        ...,
        "False-positive rate of the hard threshold, such as 1e-6, and of the soft one. Default of"
        " the soft one: a hundred times the hard one's, up to 0.01.",
        metavar="RATE[,RATE]",
        panel=METHOD,
        parse=_rates,
    )
    encoder: str = option("builtin", "Encoder.", metavar="NAME", panel=METHOD)
    conditions: str = _conditions("paper")
    queries: int = _queries(0)
    out: Path = output(Path("thresholds.json"), "The file.", metavar="FILE")
