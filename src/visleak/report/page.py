"""Builds the page: one self-contained HTML text from an audit folder."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from jinja2 import Environment
from markupsafe import Markup, escape

from visleak.auditing import Audit
from visleak.errors import VisleakError
from visleak.grouping import document
from visleak.pipeline import rates
from visleak.pipeline.recordings import words
from visleak.quantities import counted
from visleak.rates import chance, percent
from visleak.records import GRADES, Float64
from visleak.report import findings, model, scenes
from visleak.report.document import can_be_repaired
from visleak.report.findings import CAP, Findings
from visleak.report.model import PageSummary
from visleak.reporting import Document, charts, section
from visleak.reporting.charts import Bar
from visleak.reporting.gallery import ImageLoader, data_uri
from visleak.storage import REPORT, SECTIONS, write_json, write_text
from visleak.storage.audit_folder import AuditSummary, RecordingSummary
from visleak.templates import environment, policy, visible
from visleak.verdicts import read_verdicts

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

    from visleak.progress import Progress
    from visleak.records import Bytes8


#: Most histograms and bar charts of a kind; with more query sets the rest is left to the table.
MOST_CHARTS: Final = 6

#: Cards that a browser parses at once: those of the first page, see page.js.
PER_PAGE: Final = 24

#: Columns of the table of pairs: what it is sorted by, heading, whether it is a number.
TABLE: Final = (
    ("query", "Query", False),
    ("reference", "Reference", False),
    ("kind", "Grade", False),
    ("probability", "Probability", True),
    ("similarity", "Similarity", True),
)

#: Beginning of the note in a page that was made without images.
PRIVATE: Final = '<p class="note">This page was made without images'


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart, its content in words, and a caption."""

    source: str
    alt: str
    caption: str = ""


def _figure(files: Mapping[str, bytes], alt: str, caption: str = "") -> Figure:
    return Figure(data_uri(files["svg"], "image/svg+xml"), alt, caption)


def build(
    folder: Path,
    loader: ImageLoader | None = None,
    *,
    private: bool = False,
    cap: int = CAP,
    beside: Path | None = None,
) -> str:
    """Return the page of an audit folder as one HTML text; the same folder gives the same text.

    Args:
        folder: a finished audit.
        loader: called once a set with the set's name and sorted ids, and after review once more
            for examples, returns RGB ``uint8`` arrays by id for those that could be read.
        private: show no pixels, and say so; ``loader`` is not called.
        cap: most pairs in the gallery.
        beside: folder of the page, from which it links to the files of images; by default the
            audit folder.

    Raises:
        UsageError: the folder holds no finished audit.
        VisleakError: a file of it is missing, damaged or of a newer visleak.
    """
    verdicts = read_verdicts(folder)
    shown = None if private else loader
    summary = model.read(folder, verdicts)
    found = findings.read(folder, summary.query_sets, shown, cap, verdicts, beside or folder)
    assets = resources.files("visleak.report") / "templates"
    style = "".join(
        (assets / name).read_text(encoding="utf-8")
        for name in ("page.css", *(["review.css"] if verdicts else []))
    )
    script = (assets / "page.js").read_text(encoding="utf-8")
    text = (
        _environment()
        .get_template("page.html.j2")
        .render(
            audit=summary,
            found=found,
            review=model.read_review(folder, verdicts, shown) if verdicts else None,
            most=model.MOST_DISPUTES,
            problems=model.read_unreadable(folder),
            sections=load(folder, *_unasked(folder, summary.audit, shown)),
            figures=_figures(summary, found),
            filters=_filters(found),
            pixels="private" if private else "shown" if loader else "absent",
            exclusive=[
                name for name in model.EXCLUSIVE if any(name in c.rates for c in summary.table)
            ],
            style=Markup(style),
            script=Markup(script),
            policy=policy(style, script),
            bound=model.bound,
            chance=list(rates.chance_notes(summary.audit.comparisons)),
            columns=TABLE,
            per_page=PER_PAGE,
            steps=model.steps(summary, folder),
            plain=model.plain_words,
            show_command=partial(model.show_command, folder),
            duplicates=model.duplicates,
            apart=words,
            unbroken=_unbroken,
            percent=percent,
        )
    )
    # A lone surrogate, from a name that is not UTF-8, cannot be written to the file.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def write_report(
    folder: Path,
    output: Path | None = None,
    *,
    loader: ImageLoader | None = None,
    private: bool = False,
) -> Path:
    """Write :func:`build`'s page in one step, by default as ``report.html``; return where it is."""
    path = output or folder / REPORT
    write_text(path, build(folder, loader, private=private, beside=path.parent))
    return path


