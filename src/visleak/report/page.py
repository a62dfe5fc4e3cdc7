"""Builds the page: one self-contained HTML text from an audit folder."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np
from jinja2 import Environment
from markupsafe import Markup, escape

from visleak import plots
from visleak.gallery import Pictures
from visleak.pipeline.recordings import words
from visleak.records import GRADES
from visleak.report import findings, model, recordings, review, sections
from visleak.report.choice import CAP
from visleak.report.findings import Findings
from visleak.report.model import PageSummary
from visleak.stats import Rate, chance, percent
from visleak.storage import REPORT, write_text
from visleak.templates import environment, visible
from visleak.verdicts import read_verdicts

#: Most histograms and bar charts of a kind; with more query sets the rest is left to the table.
MOST_CHARTS: Final = 6

#: How a page that was made without pictures says so.
PRIVATE: Final = '<p class="note">This page was made without pictures'


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart and the words under it."""

    image: Markup
    caption: str = ""


def build(
    folder: Path, pictures: Pictures | None = None, *, private: bool = False, cap: int = CAP
) -> str:
    """Return the page of an audit folder as one HTML text; the same folder gives the same text.

    Args:
        folder: a finished audit.
        pictures: called once a set with the set's name and sorted ids, and after review once more
            for examples, returns RGB ``uint8`` arrays by id for those that could be read; ``None``
            makes a page without pictures.
        private: show no pixels at all, and say so; ``pictures`` is not called.
        cap: most pairs in the gallery.

    Raises:
        UsageError: the folder holds no finished audit.
        VisleakError: a file of it is missing, damaged or of a newer visleak.
    """
    said = read_verdicts(folder)
    shown = None if private else pictures
    summary = model.read(folder, said)
    found = findings.read(folder, summary.query_sets, shown, cap, said)
    style = _asset("page.css") + (_asset("review.css") if said else "")
    script = _asset("page.js")
    text = (
        _environment()
        .get_template("page.html.j2")
        .render(
            audit=summary,
            found=found,
            review=review.read(folder, said, shown) if said else None,
            most=review.MOST_DISPUTES,
            problems=model.read_unreadable(folder),
            sections=sections.load(folder),
            figures=_figures(summary, found),
            filters=_filters(found),
            pixels="private" if private else "shown" if pictures else "absent",
            exclusive=[
                name for name in model.EXCLUSIVE if any(name in c.rates for c in summary.table)
            ],
            style=Markup(style),
            script=Markup(script),
            policy=_policy(style, script),
            bound=model.bound,
            duplicates=model.duplicates,
            apart=words,
            unbroken=_unbroken,
            percent=percent,
        )
    )
    # A lone surrogate, from a name that is no UTF-8, cannot be written to the file.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def write_report(
    folder: Path,
    output: Path | None = None,
    *,
    pictures: Pictures | None = None,
    private: bool = False,
) -> Path:
    """Write the page of an audit folder, by default as its ``report.html``; return where it is.

    Args:
        folder, pictures, private: as in :func:`build`.
        output: the file to write, in one step.

    Raises:
        UsageError: the folder holds no finished audit.
        VisleakError: a file of it is missing, damaged or of a newer visleak.
    """
    path = output or folder / REPORT
    write_text(path, build(folder, pictures, private=private))
    return path


def is_private(folder: Path) -> bool:
    """Whether the page of an audit folder is there and was made without pictures on purpose."""
    path = folder / REPORT
    return path.is_file() and PRIVATE in path.read_text(encoding="utf-8", errors="replace")


@cache
def _environment() -> Environment:
    made = environment("visleak.report", visible)
    made.filters["chance"] = chance
    return made


