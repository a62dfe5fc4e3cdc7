"""Figures of examples/dlede_road, from the figures in experiment.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from visleak.reporting.drawing import figure_of, saved

NAMES = {"sequences": "split by recording (clean)", "random": "split at random (leaking)"}
COLOURS = {"sequences": "#0072b2", "random": "#d55e00"}
METRICS = {"map50": "mAP@0.5", "f1": "F1"}

#: Which frames of which drives are shown, of twelve drives and fifty frames.
SHOWN = ((0, 10), (1, 0), (2, 16), (3, 33), (6, 49), (7, 0), (8, 16), (11, 33))


def write_figures(told: Mapping[str, Any], work: Path, folder: Path) -> None:
    """Write all figures into a folder; ``work`` is that of the experiment."""
    _frames(work, folder)
    alike = work / "random-early" / "phash-pairs.png"
    (folder / "alike.png").write_bytes(_small(alike))
    (folder / "hashes.svg").write_bytes(_hashes(told)["svg"])
    if all("full" in split for split in told["splits"].values()):
        files = _curves(told)
        for kind in ("svg", "png"):
            (folder / f"curves.{kind}").write_bytes(files[kind])


def _small(file: Path) -> bytes:
    """Return a picture of few colours, so that it takes little room."""
    import io

    from PIL import Image

    out = io.BytesIO()
    with Image.open(file) as picture:
        picture.convert("RGB").quantize(128).save(out, "PNG", optimize=True)
    return out.getvalue()


def _frames(work: Path, folder: Path) -> None:
    """Write a sheet of frames with their boxes."""
    from PIL import Image, ImageDraw
    from road import INKS, sequence_name

    road, scale = work / "road", 2
    there = sorted(path.name for path in (road / "images").iterdir())
    shown = [(sequence_name(n), f) for n, f in SHOWN if sequence_name(n) in there]
    sheet = None
    for at, (name, wanted) in enumerate(shown):
        files = sorted((road / "images" / name).iterdir())
        file = files[min(wanted, len(files) - 1)]
        with Image.open(file) as opened:
            width, height = scale * opened.width, scale * opened.height
            picture = opened.resize((width, height), Image.Resampling.NEAREST)
        draw = ImageDraw.Draw(picture)
        for line in (road / "labels" / name / f"{file.stem}.txt").read_text().splitlines():
            label, x, y, w, h = map(float, line.split())
            left, top = (x - w / 2) * width, (y - h / 2) * height
            corners = (left, top, left + w * width - 1, top + h * height - 1)
            draw.rectangle(corners, None, INKS[int(label)])
        if sheet is None:
            sheet = Image.new("RGB", (4 * width, -(-len(shown) // 4) * height))
        sheet.paste(picture, (at % 4 * width, at // 4 * height))
    if sheet is not None:
        sheet.quantize(200).save(folder / "frames.png", optimize=True)


def _hashes(told: Mapping[str, Any]) -> dict[str, bytes]:
    with figure_of((7.2, 2.9)) as figure:
        axes = figure.add_axes((0.1, 0.19, 0.88, 0.62))
        distances = np.arange(0, 33, 2)
        for at, (name, split) in enumerate(told["splits"].items()):
            counts = np.array(split["hashes"]["distances"])[distances]
            axes.bar(
                distances + (at - 0.5) * 0.8, counts, 0.8, color=COLOURS[name], label=NAMES[name]
            )
        axes.axvline(10.9, color="#5b636d", linewidth=0.8, linestyle=(0, (4, 3)))
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.7)
        axes.set_xticks(distances)
        axes.set_xlabel("Hamming distance of perceptual hashes; up to 10 counts as alike")
        axes.set_ylabel("train-test pairs")
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        figure.legend(loc="upper left", bbox_to_anchor=(0.09, 1.0), ncols=2)
        return saved(figure, "dlede road hashes")


def _curves(told: Mapping[str, Any]) -> dict[str, bytes]:
    """Draw both metrics of both splits: means of the whole curve, dots for single trainings."""
    with figure_of((9.0, 3.6)) as figure:
        for at, (metric, shown) in enumerate(METRICS.items()):
            axes = figure.add_axes((0.07 + 0.5 * at, 0.16, 0.42, 0.66))
            for name, split in told["splits"].items():
                result = split["full"]
                values = np.array(result["scores"][metric], np.float64)
                early = np.array(split["early"]["scores"][metric], np.float64)
                colour = COLOURS[name]
                axes.plot(result["steps"], np.nanmean(values, axis=0), color=colour, marker="o")
                for steps, each in ((result["steps"], values), (split["early"]["steps"], early)):
                    places = np.tile(steps, (len(each), 1))
                    axes.scatter(places, each, s=9, color=colour, alpha=0.45, linewidths=0)
            axes.set_ylim(0, 1)
            axes.set_title(shown, loc="left")
            axes.set_xlabel("test images that leak into training, %")
            axes.grid(axis="y")
            axes.set_axisbelow(True)
        from matplotlib.lines import Line2D

        marks = [Line2D([], [], color=COLOURS[n], marker="o", label=NAMES[n]) for n in NAMES]
        figure.legend(handles=marks, loc="upper left", bbox_to_anchor=(0.06, 1.01), ncols=2)
        return saved(figure, "dlede road curves")
