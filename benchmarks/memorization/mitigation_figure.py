"""Draws examples/mitigation_toy.png from the medians of mitigation.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

Medians = Mapping[str, Mapping[str, float]]

#: Name of a family of settings -> prefix of the names of its settings, colour and marker.
FAMILIES = {
    "RTA": ("RTA ", "#b45309", "s"),
    "RNA": ("RNA ", "#0369a1", "o"),
    "Wen et al.": ("Wen ", "#047857", "^"),
    "Ren et al.": ("Ren ", "#7c3aed", "D"),
}
PANELS = {"trigger_clip": "trigger prompts", "general_clip": "general prompts"}
DARK, PALE = "#1d2129", "#8a919e"


def settings_of(medians: Medians, start: str) -> list[str]:
    """Return the settings of a family in their order, without variants such as another rate."""
    return [name for name in medians if name.startswith(start) and "," not in name]


def panel(axes: Axes, medians: Medians, column: str) -> None:
    """Draw a line per family, from no mitigation to its strongest setting."""
    origin = medians["none"]["trigger_top1"], medians["none"][column]
    for family, (start, colour, marker) in FAMILIES.items():
        names = settings_of(medians, start)
        places = [origin, *((medians[n]["trigger_top1"], medians[n][column]) for n in names)]
        axes.plot(*zip(*places, strict=True), color=colour, linewidth=1.6, zorder=2)
        axes.scatter(*zip(*places[1:], strict=True), color=colour, marker=marker, s=34, zorder=3)
        x, y = min(places)
        below = column == "general_clip" or family in ("RNA", "Ren et al.")
        axes.annotate(
            family, (x, y), (0, -17 if below else 9), textcoords="offset points", ha="center",
            color=colour, size=11, weight="bold",
        )  # fmt: skip
    axes.scatter(*origin, color=DARK, marker="x", s=54, zorder=4)
    axes.annotate(
        "no mitigation", origin, (0, -18 if column == "trigger_clip" else 10),
        textcoords="offset points", ha="center", color=DARK, size=11,
    )  # fmt: skip
    axes.set_title(f"CLIP score of {PANELS[column]}", size=12, color=DARK, loc="left")
    axes.set_xlabel("similarity to the memorized image", size=11, color=DARK)
    axes.set_xlim(0.08, 1.06)
    axes.margins(y=0.16)
    axes.grid(color="#e8ecee")
    axes.tick_params(labelsize=10, colors=PALE)
    axes.spines[["top", "right"]].set_visible(False)


def draw(medians: Medians, path: Path) -> None:
    """Write the figure."""
    mpl.use("Agg")
    figure, axes = plt.subplots(1, 2, figsize=(10.4, 4.7), dpi=110, facecolor="white")
    for each, column in zip(axes, PANELS, strict=True):
        panel(each, medians, column)
    figure.suptitle(
        "What mitigations cost: better is up and to the left", x=0.035, ha="left", size=15,
        color=DARK, weight="bold",
    )  # fmt: skip
    figure.text(
        0.035, 0.885, "medians over three seeds; a point per setting, weakest first", size=11,
        color="#5b6472",
    )  # fmt: skip
    figure.tight_layout(rect=(0.02, 0, 1, 0.92), w_pad=2.5)
    figure.savefig(path)
