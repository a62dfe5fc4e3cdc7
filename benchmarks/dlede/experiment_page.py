"""Writes examples/dlede_road.md and its figures from experiment.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiment_figures import write_figures

#: Folder of the figures, in the folder of the page.
FOLDER = "dlede_road"

#: Names of the splits on the page.
NAMES = {"sequences": "by recording", "random": "at random"}
METRICS = {"precision": "P", "recall": "R", "map50": "mAP@0.5", "f1": "F1"}
DECIDING = ("map50", "f1")


def write_page(figures: Path, work: Path, examples: Path) -> Path:
    """Write the page and its figures.

    Args:
        figures: the experiment's JSON file.
        work: the experiment's folder, with the data set and the sheet of similar pairs.
        examples: folder of the page.

    Returns:
        The page.
    """
    content = json.loads(figures.read_text())
    folder = examples / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    write_figures(content["figures"], work, folder)
    page = examples / "dlede_road.md"
    page.write_text(page_text(content))
    return page


def page_text(content: Mapping[str, Any]) -> str:
    """Return the page for the content of the JSON file."""
    return "\n".join(_lines(content)) + "\n"


def _lines(content: Mapping[str, Any]) -> Iterator[str]:
    results = content["figures"]
    yield "# D-LeDe on a leaking and a clean split of the same drives"
    yield ""
    yield (
        "Written by `benchmarks/dlede/experiment.py`, which describes the experiment, from"
        " `benchmarks/dlede/experiment.json`."
    )
    yield ""
    yield from _what(results)
    yield from _verdicts(results)
    yield from _increases(results, "early")
    yield from _remembered(results)
    yield from _pairs(results)
    if all("full" in split for split in results["splits"].values()):
        yield from _full(results)
    yield from _calibration(results)
    yield from _time(content)


def _what(results: Mapping[str, Any]) -> Iterator[str]:
    data, settings = results["data"], results["settings"]
    objects = ", ".join(f"{count:,} {name}s" for name, count in data["objects"].items())
    width, height = settings["picture"]
    yield (
        f"{data['images']:,} frames of {data['recordings']} rendered drives, {width} x {height}"
        f" pixels, with boxes of {objects}. Each drive has its own place, light, houses, trees,"
        " colours, camera height, lens and sensor noise; its frames are a tenth of a second apart."
        " Objects with less than 40 % visible, or smaller than 4 x 6 pixels, have no box. The"
        " images were fixed before the first training run."
    )
    yield ""
    yield from (f"![frames with their boxes]({FOLDER}/frames.png)", "")
    yield (
        f"The same frames are split twice. In every training run `{settings['trainer']}` is trained"
        f" from scratch for {settings['epochs']} epochs; size and epochs were chosen by step 0 of"
        " other splits and by the time of a run. The same with commands:"
    )
    yield ""
    yield from _commands(settings, results["splits"])
    yield from _table(
        ("split", "recipe", "training images", "test images", "recordings of the test images"),
        "llrrr",
        [
            (
                NAMES[name],
                f"`{settings['recipes'][name]}`",
                f"{split['training_images']:,}",
                f"{split['test_images']:,}",
                f"{len(split['test_recordings'])}",
            )
            for name, split in results["splits"].items()
        ],
    )


def _commands(settings: Mapping[str, Any], splits: Mapping[str, Any]) -> Iterator[str]:
    yield "<!-- not run: a model -->"
    yield "```sh"
    yield "python benchmarks/dlede/road.py road"
    for name, split in splits.items():
        yield (
            "visleak dlede --set road=yolo:road/data.yaml#val --group '/^([^/]+)//'"
            f" --split {settings['recipes'][name]} \\"
        )
        yield f"    --trainer '{settings['trainer']}' --epochs {settings['epochs']} \\"
        repetitions = split["early"]["judgement"]["repetitions"]
        yield f"    --repetitions {repetitions} --jobs {settings['jobs']} -o {name}"
    yield "```"
    yield ""


def _verdicts(results: Mapping[str, Any]) -> Iterator[str]:
    yield "## Verdicts from 0, 10 and 20 %"
    yield ""
    for name, split in results["splits"].items():
        judged = split["early"]["judgement"]
        yield (
            f'- Split {NAMES[name]}: **{judged["verdict"]}**. "{split["early"]["headline"]}".'
            f" On the means, by rule: {judged['rule']} {judged['on_means']},"
            f" {', '.join(f'{k} {v}' for k, v in split['early']['on_means_by_rule'].items())}."
        )
    yield ""


def _increases(results: Mapping[str, Any], part: str) -> Iterator[str]:
    """Yield a table of means and relative increases, as tables 1 and 3 of the paper."""
    rows = []
    for name, split in results["splits"].items():
        result = split[part]
        for at, step in enumerate(result["steps"]):
            scores = [_mean([row[at] for row in result["scores"][metric]]) for metric in METRICS]
            row = [NAMES[name], f"{step}", *(f"{score:.3f}" for score in scores)]
            for metric in DECIDING:
                row.append(_rise(_step(result, metric, step)))
            rows.append(row)
    head = ("split", "leaked, %", *METRICS.values(), "increase of mAP, %", "increase of F1, %")
    yield from _table(head, "lrrrrrrr", rows)
    count = next(iter(results["splits"].values()))[part]["judgement"]["repetitions"]
    yield (
        f"Means of {count} repetitions. An increase is relative to the step before; in brackets its"
        " 95 % interval, by bootstrap over repetitions."
    )
    yield ""


def _step(result: Mapping[str, Any], metric: str, step: int) -> Mapping[str, Any] | None:
    judged = result["judgement"]["metrics"]
    found = next((each for each in judged if each["metric"] == metric), None)
    return next((each for each in found["steps"] if each["step"] == step), None) if found else None


def _rise(step: Mapping[str, Any] | None) -> str:
    if step is None or not step["step"] or step["increase"]["value"] is None:
        return ""
    rise = step["increase"]
    ends = [None if rise[end] is None else 100 * rise[end] for end in ("low", "high")]
    text = f"{100 * rise['value']:+.1f}"
    return text if None in ends else f"{text} ({ends[0]:+.1f} to {ends[1]:+.1f})"


def _remembered(results: Mapping[str, Any]) -> Iterator[str]:
    rows = []
    for name, split in results["splits"].items():
        for each in split["early"]["memory"]:
            if each["metric"] == "f1":
                rows.append(
                    (
                        *(NAMES[name], f"{each['step']}", f"{each['images']:.0f}"),
                        *(_gain(each[part]) for part in ("leaked", "others")),
                    )
                )
    if not rows:
        return
    yield "## Gain of leaked and other images"
    yield ""
    yield (
        "Change of the F1 of single test images from step 0, in points: of those that were leaked,"
        " and of the others."
    )
    yield ""
    yield from _table(
        ("split", "leaked, %", "images", "gain of leaked", "gain of others"), "lrrrr", rows
    )


def _gain(estimate: Mapping[str, float | None]) -> str:
    value, low, high = (estimate[part] for part in ("value", "low", "high"))
    if value is None:
        return "-"
    text = f"{100 * value:+.1f}"
    return (
        text if low is None or high is None else f"{text} ({100 * low:+.1f} to {100 * high:+.1f})"
    )


def _pairs(results: Mapping[str, Any]) -> Iterator[str]:
    yield "## Audit and perceptual hashes"
    yield ""
    rows = []
    for name, split in results["splits"].items():
        audit, hashes = split["audit"], split["hashes"]
        recordings = audit["recordings"]
        rows.append(
            (
                NAMES[name],
                *(f"{audit['pairs'][grade]:,}" for grade in ("exact", "near", "similar")),
                f"{audit['near_or_exact_test_images']:,}",
                f"{recordings['leaking'] or 0}",
                f"{hashes['alike_pairs']:,} of {hashes['pairs']:,}",
                f"{hashes['test_images_with_alike']:,}",
            )
        )
    head = ("split", "exact pairs", "near", "similar", "test images near or exact")
    more = ("leaking recordings", "pairs up to distance 10", "test images with one")
    yield from _table((*head, *more), "lrrrrrrr", rows)
    for name, split in results["splits"].items():
        yield f"- {NAMES[name]}: {split['audit']['headline']}"
    yield ""
    yield "Train-test pairs by Hamming distance of their 64-bit hashes, as tables 2 and 5:"
    yield ""
    distances = range(0, 17, 2)
    yield from _table(
        ("split", *(f"{d}" for d in distances)),
        "l" + "r" * len(distances),
        [
            (NAMES[name], *(f"{split['hashes']['distances'][d]:,}" for d in distances))
            for name, split in results["splits"].items()
        ],
    )
    yield from (f"![histogram of hash distances]({FOLDER}/hashes.svg)", "")
    yield from (
        f"![most similar pairs of the split at random]({FOLDER}/alike.png)",
        "",
    )


def _calibration(results: Mapping[str, Any]) -> Iterator[str]:
    found = results.get("calibration")
    if found is None:
        return
    yield "## Threshold calibrated on clean splits of the same images"
    yield ""
    rises = ", ".join(f"{100 * max(each.values()):.1f} %" for each in found["clean"])
    text = (
        "The 5 % of the paper are those of one curve, and the increase of a detector with a high"
        f" initial score may be smaller. {len(found['clean'])} other splits by whole recordings,"
        f" trained {found['repetitions']} times each, increase by {rises} (the larger of mAP and"
        f" F1). A further clean split is below {100 * found['threshold']:.1f} % with a probability"
        f" of {100 * found['alpha']:.0f} % (`--calibrate {len(found['clean'])}`)."
    )
    if not found["threshold"] > 0:
        text += (
            f" This is not a usable threshold: {len(found['clean'])} clean splits with such"
            " differences are too few."
        )
    for name, words in (("random", "at random"), ("sequences", "by recording")):
        verdict = {"leaking": "leaks", "clean": "shows no leak"}.get(
            found[name]["verdict"], "is undecided"
        )
        text += (
            f" By this threshold the split {words} {verdict} ({found['repetitions']} repetitions)."
        )
    yield from (text, "")


def _full(results: Mapping[str, Any]) -> Iterator[str]:
    yield "## The whole curve"
    yield ""
    yield from (f"![curves of both splits]({FOLDER}/curves.svg)", "")
    yield from _increases(results, "full")


def _time(content: Mapping[str, Any]) -> Iterator[str]:
    results, machine = content["figures"], content["machine"]
    yield "## Time"
    yield ""
    for name, spent in results["wall"].items():
        each = spent["seconds"] * results["settings"]["jobs"] / max(spent["training_runs"], 1)
        yield (
            f"- {name}: {spent['training_runs']} training runs in {spent['seconds'] / 60:.1f}"
            f" minutes, {results['settings']['jobs']} at a time on one thread each:"
            f" {each:.0f} s per run."
        )
    yield (
        f"- Rendering: {results['data']['seconds_of_rendering']:.0f} s. Machine: {machine['cpu']},"
        f" {machine['cores']} cores, no GPU; {content['date']}."
    )


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known)


def _table(head: Sequence[str], sides: str, rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'|'.join('---' if side == 'l' else '--:' for side in sides)}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""
