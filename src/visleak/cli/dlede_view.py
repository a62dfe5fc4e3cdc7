"""What ``visleak dlede`` prints: the line to repeat, the curve, the verdicts, what was found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from visleak.cli.edges import plain
from visleak.quantities import duration

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from visleak.cli.terminal import Either
    from visleak.dlede.forecasting import Forecast
    from visleak.dlede.results import DLeDe
    from visleak.markup import Grid


def shown(result: DLeDe) -> Iterator[RenderableType | Either]:
    """Yield the parts of the summary."""
    from rich.text import Text

    from visleak.cli.terminal import Either
    from visleak.dlede.headline import headline
    from visleak.dlede.markup import about, cautions, findings, reading
    from visleak.dlede.tables import curve, failures, verdicts

    yield Text(plain(headline(result)), "bold")
    yield Text(plain(about(result)), "dim")
    if result.proof:
        yield Text()
        for line in (*findings(result), *reading(result)):
            yield Text(plain(line), "dim")
        return
    for grid in curve(result):
        yield from _titled(_means(grid))
    own = _own(verdicts(result), result)
    yield Text()
    yield Text(plain(own.title), "bold")
    yield Either(_table(own), _table(_short(own, result)))
    for grid in failures(result):
        yield from _titled(grid)
    yield Text()
    by = ", ".join(f"by {each.rule} {_word(each.verdict, each.on_means)}" for each in result.others)
    for line in cautions(result):
        yield Text(plain(line), "yellow")
    for line in (by, *findings(result), *result.notes):
        if line:
            yield Text(plain(line), "dim")


def _word(verdict: str, on_means: str) -> str:
    return verdict if verdict == on_means else f"{verdict} ({on_means} on the means)"


def _titled(grid: Grid) -> Iterator[RenderableType]:
    from rich.text import Text

    yield Text()
    yield Text(plain(grid.title), "bold")
    yield _table(grid)


def _table(grid: Grid) -> Table:
    from visleak.cli.terminal import plain_table

    table = plain_table(*map(plain, grid.header), numbers=len(grid.header) - grid.texts)
    for row in grid.rows:
        table.add_row(*map(plain, row))
    return table


def _means(grid: Grid) -> Grid:
    """Return the curve without deviations: a terminal has no room for them, files have them."""
    from dataclasses import replace

    rows = [[cell.partition(" ± ")[0] for cell in row] for row in grid.rows]
    return replace(grid, title=grid.title.replace(", mean ± standard deviation", ""), rows=rows)


def _own(grid: Grid, result: DLeDe) -> Grid:
    """Return the verdicts by the rule that was asked for, without the columns that say so."""
    from dataclasses import replace

    rule = result.judgement.rule
    rows = [[*row[1:2], *row[3:]] for row in grid.rows if row[0] == rule]
    compared = grid.rows[0][2]
    header = [*grid.header[1:2], f"{compared} %", *grid.header[4:]]
    return replace(grid, title=f"{grid.title}; {rule}", header=header, rows=rows, texts=1)


#: The columns of the verdicts on a narrow terminal: their places in the table of one rule.
_NARROW: Final = {0: "metric", 1: "R %", 2: "95 % CI", 4: "leaks", 5: "clean", 6: "verdict"}

#: The same where all that is known are means.
_NARROW_MEANS: Final = {0: "metric", 1: "R %", 3: "on the means", 6: "verdict"}


def _short(grid: Grid, result: DLeDe) -> Grid:
    """Return the verdicts of one rule for a terminal of 80 columns."""
    from dataclasses import replace

    from visleak.dlede.headline import is_single

    kept = _NARROW_MEANS if is_single(result.judgement) else _NARROW
    rows = [[row[place] for place in kept] for row in grid.rows]
    return replace(grid, header=list(kept.values()), rows=rows)


def forecast_line(found: Forecast) -> str:
    """Return what the trainings cost as one line."""
    each = (
        f"{found.trainings:,} training{'s' * (found.trainings != 1)} on {found.images:,} images,"
        f" each tested on {found.tested:,}"
    )
    parts = [each]
    if found.done:
        parts.append(f"{found.done:,} {'is' if found.done == 1 else 'are'} there already")
    if found.seconds is None or found.seconds_a_training is None:
        parts.append("how long one takes is known when the first has ended")
    elif found.done < found.trainings:
        known = "as those that are there" if found.measured else "by a first estimate"
        at_once = f", {found.jobs:,} at a time" if found.jobs > 1 else ""
        parts.append(
            f"{'' if found.seconds < 1.0 else 'about '}{_short_time(found.seconds)} left"
            f" ({_short_time(found.seconds_a_training)} each {known}{at_once})"
        )
    return "; ".join(parts)


def _short_time(seconds: float) -> str:
    return "under 1 s" if seconds < 1.0 else duration(seconds)
