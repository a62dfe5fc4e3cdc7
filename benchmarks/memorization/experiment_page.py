"""Writes examples/memorization_toy.md and its image from experiment.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

#: Names of the methods on the page.
METHODS = {
    "gibbs": "Gibbs sampling (Algorithm 1)",
    "random": "random words",
    "greedy": "best of the training captions",
    "conzic": "ConZIC",
    "zerocap": "ZeroCap",
    "pez": "PEZ",
}

#: Title of the sheet, images per row, side of an image, and gap between images.
TITLE = "A model that memorizes: training images, and what it generates"
ACROSS, SIDE, GAP = 8, 96, 8


def write_page(figures: Path, rows: Mapping[str, Sequence[npt.NDArray[Any]]], folder: Path) -> Path:
    """Write the page and its image.

    Args:
        figures: the experiment's JSON file.
        rows: images by the title of their row.
        folder: of the page.

    Returns:
        The page.
    """
    content = json.loads(figures.read_text())
    folder.mkdir(parents=True, exist_ok=True)
    sheet(rows).save(folder / "memorization_toy.png", optimize=True)
    page = folder / "memorization_toy.md"
    page.write_text("\n".join(lines(content)) + "\n")
    return page


def sheet(rows: Mapping[str, Sequence[npt.NDArray[Any]]]) -> Image.Image:
    """Return a sheet of titled rows of small images, enlarged without interpolation."""
    high, head = SIDE + GAP + 26, 40
    made = Image.new("RGB", (ACROSS * (SIDE + GAP) + GAP, head + len(rows) * high + GAP), "white")
    draw = ImageDraw.Draw(made)
    draw.text((GAP, GAP), TITLE, fill="#1d2129", font=ImageFont.load_default(21))
    font = ImageFont.load_default(16)
    for row, (title, pictures) in enumerate(rows.items()):
        top = head + GAP + row * high
        draw.text((GAP, top), title, fill="#1d2129", font=font)
        for column, picture in enumerate(pictures[:ACROSS]):
            large = Image.fromarray(np.asarray(picture, np.uint8)).resize(
                (SIDE, SIDE), Image.Resampling.NEAREST
            )
            made.paste(large, (GAP + column * (SIDE + GAP), top + 24))
    return made


def lines(content: Mapping[str, Any]) -> Iterator[str]:
    """Return the page's lines."""
    results = content["figures"]
    size, seeds = results["size"], results["seeds"]
    yield "# Detection of memorization in models that memorized images"
    yield ""
    yield (
        "Written by `benchmarks/memorization/experiment.py`, which describes the experiment, from"
        " `benchmarks/memorization/experiment.json`."
    )
    yield ""
    yield (
        f"Tiny text-to-image diffusion models (stock Stable Diffusion pipelines of 1.8 million"
        f" parameters, images of 16 x 16 pixels) are trained from scratch for {size['steps']:,}"
        " steps on 6,000 captioned images and 12 more that make 15 % of every batch. visleak has no"
        f" information about the 12. Results are medians over {len(seeds)} seeds of training, with"
        " single seeds in brackets. They show that the methods find memorized images, not how often"
        " large models memorize."
    )
    yield ""
    yield "![Training images and images generated from their captions](memorization_toy.png)"
    yield ""
    yield from bar_lines(content["bars"])
    yield from _detection(results)
    yield from _extraction(results)
    yield from _searches(results)
    yield from _augmentation(results)


