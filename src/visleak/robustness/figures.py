"""The experiment's two plots: R@1 as a radar, ROC with a logarithmic axis.

Layout after figures 1 and 2 of Ramos et al. 2025. The same numbers give the same bytes.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from visleak.drawing import as_text, figure_of, saved
from visleak.robustness.curves import Curve, auc_text, thinned
from visleak.robustness.results import Robustness

#: Colours that differ for colour-blind readers too (Wong 2011), and lines that differ in print.
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4a5058")

#: What is drawn from: name, shares by condition.
Line = tuple[str, list[float]]


def radar(result: Robustness) -> dict[str, bytes]:
    """Return the radar of R@1 as ``{"svg": .., "png": ..}``; one line an encoder."""
    names = [condition.name for condition in result.conditions]
    angle = np.linspace(0, 2 * math.pi, len(names), endpoint=False)
    with figure_of((7.4, 7.4)) as figure:
        axes = figure.add_subplot(projection="polar")
        axes.set_theta_zero_location("N")
        axes.set_theta_direction(-1)
        axes.set_ylim(0, 1)
        axes.set_yticks([0.25, 0.5, 0.75, 1.0], ["25", "50", "75 %", ""], fontsize=8)
        axes.set_rlabel_position(180.0 / len(names))
        axes.spines["polar"].set_color("#c9ced5")
        axes.set_xticks(angle, [""] * len(names))
        for at, name in zip(angle, names, strict=True):
            side = "center" if abs(math.sin(at)) < 0.1 else ("left" if at < math.pi else "right")
            axes.text(at, 1.06, name, ha=side, va="center", fontsize=9, color="#1d2127")
        for number, (name, shares) in enumerate(_lines(result)):
            colour = COLOURS[number % len(COLOURS)]
            # a condition that applies to no picture leaves a gap
            values = np.array([*shares, shares[0]])
            places = np.append(angle, angle[0])
            # where lines meet, the earlier one shows as a rim round the later one's marks
            axes.plot(
                places, values, color=colour, lw=max(1.2, 2.6 - 0.6 * number), marker="o",
                ms=max(3.0, 7.5 - 2 * number), label=name, clip_on=False, zorder=3 + number,
            )  # fmt: skip
            axes.fill(places, np.nan_to_num(values), color=colour, alpha=0.04)
        figure.suptitle("Originals found first (R@1), by condition", fontweight="bold", y=0.985)
        figure.text(
            0.5,
            0.94,
            f"{_about(result)}; the rim is 100 %",
            ha="center",
            va="center",
            fontsize=9,
            color="#5b636d",
        )
        figure.legend(loc="lower center", ncols=3, fontsize=9, bbox_to_anchor=(0.5, 0.005))
        figure.subplots_adjust(left=0.12, right=0.88, top=0.86, bottom=0.13)
        return saved(figure, "radar")


def _lines(result: Robustness) -> list[Line]:
    found: list[Line] = []
    for tested in result.encoders:
        name = as_text(tested.name)
        if tested.pipeline:
            found.append((f"{name}, whole pipeline", [j.r1.share for j in tested.pipeline]))
            name = f"{name}, fingerprint alone"
        found.append((name, [d.r1.share for d in tested.direct]))
    return found


def _about(result: Robustness) -> str:
    name = result.collection if len(result.collection) <= 40 else result.collection[:39] + "…"
    return as_text(f"{result.queries:,} queries among {result.references:,} pictures of {name}")


def roc_plot(result: Robustness) -> dict[str, bytes]:
    """Return the ROC of untransformed and transformed queries as ``{"svg": .., "png": ..}``."""
    curves = [
        (as_text(tested.name), label, curve, number)
        for number, tested in enumerate(result.encoders)
        for label, curve in (("original", tested.original), ("transformed", tested.trans))
        if curve is not None and len(curve.roc.positives) and curve.roc.total
    ]
    if not curves:
        return {}
    least = min(1.0 / curve.roc.total for _, _, curve, _ in curves)
    floor = 10.0 ** (math.floor(math.log10(least)) - 0.6)
    with figure_of((7.6, 5.2)) as figure:
        axes = figure.add_subplot()
        for name, label, curve, number in curves:
            colour = COLOURS[number % len(COLOURS)]
            dashed = label == "transformed"
            fpr, tpr = _corners(curve, floor)
            axes.plot(
                fpr, tpr, color=colour, lw=2, ls=(0, (5, 2)) if dashed else "-",
                label=f"{name}, {label}: AUC {auc_text(curve.roc.auc)}", drawstyle="steps-post",
                zorder=2 if dashed else 3,
            )  # fmt: skip
            if dashed or result.encoders[number].trans is None:
                _mark(axes, curve, colour, floor)
        _axes_of_rates(axes, floor)
        axes.set_title("True pairs and others told apart by similarity alone", loc="left", pad=22)
        axes.text(0, 1.03, _about(result), transform=axes.transAxes, fontsize=9, color="#5b636d")
        axes.legend(loc="lower right", fontsize=9)
        figure.subplots_adjust(left=0.12, right=0.97, top=0.86, bottom=0.12)
        return saved(figure, "roc")


def _corners(curve: Curve, floor: float) -> tuple[list[float], list[float]]:
    """Return a curve for a logarithmic axis: nothing wrong is drawn at its left end."""
    fpr, tpr, _ = thinned(curve.roc)
    return [floor, *np.maximum(fpr, floor), 1.0], [0.0, *tpr, 1.0]


def _mark(axes: Any, curve: Curve, colour: str, floor: float) -> None:
    """Mark the thresholds on a curve."""
    for each in curve.at:
        at = (max(each.fpr, floor), each.true.share)
        axes.plot(*at, "o", ms=7, mfc="white", mec=colour, mew=1.8, zorder=4, clip_on=False)
        given = each.name == f"{each.threshold:g}"
        said = each.name if given else f"{each.name} {each.threshold:.3g}"
        axes.annotate(
            said, at, xytext=(9, -12), textcoords="offset points", fontsize=8.5, color=colour
        )


def _axes_of_rates(axes: Any, floor: float) -> None:
    """Set up the two axes; the left end stands for a rate of zero."""
    decades = range(math.ceil(math.log10(floor) + 0.3), 1)
    axes.set_xscale("log")
    axes.set_xlim(floor, 1.0)
    axes.set_ylim(0, 1.02)
    axes.set_xticks(
        [floor, *(10.0**d for d in decades)],
        ["0", *(f"$10^{{{d}}}$" if d else "1" for d in decades)],
    )
    axes.minorticks_off()
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100 %"])
    axes.grid(True)
    axes.set_axisbelow(True)
    axes.set_xlabel("false-positive rate (share of the other pairs, logarithmic)")
    axes.set_ylabel("true-positive rate")
