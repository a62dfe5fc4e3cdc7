"""A benchmark as Markdown: ``benchmark.md``; and how to read it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from visleak.drawing import cut
from visleak.markup import markdown_cell, markdown_table
from visleak.memorization.benchmark.columns import SCORES
from visleak.memorization.benchmark.headline import headline, is_sscd, number, verdicts
from visleak.memorization.benchmark.records import GENERAL, TRIGGER, Benchmark
from visleak.memorization.benchmark.tables import columns_of, grids, paper_of
from visleak.memorization.intervals import GroupInterval
from visleak.memorization.metrics.copying import LIMIT

#: Names are cut to this many characters in sentences.
LONGEST: Final = 80

#: Said where a similarity stands in that is not the paper's.
STANDS_IN: Final = (
    "similarity is {name}, not SSCD as in the paper: its numbers, and the limit {limit:g} of the"
    " share, mean something else, and are for comparing the methods here with each other"
)


def markdown(result: Benchmark) -> str:
    """Return ``benchmark.md``."""
    said = headline(result)
    lines = [
        *("# Does a mitigation work?", ""),
        f"**{markdown_cell(said[:1].upper() + said[1:])}.**",
        "",
    ]
    lines += [f"- {markdown_cell(line)}" for line in (*verdicts(result), *cautions(result))]
    for grid in grids(result):
        lines += ["", f"## {markdown_cell(grid.title)}", "", *markdown_table(grid)]
    lines += ["", "## What was measured", ""]
    lines += [f"- {markdown_cell(line)}" for line in (*about(result), *result.notes)]
    lines += ["", "## How to read this", ""]
    lines += [f"- {markdown_cell(line)}" for line in reading(result)]
    return "\n".join(lines) + "\n"


def cautions(result: Benchmark) -> list[str]:
    """Return what must be known before any number is believed, a line each."""
    lines = []
    if not is_sscd(result):
        name = result.about["similarity"]["name"]
        lines.append(STANDS_IN.format(name=cut(str(name), LONGEST), limit=LIMIT))
    if result.triggers.groups < 2:
        lines.append(
            "all trigger prompts replay the same images: they are one group, of which nothing can"
            " be said with confidence"
        )
    elif result.triggers.effective < 6:
        lines.append(
            f"the trigger prompts say as much as {result.triggers.effective:.1f} independent ones:"
            " intervals are wide, and no paired test can be sure"
        )
    return [*lines, *_floor(result), *_little_to_see(result), *_other_norms(result)]


def _floor(result: Benchmark) -> Iterator[str]:
    """Yield how similar images are to memorized ones that they do not reproduce."""
    found = result.floor
    if result.base.score(TRIGGER, "share") is None:
        return
    if found is None:
        yield (
            "floor of the similarity: not measured, for want of memorized images of another group"
            " and of general prompts; a share above 0 may be that of images that are not memorized"
        )
        return
    ends = "" if math.isnan(found.share.low) else f", 95 % {_ends(found.share)}"
    whose = "general prompts" if found.source == GENERAL else "other trigger prompts"
    yield (
        f"floor of the similarity: of {found.images:,} images of {whose}, which do not reproduce"
        f" the memorized image, {number(found.share.value)} are more similar to it than {LIMIT:g}"
        f"{ends}; their top-1 is {number(found.top1.value)}. A share at the floor shows no"
        " memorization"
    )
    base = result.base.value(TRIGGER, "share")
    if 0 < base <= max(found.share.value, found.share.high):
        yield (
            f"the share without mitigation, {number(base)}, is within the interval of the floor:"
            " it does not show that these prompts are memorized"
        )


def _ends(found: GroupInterval) -> str:
    return f"{number(found.low)} to {number(found.high)}"


def _little_to_see(result: Benchmark) -> Iterator[str]:
    """Yield where a number says less than its name."""
    if result.base.value(TRIGGER, "share") == 0:
        yield (
            f"without mitigation no image is more similar than {LIMIT:g} to its prompt's memorized"
            " ones: here there may be nothing for a method to take away"
        )
    if result.triggers.images < 3:
        many = "1 image" if result.triggers.images == 1 else "2 images"
        yield f"with {many} a trigger prompt top-3 is the mean of all"
    judged = any(result.about[judge] is not None for judge in ("alignment", "aesthetic"))
    if result.general is not None and not judged:
        yield (
            "of general prompts only seconds were measured: no CLIP score (--clip) and no aesthetic"
            " score (--aesthetic) was asked for"
        )


def _other_norms(result: Benchmark) -> Iterator[str]:
    """Yield what one l of Wen et al. means where the scenarios have other numbers of images."""
    many, plain = result.triggers.images, result.general
    shared = any(row.about.get("options", {}).get("scope") == "batch" for row in result.rows)
    if shared and plain is not None and plain.images != many:
        times = math.sqrt(many / plain.images)
        yield (
            f"wen with scope=batch compares l with one norm over all images of a prompt: {many:,}"
            f" of a trigger prompt, {plain.images:,} of a general one, whose images may so have a D"
            f" {times:.2g} times as large before anything is done to them; what it costs general"
            f" prompts is that of another l (--general-images {many} makes them alike)"
        )


def about(result: Benchmark) -> list[str]:
    """Return what was measured, a line each."""
    return list(_about(result))


def _about(result: Benchmark) -> Iterator[str]:
    said: dict[str, Any] = result.about
    model, sampling = said["model"], said["sampling"]
    yield (
        f"model {cut(str(model.get('name', '')), LONGEST)}, {model.get('precision', '')};"
        f" {sampling['steps']} steps, guidance {sampling['guidance']:g}, seed {said['seed']}; every"
        " method starts from the same noises for the same prompt"
    )
    own = result.triggers
    yield (
        f"{own.prompts:,} trigger prompts in {own.groups:,} groups, which say as much as"
        f" {own.effective:.1f} independent ones; {own.images:,} images each; {own.referenced:,}"
        " with their memorized images at hand"
    )
    if result.general is not None:
        plain = result.general
        many = f"{plain.images:,} image{'s' * (plain.images != 1)} each"
        yield f"{plain.prompts:,} general prompts, {many}"
    yield f"similarity: {_named(said['similarity'])} ({said['similarity']['number']})"
    if said["alignment"] is not None:
        which = {
            "original": "the prompt as it was given",
            "augmented": "what the network was given",
        }
        text = which[said["clip_text"]]
        yield f"CLIP score: {_named(said['alignment'])}, cosine against {text}"
    if said["aesthetic"] is not None:
        yield f"aesthetic score: {_named(said['aesthetic'])}"
    if said["real"] is not None:
        real = said["real"]
        yield (
            f"distances: {cut(str(real['name']), LONGEST)}, features of"
            f" {cut(str(real['features']), LONGEST)}; comparable only where both are the same"
        )
    if result.reference is not None:
        found = result.reference
        yield (
            f"reference performance: of {found.count:,} pictures that"
            f" {cut(found.source, LONGEST)} gives for a prompt the one with the best CLIP score"
        )


def _named(judge: dict[str, Any]) -> str:
    return cut(str(judge["name"]), LONGEST)


def reading(result: Benchmark) -> list[str]:
    """Return how to read the tables, a line each."""
    shown = list(dict.fromkeys(name for _, name in columns_of(result)))
    lines = [
        "; ".join(f"{SCORES[name].short}: {SCORES[name].words}" for name in shown),
        "intervals hold 95 %: whole groups of prompts that share memorized images are what varies;"
        " a star marks what a paired test against no mitigation, corrected for the number of"
        " settings (Holm), calls changed",
        "hypervolume: the share of the area between the base's similarity and 0, and 0 and the"
        " base's CLIP or aesthetic score, that the settings of a method cover together; 1 is"
        " a method that takes all similarity away and nothing else",
        "the paper's rule: a method succeeds where top-1 similarity comes down to the reference,"
        " what a search for the prompt would show, while the CLIP score stays at least the base's",
    ]
    if any(row.distance is not None for row in result.rows):
        lines.append(
            "distances fall with mitigation because images become more diverse: they rank nothing"
        )
    paper = paper_of(result)
    if paper is not None:
        lines.append(
            f"rows of the paper: {paper.source}, {paper.model}; ? marks digits that are hard to"
            " read there; its deviations do not say of what they are; its l of Wen et al. is, in"
            " the authors' code, compared with one norm over the 10 images of a prompt, so that"
            " only rows with scope=batch have one of the paper's;"
            " its reference, .088 in table 3, is .200 in appendix D"
            if paper.table == 3
            else f"rows of the paper: {paper.source}, {paper.model}; its l of Wen et al. is, in the"
            " authors' code, compared with one norm over the 10 images of a prompt, so that only"
            " rows with scope=batch have one of the paper's"
        )
    return lines
