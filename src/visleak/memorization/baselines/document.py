"""A comparison of searches as a document and as files, and its figure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from visleak.memorization.search.driver import GRADIENT_CALLS, Candidate
from visleak.quantities import counted
from visleak.reporting import Column, Document, Figure, Table, latex, markdown
from visleak.reporting.drawing import COLOURS, MARKS, as_text, cut, figure_of, saved, titled
from visleak.stats.bootstrap import NOTHING, Estimate
from visleak.stats.intervals import t_interval
from visleak.storage import File


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A memorized image that the images of a candidate are copies of."""

    reference: str  #: SOURCE/id of the closest image of the source
    number: int  #: of the memorized image within the attempt, from 0
    prompt: str


@dataclass(frozen=True, slots=True)
class Verified:
    """Result of making and looking up the images of candidates."""

    images: int
    clustered: tuple[str, ...]  #: candidates that gave a cluster of nearly the same images
    reproduced: tuple[Reproduction, ...]  #: verified, one per candidate and memorized image
    calls: int  #: passes of the network that the images cost
    seconds: float  #: making and comparing the images, and looking for their sources


@dataclass(frozen=True, slots=True)
class Attempt:
    """One method with one seed: its search, and the result of its candidates."""

    method: str
    seed: int  #: of everything random in it
    about: dict[str, object]  #: settings of the method, as plain data
    candidates: tuple[Candidate, ...]  #: that images were made of, by ``checked``, highest first
    checked: tuple[float, ...]  #: D of each under noises that no search has met
    complete: bool  #: whether the search ran to its own end within the budget
    search_calls: int  #: passes of the search, a gradient counted by ``GRADIENT_CALLS``
    search_seconds: float  #: of wall time
    check_calls: int  #: passes for ``checked``; they are part of neither cost
    verified: Verified  #: the result of the images
    key: str = ""  #: of everything that it depends on

    @property
    def found(self) -> int:
        """Distinct memorized images, verified."""
        return len({each.number for each in self.verified.reproduced})

    @property
    def calls(self) -> int:
        """Passes of search and images."""
        return self.search_calls + self.verified.calls

    @property
    def seconds(self) -> float:
        """Of search, images and verification."""
        return self.search_seconds + self.verified.seconds

    def discoveries(self) -> list[tuple[float, int]]:
        """Return (passes, images known), candidates in order, each at its share of the cost."""
        steps: list[tuple[float, int]] = [(0.0, 0)]
        seen: set[int] = set()
        share = self.verified.calls / max(len(self.candidates), 1)
        for place, candidate in enumerate(self.candidates, 1):
            own = {r.number for r in self.verified.reproduced if r.prompt == candidate.prompt}
            if own - seen:
                seen |= own
                steps.append((self.search_calls + place * share, len(seen)))
        return [*steps, (float(self.calls), len(seen))]


@dataclass(frozen=True)
class Comparison:
    """Several methods at one budget."""

    model: dict[str, object]
    score: dict[str, object]  #: settings of D, as plain data, with the timestep
    norm: str  #: which of the two norms is called D here
    budget: dict[str, Any]  #: ``calls`` and ``seconds`` of every search
    chains: int  #: candidates of a method, at most
    seeds: tuple[int, ...]  #: that every method ran with
    verification: dict[str, object]  #: how images were made, clustered and looked up, as plain data
    attempts: tuple[Attempt, ...]  #: by seed, then in the order of the methods
    folder: Path  #: with ``compare.json``, the tables, the figure, and a folder per method and seed
    key: str

    @property
    def methods(self) -> tuple[str, ...]:
        """Names, in the order they were given."""
        return tuple(dict.fromkeys(each.method for each in self.attempts))

    def of(self, method: str) -> tuple[Attempt, ...]:
        """Return the attempts of a method, one per seed."""
        return tuple(each for each in self.attempts if each.method == method)


@dataclass(frozen=True, slots=True)
class Row:
    """A method over all seeds."""

    method: str
    seeds: int
    found: Estimate  #: distinct memorized images, verified, of a seed
    candidates: float  #: prompts that images were made of, of a seed
    clustered: Estimate  #: candidates whose images gave a cluster
    search_calls: float  #: (search_calls, image_calls) passes of a seed
    image_calls: float
    seconds: float  #: of search, images and verification
    calls_per_image: float  #: of all seeds by all images found; NaN without any
    seconds_per_image: float
    best_d: Estimate  #: (best_d, median_d) of a seed's candidates, under fresh noises
    median_d: Estimate
    complete: bool  #: whether every search ran to its own end


def rows_of(result: Comparison) -> list[Row]:
    """Return a row per method, in the order they were given."""
    return [row_of(name, result.of(name)) for name in result.methods]


