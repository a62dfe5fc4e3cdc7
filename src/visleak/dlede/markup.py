"""What retraining says of a split as Markdown and as LaTeX: ``dlede.md`` and ``dlede.tex``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from visleak.dlede.headline import (
    elsewhere,
    headline,
    is_calibrated,
    is_single,
)
from visleak.dlede.makeup_view import drift_line
from visleak.dlede.numbers import metric_name, percent, score
from visleak.dlede.plan import DECIDING
from visleak.dlede.reasons import (
    IDENTICAL,
    NO_CLEAN_CURVE,
    NONE_FOUND,
    ONE_REPETITION,
    UNKNOWN_CHANCE,
    UNKNOWN_SCALE,
)
from visleak.dlede.results import Calibration, DetectionLimit, DLeDe, HashEvidence
from visleak.dlede.rules import RULES
from visleak.dlede.tables import (
    PAPER_CUT,
    curve,
    details,
    evidence,
    verdicts,
)
from visleak.markup import Grid, latex_cell, latex_table, markdown_cell, markdown_table, paged

#: Rows that a page of LaTeX has room for.
PAGE: Final = 48


def about(result: DLeDe) -> str:
    """Return what was trained, in words."""
    plan, name = result.plan, result.trainer.get("name", "a trainer")
    runs = f"{plan.repetitions:,} repetition{'s' * (plan.repetitions != 1)}"
    how = "nested" if plan.nested else "independent"
    how += ", stratified" if plan.stratified else ""
    if elsewhere(result):
        source = result.trainer.get("source") or "trainings made elsewhere"
        return f"scores of {source}: {runs} of {len(plan.steps)} steps"
    if result.proof:
        return (
            f"{result.test['images']:,} images of {result.test['name']} against"
            f" {result.train['images']:,} of {result.train['name']}; {runs} of {len(plan.steps)}"
            f" steps by {name} were to be trained"
        )
    return (
        f"{name} on {result.train['images']:,} images of {result.train['name']}, tested on"
        f" {result.test['images']:,} of {result.test['name']}; {runs} of {len(plan.steps)} steps,"
        f" {how} draws, seed {plan.seed}"
    )


def cautions(result: DLeDe) -> Iterator[str]:
    """Yield what a reader must know before the verdict is repeated."""
    if result.failed:
        some = f"{len(result.failed):,} training{'s' * (len(result.failed) != 1)}"
        yield f"{some} failed twice; verdicts rest on the repetitions that have all that decides"


def findings(result: DLeDe) -> Iterator[str]:
    """Yield what else was found: pairs, hashes, classes, one line each."""
    if result.audit and not result.proof:
        yield audit_line(result.audit)
    if result.calibration is not None:
        yield from _starts(result, result.calibration)
    if result.detection is not None:
        yield detection_line(result.detection)
    if result.hashes is not None:
        yield hash_line(result.hashes)
    if result.makeup is not None and result.makeup.classes:
        yield drift_line(result.makeup)


def audit_line(audit: Mapping[str, Any]) -> str:
    """Return what was found by the audit, or without one."""
    found = str(audit.get("headline", ""))
    return f"pairs, by the audit: {found}" if "folder" in audit else found


def _starts(result: DLeDe, found: Calibration) -> Iterator[str]:
    """Say how much better the split scores than clean ones before anything leaks on purpose."""
    for each in result.judgement.metrics:
        clean = [
            own.steps[0].mean.value
            for judged in found.judgements
            for own in judged.metrics
            if own.metric == each.metric and own.steps
        ]
        if clean and each.steps:
            yield (
                f"{metric_name(each.metric)} without leaks on purpose is"
                f" {score(each.steps[0].mean.value)} on this split and"
                f" {score(sum(clean) / len(clean))} on clean splits of the same images"
            )


#: Why no leak of any size is known to be found, by code; others need no more words.
_NOT_FOUND: Final = {
    UNKNOWN_CHANCE: "no leak would be found while it is not known what guessing scores (--chance)",
    UNKNOWN_SCALE: "no leak would be found by metrics that are not shares from 0 to 1 of which more"
    " is better",
    IDENTICAL: "how large a leak must be to be found is not known, for all repetitions are one",
    NO_CLEAN_CURVE: "how large a leak must be to be found is not known, for no split without leaks"
    " shows how these scores rise (--calibrate)",
    ONE_REPETITION: "how large a leak must be to be found is not known from one repetition",
    NONE_FOUND: "no leak would be found with probability {}: before the scores rise little enough,"
    " they start too high for a verdict (--calibrate)",
}


def detection_line(found: DetectionLimit) -> str:
    """Return how large a leak must be to be found, with what that assumes."""
    if math.isnan(found.share):
        words = _NOT_FOUND.get(found.reason_code, "no leak of any size can be found by such scores")
        return words.format(f"{found.probability:g}")
    size = f"{percent(found.share)} of the test images or more"
    if found.up_to < 1.0:
        size = f"{percent(found.share)} to {percent(found.up_to)} of the test images"
    beyond = "; larger ones start too high for a verdict" if found.up_to < 1.0 else ""
    return (
        f"with {found.repetitions:,} repetitions this trainer would find a leak of {size} with"
        f" probability {found.probability:g}{beyond}; that assumes that"
        f" {'; '.join(found.assumptions)}"
    )


def hash_line(found: HashEvidence) -> str:
    """Return a line about equal and alike hashes."""
    alike, images = (sum(counts[: PAPER_CUT + 1]) for counts in (found.histogram, found.nearest))
    share = 100.0 * images / max(found.test, 1)
    images_of = "image" if found.unreadable == 1 else "images"
    unread = f"; {found.unreadable:,} {images_of} could not be read" if found.unreadable else ""
    return (
        f"{found.histogram[0]:,} pairs of a test and a training image have equal perceptual hashes,"
        f" {alike:,} differ in at most {PAPER_CUT} bits; {share:.1f} % of the test images are in"
        f" such a pair{unread}"
    )


def reading(result: DLeDe) -> list[str]:
    """Return how to read the tables, and what the method cannot tell, one line each."""
    judged = result.judgement
    if result.proof:
        return [
            "the leak is proved image by image, which scores could not show more surely;"
            " --allow-proved-leak trains all the same, and shows what the leak does to scores"
        ]
    lines = [
        "leaking means: test images that were leaked into training on purpose hardly raise the"
        " score, as in a split that leaks already; a model that has reached its ceiling, or one"
        " that cannot learn the task, rises as little",
        "the increase R of a step is relative to the step before: (C - P) / P, equation 1 of Babu"
        " et al. (2025); a metric of which less is better counts as increased where it falls",
        f"by the rule {judged.rule} a split leaks where {RULES[judged.rule].words} of"
        f" {percent(judged.threshold)}; the paper read its 5 % off the curve of one data set",
    ]
    if judged.decided_by != DECIDING and not is_calibrated(result):
        steps = ", ".join(map(str, judged.decided_by))
        lines.append(
            f"the paper's threshold is for steps of 10 %; these are {steps} %, and rise otherwise"
        )
    if is_single(judged):
        lines.append(
            "there is no interval and no chance: they need more than one repetition of every step"
        )
    else:
        lines.append(
            "intervals of means are t intervals; those of increases, and certainties, come from"
            " drawing the repetitions anew: they know other draws and seeds, not other data"
        )
        lines.append(
            f"a certainty of {percent(judged.certainty)} means that a split right on the threshold"
            f" would be called so in about {percent(round(1.0 - judged.certainty, 6))} of such"
            " experiments, their number of repetitions chosen beforehand; it is not the probability"
            " that this split leaks. It asks about one side, so a 95 % interval may still hold the"
            " threshold"
        )
    if result.hashes is not None:
        lines.append(
            f"a cut of {PAPER_CUT} bits between perceptual hashes is a convention; all cuts are in"
            " the table"
        )
    if result.memory:
        lines.append(
            "gains of leaked images and of the others are in the metric's own unit, each over the"
            " same images without a leak on purpose"
        )
    return lines


def main_grids(result: DLeDe) -> list[Grid]:
    """Return the tables of a page, in its order."""
    judged = [] if result.proof else [verdicts(result)]
    return [*curve(result), *judged, *evidence(result)]


def markdown(result: DLeDe) -> str:
    """Return ``dlede.md``."""
    lines = ["# D-LeDe: does retraining betray the leak?", ""]
    lines += [f"{markdown_cell(headline(result))}.", "", f"{markdown_cell(about(result))}.", ""]
    told = (*cautions(result), *findings(result), *result.notes)
    lines += [f"- {markdown_cell(line)}" for line in told]
    for grid in (*main_grids(result), *details(result)):
        lines += ["", f"## {markdown_cell(grid.title)}", "", *markdown_table(grid)]
    lines += ["", "## How to read it", ""]
    lines += [f"- {markdown_cell(line)}" for line in reading(result)]
    return "\n".join(lines) + "\n"


def latex(result: DLeDe) -> str:
    """Return ``dlede.tex``: every table, to be included in a document."""
    lines = ["% needs \\usepackage{booktabs}", f"% {latex_cell(headline(result))}"]
    for grid in (*main_grids(result), *details(result)):
        for part in paged(grid, PAGE):
            lines += ["", *latex_table(part)]
    return "\n".join(lines) + "\n"