def is_private(folder: Path) -> bool:
    """Whether the page of an audit folder is there and was made without images on purpose."""
    path = folder / REPORT
    return path.is_file() and PRIVATE in path.read_text(encoding="utf-8", errors="replace")


@cache
def _environment() -> Environment:
    made = environment("visleak.report", visible)
    made.filters.update(chance=chance, code=_code)
    return made


def _unbroken(text: str) -> Markup:
    """Keep numbers, their intervals and their units on one line.

    >>> print(_unbroken("2 of 9 <b> (2.58-3.24 %)"))
    <span class="nowrap">2</span> of <span class="nowrap">9</span> &lt;b&gt; \
(<span class="nowrap">2.58-3.24 %</span>)
    """
    return _wrapped(text, r"(\d[\d.,]*(?:-\d[\d.,]*)?(?: %)?)", '<span class="nowrap">{}</span>')


def _code(text: str) -> Markup:
    """Show what stands in backticks, such as a command, as code.

    >>> print(_code("run `visleak <b>`"))
    run <code>visleak &lt;b&gt;</code>
    """
    return _wrapped(text, "`([^`]+)`", "<code>{}</code>")


def _wrapped(text: str, pattern: str, element: str) -> Markup:
    """Escape a text, and put what the group of a pattern matches into an element."""
    parts = re.split(pattern, str(visible(text)))
    return Markup().join(
        Markup(element).format(part) if index % 2 else escape(part)
        for index, part in enumerate(parts)
    )


def _figures(audit: PageSummary, found: Findings) -> dict[str, list[Figure]]:
    limits = audit.audit.thresholds.hard, audit.audit.thresholds.soft
    nearest = "How many images of {} have which similarity to their nearest reference"
    return {
        "degrees": _degrees(audit),
        "grades": list(_grades(audit)),
        "nearest": [
            _figure(
                charts.similarity_histogram(values, *limits, f"nearest {number}"),
                nearest.format(name),
                name,
            )
            for number, (name, values) in enumerate(found.nearest[:MOST_CHARTS])
            if len(values)
        ],
        "classes": _bars(
            [Bar.of_rate(name, "near", rate) for name, rate in found.classes],
            "classes",
            "images of the class that leak, %",
            "Share of the query images of each class that leak",
        ),
        "recordings": [
            _figure(
                distances(each.about, f"recordings {number}"),
                "How many test frames lie at which distance from training frames",
            )
            for number, each in enumerate(audit.recordings[:MOST_CHARTS])
        ],
    }


def _bars(
    bars: Sequence[Bar],
    name: str,
    label: str,
    alt: str,
    *,
    caption: str = "",
    legend: Sequence[str] = (),
) -> list[Figure]:
    if not bars:
        return []
    in_words = "; ".join(f"{bar.name} {bar.note}" for bar in bars)
    files = charts.bar_chart(bars, name, label=label, legend=legend)
    return [_figure(files, f"{alt}: {in_words}", caption)]


