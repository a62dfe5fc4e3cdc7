"""The result of the experiment as a document with its figures, and the files of its folder."""

from __future__ import annotations

import math
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from visleak.quantities import counted
from visleak.rates import percent
from visleak.reporting import Column, Document, Figure, Table, markdown, page
from visleak.reporting.contact_sheet import Tile, contact_sheet
from visleak.reporting.drawing import COLOURS, INK, QUIET, as_text, cut, figure_of, saved, titled
from visleak.reporting.markup import Grid
from visleak.robustness.curves import Curve, EncoderResult, Robustness, auc_text, thin
from visleak.storage import RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KIND: Final = "visleak robustness"
RESULT: Final = "robustness.json"
TABLE: Final = "conditions.csv"
SHEET: Final = "sheet.png"
PAGE: Final = "report.html"
ACROSS: Final = 7  # images of a row of the contact sheet

HEADER: Final = (
    *("encoder", "condition", "group", "applies", "not_applicable", "r1", "r1_low", "r1_high"),
    *("auc", "tpr_hard", "false_hard", "tpr_soft", "false_soft", "other_pairs", "pipeline_r1"),
    *("near_or_exact", "among_candidates", "wrong_near", "wrong_exact"),
)

WRONG: Final = ["condition", "query", "reference", "grade", "probability", "reason"]  # all texts


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
            Figure("r1", "R@1 by condition", heat_map(result), shown=True),
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
    """Write the files of a result into a folder; ``robustness.json`` comes last."""
    run, made = RunFolder(folder, KIND), document(result)
    # an image under every condition (Ramos et al. 2025, figure 6)
    blank = np.full((8, 8, 3), 240, np.uint8)
    tiles = [
        Tile(name, pixels.copy) if pixels is not None else Tile(f"{name}: n/a", blank.copy)
        for name, pixels in result.sheet
    ]
    rows = [("", tiles[start : start + ACROSS]) for start in range(0, len(tiles), ACROSS)]
    title = f"Conditions on {result.collection}"
    sheet = contact_sheet(title, "n/a: does not apply", rows)
    files = {name: file for each in made.figures for name, file in each.by_name().items()}
    more = {
        SHEET: sheet or None,
        TABLE: table(result).arrow(),
        "queries.parquet": pa.concat_tables([tested.images for tested in result.encoders]),
        "conditions.md": markdown(made),
        PAGE: page(made, {SHEET: sheet}),
    }
    run.finish(result.as_dict(), files | more)
    return run.path


def table(result: Robustness) -> Table:
    """Return ``conditions.csv``: shares in [0, 1], empty where unknown."""
    groups = {condition.name: condition.group for condition in result.conditions}
    rows = []
    for tested in result.encoders:
        pipeline = {each.condition: each for each in tested.pipeline}
        for each in tested.direct:
            r1, roc = each.r1, each.curve.roc
            row = [tested.name, each.condition, groups[each.condition], str(each.applies)]
            row += [str(each.not_applicable), *map(_number, (r1.share, r1.low, r1.high))]
            row.append(_number(roc.auc, 12))
            at = {threshold.name: threshold for threshold in each.curve.at}
            for name in ("hard", "soft"):
                found = at.get(name)
                row += [_number(found.true.share), str(found.false)] if found else ["", ""]
            row.append(str(roc.total))
            if judged := pipeline.get(each.condition):
                shares = (judged.r1, judged.near_or_exact, judged.among_candidates)
                row += [_number(rate.share) for rate in shares]
                row += [str(judged.wrong_near), str(judged.wrong_exact)]
            rows.append(row + [""] * (len(HEADER) - len(row)))
    return Table("Conditions", tuple(map(Column, HEADER)), rows)


def _number(value: float, digits: int = 6) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}f}".rstrip("0").rstrip(".")


def grid(tested: EncoderResult) -> Grid:
    """Return the conditions of an encoder as percentages."""
    header = ["condition", "queries", "R@1 %", "95 % CI", "AUC"]
    for at in tested.direct[0].curve.at if tested.direct else ():
        header += [f"TPR {at.name} %", f"false {at.name}"]
    pipeline = {each.condition: each for each in tested.pipeline}
    if pipeline:
        header += ["pipeline R@1 %", "near or exact %", "wrong near", "wrong exact"]
    rows = []
    for each in tested.direct:
        interval = f"{percent(each.r1.low)}-{percent(each.r1.high)}" if each.applies else "-"
        row = [each.condition, f"{each.applies:,}", percent(each.r1.share), interval]
        row.append(auc_text(each.curve.roc.auc))
        for at in each.curve.at:
            row += [percent(at.true.share), f"{at.false:,}"]
        if judged := pipeline.get(each.condition):
            row += [percent(judged.r1.share), percent(judged.near_or_exact.share)]
            row += [f"{judged.wrong_near:,}", f"{judged.wrong_exact:,}"]
        rows.append(row)
    return Grid(tested.name, header, rows)


def facts(result: Robustness) -> list[str]:
    """Return the size of the experiment and the pooled curves, one line each."""
    lines = [
        f"{result.queries:,} queries (seed {result.seed}) under {len(result.conditions)} conditions"
        f" against all {result.references:,} readable images"
    ]
    if result.unreadable:
        lines.append(f"{counted(result.unreadable, 'image')} could not be read")
    how = "graded near or exact" if result.graded else "of equal bytes; pixels not verified"
    lines.append(f"excluded: {counted(result.twins, 'pair')} of one image within the set ({how})")
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


