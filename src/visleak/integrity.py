"""Whether the files of an audit folder are consistent, and still describe the images."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import visleak
from visleak.auditing import Audit
from visleak.documents import as_plain
from visleak.encoders import load_encoder
from visleak.errors import VisleakError
from visleak.grading import load_grader
from visleak.images import content_digest
from visleak.pipeline.comparison import thresholds_of
from visleak.pipeline.recount import recount
from visleak.progress import Progress, silent
from visleak.quantities import counted
from visleak.rates import Rate
from visleak.records import EmbeddingSet, ImageSet, Unreadable
from visleak.reporting import Document
from visleak.storage import (
    AUDIT,
    IMAGES,
    IMAGES_SCHEMA,
    PAIRS,
    PAIRS_SCHEMA,
    UNREADABLE,
    ComparisonSummary,
    SetSummary,
    TotalSummary,
    file_digest,
    opened_for_arrow,
    read_problems,
    read_table,
)
from visleak.storage.audit_folder import AGAIN, VerificationSummary, is_as_written
from visleak.verdicts import read_verdicts

#: Columns that a table must have, by its file.
SCHEMAS: Final = {PAIRS: PAIRS_SCHEMA, IMAGES: IMAGES_SCHEMA}

#: Images that are read at a time.
CHUNK: Final = 256

#: Entries of ``audit.json`` that the tables give.
Entry: TypeAlias = ComparisonSummary | TotalSummary | SetSummary | VerificationSummary

#: What helps against most damage.


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    where: str  # the file or the set
    what: str  # what is wrong with it
    remedy: str = AGAIN  # what to do


@dataclass(frozen=True, slots=True)
class Integrity:
    """The result of :func:`check_audit`."""

    folder: Path  # the audit folder
    findings: tuple[Finding, ...]  # what is wrong; empty if the audit is whole
    notes: tuple[str, ...]  # what could not be checked, in words
    # how many were checked
    pairs: int
    images: int
    verdicts: int
    compared: int  # images whose content was read again

    def as_dict(self) -> dict[str, object]:
        """Return the result as plain data."""
        content: dict[str, object] = as_plain(self)
        return content | {"folder": str(self.folder), "whole": not self.findings}


def document(found: Integrity) -> Document:
    """Return the result of a check for people."""
    count = len(found.findings)
    damaged = f"damaged: {counted(count, 'finding')}"
    compared = f", {found.compared:,} of them read again" if found.compared else ""
    checked = (
        f"checked: {counted(found.pairs, 'pair')}, {counted(found.images, 'image')}{compared},"
        f" {counted(found.verdicts, 'verdict')}"
    )
    return Document(
        "Integrity of an audit",
        f"{found.folder} is {damaged if found.findings else 'intact'}",
        lines=(
            *(f"  {each.where}: {each.what}; {each.remedy}" for each in found.findings),
            checked,
        ),
        notes=tuple(f"note: {note}" for note in found.notes),
    )


def check_audit(
    folder: str | os.PathLike[str], *, images: bool = False, progress: Progress = silent
) -> Integrity:
    """Check that tables, counts, digests and verdicts of an audit folder are consistent.

    Nothing is written.

    Args:
        folder: the audit folder.
        images: also read all images again and compare their content with what was audited.
        progress: receives steps, images done and images in total.

    Raises:
        UsageError: the folder does not hold a finished audit.
        VisleakError: ``audit.json`` is damaged, or a newer visleak wrote it.
    """
    return _Check(Audit(folder)).run(images, progress)


class _Check:
    def __init__(self, audit: Audit) -> None:
        self.audit = audit
        self.folder, self.summary = audit.folder, audit.summary
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.counts = Counter[str]()

    def run(self, images: bool, progress: Progress) -> Integrity:
        if self.summary.unfinished:
            lost = f"{counted(self.summary.unfinished, 'image')} could not be read a second time"
            self._find(AUDIT, lost, "run the same audit again when the source is whole")
        steps = (self._digests, self._tables, self._sets, self._recount, self._rates)
        for step in (*steps, self._methods, self._verdicts):
            try:
                step()
            except VisleakError as error:
                self._find(str(self.folder), str(error).removesuffix(f"; {AGAIN}"))
        if images:
            for each in self.summary.sets:
                self._contents(each, progress)
        # a damaged file stops more than one step
        findings = tuple(dict.fromkeys(self.findings))
        counts = {name: self.counts[name] for name in ("pairs", "images", "verdicts", "compared")}
        return Integrity(self.folder, findings, tuple(self.notes), **counts)

    def _find(self, where: str, what: str, remedy: str = AGAIN) -> None:
        self.findings.append(Finding(where, what, remedy))

    def _digests(self) -> None:
        files: Mapping[str, str] | None = self.summary.files
        if files is None:
            self.notes.append("an older visleak wrote the audit; digests of its files are lacking")
        if self.summary.digest is None:
            self.notes.append(f"{AUDIT} states no digest of itself, as one of an older visleak")
        elif not is_as_written(self.folder, self.summary.digest):
            self._find(AUDIT, "is not as the audit wrote it")
        for name in sorted({*(files or ()), PAIRS, IMAGES, UNREADABLE}):
            path = self.folder / name
            try:
                if files is not None and file_digest(path) != files.get(name):
                    self._find(name, "is not the file that the audit wrote")
            except OSError as error:
                self._find(name, f"cannot be read ({error.strerror})")

    def _tables(self) -> None:
        for name, expected in SCHEMAS.items():
            try:
                with opened_for_arrow(self.folder / name) as file:
                    metadata = pq.read_metadata(file)
            except (OSError, pa.ArrowException) as error:
                raise VisleakError(f"{self.folder / name} cannot be read ({error})") from error
            schema = metadata.schema.to_arrow_schema()
            lacking = [field.name for field in expected if field not in schema]
            if lacking:
                self._find(name, f"lacks the columns {', '.join(lacking)}")
            if name == PAIRS:
                self.counts["pairs"] = metadata.num_rows

    def _sets(self) -> None:
        table = read_table(self.folder, IMAGES, ["set", "id"], checked=False)
        self.counts["images"] = table.num_rows
        counts = pc.value_counts(table["set"]).to_pylist()
        rows = {each["values"]: each["counts"] for each in counts}
        problems = Counter(problem.set for problem in read_problems(self.folder / UNREADABLE))
        for each in self.summary.sets:
            name = each.name
            listed = each.readable if each.listed is None else each.listed
            self._equal(IMAGES, name, rows.pop(name, 0), listed)
            self._equal(UNREADABLE, name, problems.pop(name, 0), each.unreadable)
        for name in {*rows, *problems}:
            self._find(IMAGES, f"holds images of a set {name!r} that {AUDIT} does not name")
        if table.group_by(["set", "id"]).aggregate([]).num_rows != table.num_rows:
            self._find(IMAGES, "lists an image twice")

    def _equal(self, file: str, name: str, found: int, stored: int) -> None:
        if found != stored:
            self._find(file, f"holds {found:,} images of set {name!r}, {AUDIT} says {stored:,}")

    def _recount(self) -> None:
        known, found = self.summary, recount(self.folder)
        for where, what in found.wrong:
            self._find(where, what)
        same_words = known.visleak == visleak.__version__
        if not same_words:
            self.notes.append(
                f"visleak {known.visleak} wrote the audit; words that this version makes"
                " otherwise were not compared"
            )
        for stored, total in zip(known.totals, found.totals, strict=False):
            if same_words and stored.headline != total.headline:
                self._find(AUDIT, f"its headline of {total.query_set} is not that of its tables")
        if known.headline != "; ".join(total.headline for total in known.totals):
            self._find(AUDIT, "its headline is not that of its totals")
        if [each.query_set for each in known.totals] != [each.query_set for each in found.totals]:
            self._find(AUDIT, "its totals are not those of its query sets")
        for own, again in zip(known.comparisons, found.comparisons, strict=True):
            self._compare(f"{own.query_set} against {own.reference_set}", own, again)
        for before, after in zip(known.totals, found.totals, strict=False):
            self._compare(before.query_set, replace(before, headline=after.headline), after)
        for about, of_tables in zip(known.sets, found.sets, strict=True):
            self._compare(f"set {about.name}", about, of_tables)
        for name in ("label_conflicts", "unfinished"):
            if getattr(known, name) != getattr(found, name):
                self._find(AUDIT, _unlike(name, getattr(known, name), getattr(found, name)))
        if same_words and known.verification is not None and known.grader is not None:
            own_count = replace(known.verification, rounds=found.verification.rounds)
            self._compare("verification", own_count, found.verification)

    def _compare(self, where: str, stored: Entry, found: Entry) -> None:
        """Compare an entry of ``audit.json`` with that of the tables, value by value."""
        for each in fields(stored):
            before, after = getattr(stored, each.name), getattr(found, each.name)
            if before == after:
                continue
            if each.name == "rates":
                for name in sorted({*before, *after}):
                    if before.get(name) != after.get(name):
                        words = _unlike(name, before.get(name), after.get(name))
                        self._find(AUDIT, f"{where}: {words}")
            else:
                self._find(AUDIT, f"{where}: {_unlike(each.name, before, after)}")

    def _rates(self) -> None:
        """Look for rates whose share or interval is not that of their counts."""
        stored = json.loads((self.folder / AUDIT).read_text(encoding="utf-8"))
        own: tuple[ComparisonSummary | TotalSummary, ...]
        own = (*self.summary.comparisons, *self.summary.totals)
        written = (*stored.get("comparisons", ()), *stored.get("totals", ()))
        for known, each in zip(own, written, strict=False):
            if each.get("rates", {}) != as_plain(known.rates):
                self._find(AUDIT, f"a rate of {known.query_set} has another share or interval")

    def _methods(self) -> None:
        """Compare thresholds and grader with the settings, and with what this version has."""
        limits, settings = self.summary.thresholds, self.summary.settings
        builtin, grader = load_encoder("builtin"), self.summary.grader
        stored = (limits.hard, limits.soft)
        kept = thresholds_of(builtin, settings, {"hard": limits.hard, "soft": limits.soft})
        if (kept.hard, kept.soft) != stored:
            self._find(AUDIT, "its thresholds are not those of its settings")
        if self.summary.encoder.digest == builtin.digest:
            own = thresholds_of(builtin, settings)
            if limits.provenance == own.provenance and stored != (own.hard, own.soft):
                self._find(AUDIT, "its thresholds are not those of the encoder")
        if grader is None:
            return
        current = load_grader(near_at=settings.near_at)
        if grader.near_at not in (None, settings.near_at):
            self._find(AUDIT, "near_at of its grader is not that of its settings")
        if grader.digest == current.digest and grader.provenance != current.provenance:
            self._find(AUDIT, "the provenance of its grader is another's")

    def _verdicts(self) -> None:
        verdicts = read_verdicts(self.folder)
        self.counts["verdicts"] = len(verdicts)
        table = read_table(self.folder, IMAGES, ["digest"], checked=False)
        images = set(table["digest"].to_pylist())
        strange = sum(not images.issuperset(verdict.key) for verdict in verdicts)
        if strange:
            self.notes.append(
                f"{strange:,} of {len(verdicts):,} verdicts are on images not in this audit;"
                " they do not count"
            )

    def _contents(self, about: SetSummary, progress: Progress) -> None:
        """Compare the content of the images of a set with what was audited."""
        name = about.name
        try:
            images = self.audit.images_of(name)
        except VisleakError as error:
            self._find(name, str(error), "give the set back its place")
            return
        if isinstance(images, EmbeddingSet):
            self.notes.append(f"set {name!r} holds embeddings; its images cannot be read again")
            return
        wanted = read_table(
            self.folder, IMAGES, ["id", "digest"], pc.field("set") == name, checked=False
        )
        stored = dict(zip(wanted["id"].to_pylist(), wanted["digest"].to_pylist(), strict=True))
        changed = []
        for id_, digest in _read(images, stored, progress):
            self.counts["compared"] += 1
            if stored.pop(id_) != digest:
                changed.append(id_)
        for ids, what in ((changed, "changed"), (sorted(stored), "gone")):
            if ids:
                are = counted(len(ids), "image", "is", "are")
                self._find(name, f"{are} {what} since the audit, such as {ids[0]!r}")


def _read(
    images: ImageSet, stored: Mapping[str, str], progress: Progress
) -> Iterator[tuple[str, str]]:
    ids = images.ids.to_pylist()
    positions = [position for position, id_ in enumerate(ids) if id_ in stored]
    for start in range(0, len(positions), CHUNK):
        progress(f"reading {images.name}", start, len(positions))
        part = positions[start : start + CHUNK]
        for position, content in zip(part, images.opener.read(part), strict=True):
            if not isinstance(content, Unreadable):
                yield ids[position], content_digest(content).hex()
    progress(f"reading {images.name}", len(positions), len(positions))


def _unlike(name: str, stored: object, found: object) -> str:
    def shown(value: object) -> str:
        if isinstance(value, Rate):
            return f"{value.count:,} of {value.total:,}"
        return "nothing" if value is None else str(as_plain(value))

    return f"{name}: {shown(stored)} in {AUDIT}, {shown(found)} in the tables"