def _degrees(audit: PageSummary) -> list[Figure]:
    """Draw a matrix where there are several reference sets, otherwise a bar per query set."""
    rows, columns = audit.reference_sets, audit.query_sets
    if len(rows) > 1:
        panels = [
            charts.Panel(title, _shares(audit, degree), colours)
            for degree, title, colours in (
                ("hard", "Hard leaks, %", "Reds"),
                ("soft", "Soft leaks, %", "Blues"),
                ("hard_or_soft", "Hard or soft, %", "Purples"),
            )
        ]
        alt = "Shares of hard and soft leaks of query sets (columns) by reference set (rows)"
        return [_figure(charts.matrices(rows, columns, panels, "degrees"), alt)]
    measured = [
        (total.query_set, hard, soft, either, None)
        for total in audit.totals
        if (hard := total.rates.get("hard"))
        and (soft := total.rates.get("soft"))
        and (either := total.rates.get("hard_or_soft"))
    ]
    return _bars(
        charts.leak_bars(measured) if audit.leaks else [],
        "degrees",
        "images that leak, %; the line is the 95 % interval of the sum",
        "Hard and soft leaks",
        legend=("hard", "soft"),
    )


def _shares(audit: PageSummary, degree: str) -> Float64:
    """Return the shares of query sets (columns) by reference set (rows)."""
    rows, columns = audit.reference_sets, audit.query_sets
    shares = np.full((len(rows), len(columns)), np.nan)
    for item in audit.leaks:
        if rate := item.rates.get(degree):
            shares[rows.index(item.reference_set), columns.index(item.query_set)] = rate.share
    return shares


def _grades(audit: PageSummary) -> Iterator[Figure]:
    for number, total in enumerate(audit.totals[:MOST_CHARTS]):
        rates, name = audit.known(total.rates), total.query_set
        bars = [Bar.of_rate(grade, grade, rates[grade]) for grade in GRADES[:3] if grade in rates]
        alt = f"Images of {name} by grade of their best pair"
        yield from _bars(bars, f"grades {number}", "images, %", alt, caption=name)


def distances(found: RecordingSummary, name: str) -> dict[str, bytes]:
    """Draw how far in time the test frames of shared recordings lie from training frames."""
    close = sum(bar.up_to is not None and bar.up_to <= found.within for bar in found.distances)
    seconds = found.unit == "ms"
    bars, before = [], -1
    for bar in found.distances:
        bars.append((_span(before, bar.up_to, seconds), bar.queries))
        before = before if bar.up_to is None else bar.up_to
    label = f"{'seconds' if seconds else 'frames'} to the nearest training frame"
    return charts.distance_chart(bars, close, label, name)


def _filters(found: Findings) -> dict[str, list[str]]:
    """Return what the gallery can be filtered by, in the order of the menus."""
    order = [*GRADES, "hard", "soft", "ungraded"]
    listing = found.listing
    kinds = {card.kind for card in found.cards} | set(listing.names["kind"])
    labels = {card.row["query_label"] or "" for card in found.cards}
    between = (*(card.between for card in found.cards), *listing.between)
    return {
        "kind": [kind for kind in order if kind in kinds],
        "between": list(dict.fromkeys(between)),
        "label": sorted((labels | set(listing.names["query_label"])) - {""}),
    }


def _span(before: int, last: int | None, seconds: bool) -> str:
    """Name a bar: a distance, or all up to it, or all beyond the one before.

    >>> _span(2, 5, False), _span(0, 1, False), _span(10_000, None, True), _span(0, 100, True)
    ('3-5', '1', '>10', '≤0.1')
    >>> _span(100, 1_500_000, False), _span(-1, 0, True)
    ('≤1.5M', '0')
    """
    if last is None:
        return f">{_short(before, seconds)}"
    if last == 0 or (last - before == 1 and not seconds):
        return _short(last, seconds)
    whole = f"{before + 1}-{last}"
    return whole if len(whole) < 7 and not seconds else f"≤{_short(last, seconds)}"


def _short(value: float, seconds: bool) -> str:
    """Write a number in few signs, milliseconds as seconds.

    >>> _short(12_345, False), _short(2_000_000_000, False), _short(500, True)
    ('12.3k', '2G', '0.5')
    """
    value = value / 1000 if seconds else value
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if value >= size:
            return f"{value / (1e3 if unit == 'k' else size):.3g}{unit}"
    return f"{value:g}"