def row_of(method: str, attempts: Sequence[Attempt]) -> Row:
    """Return the figures of one method's attempts, one per seed."""
    images = sum(each.found for each in attempts) or math.nan
    most = max((len(each.candidates) for each in attempts), default=math.inf)
    known = [each.checked or (math.nan,) for each in attempts]
    return Row(
        method=method,
        seeds=len(attempts),
        found=mean_of((each.found for each in attempts), 0.0),
        candidates=mean_of(len(each.candidates) for each in attempts).value,
        clustered=mean_of((len(each.verified.clustered) for each in attempts), 0.0, most),
        search_calls=mean_of(each.search_calls for each in attempts).value,
        image_calls=mean_of(each.verified.calls for each in attempts).value,
        seconds=mean_of(each.seconds for each in attempts).value,
        calls_per_image=sum(each.calls for each in attempts) / images,
        seconds_per_image=sum(each.seconds for each in attempts) / images,
        best_d=mean_of(map(max, known), 0.0),
        median_d=mean_of((float(np.median(each)) for each in known), 0.0),
        complete=all(each.complete for each in attempts),
    )


def mean_of(values: Iterable[float], least: float = -math.inf, most: float = math.inf) -> Estimate:
    """Return the mean with its interval over seeds; NaNs are left out."""
    known = [value for value in map(float, values) if not math.isnan(value)]
    if not known:
        return NOTHING
    low, high = t_interval(known)
    low, high = (least if low < least else low), (most if high > most else high)
    return Estimate(sum(known) / len(known), low, high)


#: Names of methods in sentences, tables and figures; unknown ones keep their own.
NAMES: Final = {
    **{"gibbs": "Gibbs (Algorithm 1)", "random": "random words", "greedy": "greedy"},
    **{"conzic": "ConZIC", "zerocap": "ZeroCap", "pez": "PEZ"},
}
_WHOLE: Final = pa.int64()
_REAL: Final = pa.float64()
_FLAG: Final = pa.bool_()
#: Inches of the figure, and methods per row of its legend.
SIZE: Final = (7.4, 4.3)
ACROSS: Final = 3


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
    parts = []
    for row in sorted(rows_of(result), key=lambda row: -row.found.value):
        noun = "memorized image" if row.found.value == 1 else "memorized images"
        each = f" ({row.calls_per_image:,.0f} passes each)" if row.found.value else ""
        parts.append(f"{shown_name(row.method)} found {row.found.value:.3g} {noun}{each}")
    return f"{'; '.join(parts)}: {budget_of(result)}"


def shown_name(method: str) -> str:
    """Return the name of a method for people."""
    return NAMES.get(method, method)


def budget_of(result: Comparison) -> str:
    """Return what every search might spend, in words."""
    calls, seconds = result.budget.get("calls"), result.budget.get("seconds")
    parts = [] if calls is None else [f"{calls:,} passes"]
    parts += [] if seconds is None else [f"{seconds:g} seconds"]
    allowed = f"at most {' and '.join(parts)} per search" if parts else "without a budget"
    over = f", means over {len(result.seeds)} seeds" if len(result.seeds) > 1 else ""
    return f"{allowed}, {counted(result.chains, 'candidate')} at most{over}"


def mean(value: Estimate) -> str:
    """Return a mean with its interval, where there is one."""
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
        *(Column(name, _REAL) for name in ("seconds", "calls_per_image", "seconds_per_image")),
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
            *(shown_name(row.method), row.method, row.seeds, mean(row.found)),
            *(row.found.value, row.found.low, row.found.high, row.candidates),
            *(f"{mean(row.clustered)} of {row.candidates:.3g}", row.clustered.value),
            *(row.search_calls, row.image_calls, row.seconds),
            *(row.calls_per_image, row.seconds_per_image),
            *(_cost(row.calls_per_image), _cost(row.seconds_per_image)),
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
        first = {copy.number: copy for copy in reversed(each.verified.reproduced)}
        rows += [
            (shown_name(each.method), str(each.seed), copy.reference, copy.prompt)
            for copy in each.verified.reproduced
            if first[copy.number] is copy
        ]
    headings = ("method", "seed", "memorized image", "prompt")
    return Table.of("Memorized images found", headings, rows, 4, file="candidates.csv")


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
        copies = {copy.prompt: copy.reference for copy in reversed(each.verified.reproduced)}
        for c, fresh in zip(each.candidates, each.checked, strict=True):
            copied = (c.prompt in each.verified.clustered, c.prompt in copies, copies.get(c.prompt))
            d = (c.chain, c.step, c.score, fresh)
            rows.append((c.prompt, each.method, each.seed, *d, *copied))
    return Table("Candidates", columns, rows)


def reading(result: Comparison) -> list[str]:
    """Return how to read the tables, one line each."""
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
    ended = [shown_name(row.method) for row in rows_of(result) if not row.complete]
    if ended:
        lines.append(f"the budget ended before the search itself did: {', '.join(ended)}")
    return lines


def files(result: Comparison) -> dict[str, File]:
    """Return the figure, tables and pages of a comparison, by name of file."""
    figure = Figure("compare", "Memorized images found, by cost", discoveries(result))
    page = document(result)
    return {
        **figure.by_name(),
        "compare.csv": methods(result).arrow(),
        "candidates.csv": candidates(result).arrow(),
        "compare.md": markdown(page),
        "compare.tex": latex(page),
    }


def discoveries(result: Comparison) -> dict[str, bytes]:
    """Return images found against passes as SVG and PNG: a line per method, a mark per seed."""
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
            label = as_text(cut(shown_name(method), 28))
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
