"""Commands that read a finished audit: ``report``, ``show``, ``export``, ``diff``, ``check``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from visleak.cli.command import Call, Reply, whole
from visleak.options import AUDIT_DIR, Printed, Replaced, argument, keywords, option


@dataclass(frozen=True)
class AuditFolder:
    """The audit that a command reads."""

    folder: Path = argument(..., "An audit folder.", metavar=AUDIT_DIR)


@dataclass(frozen=True)
class Report(Replaced):
    """Options of ``report``."""

    out: Path | None = option(
        None, "The file. Default: report.html of the audit.", "--output -o", metavar="FILE"
    )
    no_images: bool = option(False, "Put no images into the report.")


def report(audit: AuditFolder, options: Report) -> Reply:
    """Write the report of an audit again, including what was added to the folder since."""
    from visleak.auditing import Audit
    from visleak.cli.pictures import shown_pictures
    from visleak.report import write_report
    from visleak.storage import REPORT, free_file, refuse_sets

    opened, out = Audit(audit.folder), options.out
    # replacing the page of the audit itself is the purpose of this command
    if out is not None and out.absolute() != (audit.folder / REPORT).absolute():
        free_file(out, force=options.force, audit=audit.folder)
        refuse_sets(opened.summary, out)
    images = None if options.no_images else shown_pictures(opened)
    path = write_report(audit.folder, out, loader=images, private=options.no_images)
    return Reply(files=[path])


@dataclass(frozen=True)
class Show(Replaced):
    """Options of ``show``."""

    image: str = argument(..., "The id of an image.", metavar="ID")
    out: Path | None = option(
        None, "Draw the best pair to this .png or .jpg.", "--output -o", metavar="FILE"
    )
    set_name: str | None = option(
        None, "Set of the image, if several have the id.", "--set", metavar="NAME"
    )


def show(audit: AuditFolder, options: Show) -> Reply:
    """List every pair of an image, most similar first, with the verdicts of people."""
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
        " accepted: leaking pairs by content, for audit --baseline.",
        choices=("cifair", "ids", "csv", "accepted"),
    )
    out: Path = option(..., "The file.", "--output -o", metavar="FILE")
    grade: str | None = option(
        None,
        "Weakest grade to write. Default: near; any for csv. The lists of Barz & Denzler (2020)"
        " contain similar ones too.",
        choices=("exact", "near", "similar", "different"),
    )
    query_set: str | None = option(None, "The test set, if there are several.", "--set",
                                   metavar="NAME")  # fmt: skip


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
    out: Path | None = option(
        None, "Also write every changed pair to this file.", "--output -o", metavar="FILE.csv"
    )


def diff(options: Diff) -> Reply:
    """Compare two audits: images, pairs, rates and settings."""
    from visleak.diff import diff as compared
    from visleak.diff import document as changes
    from visleak.diff import headlines, write_changes
    from visleak.diff.matching import parse_map
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


def doctor(options: Printed) -> Reply:
    """Check the installation: versions, extras, cache, threads, devices.

    Exits with 1 if there is a problem.
    """
    from visleak.doctor import document, examine

    found = examine()
    return Reply(document(found), found.as_dict(), code=1 if found.issues else 0)