# -- the report of an audit with those of its images that can still be read -----------------------


logger: Final = logging.getLogger("visleak.report")

#: Long side of the images handed to a page, pixels: as many as a fine comparison can use.
SIDE: Final = 1024


def reader_for_page(audit: Audit) -> Callable[[str, list[str]], dict[str, Bytes8]] | None:
    """Return the function that reads images for the report; ``None`` if no set has any.

    Where a source is gone the report is still worth having; what is missing is logged.
    """
    without = {each.name for each in audit.summary.sets if not each.has_pixels}
    if len(without) == len(audit.summary.sets):
        return None

    def read(name: str, ids: list[str]) -> dict[str, Bytes8]:
        if name in without:
            return {}
        try:
            found = audit.decoded_images(name, ids, side=SIDE)
        except VisleakError as error:
            logger.warning("no images of %s are shown: %s", name, error)
            return {}
        absent = [id_ for id_ in ids if id_ not in found]
        if absent:
            logger.warning(
                "%s of %s cannot be shown, such as %r: unreadable, or changed since the audit",
                *(counted(len(absent), "image"), name, absent[0]),
            )
        return found

    return read


def save_report(
    audit: Audit, out: str | os.PathLike[str] | None = None, *, private: bool = False
) -> Path:
    """Write the report of an audit.

    Args:
        audit: a finished audit.
        out: the file; by default ``report.html`` of the audit.
        private: put no images into it.

    Returns:
        Where it is.

    Raises:
        VisleakError: a file of the audit is missing, damaged or of a newer visleak.
    """
    images = None if private else reader_for_page(audit)
    path = None if out is None else Path(out)
    return write_report(audit.folder, path, loader=images, private=private)


def renew_report(audit: Audit, *, private: bool, progress: Progress) -> None:
    """Write the report of an audit that was run or reused, unless it is there.

    Without images it is always written: the existing one may have some. So it is if there are
    verdicts: there may be more since.
    """
    there = audit.reused and not private and (audit.folder / REPORT).is_file()
    if there and not read_verdicts(audit.folder):
        return
    progress("writing the report", 0, 0)
    save_report(audit, private=private)
    progress("writing the report", 1, 1)


def show_in_report(
    audit: Audit, name: str, content: Mapping[str, object], *, private: bool
) -> None:
    """Write a section, and the report with it; a report without images stays so.

    An audit that may only be read is another's: the result is complete without its report.
    """
    try:
        write_json(audit.folder / SECTIONS / name, content)
        save_report(audit, private=private or is_private(audit.folder))
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EROFS):
            raise
        logger.warning("the report of %s does not show it: %s", audit.folder, error.strerror)


# -- sections of other steps -----------------------------------------------------------------------


