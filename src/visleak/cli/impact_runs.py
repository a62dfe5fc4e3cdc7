"""The runs of ``visleak impact``: of one audit, of several side by side, and ``--check``."""

from __future__ import annotations

import json as _json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from visleak.cli import edges, named_files
from visleak.errors import UsageError

if TYPE_CHECKING:
    from visleak.impact import Check, ImpactSettings
    from visleak.impact.run import CheckedFile
    from visleak.reporting import Document

#: Rows of a table on a terminal.
ROWS: Final = 60


@dataclass(frozen=True)
class Place:
    """Where a result goes: a folder, a page with or without images, and the screen."""

    out: Path
    force: bool
    private: bool
    json: bool


@dataclass(frozen=True)
class Board:
    """An entry of a leaderboard."""

    file: Path | None
    framework: str
    code: str
    weights: str

    def refuse(self, fair: Mapping[str, Path]) -> None:
        """Refuse what cannot become an entry, before anything is computed."""
        from visleak.impact.leaderboard import check, read_leaderboard

        if self.file is None:
            if self.framework or self.code or self.weights:
                raise UsageError("--framework, --code and --weights need --leaderboard FILE.json")
            return
        if len(fair) != 1:
            raise UsageError(
                "--leaderboard adds one model: give --fair-predictions FILE of one model; got"
                f" {len(fair)}"
            )
        check(self.framework, self.code, self.weights)
        if self.file.is_dir():
            raise UsageError(
                f"--leaderboard: {self.file} is a folder; give a file, such as leaderboard.json"
            )
        if self.file.exists():
            read_leaderboard(self.file)


@dataclass(frozen=True)
class Files:
    """Prediction files of a test set and of its fair one, by model."""

    predictions: Mapping[str, Path]
    fair: Mapping[str, Path]

    @classmethod
    def of(cls, predictions: Sequence[str], fair: Sequence[str], prefix: str = "") -> Files:
        """Return the files of arguments, ``[NAME=]FILE``."""
        files = named_files.named_files("--predictions", predictions)
        if not files:
            raise UsageError(
                f"nothing to measure: give --predictions {prefix}[NAME=]FILE, the predictions of a"
                " model"
            )
        return cls(files, named_files.fair_files(fair, files))


def run(
    folder: Path | None,
    audits: Sequence[str],
    predictions: Sequence[str],
    fair: Sequence[str],
    subsets: Sequence[str],
    settings: ImpactSettings,
    place: Place,
    board: Board,
    *,
    check: bool,
) -> None:
    """Measure, write and print the impact of one audit, or of several side by side."""
    from visleak.impact import check as check_files

    if (folder is None) == (not audits):
        raise UsageError("give one audit folder, or several with --audit NAME=FOLDER")
    if folder is not None:
        folders, every = {"": folder}, {"": Files.of(predictions, fair)}
        lists = named_files.named_files("--subset", subsets, what="subset", needs_name=True)
        settings = replace(settings, subsets=lists)
    else:
        folders = named_files.named_folders("--audit", audits)
        own = named_files.by_prefix("--predictions", predictions, folders)
        on_fair = named_files.by_prefix("--fair-predictions", fair, folders)
        every = {name: Files.of(own[name], on_fair[name], f"{name}:") for name in folders}
        _refuse_several(settings, subsets, board)
    if check:
        from visleak.cli.progress import bars

        with bars() as progress:
            found = {
                name: check_files(
                    folders[name], files.predictions, settings, fair=files.fair, progress=progress
                )
                for name, files in every.items()
            }
        _say_checks(found, json=place.json)
    else:
        board.refuse(every[""].fair if folder is not None else {})
        _measure(folders, every, settings, place, board)


