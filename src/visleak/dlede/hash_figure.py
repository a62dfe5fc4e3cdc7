"""The figure of hash distances, and of the test images that have an alike picture in training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

from visleak.dlede.results import DLeDe, HashEvidence
from visleak.dlede.tables import CUTS, PAPER_CUT
from visleak.drawing import figure_of, saved

BLUE: Final = "#0072b2"
GREEN: Final = "#009e73"
INK: Final = "#1d2127"
QUIET: Final = "#5b636d"

#: Counts that differ by more than this are drawn on a logarithmic axis.
SPREAD: Final = 50


def hash_distances(result: DLeDe, *, small: bool = False) -> dict[str, bytes]:
    """Return pairs by distance, and test images with a pair up to it, as SVG and PNG.

    Args:
        result: what was found; without a pair up to 16 bits apart there is no figure.
        small: for a page.
    """
    found = result.hashes
    if found is None or not sum(found.histogram[: CUTS + 1]):
        return {}
    width, height = (5.6, 4.3) if small else (7.4, 5.2)
    with figure_of((width, height)) as figure:
        upper, lower = (
            figure.add_axes((0.74 / width, bottom, 1 - 0.9 / width, share))
            for bottom, share in ((0.47, 0.37), (0.115, 0.24))
        )
        _pairs(upper, found.histogram[: CUTS + 1], small=small)
        _images(lower, found)
        told = (
            f"{found.test:,} test images against {found.train:,} training images; distance in bits"
        )
        title = "Alike pictures by perceptual hash"
        figure.text(0.1 / width, 1 - 0.1 / height, title, va="top", fontweight="bold", fontsize=11)
        figure.text(0.1 / width, 1 - 0.34 / height, told, va="top", fontsize=8.5, color=QUIET)
        return saved(figure, "dlede hashes")


def _pairs(axes: Any, counts: Sequence[int], *, small: bool) -> None:
    known = [count for count in counts if count]
    spread = max(known) > SPREAD * min(known)
    if spread:
        axes.set_yscale("log")
        axes.set_ylim(0.5, max(known) * 4)
        axes.minorticks_off()
    else:
        axes.set_ylim(0, max(known) * 1.18)
        axes.locator_params(axis="y", integer=True, nbins=5)
    axes.bar(range(len(counts)), counts, 0.8, color=BLUE, zorder=2)
    for distance, count in enumerate(counts):
        if count:
            axes.annotate(
                compact(count), (distance, count), xytext=(0, 2), textcoords="offset points",
                ha="center", va="bottom", fontsize=6.5 if small else 7.5, color=INK, zorder=5,
                bbox={"fc": "white", "lw": 0, "pad": 0.3},
            )  # fmt: skip
    axes.set_ylabel("pairs" + ", logarithmic" * spread, fontsize=9)
    _shared(axes, named=True)


def _images(axes: Any, found: HashEvidence) -> None:
    shares = [100.0 * n / max(found.test, 1) for n in accumulate(found.nearest[: CUTS + 1])]
    axes.bar(range(len(shares)), shares, 0.8, color=GREEN, zorder=2)
    most = shares[-1]
    axes.set_ylim(0, min(100.0, most * 1.3) if most else 1.0)
    axes.locator_params(axis="y", nbins=4)
    axes.set_ylabel("test images with\na pair up to it, %", fontsize=9)
    axes.set_xlabel("distance of the perceptual hashes, bits", fontsize=9.5)
    _shared(axes, named=False)


def _shared(axes: Any, *, named: bool) -> None:
    axes.set_xlim(-0.6, CUTS + 0.6)
    axes.set_xticks(range(CUTS + 1), [f"{at}" for at in range(CUTS + 1)], fontsize=8.5)
    axes.tick_params(axis="x", length=0)
    axes.tick_params(axis="y", labelsize=8.5)
    axes.axvline(PAPER_CUT + 0.5, color=QUIET, lw=1.1, ls="--", zorder=3)
    if named:
        axes.annotate(
            "the paper's cut", (PAPER_CUT + 0.5, 1.0), xycoords=("data", "axes fraction"),
            xytext=(4, -2), textcoords="offset points", va="bottom", fontsize=8, color=QUIET,
        )  # fmt: skip
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def compact(count: int) -> str:
    """Write a count with three digits at most.

    >>> [compact(count) for count in (851, 3_662, 27_369, 999_600, 11_769_750)]
    ['851', '3.66k', '27.4k', '1M', '11.8M']
    """
    value, unit = float(f"{count:.3g}"), 0
    while value >= 1000.0:
        value, unit = value / 1000.0, unit + 1
    digits = 0 if not unit or value >= 100 else 2 - math.floor(math.log10(value))
    text = f"{value:.{digits}f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) + ("", "k", "M", "G", "T")[unit]
