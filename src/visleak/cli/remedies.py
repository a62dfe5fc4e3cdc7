"""Commands that fix what an audit found: ``purge``, ``split``, ``replace``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visleak.cli.command import Call, Reply, whole
from visleak.errors import UsageError
from visleak.options import (
    AUDIT_DIR,
    METHOD,
    OUTPUT,
    SETS,
    Execution,
    Options,
    Printed,
    argument,
    group_column,
    id_column,
    label_column,
    option,
    share,
)

FORMATS = ("manifest", "link", "copy")
NEW = "A new split"
REPAIR = "Repair a split"


def _grade(default: str | None, help: str) -> Any:
    return option(default, help, choices=("exact", "near", "similar"), panel=METHOD)


def _format(default: str) -> Any:
    return option(
        default,
        "Lists of what is where; or the data set in its own layout, of symbolic links or of"
        " copies.",
        choices=FORMATS,
        panel=OUTPUT,
    )


def _set_name(help: str) -> Any:
    return option(None, help, "--set", metavar="NAME", panel=SETS)


@dataclass(frozen=True)
class Disputed(Options):
    """What is done with pairs on which reviewers disagree."""

    include_disputed: bool = option(
        False,
        "Count pairs on which reviewers disagree, by their automatic grade.",
        panel=METHOD,
    )


@dataclass(frozen=True)
class Applied(Printed):
    """Whether a plan is carried out."""

    apply: bool = option(False, "Write the result. Without it: dry run.", panel=OUTPUT)


@dataclass(frozen=True)
class Purge(Disputed, Applied):
    """Options of ``purge``."""

    folder: Path | None = argument(None, "An audit folder.", metavar=AUDIT_DIR)
    remove_from: str | None = option(
        None,
        "Side that images are removed from: the test image or the training image of a leaking"
        " pair.",
        choices=("test", "train"),
        panel=METHOD,
    )
    grade: str | None = _grade(
        None,
        "Weakest grade of the pairs that count: near (the default) means near and exact. ciFAIR"
        " (Barz & Denzler 2020) counts similar and stronger: --grade similar.",
    )
    degree: str | None = option(
        None,
        "Weakest degree of the pairs that count, if there are no grades: soft means soft and hard.",
        choices=("hard", "soft"),
        panel=METHOD,
    )
    set_name: str | None = _set_name("The set to purge, if there are several.")
    test_duplicates: str = option(
        "keep",
        "Test images that are duplicates of each other: keep all, or drop all but the first of"
        " each group.",
        choices=("keep", "drop"),
        panel=METHOD,
    )
    out: Path | None = option(
        None, "Folder of the clean data.", "--output -o", metavar="DIR", panel=OUTPUT
    )
    format: str = _format("manifest")
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
    if options.folder is None or options.remove_from is None:
        what = "AUDIT_DIR" if options.folder is None else "--remove-from test or train"
        raise UsageError(f"purge needs {what}, or --undo MANIFEST; see visleak purge --help")
    if options.apply and options.out is None:
        raise UsageError("--apply needs a folder to write: -o DIR")
    if options.grade is not None and options.degree is not None:
        raise UsageError("give either --grade or --degree")
    audit = Audit(options.folder)
    result = clean(
        audit,
        side=options.remove_from,
        grade=options.grade or "near",
        degree=options.degree,
        set_name=options.set_name,
        within=options.test_duplicates,
        include_disputed=options.include_disputed,
        out=options.out if options.apply else None,
        how=options.format,
        progress=call.progress,
    )
    return Reply(whole(purge_document(result, audit.summary, options.out)), result.as_dict())


@dataclass(frozen=True)
class Split(Applied):
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
    stratify: str | None = option(
        None,
        "Keep the shares of classes: label uses those that the set has (folders, label columns),"
        " another word is their column.",
        metavar="label|COLUMN",
        panel=NEW,
    )
    tolerance: float = option(
        0.01,
        "Allowed deviation of sizes and class shares, such as 0.01 or 1%.",
        metavar="RATE",
        panel=NEW,
        parse=share,
    )
    audit: Path | None = option(
        None,
        "A finished audit of this set with itself (audit --set SOURCE), with the verdicts of a"
        " review. Default: the set is audited into DIR/audit.",
        metavar=AUDIT_DIR,
        panel=NEW,
    )
    allow_unbalanced: bool = option(
        False, "With --apply: also write a split that misses the tolerance.", panel=NEW
    )
    encoder: str = option("", "Encoder of the audit. Default: builtin.", metavar="NAME", panel=NEW)
    id: str | None = id_column(NEW)
    label: str | None = label_column(NEW)
    repair: Path | None = option(
        None,
        "An audit of an existing split: move as few images as possible so that nothing leaks.",
        metavar=AUDIT_DIR,
        panel=REPAIR,
    )
    keep_sizes: bool = option(
        False,
        "Move others back, or unite some the other way, so that sizes and classes stay.",
        panel=REPAIR,
    )
    group: str | None = group_column(METHOD)
    grade: str = _grade("near", "Images of pairs of this grade or stronger stay together.")
    seed: int = option(0, "Random seed for tie-breaking.", metavar="N", panel=METHOD, least=0)
    out: Path = option(
        Path("visleak-split"),
        "Folder of the plan; with --apply also of the parts (data) and of the audit that found"
        " nothing between them (proof).",
        "--output -o",
        metavar="DIR",
        panel=OUTPUT,
    )
    format: str = _format("manifest")


#: Options of ``split`` that a repair has as well.
OF_REPAIRS = (
    *("repair", "keep_sizes", "group", "grade", "seed", "out", "apply", "format", "json"),
    *("workers", "cache"),
)


def split(options: Split, execution: Execution, call: Call) -> Reply:
    """Create a leak-free split, or repair one, keeping duplicates and groups together.

    The set itself is never changed.
    """
    from visleak.remedy import fix
    from visleak.remedy import split as divide
    from visleak.remedy.documents import split_document
    from visleak.remedy.plan import Unbalanced

    shared: dict[str, Any] = {
        "out": options.out,
        "group": options.group,
        "grade": options.grade,
        "seed": options.seed,
        "apply": options.apply,
        "how": options.format,
        "progress": call.progress,
        **execution.chosen(),
    }
    if options.repair is not None:
        call.only_with("--repair", OF_REPAIRS)
        content = fix(options.repair, keep_sizes=options.keep_sizes, **shared).content
        return Reply(whole(split_document(content, options.out)), content)
    if options.source is None or options.ratios is None:
        raise UsageError(
            "split needs a set and --ratios, as in: visleak split photos/ --ratios"
            " train=0.8,test=0.2; or --repair with an audit of an existing split"
        )
    if options.keep_sizes:
        raise UsageError("--keep-sizes needs --repair; a new split has the sizes of --ratios")
    try:
        content = divide(
            options.source,
            options.ratios,
            stratify=options.stratify,
            tolerance=options.tolerance,
            audited=options.audit,
            id=options.id,
            label=options.label,
            encoder=options.encoder,
            allow_unbalanced=options.allow_unbalanced,
            **shared,
        ).content
    except Unbalanced as error:
        shown = split_document(error.content, options.out)
        return Reply(whole(shown), error.content, complaints=[str(error)], code=1)
    return Reply(whole(split_document(content, options.out)), content)


@dataclass(frozen=True)
class Replace(Disputed, Applied):
    """Options of ``replace``."""

    folder: Path = argument(..., "An audit folder.", metavar=AUDIT_DIR)
    pool: str = option(
        ...,
        "Source of the replacements: images of the same kind that are in no set of the audit, as a"
        " folder, Parquet or any other source of audit.",
        metavar="SOURCE",
        panel=SETS,
    )
    id: str | None = option(None, "Column of the pool with the ids.", metavar="COLUMN", panel=SETS)
    label: str | None = option(
        None, "Column of the pool with the labels.", metavar="COLUMN", panel=SETS
    )
    set_name: str | None = _set_name("The test set, if there are several.")
    grade: str = _grade(
        "near",
        "Weakest grade of a pair that makes a duplicate; that of Barz & Denzler (2020) is similar.",
    )
    select: str = option(
        "approved",
        "approved: what people approved in visleak review AUDIT_DIR --pool SOURCE; auto: without an"
        " approval, the first candidate of the class that is not a copy of its nearest"
        " neighbours. No person checks those.",
        choices=("approved", "auto"),
        panel=METHOD,
    )
    seed: int = option(
        0, "Seed of the order in which candidates are tried.", metavar="N", panel=METHOD
    )
    out: Path | None = option(
        None, "Folder of the test set.", "--output -o", metavar="DIR", panel=OUTPUT
    )
    format: str = _format("copy")
    allow_missing: bool = option(
        False,
        "Write although some duplicates have no replacement; they stay and are listed.",
        panel=OUTPUT,
    )


def replace(options: Replace, execution: Execution, call: Call) -> Reply:
    """Replace the duplicates of a test set by new images of the same class.

    Without --apply nothing is written: reports how many duplicates there are, and how many have
    a replacement. The other test images, their order and their ids stay as they are.
    """
    from visleak.remedy import replace as exchange
    from visleak.remedy.documents import replace_document
    from visleak.replacements import SelectionSettings

    wanted = SelectionSettings(
        options.pool,
        options.id,
        options.label,
        options.set_name,
        options.grade,
        options.include_disputed,
        options.seed,
    )
    plan = exchange(
        options.folder,
        wanted,
        options.out,
        choose=options.select,
        apply=options.apply,
        allow_missing=options.allow_missing,
        as_=options.format,
        **execution.chosen(),
        progress=call.progress,
    )
    return Reply(whole(replace_document(plan, options.out)), plan.as_dict())
