"""A comparison of searches as a document and as files, and its figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from visleak.documents import as_plain
from visleak.drawing import COLOURS, MARKS, as_text, cut, figure_of, saved, titled
from visleak.memorization.baselines.records import Attempt, Comparison, Mean, Row, rows_of
from visleak.memorization.search.driver import GRADIENT_CALLS
from visleak.reporting import Column, Document, Figure, Table, latex, markdown
from visleak.storage import File, RunFolder

#: Names of methods in sentences, tables and figures.
NAMES: Final = {
    "gibbs": "Gibbs (Algorithm 1)",
    "random": "random words",
    "greedy": "greedy",
    "conzic": "ConZIC",
    "zerocap": "ZeroCap",
    "pez": "PEZ",
}

_WHOLE: Final = pa.int64()
_REAL: Final = pa.float64()
_FLAG: Final = pa.bool_()

#: Inches of the figure, and methods per row of its legend.
SIZE: Final = (7.4, 4.3)
ACROSS: Final = 3


def name_of(method: str) -> str:
    """Return the name of a method in texts; unknown ones keep their own."""
    return NAMES.get(method, method)


def document(result: Comparison) -> Document:
    """Return a comparison as a document."""
    return Document(
        title="Searches for trigger prompts, compared",
        headline=headline(result),
        tables=(methods(result), found(result)),
        reading=tuple(reading(result)),
    )


def headline(result: Comparison) -> str:
    """Return what was found, the method with the most memorized images first, at what cost."""
    rows = sorted(rows_of(result), key=lambda row: -row.found.value)
    return f"{'; '.join(map(_sentence, rows))}: {budget_of(result)}"


def _sentence(row: Row) -> str:
    noun = "memorized image" if row.found.value == 1 else "memorized images"
    each = f" ({row.calls_an_image:,.0f} passes each)" if row.found.value else ""
    return f"{name_of(row.method)} found {row.found.value:.3g} {noun}{each}"


def budget_of(result: Comparison) -> str:
    """Return what every search might spend, in words."""
    calls, seconds = result.budget.get("calls"), result.budget.get("seconds")
    parts = [] if calls is None else [f"{calls:,} passes"]
    parts += [] if seconds is None else [f"{seconds:g} seconds"]
    allowed = f"at most {' and '.join(parts)} per search" if parts else "without a budget"
    over = f", means over {len(result.seeds)} seeds" if len(result.seeds) > 1 else ""
    return f"{allowed}, {result.chains:,} candidate{'s' * (result.chains != 1)} at most{over}"


def mean(value: Mean) -> str:
    """Return a mean with its interval, where there is one.

    >>> mean(Mean(2.0, math.nan, math.nan)), mean(Mean(2.0, 0.7, 3.3))
    ('2', '2 (0.7 to 3.3)')
    """
    if math.isnan(value.value):
        return "-"
    ends = "" if math.isnan(value.low) else f" ({value.low:.3g} to {value.high:.3g})"
    return f"{value.value:.3g}{ends}"


def _cost(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def methods(result: Comparison) -> Table:
    """Return the table of methods; the most images found in bold."""
    columns = (
        Column(heading="method"),
        Column("method"),
        Column("seeds", _WHOLE),
        Column(heading="memorized images", number=True),
        *(Column(name, _REAL) for name in ("found", "found_low", "found_high", "candidates")),
        Column(heading="candidates with a cluster", number=True),
        Column("clustered", _REAL),
        Column("search_calls", _REAL, "passes of the search", "{:,.0f}".format, number=True),
        Column("image_calls", _REAL, "passes of the images", "{:,.0f}".format, number=True),
        Column("seconds", _REAL),
        *(Column(name, _REAL) for name in ("calls_an_image", "seconds_an_image")),
        Column(heading="passes per image", number=True),
        Column(heading="seconds per image", number=True),
        *(Column(heading=name, number=True) for name in ("best D", "median D")),
        *(Column(name, _REAL) for name in ("best_d", "median_d")),
        Column("complete", _FLAG),
    )
    rows = rows_of(result)
    most = max((row.found.value for row in rows), default=0.0)
    cells = [
        (
            *(name_of(row.method), row.method, row.seeds, mean(row.found)),
            *(row.found.value, row.found.low, row.found.high, row.candidates),
            *(f"{mean(row.clustered)} of {row.candidates:.3g}", row.clustered.value),
            *(row.search_calls, row.image_calls, row.seconds),
            *(row.calls_an_image, row.seconds_an_image),
            *(_cost(row.calls_an_image), _cost(row.seconds_an_image)),
            *(mean(row.best_d), mean(row.median_d), row.best_d.value, row.median_d.value),
            row.complete,
        )
        for row in rows
    ]
    bold = {(at, "memorized images") for at, row in enumerate(rows) if row.found.value == most > 0}
    title = "Searches for trigger prompts at one budget"
    return Table(title, columns, cells, bold=frozenset(bold))


def found(result: Comparison) -> Table:
    """Return every memorized image that was found, with its first candidate."""
    rows = []
    for each in result.attempts:
        first = {copy.number: copy for copy in reversed(each.verified.replayed)}
        for copy in each.verified.replayed:
            if first[copy.number] is copy:
                rows.append((name_of(each.method), str(each.seed), copy.reference, copy.prompt))
    headings = ("method", "seed", "memorized image", "prompt")
    columns = tuple(Column(heading=heading) for heading in headings)
    return Table("Memorized images found", columns, rows, file="candidates.csv")


def candidates(result: Comparison) -> Table:
    """Return every candidate; other commands read the column ``prompt``."""
    columns = (
        *(Column("prompt"), Column("method")),
        *(Column(name, _WHOLE) for name in ("seed", "chain", "step")),
        *(Column(name, _REAL) for name in ("d_found", "d_fresh")),
        *(Column(name, _FLAG) for name in ("clustered", "memorized")),
        Column("reference"),
    )
    rows = []
    for each in result.attempts:
        copies = {copy.prompt: copy.reference for copy in reversed(each.verified.replayed)}
        for c, fresh in zip(each.candidates, each.checked, strict=True):
            clustered = c.prompt in each.verified.clustered
            rows.append(
                (
                    *(c.prompt, each.method, each.seed, c.chain, c.step, c.score, fresh),
                    *(clustered, c.prompt in copies, copies.get(c.prompt)),
                )
            )
    return Table("Candidates", columns, rows)


def reading(result: Comparison) -> list[str]:
    """Return how to read the tables, a line each."""
    lines = [
        "only verified images count: a candidate's images gave a cluster, and its medoid is a"
        " near-duplicate, or of the layout, of an image of the source; high D alone is not"
        " memorization",
        "a pass is one row through the network; a pass with its gradient counts as"
        f" {GRADIENT_CALLS}; a guided step of an image is two",
        "D of candidates is under noises that no search has used, so it is below the D that the"
        " search measured; candidates are ordered by it, and its passes are part of no cost",
        "costs per image are all passes and seconds of all seeds, by all memorized images found",
    ]
    if len(result.seeds) > 1:
        lines.append(
            f"intervals are Student's 95 % over {len(result.seeds)} seeds: other draws of the same"
            " searches on the same model"
        )
    ended = [name_of(row.method) for row in rows_of(result) if not row.complete]
    if ended:
        lines.append(f"the budget ended before the search itself did: {', '.join(ended)}")
    return lines


def content(run: RunFolder, result: Comparison) -> dict[str, object]:
    """Return the content of ``compare.json``."""
    return run.document(headline(result), result, methods=as_plain(rows_of(result)))


def files(result: Comparison) -> dict[str, File]:
    """Return the figure, tables and pages of a comparison, by name of file."""
    figure = Figure("compare", "Memorized images found, by cost", discoveries(result))
    return {
        **figure.by_name(),
        "compare.csv": methods(result).arrow(),
        "candidates.csv": candidates(result).arrow(),
        "compare.md": markdown(document(result)),
        "compare.tex": latex(document(result)),
    }


def discoveries(result: Comparison) -> dict[str, bytes]:
    """Return images found against passes of search and images, as SVG and PNG.

    A line per method, its mean over seeds; each seed is a mark. Lines of one height are drawn a
    little apart.
    """
    from matplotlib.ticker import MaxNLocator

    if not result.methods:
        return {}
    width, height = SIZE
    most = max(1, *(each.found for each in result.attempts))
    far = max(each.calls for each in result.attempts) or 1
    several = len(result.seeds) > 1
    with figure_of(SIZE) as figure:
        top = height - 0.66 - 0.22 * math.ceil(len(result.methods) / ACROSS)
        axes = figure.add_axes((0.09, 0.62 / height, 0.88, (top - 0.62) / height))
        for number, method in enumerate(result.methods):
            mark = MARKS[number % len(MARKS)]
            look: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)], "lw": 2}
            dots = look | {"ms": 6.5, "mec": "white", "mew": 0.8, "zorder": 4, "clip_on": False}
            raised = 0.022 * most * (number - (len(result.methods) - 1) / 2)
            attempts = result.of(method)
            x, y = mean_curve(attempts)
            axes.step(x, np.asarray(y) + raised, where="post", zorder=3, **look)
            if len(attempts) > 1:
                # a column of its own, so that the ends of methods do not hide each other
                beside = [far * (1.04 + 0.022 * number)] * len(attempts)
                axes.plot(beside, [each.found for each in attempts], mark, **dots)
            else:
                axes.plot(x[-1:], [attempts[0].found + raised], mark, **dots)
            label = as_text(cut(name_of(method), 28))
            axes.plot([], [], mark, ls="-", label=label, **dots)
        room = 0.08 * most
        axes.set_xlim(0, far * (1.06 + 0.022 * len(result.methods) * several))
        axes.set_ylim(-room, most + 1.5 * room)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        axes.set_xlabel("passes of the network: search, then images of one candidate after another")
        axes.set_ylabel("distinct memorized images")
        below = f"{budget_of(result)}{'; marks: single seeds' * several}"
        titled(figure, "Verified memorized images found, by cost", as_text(cut(below, 116)))
        figure.legend(
            loc="upper left", ncols=ACROSS, fontsize=9, borderaxespad=0, borderpad=0,
            bbox_to_anchor=(0.12 / width, 1 - 0.6 / height), handlelength=1.6, columnspacing=1.4,
            labelspacing=0.35,
        )  # fmt: skip
        return saved(figure, "compare discoveries")


def mean_curve(attempts: Sequence[Attempt]) -> tuple[list[float], list[float]]:
    """Return the mean number of images known after how many passes, over the attempts."""
    curves = [each.discoveries() for each in attempts]
    at = sorted({x for curve in curves for x, _ in curve})
    known = [[max(n for passes, n in curve if passes <= x) for curve in curves] for x in at]
    return at, [sum(each) / len(each) for each in known]