def _unbroken(text: str) -> Markup:
    """Keep numbers, their intervals and their units on one line.

    >>> print(_unbroken("2 of 9 <b> (2.58-3.24 %)"))
    <span class="nowrap">2</span> of <span class="nowrap">9</span> &lt;b&gt; \
(<span class="nowrap">2.58-3.24 %</span>)
    """
    parts = re.split(r"(\d[\d.,]*(?:-\d[\d.,]*)?(?: %)?)", str(visible(text)))
    return Markup("").join(
        Markup('<span class="nowrap">{}</span>').format(part) if index % 2 else escape(part)
        for index, part in enumerate(parts)
    )


def _asset(name: str) -> str:
    return (resources.files("visleak.report") / "templates" / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Return a policy under which only this style sheet and this script work, and no network."""
    return (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none';"
        f" style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _figures(audit: PageSummary, found: Findings) -> dict[str, list[Figure]]:
    """Draw the charts of the page, by their place."""
    limits = audit.audit.thresholds.hard, audit.audit.thresholds.soft
    return {
        "degrees": _degrees(audit),
        "grades": _grades(audit),
        "nearest": [
            Figure(Markup(plots.histogram(values, *limits)), name)
            for name, values in found.nearest[:MOST_CHARTS]
            if len(values)
        ],
        "classes": _classes(found),
        "recordings": [
            Figure(Markup(recordings.drawn(each.about))) for each in audit.recordings[:MOST_CHARTS]
        ],
    }


def _degrees(audit: PageSummary) -> list[Figure]:
    """A matrix where there are several reference sets, else one stacked bar a query set."""
    if not audit.leaks:
        return []
    if len(audit.reference_sets) > 1:
        rows, columns = audit.reference_sets, audit.query_sets
        panels = plots.heat_maps(
            _grid(audit, rows, columns, "hard"), _grid(audit, rows, columns, "soft"), rows, columns
        )
        return [Figure(Markup(panel)) for panel in panels]
    measured = [
        (total.query_set, hard.share, soft.share)
        for total in audit.totals
        if (hard := total.rates.get("hard")) and (soft := total.rates.get("soft"))
    ]
    if not measured:
        return []
    names, hards, softs = zip(*measured, strict=True)
    return [Figure(Markup(plots.stacked_bars(names, hards, softs)))]


def _grid(
    audit: PageSummary, rows: Sequence[str], columns: Sequence[str], degree: str
) -> np.ndarray[Any, np.dtype[np.float64]]:
    grid = np.full((len(rows), len(columns)), np.nan)
    for item in audit.leaks:
        if rate := item.rates.get(degree):
            grid[rows.index(item.reference_set), columns.index(item.query_set)] = rate.share
    return grid


def _grades(audit: PageSummary) -> list[Figure]:
    figures = []
    for total in audit.totals[:MOST_CHARTS]:
        rates = audit.known(total.rates)
        bars = [_bar(grade, grade, rates[grade]) for grade in GRADES[:3] if grade in rates]
        if bars:
            told = f"Share of the images of {total.query_set} by grade of their best pair"
            figures.append(Figure(Markup(plots.rate_bars(bars, told)), total.query_set))
    return figures


def _classes(found: Findings) -> list[Figure]:
    bars = [_bar(name, "near", rate) for name, rate in found.classes]
    told = "Share of each class's query images that leak"
    return [Figure(Markup(plots.rate_bars(bars, told)))] if bars else []


def _bar(name: str, colour: str, rate: Rate) -> plots.Bar:
    note = f"{rate.count:,} of {rate.total:,} · {percent(rate.share)} %"
    return plots.Bar(name, note, colour, rate.share, rate.low, rate.high)


def _filters(found: Findings) -> dict[str, list[str]]:
    """Return what the gallery can be filtered by, in the order of the menus."""
    order = [*GRADES, "hard", "soft", "ungraded"]
    kinds = {card.kind for card in found.cards}
    return {
        "kind": sorted(kinds, key=lambda kind: (order.index(kind) if kind in order else 99, kind)),
        "between": list(dict.fromkeys(card.between for card in found.cards)),
        "label": sorted({card.query_label for card in found.cards if card.query_label}),
    }