#: Colours for colour-blind readers (Wong 2011).
LINES: Final = (*COLOURS, "#4a5058")


def heat_map(result: Robustness) -> dict[str, bytes]:
    """Return R@1 by condition, hardest first, and encoder as ``{"svg": .., "png": ..}``."""
    lines = _lines(result)
    shares = np.array([own for _, own in lines], np.float64).T
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a condition that applies to no image
        means = np.nanmean(shares, axis=1)
    order = np.argsort(np.where(np.isnan(means), 2.0, means), kind="stable")
    names = [result.conditions[at].name for at in order]
    width, height = 3.0 + 1.5 * len(lines), max(3.4, 1.5 + 0.25 * len(names))
    with figure_of((max(5.4, width), height)) as figure:
        axes = figure.add_subplot()
        axes.imshow(shares[order], cmap="RdYlBu", vmin=0, vmax=1, aspect="auto", alpha=0.85)
        for (row, column), share in np.ndenumerate(shares[order]):
            text = "-" if math.isnan(share) else f"{100 * share:.0f}"
            light = share < 0.12 or share > 0.93
            axes.text(
                *(column, row, text), ha="center", va="center", fontsize=9,
                color="white" if light else INK,
            )  # fmt: skip
        axes.set_yticks(range(len(names)), names, fontsize=9)
        heads = ["\n".join(name.split(", ")) for name, _ in lines]
        axes.set_xticks(range(len(lines)), heads, fontsize=9)
        axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        titled(figure, "Originals found first (R@1, %), hardest condition first", _about(result))
        top = 1.05 if any("\n" in head for head in heads) else 0.9
        figure.subplots_adjust(
            left=1.95 / figure.get_figwidth(), right=0.98, top=1 - top / height, bottom=0.1 / height
        )
        return saved(figure, "r1")


def _lines(result: Robustness) -> list[tuple[str, list[float]]]:
    """Return the columns of the heat map: names, and shares by condition."""
    found = []
    for tested in result.encoders:
        name = as_text(tested.name)
        if tested.pipeline:
            found.append((f"{name}, whole pipeline", [j.r1.share for j in tested.pipeline]))
            name = f"{name}, fingerprint alone"
        found.append((name, [d.r1.share for d in tested.direct]))
    return found


def _about(result: Robustness) -> str:
    among = f"{result.queries:,} queries among {result.references:,} images"
    return as_text(f"{among} of set {cut(result.collection, 40)}")


def roc_plot(result: Robustness) -> dict[str, bytes]:
    """Return the ROC of untransformed and transformed queries as ``{"svg": .., "png": ..}``."""
    curves = [
        (as_text(tested.name), label, curve, number)
        for number, tested in enumerate(result.encoders)
        for label, curve in (("original", tested.original), ("transformed", tested.trans))
        if curve is not None and len(curve.roc.positives) and curve.roc.total
    ]
    if not curves:
        return {}
    least = min(1.0 / curve.roc.total for _, _, curve, _ in curves)
    floor = 10.0 ** (math.floor(math.log10(least)) - 0.6)
    with figure_of((7.6, 5.2)) as figure:
        axes = figure.add_subplot()
        for name, label, curve, number in curves:
            colour = LINES[number % len(LINES)]
            dashed = label == "transformed"
            fpr, tpr, _ = thin(curve.roc)
            # a rate of 0 is drawn at the left end of the logarithmic axis
            x, y = [floor, *np.maximum(fpr, floor), 1.0], [0.0, *tpr, 1.0]
            axes.plot(
                x, y, color=colour, lw=2, ls=(0, (5, 2)) if dashed else "-",
                label=f"{name}, {label}: AUC {auc_text(curve.roc.auc)}", drawstyle="steps-post",
                zorder=2 if dashed else 3,
            )  # fmt: skip
            if dashed or result.encoders[number].trans is None:
                _mark(axes, curve, colour, floor)
        _axes_of_rates(axes, floor)
        axes.set_title("ROC of similarity", loc="left", pad=22)
        axes.text(0, 1.03, _about(result), transform=axes.transAxes, fontsize=9, color=QUIET)
        axes.legend(loc="lower right", fontsize=9)
        figure.subplots_adjust(left=0.12, right=0.97, top=0.86, bottom=0.12)
        return saved(figure, "roc")


def _mark(axes: Axes, curve: Curve, colour: str, floor: float) -> None:
    for each in curve.at:
        at = (max(each.fpr, floor), each.true.share)
        axes.plot(*at, "o", ms=7, mfc="white", mec=colour, mew=1.8, zorder=4, clip_on=False)
        given = each.name == f"{each.threshold:g}"
        label = each.name if given else f"{each.name} {each.threshold:.3g}"
        axes.annotate(
            label, at, xytext=(9, -12), textcoords="offset points", fontsize=8.5, color=colour
        )


def _axes_of_rates(axes: Axes, floor: float) -> None:
    """Set up the two axes; ``floor`` at the left end is a rate of zero."""
    decades = range(math.ceil(math.log10(floor) + 0.3), 1)
    axes.set_xscale("log")
    axes.set_xlim(floor, 1.0)
    axes.set_ylim(0, 1.02)
    axes.set_xticks(
        [floor, *(10.0**d for d in decades)],
        ["0", *(f"$10^{{{d}}}$" if d else "1" for d in decades)],
    )
    axes.minorticks_off()
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100 %"])
    axes.grid(True)
    axes.set_axisbelow(True)
    axes.set_xlabel("false-positive rate (share of the other pairs, logarithmic)")
    axes.set_ylabel("true-positive rate")