#: Known sections in the order of the page; others follow by name.
ORDER: Final = ("purge", "split", "replace", "impact", "robustness", "dlede", "memorization")
#: Most rows of a section's table on the page.
MOST_ROWS: Final = 200
#: Characters of a drawing; the page has to stay light.
LONGEST: Final = 2_000_000
#: Most rows of a table that is shown whole.
WHOLE: Final = 25


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: texts only; ``left_out`` rows are not shown."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0

    @property
    def tall(self) -> bool:
        """Whether the table is a window of its own to scroll in; a short one is shown whole."""
        return len(self.rows) > WHOLE


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page; ``trouble`` lists what could not be shown.

    ``headline`` is its line at the top of the page, if it has one.
    """

    anchor: str
    title: str
    body: Markup
    headline: str = ""
    tables: tuple[Grid, ...] = ()
    drawings: tuple[Figure, ...] = ()
    trouble: tuple[str, ...] = ()


def load(
    folder: Path, groups: Document | None = None, overlap: Document | None = None
) -> tuple[Section, ...]:
    """Read the sections of an audit folder; a damaged one becomes a section that says so.

    Overlaps and groups that were found unasked come first: they are part of the audit, so no file
    holds them.
    """
    found: dict[str, Section] = {}
    for made, anchor in ((groups, "section-found-groups"), (overlap, "section-overlap")):
        if made is not None:
            found[anchor] = _made(section(made), anchor, made.title)
    places = {name: place for place, name in enumerate(ORDER)}
    files = (folder / SECTIONS).glob("*.json")
    for path in sorted(files, key=lambda path: (places.get(path.stem, len(ORDER)), path.stem)):
        anchor = "section-" + (re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-") or "x")
        while anchor in found:
            anchor += "-again"
        found[anchor] = _section(path, anchor)
    return tuple(found.values())


def _unasked(
    folder: Path, content: AuditSummary, loader: ImageLoader | None
) -> tuple[Document | None, Document | None]:
    """Return what is known of groups that were found, and of overlaps, where there are any."""
    found = content.grouping
    groups = None
    if found is not None and found.believed:
        groups = document(found, str(folder), repairs=can_be_repaired(content))
    return groups, scenes.document(folder, content, loader)


def _section(path: Path, anchor: str) -> Section:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError("it is not an object")
    except (OSError, ValueError, RecursionError) as error:
        trouble = (
            f"sections/{path.name} cannot be shown ({error}); run the step that wrote it again."
        )
        return Section(anchor, path.stem, Markup(""), trouble=(trouble,))
    return _made(value, anchor, path.stem)


def _made(value: Mapping[str, object], anchor: str, name: str) -> Section:
    """Return a section from its content; ``name`` is its title where it has none."""
    trouble: list[str] = []
    tables, drawings = [], []
    for number, table in enumerate(_listed(value.get("tables")), 1):
        about = table if isinstance(table, dict) else {}
        rows = about.get("rows")
        if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
            trouble.append(f"Table {number} cannot be shown: it has no list of rows.")
            continue
        caption, header = str(about.get("caption") or ""), _listed(about.get("header"))
        shown = tuple(tuple(map(_cell, row)) for row in rows[:MOST_ROWS])
        tables.append(Grid(caption, tuple(map(_cell, header)), shown, len(rows) - len(shown)))
    for number, item in enumerate(_listed(value.get("svg")), 1):
        drawing = item if isinstance(item, dict) else {"svg": item}
        text = str(drawing.get("svg") or "")
        if len(text) > LONGEST:
            trouble.append(
                f"Drawing {number} cannot be shown: it has {len(text):,} characters,"
                f" {LONGEST:,} are allowed."
            )
            continue
        caption = str(drawing.get("title") or "")
        svg = {"svg": text.encode("utf-8", "backslashreplace")}
        drawings.append(_figure(svg, caption, caption))
    return Section(
        anchor=anchor,
        title=str(value.get("title") or name),
        body=rendered(str(value.get("markdown") or "")),
        headline=str(value.get("headline") or ""),
        tables=tuple(tables),
        drawings=tuple(drawings),
        trouble=tuple(trouble),
    )


def rendered(text: str) -> Markup:
    r"""Return Markdown as HTML: headings from the third level, links to ``https:`` addresses only.

    Raw HTML and images remain visible as the text they are.

    >>> print(rendered("# Cost\nIt is **2 %** of `a<b`."), end="")
    <h3>Cost</h3>
    <p>It is <strong>2 %</strong> of <code>a&lt;b</code>.</p>
    """
    parser = _parser()
    tokens = parser.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1:]) + 2)}"
        for inner in token.children or ():
            if inner.type == "link_open":
                inner.attrSet("rel", "noopener noreferrer")
    return Markup(parser.renderer.render(tokens, parser.options, {}))


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).disable(
        ["image", "html_block", "html_inline"]
    )
    parser.validateLink = lambda url: url.startswith("https://")  # type: ignore[method-assign]
    return parser


def _listed(value: object) -> list[object]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _cell(value: object) -> str:
    """Write a cell: numbers short, nothing as nothing.

    >>> [_cell(value) for value in (0.12345678, 1234567, None, True, "<b>")]
    ['0.1235', '1,234,567', '', 'yes', '<b>']
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
