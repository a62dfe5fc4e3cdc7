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
    size, rows = content["figures"]["size"], content["figures"]["rows"]
    yield "# Mitigations, measured on models that memorized images"
    yield ""
    yield (
        "Written by `benchmarks/memorization/mitigation.py`, which describes the experiment, from"
        " `benchmarks/memorization/mitigation.json`."
    )
    yield ""
    yield (
        f"The models of [memorization_toy.md](memorization_toy.md), plain world, {len(rows)} seeds."
        f" {size['triggers']} memorized captions with {size['images']} images each,"
        f" {size['general']} general captions that were not trained on, with one image each; DDIM,"
        " 15 steps, guidance 7.5; every method starts from the same noises. Similarity is the"
        " correlation with the memorized image of the caption, the CLIP score that of a tiny CLIP"
        f" ({rows[0]['alignment']['own_caption']:.2f} for a training image and its caption,"
        f" {rows[0]['alignment']['another_caption']:.2f} for another caption). Medians over seeds,"
        " with single seeds in brackets."
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
        " rate is 0.2 unless stated. Only the column of general captions has enough prompts to"
        " compare methods by their CLIP score. Other programs ran during the timing."
    )
    yield ""
    yield from covered(rows)
    yield ""
    yield (
        "**Differences from the paper.** In the paper, Wen et al. do not affect general prompts,"
        " because every l is above their D. Here the D of a trigger is only about 2.5 times that of"
        " a general caption (median .4): an l that removes most reproductions, a quarter of D, is"
        " below it and affects general captions; larger l do not affect them but remove few"
        " reproductions. Ren et al. mask the summary tokens, but the triggers of a toy are in its"
        " words, so C has little effect. RTA has the best trade-off, as in the paper for Stable"
        " Diffusion 2, and not Wen et al. as for Stable Diffusion 1."
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
            "There is no hypervolume: memorized images do not match their captions, so images of"
            " trigger prompts have a CLIP score below 0 without mitigation, and every effective"
            " method raises it."
        )
        return
    yield "| method, all settings | share of the ideal area covered by its trade-off curve |"
    yield "|---|---|"
    for name, values in sorted(found.items(), key=lambda item: -float(np.median(item[1]))):
        yield f"| {name} | {spread(values, '{:.2f}')} |"
