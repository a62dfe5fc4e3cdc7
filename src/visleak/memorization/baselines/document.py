"""A comparison of searches as a document and as files."""

from __future__ import annotations

import math
from typing import Any, Final

import pyarrow as pa

from visleak.documents import as_plain
from visleak.memorization.baselines.figures import discoveries
from visleak.memorization.baselines.records import (
    Comparison,
    Mean,
    Row,
    budget_of,
    name_of,
    rows_of,
)
from visleak.memorization.search.task import GRADIENT_CALLS
from visleak.reporting import Column, Document, Figure, Table, latex, markdown
from visleak.storage import File, RunFolder

_TEXT: Final = pa.string()
_WHOLE: Final = pa.int64()
_REAL: Final = pa.float64()
_FLAG: Final = pa.bool_()


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


def mean(value: Mean) -> str:
    """Return a mean with its interval, where there is one.

    >>> mean(Mean(2.0, math.nan, math.nan)), mean(Mean(2.0, 0.7, 3.3))
    ('2', '2 (0.7 to 3.3)')
    """
    if math.isnan(value.value):
        return "-"
    if math.isnan(value.low):
        return f"{value.value:.3g}"
    return f"{value.value:.3g} ({value.low:.3g} to {value.high:.3g})"


def _cost(value: float) -> str:
    """Return a cost; a dash where nothing was found."""
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
        seen: set[int] = set()
        for copy in each.verified.replayed:
            if copy.number not in seen:
                seen.add(copy.number)
                rows.append((name_of(each.method), str(each.seed), copy.reference, copy.prompt))
    headings = ("method", "seed", "memorized image", "prompt")
    columns = tuple(Column(heading=heading) for heading in headings)
    return Table("Memorized images found", columns, rows, file="candidates.csv")


def candidates(result: Comparison) -> Table:
    """Return every candidate; other commands read the column ``prompt``."""
    schema = {
        "prompt": _TEXT, "method": _TEXT, "seed": _WHOLE, "chain": _WHOLE, "step": _WHOLE,
        "d_found": _REAL, "d_fresh": _REAL, "clustered": _FLAG, "memorized": _FLAG,
        "reference": _TEXT,
    }  # fmt: skip
    rows = []
    for each in result.attempts:
        clustered = set(each.verified.clustered)
        copies = {copy.prompt: copy for copy in reversed(each.verified.replayed)}
        for candidate, fresh in zip(each.candidates, each.checked, strict=True):
            copy = copies.get(candidate.prompt)
            rows.append(
                (
                    *(candidate.prompt, each.method, each.seed, candidate.chain, candidate.step),
                    *(candidate.score, fresh, candidate.prompt in clustered, copy is not None),
                    None if copy is None else copy.reference,
                )
            )
    columns = tuple(Column(name, kind) for name, kind in schema.items())
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


def content(run: RunFolder, result: Comparison) -> dict[str, Any]:
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
