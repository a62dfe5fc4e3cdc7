"""What ``visleak impact`` prints: sentences, the papers' tables, notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from visleak.cli.edges import plain

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from visleak.impact import Check, Impact
    from visleak.impact.checking import CheckedFile
    from visleak.markup import Grid

#: Names of models are cut to this many characters, so that three fit side by side; files have
#: them whole.
LONGEST: Final = 12

#: Columns that only files have: a terminal has no room for them.
_LEFT_OUT: Final = (
    "leaked",
    "leaked harder than %",
    "others %",
    "twins %",
    "others",
    "metric",
    "images",
    "behind %",
)

#: Leaks that a screen has room for where there are several scores: those of the papers' tables
#: (hard, and hard or soft, which Ramos et al. call soft), and cumulative grades.
_CUMULATIVE: Final = ("hard", "hard or soft", "near or exact", "similar or closer")

#: What is said of a file whose order cannot be checked by labels.
_UNCHECKED: Final = (
    "no predicted classes or labels to compare, so ids and order were checked against other models"
    " only"
)

#: How tables mark a metric of which less is better.
_LESS: Final = " (less is better)"


def shown(result: Impact) -> Iterator[RenderableType]:
    """Yield the parts of the summary."""
    from rich.text import Text

    from visleak.impact.contrasts import comparisons, fair, flips, gaps, steady, twinned
    from visleak.impact.headline import headlines
    from visleak.impact.markup import about
    from visleak.impact.tables import absent, layouts

    for line in headlines(result):
        yield Text(plain(line), "bold")
    yield Text(plain(about(result)), "dim")
    whole, result = result, _short(result)
    for grid in layouts(result):
        yield from _titled(*_by_leak(grid))
    for grid in comparisons(result):
        yield from _titled(grid.title, _narrow(grid))
    for grid in twinned(result):
        yield from _titled(grid.title, _narrow(grid))
    for grid in fair(result):
        # inflation is the gain of what does not leak, above, and a note counts lost classes
        at = grid.header.index("inflation")
        cut = replace(grid, header=grid.header[:at], rows=[row[:at] for row in grid.rows])
        yield from _titled(f"{grid.title}; classes weighted as in the whole", _narrow(cut))
    for grid in (*flips(result), *gaps(result)):
        yield from _titled(grid.title, _narrow(grid))
    yield Text()
    left = [leak for leak, images in whole.leaks.items() if images and leak not in result.leaks]
    more = f"in the files only: {', '.join(left)}" if left else ""
    for line in (*result.notes, more, absent(whole), steady(whole)):
        if line:
            yield Text(plain(line), "dim")


def shown_together(results: Mapping[str, Impact]) -> Iterator[RenderableType]:
    """Yield the parts of the summary of several audits: sentences, and tables side by side."""
    from rich.text import Text

    from visleak.impact.together import CORRECTED, together_grids, together_headlines

    for line in together_headlines(results):
        yield Text(plain(line), "bold")
    short = {name: _short(result, always=True) for name, result in results.items()}
    for grid in together_grids(short):
        if grid.texts == 2:
            kept = [at for at, name in enumerate(grid.header) if name != "gain"]
            cut = replace(
                grid,
                header=[grid.header[at] for at in kept],
                rows=[[row[at] for at in kept] for row in grid.rows],
            )
            yield from _titled(*_by_leak(cut, 2 * LONGEST))
        else:
            yield from _titled(grid.title, _narrow(grid))
    yield Text()
    for name, result in results.items():
        for note in result.notes:
            yield Text(plain(f"{name}: {note}"), "dim")
    yield Text(CORRECTED, "dim")


def _short(result: Impact, *, always: bool = False) -> Impact:
    """Return a result with the leaks that a screen has room for, where there are several scores.

    Those are the rows of the papers' tables, the cumulative ones, and the user's own.
    """
    from visleak.impact.headline import principal
    from visleak.impact.leaking import LEAKS

    if len(result.effects) == 1 and not always:
        return result
    known = {name for name, *_ in LEAKS}
    kept = {principal(result), *_CUMULATIVE, *(leak for leak in result.leaks if leak not in known)}
    effects = [
        replace(
            effect,
            rows=tuple(row for row in effect.rows if row.leak in ("", *kept)),
            comparisons=tuple(each for each in effect.comparisons if each.leak in kept),
        )
        for effect in result.effects
    ]
    return replace(
        result,
        leaks={leak: images for leak, images in result.leaks.items() if leak in kept},
        effects=tuple(effects),
        flips=tuple(flip for flip in result.flips if flip.leak in kept),
    )


def _titled(title: str, table: Table) -> Iterator[RenderableType]:
    from rich.text import Text

    yield Text()
    yield Text(plain(title), "bold")
    yield table


def _by_leak(grid: Grid, longest: int = LONGEST) -> tuple[str, Table]:
    """Return title and table of parts, those of a leak beneath its name, units in the title."""
    from visleak.cli.terminal import plain_table

    _, _, *names = grid.header
    own = [name for name in names if name not in ("images", "gain", "95 % CI")]
    shares = all(name.endswith(" %") for name in own)
    names = [name.removesuffix(" %") if shares else name for name in names]
    # whole, the words would be cut out of the middle of the name
    names = [name.replace(_LESS, " ↓") for name in names]
    less = any(_LESS in name for name in own)
    cut = _cut(names, longest)
    table = plain_table("images of", *(cut[name] for name in names), numbers=len(names))
    above = ""
    for subset, leak, *cells in grid.rows:
        if leak != above:
            table.add_section()
            table.add_row(plain(leak), style="bold")
            above = leak
        table.add_row(f"  {plain(subset)}" if leak else plain(subset), *map(plain, cells))
    return grid.title + ", %" * shares + "; ↓ less is better" * less, table


def _narrow(grid: Grid) -> Table:
    """Return another table without the columns that a terminal has no room for."""
    from visleak.cli.terminal import plain_table

    kept = [at for at, name in enumerate(grid.header) if name not in _LEFT_OUT]
    texts = sum(at < grid.texts for at in kept)
    table = plain_table(*(grid.header[at] for at in kept), numbers=len(kept) - texts)
    models = [at for at in kept if grid.header[at] in ("model", "first", "second")]
    cut = _cut([row[at] for row in grid.rows for at in models])
    for row in grid.rows:
        table.add_row(*(cut[row[at]] if at in models else plain(row[at]) for at in kept))
    return table


def _cut(names: Sequence[str], longest: int = LONGEST) -> dict[str, str]:
    """Return each name as a terminal has room for it: ends tell variants apart, middles do not.

    Names that would look alike stay whole.

    >>> list(_cut(["ViT-B-32-laion2b", "gain", "vgg11-v1-seed-1", "vgg11-v2-seed-1"]).values())
    ['ViT-B…ion2b', 'gain', 'vgg11-v1-seed-1', 'vgg11-v2-seed-1']
    """
    half = (longest - 1) // 2
    cut = {name: plain(name) for name in names}
    short = {
        name: text if len(text) <= longest else f"{text[:half]}…{text[len(text) - half :]}"
        for name, text in cut.items()
    }
    counts = Counter(short.values())
    return {name: short[name] if counts[short[name]] == 1 else cut[name] for name in cut}


def checked_lines(found: Check) -> Iterator[str]:
    """Yield what ``--check`` prints, a line each: doubts first, then file by file."""
    for doubt in found.doubts:
        yield plain(f"warning: {doubt}") + "\n"
    if not found.doubts:
        what = "file fits" if len(found.files) == 1 else f"{len(found.files):,} files fit"
        yield plain(f"the {what} {found.test_set}, as far as can be checked") + "\n"
    for file in found.files:
        yield plain(_checked_file(file, found.images)) + "\n"
        for note in file.notes:
            yield plain(f"  {note}") + "\n"


def _checked_file(file: CheckedFile, images: int) -> str:
    from visleak.impact.numbers import score

    where = " (fair test set)" if file.fair else ""
    scores = ", ".join(
        f"{name} {score(value, percent=False)}" for name, value in file.scores.items()
    )
    compared = " and ".join(file.checked)
    how = f"{compared} compared with the audited labels" if compared else _UNCHECKED
    return f"{file.model}{where}: {file.answered:,} of {images:,} images answered; {scores}; {how}"


def checked_content(found: Mapping[str, Check]) -> str:
    """Return what ``--check --json`` prints: of several audits by their names."""
    import json
    from dataclasses import asdict

    every = {name: asdict(each) for name, each in found.items()}
    return json.dumps(every.get("", every), indent=1, ensure_ascii=False) + "\n"
