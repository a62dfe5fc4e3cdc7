"""Writes examples/mitigation_toy.md from mitigation.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from experiment_page import bar_lines, spread

COLUMNS = {
    "trigger_top1": "top-1",
    "trigger_top3": "top-3",
    "trigger_share": "share > 0.5",
    "trigger_clip": "CLIP",
    "general_clip": "CLIP, general",
    "seconds": "s / image",
}


def write_page(figures: Path, folder: Path) -> Path:
    """Write the page; the caller draws its figure."""
    content = json.loads(figures.read_text())
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "mitigation_toy.md"
    page.write_text("\n".join(lines(content)) + "\n")
    return page


def lines(content: Mapping[str, Any]) -> Iterator[str]:
    """Return the page's lines."""
    told = content["figures"]
    size, rows = told["size"], told["rows"]
    yield "# Mitigations, measured on models that really memorize"
    yield ""
    yield (
        "Written by `benchmarks/memorization/mitigation.py` from the figures in"
        " `benchmarks/memorization/mitigation.json`; the script says how everything is made."
    )
    yield ""
    yield (
        f"The models of [memorization_toy.md](memorization_toy.md), plain world, {len(rows)} seeds."
        f" {size['triggers']} memorized captions with {size['images']} images each,"
        f" {size['general']} general captions that were not trained with one image each; DDIM, 15"
        " steps, guidance 7.5; every method starts from the same noises. Similarity is the"
        " correlation with the caption's own memorized picture, the CLIP score that of a tiny CLIP"
        f" ({rows[0]['alignment']['own_caption']:.2f} for a real picture and its own caption,"
        f" {rows[0]['alignment']['another_caption']:.2f} for another caption). Medians over seeds,"
        " single seeds in brackets."
    )
    yield ""
    yield from bar_lines(content["bars"])
    yield "![CLIP score against similarity to the memorized image](mitigation_toy.png)"
    yield ""
    yield f"| method | {' | '.join(COLUMNS.values())} |"
    yield f"|---|{'---|' * len(COLUMNS)}"
    for name in rows[0]["methods"]:
        cells = (cell(rows, name, key) for key in COLUMNS)
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""
    yield (
        f"D is the triggers' median D at the sampler's first step ({levels(rows)}); Wen's learning"
        " rate is 0.2 unless said. Only the column of general captions has enough prompts to tell"
        " methods apart by their CLIP score. Seconds were taken while other programs ran."
    )
    yield ""
    yield from covered(rows)
    yield ""
    yield (
        "**What differs from the paper, and why.** There Wen et al. cost general prompts nothing,"
        " since every l is above their D. Here a trigger's D is only some 2.5 times that of a"
        " general caption (.4 in the median): an l that takes most of the replicas away, a quarter"
        " of D, is below it, and general captions pay; the larger l cost them nothing and take"
        " little away. Ren et al. hide the summary tokens, but a toy's trigger sits in its words,"
        " and C hardly matters. RTA has the best trade-off, as in the paper for Stable Diffusion 2,"
        " and not Wen et al. as for Stable Diffusion 1."
    )


def cell(rows: Sequence[Mapping[str, Any]], name: str, key: str) -> str:
    """Return a result of a method over seeds."""
    return spread([row["methods"][name][key] for row in rows], "{:.2f}")


def levels(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the triggers' D of every seed."""
    return ", ".join(f"{row['level']:.2f}" for row in rows)


def covered(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Return the hypervolumes as a table, the largest first."""
    found: dict[str, list[float]] = {}
    for row in rows:
        for each in row["curves"]:
            if each["against"] == "clip":
                name = " ".join(filter(None, (each["method"], each["variant"])))
                found.setdefault(name, []).append(each["volume"])
    found = {name: values for name, values in found.items() if np.isfinite(values).all()}
    if not found:
        yield (
            "There is no hypervolume: memorized pictures are unlike what their captions say, so"
            " that images of trigger prompts have a CLIP score below 0 without mitigation, and"
            " every method that works raises it."
        )
        return
    yield "| method, all settings | share of the ideal area that its trade-off curve covers |"
    yield "|---|---|"
    for name, values in sorted(found.items(), key=lambda item: -float(np.median(item[1]))):
        yield f"| {name} | {spread(values, '{:.2f}')} |"