def _measure(
    folders: Mapping[str, Path],
    every: Mapping[str, Files],
    settings: ImpactSettings,
    place: Place,
    board: Board,
) -> None:
    from visleak.auditing import Audit
    from visleak.cli.options import told
    from visleak.cli.pictures import show_in_report
    from visleak.cli.progress import bars
    from visleak.impact import document, impact, write
    from visleak.impact.document import KIND, SECTION, several_document, write_several
    from visleak.impact.leaderboard import add_to
    from visleak.pipeline.folder import refuse_sets
    from visleak.reporting import section
    from visleak.storage import RunFolder
    from visleak.store import free_folder

    audits = {name: Audit(folder) for name, folder in folders.items()}
    for name, audit in audits.items():
        told(folders[name])
        refuse_sets(audit.summary, place.out)
    run = RunFolder(place.out, KIND)
    free_folder(run.path, run.result.name, force=place.force)
    with bars() as progress:
        results = {
            name: impact(
                folders[name], files.predictions, settings, fair=files.fair, progress=progress
            )
            for name, files in every.items()
        }
        progress("writing the result", 0, 0)
        with run.claimed():
            write(results[""], run.path) if "" in results else write_several(results, run.path)
        for name, result in results.items():
            page = section(document(result, "page"))
            show_in_report(audits[name], SECTION, page, private=place.private)
        progress("writing the result", 1, 1)
    if board.file is not None:
        entry = {"framework": board.framework, "code": board.code, "weights": board.weights}
        add_to(board.file, results[""], **entry)
    if place.json:
        edges.say_bytes(run.result.read_bytes())
        return
    one = results.get("")
    _say(document(one, "terminal") if one else several_document(results, "terminal"))
    for path in (place.out, *([board.file] if board.file is not None else [])):
        edges.say(f"{edges.plain(str(path))}\n")


def _refuse_several(settings: ImpactSettings, subsets: Sequence[str], board: Board) -> None:
    """Refuse options that are about one audit only."""
    from visleak.impact.difficulty import PROBE

    given = {
        "--set": settings.test_set,
        "--reference": settings.references,
        "--subset": subsets,
        "--difficulty FILE": settings.difficulty not in (None, PROBE),
        "--leaderboard": board.file,
    }
    for option, value in given.items():
        if value:
            raise UsageError(
                f"{option} is about one audit; run visleak impact AUDIT_DIR for each of several"
            )


def _say(document: Document) -> None:
    from visleak.cli.terminal import rendered
    from visleak.reporting import terminal

    edges.say(rendered(terminal(document, tables=None, rows=ROWS)))


def _say_checks(found: Mapping[str, Check], *, json: bool) -> None:
    """Print whether files fit their audits, and exit with 1 where one is in doubt."""
    if json:
        every = {name: asdict(each) for name, each in found.items()}
        content = every.get("", every)
        edges.say(_json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    else:
        for name, each in found.items():
            for line in _checked(each):
                edges.say(edges.plain(f"{name}: {line}" if name else line) + "\n")
    if any(each.doubts for each in found.values()):
        raise typer.Exit(1)


def _checked(found: Check) -> Iterator[str]:
    """Yield doubts first, then file by file."""
    yield from (f"warning: {doubt}" for doubt in found.doubts)
    if not found.doubts:
        files = "file fits" if len(found.files) == 1 else f"{len(found.files):,} files fit"
        yield f"the {files} {found.test_set}, as far as can be checked"
    for file in found.files:
        yield _checked_file(file, found.images)
        yield from (f"  {note}" for note in file.notes)


def _checked_file(file: CheckedFile, images: int) -> str:
    from visleak.impact.numbers import score

    where = " (fair test set)" if file.fair else ""
    scores = ", ".join(f"{name} {score(v, percent=False)}" for name, v in file.scores.items())
    compared = " and ".join(file.checked)
    how = (
        f"{compared} compared with the audited labels"
        if compared
        else "no predicted classes or labels to compare, so ids and order were only compared with"
        " other models"
    )
    return (
        f"{file.model}{where}: predictions for {file.answered:,} of {images:,} images; {scores};"
        f" {how}"
    )
