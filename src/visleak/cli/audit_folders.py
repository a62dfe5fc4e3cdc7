"""Commands on an audit folder: ``report``, ``show``, ``export``, ``review``, ``stats`` ..."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from visleak.cli import edges
from visleak.cli.command import Call, Reply, free, whole
from visleak.errors import UsageError
from visleak.options import (
    AUDIT_DIR,
    Options,
    Printed,
    Replaced,
    argument,
    keywords,
    option,
    output,
)
from visleak.quantities import counted


@dataclass(frozen=True)
class AuditFolder:
    """The audit that a command reads."""

    folder: Path = argument(..., "An audit folder.", metavar=AUDIT_DIR)


@dataclass(frozen=True)
class Report(Replaced):
    """Options of ``report``."""

    out: Path | None = output(None, "The file. Default: report.html of the audit.", metavar="FILE")
    no_images: bool = option(False, "Put no images into the report.")
    open: bool = option(False, "Open the report in a browser.")


def report(audit: AuditFolder, options: Report) -> Reply:
    """Write the report of an audit again, including what was added to the folder since."""
    from visleak.auditing import Audit
    from visleak.report import save_report
    from visleak.storage import REPORT, free_file, refuse_sets

    opened, out = Audit(audit.folder), options.out
    # replacing the page of the audit itself is the purpose of this command
    if out is not None and out.absolute() != (audit.folder / REPORT).absolute():
        free_file(out, force=options.force, audit=audit.folder)
        refuse_sets(opened.summary, out)
    path = save_report(opened, out, private=options.no_images)
    return Reply(files=[path], page=path)


@dataclass(frozen=True)
class Show(Replaced):
    """Options of ``show``."""

    image: str = argument(..., "The id of an image.", metavar="ID")
    out: Path | None = output(None, "Draw the best pair to this .png or .jpg.", metavar="FILE")
    set_name: str | None = option(
        None, "Set of the image, if several have the id.", "--set", metavar="NAME"
    )
    different: bool = option(False, "Also list the pairs that are graded different.", "--all")


def show(audit: AuditFolder, options: Show) -> Reply:
    """List the duplicates of an image, the most certain first, with the verdicts of people."""
    from visleak.export.image_pairs import document, image_pairs

    found = image_pairs(audit.folder, **keywords(options))
    shown = whole(document(found))
    return Reply(shown, files=[options.out] if options.out is not None else [])


@dataclass(frozen=True)
class Export(Replaced):
    """Options of ``export``."""

    format: str = option(
        ...,
        "cifair: TestID,TrainID,Distance,Judgment, with the pairs within the test set in a second"
        " file; ids: the leaking test images, one per line; csv: all pairs with all columns;"
        " accepted: leaking pairs by content, for audit --baseline; issues: every test image with"
        " a leak score, as tables of cleanlab and cleanvision; labelstudio, cvat: pairs to judge"
        " there; card: a section for a dataset card; croissant: the leaks with their description.",
        choices=(
            *("cifair", "ids", "csv", "accepted", "issues"),
            *("labelstudio", "cvat", "card", "croissant"),
        ),
    )
    out: Path = output(..., "The file.", metavar="FILE")
    grade: str | None = option(
        None,
        "Weakest grade to write. Default: near; any for csv. The lists of Barz & Denzler (2020)"
        " contain similar ones too.",
        choices=("exact", "near", "similar", "different"),
    )
    query_set: str | None = option(
        None, "The test set, if there are several.", "--set", metavar="NAME"
    )


def export(audit: AuditFolder, options: Export) -> Reply:
    """Write the pairs or the leaking images of an audit for other tools."""
    from visleak.export import export as write
    from visleak.storage import read_summary, refuse_sets

    refuse_sets(read_summary(audit.folder), options.out)
    return Reply(files=write(audit.folder, **keywords(options)))


@dataclass(frozen=True)
class Diff(Printed, Replaced):
    """Options of ``diff``."""

    before: Path = argument(..., "The earlier audit folder.", metavar=AUDIT_DIR)
    after: Path = argument(..., "The later audit folder.", metavar=AUDIT_DIR)
    grade: str | None = option(
        None,
        "Weakest grade or degree that counts. Default: near; without grades soft.",
        choices=("exact", "near", "similar", "hard", "soft"),
    )
    rename: tuple[str, ...] = option(
        (),
        "A set of the earlier audit and its name in the later one, where it is not clear. May be"
        " repeated.",
        metavar="OLD=NEW",
    )
    out: Path | None = output(
        None, "Also write every changed pair to this file.", metavar="FILE.csv"
    )


def diff(options: Diff) -> Reply:
    """Compare two audits: images, pairs, rates and settings."""
    from visleak.diff import diff as compared
    from visleak.diff import document as changes
    from visleak.diff import headlines, write_changes
    from visleak.diff.pairs import parse_map
    from visleak.storage import free_file, read_summary, refuse_sets

    before, after, out = options.before, options.after, options.out
    if out is not None:
        for folder in (before, after):
            free_file(out, force=options.force, audit=folder)
            refuse_sets(read_summary(folder), out)
    found = compared(before, after, options.grade, parse_map(options.rename))
    if out is not None:
        write_changes(found, out)
    content = {"headline": "; ".join(headlines(found))} | found.as_dict()
    return Reply(whole(changes(found)), content, files=[out] if out is not None else [])


@dataclass(frozen=True)
class Check(Printed):
    """Options of ``check``."""

    images: bool = option(False, "Also read all images again and compare their content.")


def check_audit(audit: AuditFolder, options: Check, call: Call) -> Reply:
    """Check that tables, counts, digests and verdicts of an audit are consistent.

    Exits with 1 if something is wrong. Nothing is written.
    """
    from visleak.integrity import check_audit as checked
    from visleak.integrity import document

    found = checked(audit.folder, images=options.images, progress=call.progress)
    return Reply(document(found), found.as_dict(), code=1 if found.findings else 0)


def doctor(options: Printed, call: Call) -> Reply:
    """Check the installation: versions, extras, cache, threads, devices.

    Exits with 1 if there is a problem. -v lists what each extra lacks.
    """
    from visleak.doctor import document, examine

    found = examine()
    shown = document(found, detailed=call.messages.verbose)
    return Reply(shown, found.as_dict(), code=1 if found.issues else 0)


@dataclass(frozen=True)
class Review(Options):
    """Options of ``review``."""

    reviewer: str | None = option(
        None, "Name of the reviewer. Default: the system's user.", metavar="NAME"
    )
    candidates: str = option(
        "listed",
        "Every pair of the audit, or each test image's one nearest without a threshold (the list of"
        " Barz & Denzler 2020).",
        choices=("listed", "nearest"),
    )
    grade: str | None = option(
        None,
        "Begin with pairs of this automatic grade or stronger; with --pool also the weakest grade"
        " that makes a duplicate (default near; that of Barz & Denzler 2020 is similar).",
        metavar="GRADE",
    )
    port: int = option(0, "Port of 127.0.0.1; 0 takes one that is free.", metavar="N")
    pool: str | None = option(
        None,
        "Choose replacements for duplicates from these images, on a page of its own.",
        metavar="SOURCE",
    )
    label: str | None = option(None, "Column of the pool with the labels.", metavar="COLUMN")
    instructions: Path | None = option(
        None,
        "What an image of each class must be like, shown beside a replacement: a JSON object, or a"
        " text with a line ## CLASS above each.",
        metavar="FILE",
    )
    blind: bool = option(
        False, "Hide the automatic grade, and all that led to it, until a pair is judged."
    )
    overlap: float | None = option(
        None,
        "Divide the pairs among reviewers; this share of them is judged by all, for Cohen's kappa.",
        metavar="SHARE",
    )
    miss_rate: float = option(
        0.05,
        "Offer to stop when an estimated share of at most this many near pairs has no verdict.",
        metavar="SHARE",
    )
    browser: bool = option(True, "Print the address and open no browser.", "--no-browser")


def review(audit: AuditFolder, options: Review, call: Call) -> Reply:
    """Judge the pairs of an audit in a browser; Ctrl-C ends it."""
    from visleak.remedy.settings import GRADE, SelectionSettings
    from visleak.review import review as serve
    from visleak.verdicts.ledger import PLAIN

    selection = None
    if options.pool is not None:
        selection = SelectionSettings(label=options.label, grade=options.grade or GRADE)
    agreed = serve(
        audit.folder,
        **{name: value for name, value in keywords(options).items() if name != "label"},
        selection=selection,
        told=edges.print_line,
        bars=call.steps,
    )
    disputed = f", {agreed.disputed:,} of them disputed" if agreed.disputed else ""
    where = f"; verdicts are in {audit.folder / PLAIN}" if agreed.judged else ""
    return Reply([f"{counted(agreed.judged, 'pair')} judged{disputed}{where}"])


#: Options of each action of ``verdicts``, in addition to its arguments.
ACTIONS: Final = {
    "import": ("reviewer", "within", "test", "train", "strict"),
    "export": ("reviewer", "test", "train", "format", "force"),
}


@dataclass(frozen=True)
class Verdicts(Printed, Replaced):
    """Options of ``verdicts``."""

    action: str | None = argument(
        None, "Without it: the verdicts by reviewer.", metavar="[import|export]"
    )
    file: Path | None = argument(
        None,
        "A list TestID,TrainID,Distance,Judgment (0 exact, 1 near, 2 similar, 3 different),"
        " verdicts.csv of another audit folder, or annotations of Label Studio (.json) or CVAT"
        " (.xml).",
        metavar="[FILE]",
    )
    reviewer: str | None = option(
        None,
        "Import: who judged the list. Default: its file name without suffix. Export: only the"
        " verdicts of this reviewer.",
        metavar="NAME",
    )
    within: bool = option(False, "Import: TrainID is an id of the test set too.")
    test: str | None = option(None, "The test set, if there are several.", metavar="NAME")
    train: str | None = option(None, "The training set, if there are several.", metavar="NAME")
    strict: bool = option(False, "Import: refuse ids that the audit does not have.")
    format: str = option(
        "cifair",
        "Export: a list of the pairs that people agree on, with those within the test set in a"
        " second file; or every verdict.",
        choices=("cifair", "csv"),
    )


def verdicts(audit: AuditFolder, options: Verdicts, call: Call) -> Reply:
    """Show, import or export the verdicts of people on an audit's pairs."""
    from visleak.report.counts import review_document, review_of
    from visleak.storage import read_summary, refuse_sets
    from visleak.verdicts import read_verdicts
    from visleak.verdicts.exchange import export_verdicts, import_verdicts

    action, file = options.action, options.file
    if action not in (None, *ACTIONS):
        raise UsageError(f"the action must be import or export; got {action!r}")
    own = ACTIONS.get(action or "", ())
    call.only_with(action or "no action", ("folder", "action", "file", "json", *own))
    if action is not None and file is None:
        raise UsageError(f"name the file to {action}: visleak verdicts AUDIT_DIR {action} FILE")
    if action is None or file is None:
        read_summary(audit.folder)
        found = review_of(read_verdicts(audit.folder))
        return Reply(whole(review_document(found)), found.as_dict())
    shared = {"reviewer": options.reviewer, "test": options.test, "train": options.train}
    if action == "import":
        imported = import_verdicts(
            audit.folder, file, within=options.within, strict=options.strict, **shared
        )
        return Reply(imported.lines(), asdict(imported))
    refuse_sets(read_summary(audit.folder), file)
    done = export_verdicts(audit.folder, file, as_=options.format, force=options.force, **shared)
    content = asdict(done) | {"files": [str(path) for path in done.files]}
    disputed = f"disputed pairs, excluded: {done.disputed:,}"
    return Reply((), content, [disputed] if done.disputed else [], files=done.files)


