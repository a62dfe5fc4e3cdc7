"""Commands that fix what an audit found: ``purge``, ``split``, ``replace``."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import typer

from visleak.cli import edges
from visleak.cli.command import Call, Reply, whole
from visleak.errors import UsageError
from visleak.options import AUDIT_DIR, OUTPUT, SETS, Execution, Printed, argument, option, output
from visleak.remedy.settings import (
    NEW,
    REPAIR,
    PurgeSettings,
    RepairSettings,
    ReplaceSettings,
    SplitSettings,
)

Chosen = TypeVar("Chosen", "Purge", "Split")
Result = TypeVar("Result")


def confirmed(run: Callable[[Chosen], Result], options: Chosen) -> Result:
    """Run a remedy; at a terminal, ask whether groups that were found are to be used."""
    from visleak.remedy.graph import UnconfirmedGroups

    try:
        return run(options)
    except UnconfirmedGroups as error:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        for line in error.statements:
            edges.note(line)
        if not typer.confirm("Use these groups?", err=True):
            raise
        return run(dataclasses.replace(options, yes=True))


@dataclass(frozen=True)
class Applied(Printed):
    """Whether a plan is carried out."""

    apply: bool = option(False, "Write the result. Without it: dry run.", panel=OUTPUT)


@dataclass(frozen=True)
class Purge(PurgeSettings, Applied):
    """Options of ``purge``."""

    folder: Path | None = argument(None, "An audit folder.", metavar=AUDIT_DIR)
    out: Path | None = output(None, "Folder of the clean data.")
    undo: Path | None = option(
        None,
        "Remove what a purge, split or replace wrote: its manifest.json, or its folder. Files that"
        " were changed since are kept.",
        metavar="MANIFEST",
        panel=OUTPUT,
    )


def purge(options: Purge, call: Call) -> Reply:
    """Plan a data set without the images that leak, and write it with --apply.

    The sets themselves are never changed.
    """
    from visleak.auditing import Audit
    from visleak.remedy import purge as clean
    from visleak.remedy import undo
    from visleak.remedy.documents import purge_document, undo_document

    if options.undo is not None:
        call.only_with("--undo", ("undo", "apply", "json"))
        undone = undo(options.undo, apply=options.apply, progress=call.progress)
        return Reply(undo_document(undone), undone.as_dict())
    if options.folder is None or "remove_from" not in call.given:
        what = "AUDIT_DIR" if options.folder is None else "--remove-from test or train"
        raise UsageError(f"purge needs {what}, or --undo MANIFEST; see visleak purge --help")
    if options.apply and options.out is None:
        raise UsageError("--apply needs a folder to write: -o DIR")
    audit = Audit(options.folder)
    out = options.out if options.apply else None
    result = confirmed(lambda own: clean(audit, own, out=out, progress=call.progress), options)
    return Reply(whole(purge_document(result, audit.summary, options.out)), result.as_dict())


@dataclass(frozen=True)
class Split(SplitSettings, RepairSettings, Applied):
    """Options of ``split``."""

    source: str | None = argument(
        None,
        "The set to split, as for audit: a folder, list, archive, table, cifar:..",
        metavar="[NAME=]SOURCE",
    )
    ratios: str | None = option(
        None,
        "Names and shares of the parts, such as train=0.8,test=0.2 or train=80%,test=20%.",
        metavar="NAME=SHARE,..",
        panel=NEW,
    )
    audit: Path | None = option(
        None,
        "A finished audit of this set with itself (audit --set SOURCE), with the verdicts of a"
        " review. Default: the set is audited into DIR/audit.",
        metavar=AUDIT_DIR,
        panel=NEW,
    )
    repair: Path | None = option(
        None,
        "An audit of an existing split: move as few images as possible so that nothing leaks.",
        metavar=AUDIT_DIR,
        panel=REPAIR,
    )
    out: Path = output(
        Path("visleak-split"),
        "Folder of the plan; with --apply also of the parts (data) and of the audit that found"
        " nothing between them (proof).",
    )


#: Options of ``split`` that a repair has as well.
OF_REPAIRS = (
    *("repair", "keep_sizes", "group", "yes", "grade", "seed", "out", "apply", "format", "json"),
    *("workers", "cache"),
)


def split(options: Split, execution: Execution, call: Call) -> Reply:
    """Create a leak-free split, or repair one, keeping duplicates and groups together.

    The set itself is never changed.
    """
    from visleak.remedy import repair
    from visleak.remedy import split as divide
    from visleak.remedy.documents import split_document
    from visleak.remedy.plan import UnbalancedSplit

    shared: dict[str, Any] = {
        "out": options.out,
        "apply": options.apply,
        "progress": call.progress,
        **execution.chosen(),
    }
    if options.repair is not None:
        call.only_with("--repair", OF_REPAIRS)
        audited = options.repair
        content = confirmed(lambda own: repair(audited, own, **shared), options).content
        return Reply(whole(split_document(content, options.out)), content)
    if options.source is None or options.ratios is None:
        raise UsageError(
            "split needs a set and --ratios, as in: visleak split photos/ --ratios"
            " train=0.8,test=0.2; or --repair with an audit of an existing split"
        )
    if options.keep_sizes:
        raise UsageError("--keep-sizes needs --repair; a new split has the sizes of --ratios")
    try:
        source, ratios = options.source, options.ratios
        found = confirmed(
            lambda own: divide(source, ratios, own, audited=own.audit, **shared), options
        )
    except UnbalancedSplit as error:
        shown = split_document(error.content, options.out)
        return Reply(whole(shown), error.content, warnings=[str(error)], code=1)
    return Reply(whole(split_document(found.content, options.out)), found.content)


@dataclass(frozen=True)
class Replace(ReplaceSettings, Applied):
    """Options of ``replace``."""

    folder: Path = argument(..., "An audit folder.", metavar=AUDIT_DIR)
    pool: str = option(
        ...,
        "Source of the replacements: images of the same kind that are in no set of the audit, as a"
        " folder, Parquet or any other source of audit.",
        metavar="SOURCE",
        panel=SETS,
    )
    out: Path | None = output(None, "Folder of the test set.")


def replace(options: Replace, execution: Execution, call: Call) -> Reply:
    """Replace the duplicates of a test set by new images of the same class.

    Without --apply nothing is written: reports how many duplicates there are, and how many have
    a replacement. The other test images, their order and their ids stay as they are.
    """
    from visleak.remedy import replace as exchange
    from visleak.remedy.documents import replace_document

    plan = exchange(
        options.folder,
        options.pool,
        options,
        out=options.out,
        apply=options.apply,
        **execution.chosen(),
        progress=call.progress,
    )
    return Reply(whole(replace_document(plan, options.out)), plan.as_dict())
