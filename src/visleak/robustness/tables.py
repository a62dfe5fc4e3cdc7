"""The figures of every condition as tables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from visleak.markup import Grid
from visleak.reporting import Document
from visleak.robustness.curves import AtThreshold, auc_text
from visleak.robustness.results import Direct, Judged, Robustness, Tested
from visleak.stats import Rate, percent

HEADER: Final = (
    "encoder",
    "condition",
    "group",
    "applies",
    "not_applicable",
    "r1",
    "r1_low",
    "r1_high",
    "auc",
    "tpr_hard",
    "false_hard",
    "tpr_soft",
    "false_soft",
    "other_pairs",
    "pipeline_r1",
    "near_or_exact",
    "among_candidates",
    "wrong_near",
    "wrong_exact",
)


def rows(result: Robustness) -> Iterator[tuple[str, ...]]:
    """Yield the rows of ``conditions.csv``; shares in [0, 1], empty where nothing is known."""
    groups = {condition.name: condition.group for condition in result.conditions}
    for tested in result.encoders:
        judged = {each.condition: each for each in tested.pipeline}
        for each in tested.direct:
            at = {threshold.name: threshold for threshold in each.curve.at}
            yield (
                tested.name,
                each.condition,
                groups[each.condition],
                str(each.applies),
                str(each.not_applicable),
                *(_number(value) for value in (each.r1.share, each.r1.low, each.r1.high)),
                _number(each.curve.roc.auc, 12),
                *_at(at.get("hard")),
                *_at(at.get("soft")),
                str(each.curve.roc.total),
                *_judged(judged.get(each.condition)),
            )


def _number(value: float, digits: int = 6) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}f}".rstrip("0").rstrip(".")


def _at(found: AtThreshold | None) -> tuple[str, str]:
    return ("", "") if found is None else (_number(found.true.share), str(found.false))


def _judged(found: Judged | None) -> tuple[str, ...]:
    if found is None:
        return ("",) * 5
    shares = (found.r1.share, found.found.share, found.candidates.share)
    return (*map(_number, shares), str(found.wrong_near), str(found.wrong_exact))


def shown(tested: Tested) -> tuple[list[str], list[list[str]]]:
    """Return an encoder's table for people: header, and rows of percentages."""
    named = [each.name for each in tested.direct[0].curve.at] if tested.direct else []
    header = ["condition", "queries", "R@1 %", "95 % CI", "AUC"]
    for name in named:
        header += [f"TPR {name} %", f"false {name}"]
    judged = {each.condition: each for each in tested.pipeline}
    if judged:
        header += ["pipeline R@1 %", "near or exact %", "wrong near", "wrong exact"]
    return header, [_shown_row(each, judged.get(each.condition)) for each in tested.direct]


def _shown_row(each: Direct, judged: Judged | None) -> list[str]:
    interval = f"{percent(each.r1.low)}-{percent(each.r1.high)}" if each.applies else "-"
    row = [each.condition, f"{each.applies:,}", percent(each.r1.share), interval]
    row.append(auc_text(each.curve.roc.auc))
    for at in each.curve.at:
        row += [percent(at.true.share), f"{at.false:,}"]
    if judged is not None:
        row += [percent(judged.r1.share), percent(judged.found.share)]
        row += [f"{judged.wrong_near:,}", f"{judged.wrong_exact:,}"]
    return row


def document(result: Robustness) -> Document:
    """Return a result for people."""
    tables = []
    for tested in result.encoders:
        header, body = shown(tested)
        tables.append(Grid(tested.name, header, body))
    return Document("Robustness", result.headline, tuple(facts(result)), tuple(tables))


def markdown(result: Robustness) -> str:
    """Return ``conditions.md``."""
    parts = [
        f"# Robustness on {_cell(result.collection)}",
        "",
        *(f"- {_cell(fact)}" for fact in facts(result)),
    ]
    for tested in result.encoders:
        header, body = shown(tested)
        parts += ["", f"## {_cell(tested.name)}", ""]
        parts += [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
        parts += [f"| {' | '.join(map(_cell, row))} |" for row in body]
    return "\n".join(parts) + "\n"


def facts(result: Robustness) -> list[str]:
    """Return what stands above the tables, one line each."""
    lines = [
        f"{result.queries:,} queries (seed {result.seed}) under {len(result.conditions)} conditions"
        f" against all {result.references:,} readable pictures"
    ]
    if result.unreadable:
        lines.append(f"{result.unreadable:,} pictures could not be read")
    how = "graded near or exact" if result.graded else "of equal bytes; pictures not looked at"
    lines.append(f"{result.twins:,} pairs within the set are one picture twice ({how}): left out")
    for tested in result.encoders:
        for label, curve in (("original", tested.original), ("transformed", tested.trans)):
            if curve is None:
                continue
            parts = [f"AUC {auc_text(curve.roc.auc)}"]
            for at in curve.at:
                parts.append(
                    f"at {at.name} ({at.threshold:g}) TPR {_share(at.true)}, FPR {at.fpr:.3g}"
                    f" ({at.false:,} of {at.pairs:,})"
                )
            lines.append(f"{tested.name}, {label}: {'; '.join(parts)}")
    return lines


def _share(rate: Rate) -> str:
    return f"{percent(rate.share)} %"


def _cell(text: str) -> str:
    """Return a text as one Markdown table cell that cannot begin markup."""
    safe = "".join(c if c.isprintable() else " " for c in text)
    for sign in "\\|`*_[]<>":
        safe = safe.replace(sign, f"\\{sign}")
    return safe