def bar_lines(bars: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Return results with their limits, as a table."""
    yield "| quantity | result | limit | |"
    yield "|---|--:|--:|---|"
    for bar in bars:
        side, limit = ("at most", bar.get("at_most")), bar.get("at_least")
        asked = f"at least {limit:g}" if limit is not None else f"{side[0]} {side[1]:g}"
        yield (
            f"| {bar['name']} | {bar['figure']:.3g} | {asked} |"
            f" {'holds' if bar['holds'] else '**missed**'} |"
        )
    yield ""


def _detection(results: Mapping[str, Any]) -> Iterator[str]:
    yield "## Detection of memorized captions by D"
    yield ""
    yield (
        "AUC of the 12 memorized captions against 300 general ones that were not trained on, and"
        " against 100 of the form of memorized ones."
    )
    yield ""
    yield "| world | timestep, noises | against general | against the same form |"
    yield "|---|---|---|---|"
    names = {"t999": "999, 1", "first": "first of 50, 1", "first4": "first of 50, 4"}
    for world in ("plain", "hard"):
        rows = results[world]["detection"]
        for key, name in names.items():
            general = spread([row[key]["auc_general"] for row in rows], "{:.3f}")
            alike = spread([row[key]["auc_hard"] for row in rows], "{:.3f}")
            yield f"| {world} | {name} | {general} | {alike} |"
    yield ""


def _extraction(results: Mapping[str, Any]) -> Iterator[str]:
    images, _, least = results["size"]["extracted"]
    yield "## Extraction and tracing (plain world)"
    yield ""
    yield (
        f"{images} images per caption at guidance 3, clusters of at least {least}, similarity"
        " `builtin`; the medoids are traced in a folder of training images. *Right*: verified, and"
        " the reference is the memorized image that the image correlates with. The last column"
        " compares the same images by their pixels (`--similarity pixels`)."
    )
    yield ""
    yield (
        "| captions | with a cluster | clusters | verified | right | memorized images | with a"
        " cluster, by pixels |"
    )
    yield "|---|---|---|---|---|---|---|"
    for key, name in (("memorised", "memorized"), ("general", "general")):
        rows = [row[key] for row in results["plain"]["extraction"]]
        columns = ("prompts_with_a_cluster", "clusters", "verified", "right", "memorised_images")
        cells = " | ".join(spread([row[column] for row in rows]) for column in columns)
        prompts = spread([row["prompts"] for row in rows])
        pixels = [row[key]["prompts_with_a_cluster"] for row in results["plain"]["pixels"]]
        yield f"| {prompts} {name} | {cells} | {spread(pixels)} |"
    yield ""


def _searches(results: Mapping[str, Any]) -> Iterator[str]:
    size = results["size"]
    rows = results["hard"]["search"]
    yield "## Search (hard world)"
    yield ""
    yield (
        f"{size['chains']} chains (or best prompts) each, with the same number of model calls."
        f" *Hits*: chains whose prompt reproduces one memorized image in at least"
        f" {size['judged'][1]} of {size['judged'][0]} images, by correlation; *images*: different"
        " ones. *Traced*: the same by extraction and tracing of visleak."
    )
    yield ""
    yield "| method | model calls | median best D | hits | images | images, traced |"
    yield "|---|---|---|---|---|---|"
    for key, name in METHODS.items():
        each = [row[key] for row in rows]
        cells = [
            spread([one["calls"] for one in each], "{:,.0f}"),
            spread([one["median_best"] for one in each], "{:.2f}"),
            spread([one["hits"] for one in each]),
            spread([one["distinct"] for one in each]),
            spread([one["traced"]["memorised_images"] for one in each]),
        ]
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""


def _augmentation(results: Mapping[str, Any]) -> Iterator[str]:
    picks = results["size"]["picks"]
    rows = results["hard"]["augmentation"]
    yield "## Augmentation and diversity (hard world)"
    yield ""
    yield (
        "Algorithm 2 from one memorized caption, kappa the 95th percentile of D of general"
        f" captions; then {picks} diverse prompts (Algorithm 3)."
    )
    yield ""
    yield f"| prompts scored | above kappa | reproducing, of {picks} | model calls |"
    yield "|---|---|---|---|"
    columns = ("scored", "above_kappa", "replicating", "calls")
    cells = (spread([row[column] for row in rows], "{:,.0f}") for column in columns)
    yield f"| {' | '.join(cells)} |"


def spread(values: Sequence[float], form: str = "{:g}") -> str:
    """Return the median, and all values in brackets.

    >>> spread([3, 1, 2])
    '2 (3, 1, 2)'
    """
    shown: Callable[[float], str] = form.format
    if len(values) == 1:
        return shown(values[0])
    return f"{shown(float(np.median(values)))} ({', '.join(map(shown, values))})"