@dataclass(frozen=True)
class Stats(Printed, Replaced):
    """Options of ``stats``."""

    grade: str = option(
        "near",
        "The weakest grade that counts as a duplicate; that of Barz & Denzler (2020) is similar.",
        choices=("exact", "near", "similar"),
    )
    reviewed_only: bool = option(False, "Count only the pairs that people judged.")
    out: Path | None = output(
        None, "Also write counts.json, tables, figures and example pairs to this folder."
    )


def stats(audit: AuditFolder, options: Stats) -> Reply:
    """Count the duplicates by type and class, with and without the verdicts of people."""
    from visleak.auditing import Audit
    from visleak.report import reader_for_page
    from visleak.report.counts import COUNTS, count, documents, write_counts
    from visleak.storage import claimed, refuse_sets

    opened, out = Audit(audit.folder), options.out
    if out is not None:
        refuse_sets(opened.summary, out)
        free(out, COUNTS, force=options.force)
    counts = count(audit.folder, grade=options.grade, judged=options.reviewed_only)
    parts = [part for each in documents(counts) for part in (*whole(each), "")]
    if out is None:
        return Reply(parts, counts.as_dict())
    with claimed(out):
        written = write_counts(counts, out, reader_for_page(opened))
    return Reply(parts, counts.as_dict(), files=written)
