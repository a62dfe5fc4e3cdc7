"""Figures of examples/dlede_road, from the figures in experiment.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from visleak.reporting.drawing import figure_of, saved, titled

NAMES = {"sequences": "split by recording (clean)", "random": "split at random (leaking)"}
COLOURS = {"sequences": "#0072b2", "random": "#d55e00"}
METRICS = {"map50": "mAP@0.5", "f1": "F1"}

#: Frames of drives that are shown, of twelve drives and fifty frames.
SHOWN = ((0, 10), (1, 0), (2, 16), (3, 33), (6, 49), (7, 0), (8, 16), (11, 33))

#: Pixels above the frames.
TITLE = 30


def write_figures(results: Mapping[str, Any], work: Path, folder: Path) -> None:
    """Write all figures into a folder; ``work`` is that of the experiment."""
    _frames(work, folder)
    alike = work / "random-early" / "phash-pairs.png"
    (folder / "alike.png").write_bytes(_small(alike))
    (folder / "hashes.svg").write_bytes(_hashes(results)["svg"])
    if all("full" in split for split in results["splits"].values()):
        files = _curves(results)
        for kind in ("svg", "png"):
            (folder / f"curves.{kind}").write_bytes(files[kind])


def _small(file: Path) -> bytes:
    """Return an image of few colours, for a small file."""
    import io

    from PIL import Image

    out = io.BytesIO()
    with Image.open(file) as picture:
        picture.convert("RGB").quantize(128).save(out, "PNG", optimize=True)
    return out.getvalue()


def _frames(work: Path, folder: Path) -> None:
    """Write a sheet of frames with their boxes, under a title with the colours of the classes."""
    from PIL import Image, ImageDraw, ImageFont
    from road import INKS, sequence_name
    from road_picture import CLASSES

    road, scale = work / "road", 2
    there = sorted(path.name for path in (road / "images").iterdir())
    shown = [(sequence_name(n), f) for n, f in SHOWN if sequence_name(n) in there]
    boxes: list[tuple[tuple[float, ...], int]] = []
    sheet = Image.new("RGB", (1, 1))
    for at, (name, wanted) in enumerate(shown):
        files = sorted((road / "images" / name).iterdir())
        file = files[min(wanted, len(files) - 1)]
        with Image.open(file) as opened:
            width, height = scale * opened.width, scale * opened.height
            picture = opened.resize((width, height), Image.Resampling.NEAREST)
        if not at:
            sheet = Image.new("RGB", (4 * width, TITLE + -(-len(shown) // 4) * height), "white")
        left, top = at % 4 * width, TITLE + at // 4 * height
        sheet.paste(picture, (left, top))
        for line in (road / "labels" / name / f"{file.stem}.txt").read_text().splitlines():
            label, x, y, w, h = map(float, line.split())
            start = (left + (x - w / 2) * width, top + (y - h / 2) * height)
            boxes.append(
                ((*start, start[0] + w * width - 1, start[1] + h * height - 1), int(label))
            )
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(15)
    title = f"Rendered frames of {len(shown)} drives, with their boxes:"
    draw.text((4, 6), title, "black", font)
    at_x = 20 + draw.textlength(title, font)
    for label, name in enumerate(CLASSES):
        boxes.append(((at_x, 9, at_x + 20, 21), label))
        draw.text((at_x + 27, 6), name, "black", font)
        at_x += 47 + draw.textlength(name, font)
    # boxes last, so that quantization does not change their colours
    sheet = sheet.quantize(200)
    draw = ImageDraw.Draw(sheet)
    for corners, label in boxes:
        draw.rectangle(corners, None, INKS[label])
    sheet.save(folder / "frames.png", optimize=True)


def _hashes(results: Mapping[str, Any]) -> dict[str, bytes]:
    with figure_of((7.2, 3.3)) as figure:
        titled(figure, "Training and test images by distance of their hashes", "")
        axes = figure.add_axes((0.1, 0.17, 0.88, 0.61))
        distances = np.arange(0, 33, 2)
        for at, (name, split) in enumerate(results["splits"].items()):
            counts = np.array(split["hashes"]["distances"])[distances]
            axes.bar(
                distances + (at - 0.5) * 0.8, counts, 0.8, color=COLOURS[name], label=NAMES[name]
            )
        axes.axvline(10.9, color="#5b636d", linewidth=0.8, linestyle=(0, (4, 3)))
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.7)
        axes.set_xticks(distances)
        axes.set_xlabel("Hamming distance of perceptual hashes; up to 10 counts as similar")
        axes.set_ylabel("pairs")
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        figure.legend(loc="upper left", bbox_to_anchor=(0.09, 0.93), ncols=2)
        return saved(figure, "dlede road hashes")


def _curves(results: Mapping[str, Any]) -> dict[str, bytes]:
    """Draw both metrics of both splits: means of the whole curve, dots for single training runs."""
    with figure_of((9.0, 4.0)) as figure:
        below = "lines: means of the whole curve; dots: single training runs"
        titled(figure, "Scores as test images leak into training", below)
        for at, (metric, shown) in enumerate(METRICS.items()):
            axes = figure.add_axes((0.07 + 0.5 * at, 0.14, 0.42, 0.61))
            for name, split in results["splits"].items():
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
        figure.legend(handles=marks, loc="upper left", bbox_to_anchor=(0.06, 0.88), ncols=2)
        return saved(figure, "dlede road curves")
