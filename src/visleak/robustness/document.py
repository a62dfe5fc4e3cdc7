"""The result of the experiment as a document, and the files of its folder."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from visleak.markup import Grid
from visleak.reporting import Column, Document, Figure, Table, markdown, page
from visleak.reporting.contact_sheet import Tile, contact_sheet
from visleak.robustness.curves import AtThreshold, auc_text
from visleak.robustness.figures import radar, roc_plot
from visleak.robustness.results import Direct, Judged, Robustness, Tested
from visleak.stats import percent
from visleak.storage import RunFolder

KIND: Final = "visleak robustness"
RESULT: Final = "robustness.json"
TABLE: Final = "conditions.csv"
SHEET: Final = "sheet.png"
PAGE: Final = "report.html"

#: Images of a row of the contact sheet.
ACROSS: Final = 7

HEADER: Final = (
    *("encoder", "condition", "group", "applies", "not_applicable", "r1", "r1_low", "r1_high"),
    *("auc", "tpr_hard", "false_hard", "tpr_soft", "false_soft", "other_pairs", "pipeline_r1"),
    *("near_or_exact", "among_candidates", "wrong_near", "wrong_exact"),
)

#: Columns of the wrong pairs and of the conditions, which are texts.
WRONG: Final = ["condition", "query", "reference", "grade", "probability", "reason"]


def document(result: Robustness) -> Document:
    """Return the result as a document."""
    conditions = [[each.name, each.description] for each in result.conditions]
    tables: list[Table | Grid] = []
    for tested in result.encoders:
        tables.append(grid(tested))
        wrong = [
            [w.condition, w.query, w.reference, w.grade, f"{w.probability:.3f}", w.reason]
            for w in tested.wrong
        ]
        title = f"Wrong pairs that {tested.name} grades near or exact"
        tables.append(Grid(title, WRONG, wrong, texts=len(WRONG)))
    tables.append(Grid("Conditions", ["condition", "change"], conditions, texts=2))
    return Document(
        title=f"Robustness on {result.collection}",
        headline=result.headline,
        tables=tuple(tables),
        figures=(
            Figure("r1", "Radar plot of R@1 by condition", radar(result), shown=True),
            Figure("roc", "ROC of original and transformed queries", roc_plot(result), shown=True),
        ),
        images=(("One image under every condition", SHEET),) if result.sheet else (),
        notes=tuple(facts(result)),
        reading=(
            "R@1: share of changed images whose most similar reference is their original",
            "experiment after Ramos et al., Data leakage in visual datasets (2025), section 6",
        ),
    )


def write(result: Robustness, folder: str | os.PathLike[str]) -> Path:
    """Write everything about a result into a folder; ``robustness.json`` comes last.

    Returns:
        The folder.
    """
    run, made, sheet = RunFolder(folder, KIND), document(result), _sheet(result)
    figures = {name: file for each in made.figures for name, file in each.by_name().items()}
    files = {
        **figures,
        SHEET: sheet or None,
        TABLE: table(result).arrow(),
        "queries.parquet": pa.concat_tables([tested.pictures for tested in result.encoders]),
        "conditions.md": markdown(made),
        PAGE: page(made, {SHEET: sheet}),
    }
    run.finish(result.as_dict(), files)
    return run.path


def table(result: Robustness) -> Table:
    """Return ``conditions.csv``: shares in [0, 1], empty where nothing is known."""
    return Table("Conditions", tuple(map(Column, HEADER)), list(_rows(result)))


def _rows(result: Robustness) -> Iterator[tuple[str, ...]]:
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
                *map(_number, (each.r1.share, each.r1.low, each.r1.high)),
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


def grid(tested: Tested) -> Grid:
    """Return the conditions of an encoder as percentages."""
    named = [each.name for each in tested.direct[0].curve.at] if tested.direct else []
    header = ["condition", "queries", "R@1 %", "95 % CI", "AUC"]
    for name in named:
        header += [f"TPR {name} %", f"false {name}"]
    judged = {each.condition: each for each in tested.pipeline}
    if judged:
        header += ["pipeline R@1 %", "near or exact %", "wrong near", "wrong exact"]
    rows = [_shown(each, judged.get(each.condition)) for each in tested.direct]
    return Grid(tested.name, header, rows)


def _shown(each: Direct, judged: Judged | None) -> list[str]:
    interval = f"{percent(each.r1.low)}-{percent(each.r1.high)}" if each.applies else "-"
    row = [each.condition, f"{each.applies:,}", percent(each.r1.share), interval]
    row.append(auc_text(each.curve.roc.auc))
    for at in each.curve.at:
        row += [percent(at.true.share), f"{at.false:,}"]
    if judged is not None:
        row += [percent(judged.r1.share), percent(judged.found.share)]
        row += [f"{judged.wrong_near:,}", f"{judged.wrong_exact:,}"]
    return row


def facts(result: Robustness) -> list[str]:
    """Return what was measured, and the curves of all conditions together, one line each."""
    lines = [
        f"{result.queries:,} queries (seed {result.seed}) under {len(result.conditions)} conditions"
        f" against all {result.references:,} readable images"
    ]
    if result.unreadable:
        lines.append(f"{result.unreadable:,} images could not be read")
    how = "graded near or exact" if result.graded else "of equal bytes; pixels not verified"
    lines.append(f"{result.twins:,} pairs within the set show the same image ({how}): excluded")
    for tested in result.encoders:
        for label, curve in (("original", tested.original), ("transformed", tested.trans)):
            if curve is not None:
                parts = [
                    f"at {at.name} ({at.threshold:g}) TPR {percent(at.true.share)} %,"
                    f" FPR {at.fpr:.3g} ({at.false:,} of {at.pairs:,})"
                    for at in curve.at
                ]
                found = "; ".join([f"AUC {auc_text(curve.roc.auc)}", *parts])
                lines.append(f"{tested.name}, {label}: {found}")
    return lines


def _sheet(result: Robustness) -> bytes:
    """Return an image under every condition as a contact sheet (Ramos et al. 2025, figure 6)."""
    blank = np.full((8, 8, 3), 240, np.uint8)
    tiles = [
        Tile(
            name if pixels is not None else f"{name}: n/a",
            (blank if pixels is None else pixels).copy,
        )
        for name, pixels in result.sheet
    ]
    rows = [("", tiles[start : start + ACROSS]) for start in range(0, len(tiles), ACROSS)]
    return contact_sheet(f"Conditions on {result.collection}", "n/a: does not apply", rows)
