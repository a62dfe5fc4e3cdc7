"""``visleak verdicts``: what people said of an audit, to and from files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from visleak.cli import edges, options

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from visleak.counts import Review
    from visleak.verdicts.exchange import Imported

#: Most disputed pairs that the terminal lists.
MOST_DISPUTES: Final = 20


def verdicts(
    folder: options.AuditFolder,
    action: Annotated[
        str | None,
        typer.Argument(
            metavar="[import|export]", show_default=False, help="Without it: who judged what."
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            show_default=False,
            help="A list TestID,TrainID,Distance,Judgment (0 exact, 1 near, 2 similar, 3"
            " different), or verdicts.csv of another audit folder.",
        ),
    ] = None,
    reviewer: Annotated[
        str | None,
        typer.Option(
            "--reviewer",
            metavar="NAME",
            help="Import: who judged the list; by default its file name without suffix. Export:"
            " only what this one says.",
        ),
    ] = None,
    within: Annotated[
        bool,
        typer.Option("--within", help="Import: TrainID is an id of the test set too."),
    ] = False,
    test: Annotated[
        str | None,
        typer.Option("--test", metavar="NAME", help="The test set, where there are several."),
    ] = None,
    train: Annotated[
        str | None,
        typer.Option("--train", metavar="NAME", help="The training set, where there are several."),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Import: refuse ids that the audit does not have."),
    ] = False,
    as_: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="cifair|csv",
            help="Export: a list of the pairs that people agree on, with those within the test"
            " set in a second file; or every verdict. By default cifair.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    force: options.ForceFile = False,
) -> None:
    """Show, import or export the verdicts of people on an audit's pairs."""
    from visleak.storage import read_summary, refuse_sets
    from visleak.verdicts.exchange import export_verdicts, import_verdicts

    _refuse(
        action,
        file,
        reviewer=reviewer,
        within=within,
        test=test,
        train=train,
        strict=strict,
        force=force,
        **{"as": as_},
    )
    if action is None or file is None:
        _show(folder, as_json)
    elif action == "import":
        found = import_verdicts(
            folder, file, reviewer=reviewer, within=within, test=test, train=train, strict=strict
        )
        edges.say(_json(asdict(found)) if as_json else "".join(f"{x}\n" for x in _told(found)))
    else:
        refuse_sets(read_summary(folder), file)
        done = export_verdicts(
            folder,
            file,
            as_=as_ or "cifair",
            reviewer=reviewer,
            test=test,
            train=train,
            force=force,
        )
        if as_json:
            about = asdict(done) | {"files": [str(path) for path in done.files]}
            edges.say(_json(about))
            return
        for path in done.files:
            edges.say(f"{edges.plain(str(path))}\n")
        if done.disputed:
            edges.note(f"disputed pairs, left out: {done.disputed:,}")


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _refuse(action: str | None, file: Path | None, **given: object) -> None:
    """Refuse a command line whose parts do not fit.

    Raises:
        UsageError: they do not.
    """
    from visleak.errors import UsageError

    if action not in (None, "import", "export"):
        raise UsageError(f"what to do with verdicts must be import or export; got {action!r}")
    if action is not None and file is None:
        raise UsageError(f"name the file to {action}: visleak verdicts A {action} FILE")
    used = {
        None: (),
        "import": ("reviewer", "within", "test", "train", "strict"),
        "export": ("reviewer", "test", "train", "as", "force"),
    }[action]
    wrong = [name for name, value in given.items() if value not in (None, False)]
    wrong = [f"--{name}" for name in wrong if name not in used]
    if wrong:
        what = f"with {action}" if action else "without import or export"
        raise UsageError(f"{', '.join(wrong)} means nothing {what}; leave it out")


def _told(found: Imported) -> Iterator[str]:
    """Yield what became of an import, a line each."""
    from visleak.verdicts.exchange import named

    names = ", ".join(map(edges.plain, found.reviewers))
    said = [f"{found.added:,} {'verdict' if found.added == 1 else 'verdicts'} of {names}"]
    said += [f"{found.known:,} stood already"] if found.known else []
    yield f"imported {', '.join(said)}" if found.rows else "the file has no rows"
    if found.repeated:
        yield f"rows that judge a pair again, of which the last counts: {found.repeated:,}"
    if found.unknown:
        yield (
            f"rows about images that the audit does not have: {found.unknown:,}"
            f" ({edges.plain(named(found.missing))})"
        )
    if found.ignored:
        yield f"not looked at: {', '.join(map(edges.plain, found.ignored))}"


def _show(folder: Path, as_json: bool) -> None:
    from rich.text import Text

    from visleak.cli.terminal import rendered
    from visleak.counts import review_of
    from visleak.storage import read_summary
    from visleak.verdicts import read_verdicts

    read_summary(folder)
    review = review_of(read_verdicts(folder))
    if as_json:
        edges.say(_json(review.as_dict()))
    elif review.agreement.judged:
        edges.say(rendered([*spoken(review), *_disputes(review)]))
    else:
        edges.say(rendered([Text("nobody has judged a pair yet; see visleak review --help")]))


def spoken(review: Review) -> Iterator[RenderableType]:
    """Yield who judged what, and how far they agree."""
    from rich.text import Text

    agreed = review.agreement
    yield Text(
        f"{agreed.judged:,} {'pair' if agreed.judged == 1 else 'pairs'} judged,"
        f" {agreed.disputed:,} disputed",
        "bold",
    )
    yield Text()
    yield _reviewers(review)
    yield Text()
    if agreed.kappas:
        yield _kappas(review)
        yield Text()


def _reviewers(review: Review) -> Table:
    from visleak.cli.terminal import plain_table

    grades = list(review.settled)
    table = plain_table("reviewer", *grades, "pairs", numbers=len(grades) + 1)
    for name, counts in review.judgments.items():
        numbers = [*(counts[grade] for grade in grades), sum(counts.values())]
        table.add_row(edges.plain(name), *(f"{number:,}" for number in numbers))
    table.add_section()
    numbers = [*review.settled.values(), sum(review.settled.values())]
    table.add_row("settled", *(f"{number:,}" for number in numbers), style="bold")
    return table


def _kappas(review: Review) -> Table:
    import math

    from visleak.cli.terminal import plain_table

    table = plain_table("agreement on near-or-not", "pairs", "agreed", "kappa", numbers=3)
    for each in review.agreement.kappas:
        kappa = "-" if math.isnan(each.kappa) else f"{each.kappa:.2f}"
        names = " and ".join(map(edges.plain, each.reviewers))
        table.add_row(names, f"{each.pairs:,}", f"{each.agreed:,}", kappa)
    return table


def _disputes(review: Review) -> Iterator[RenderableType]:
    from rich.text import Text

    from visleak.cli.terminal import plain_table

    if not review.disputes:
        return
    table = plain_table("disputed", "and", "what they say", numbers=0)
    for each in review.disputes[:MOST_DISPUTES]:
        said = ", ".join(f"{edges.plain(name)}: {grade}" for name, grade in each.said.items())
        left = f"{edges.plain(each.query_set)}: {edges.plain(each.query)}"
        table.add_row(
            left, f"{edges.plain(each.reference_set)}: {edges.plain(each.reference)}", said
        )
    yield table
    if len(review.disputes) > MOST_DISPUTES:
        yield Text(f"and {len(review.disputes) - MOST_DISPUTES:,} more; --json has all", "dim")
