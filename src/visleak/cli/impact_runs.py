"""The runs of ``visleak impact``: of one audit, of several side by side, and ``--check``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from visleak.cli import edges

if TYPE_CHECKING:
    from visleak.impact import Impact
    from visleak.pipeline.workplace import Progress


@dataclass(frozen=True)
class Choices:
    """How an impact is measured; see :func:`visleak.impact.impact`, ``subsets`` as given."""

    test_set: str | None
    references: tuple[str, ...]
    subsets: tuple[str, ...]
    metrics: tuple[str, ...]
    lower: tuple[str, ...]
    judged_only: bool
    by_label: bool | None
    difficulty: str | None
    draws: int
    size: int | None
    mid: bool
    seed: int
    allow_partial: bool


@dataclass(frozen=True)
class Place:
    """Where a result goes: a folder, a page with or without pictures, and the screen."""

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


@dataclass(frozen=True)
class Files:
    """Files of predictions on a test set and on its fair one, by model."""

    predictions: Mapping[str, Path]
    fair: Mapping[str, Path]

    @classmethod
    def of(cls, predictions: Sequence[str], fair: Sequence[str]) -> Files:
        """Return the files of arguments, ``[NAME=]FILE``."""
        from visleak.cli.named_files import fair_files, named_files

        files = named_files("--predictions", predictions)
        return cls(files, fair_files(fair, files))


def folders_of(folder: Path | None, audits: Sequence[str]) -> Path | dict[str, Path]:
    """Return the one audit folder, or several by name.

    Raises:
        UsageError: neither or both are given, or a folder is not there.
    """
    from visleak.cli.named_files import named_folders
    from visleak.errors import UsageError

    if (folder is None) == (not audits):
        raise UsageError("give one audit folder A, or several with --audit NAME=FOLDER")
    return folder if folder is not None else named_folders("--audit", audits)


def one_audit(
    folder: Path,
    predictions: Sequence[str],
    fair: Sequence[str],
    choices: Choices,
    place: Place,
    board: Board,
) -> None:
    """Measure, write and print the impact of one audit."""
    from visleak.auditing import Audit
    from visleak.cli.pictures import show_in_report
    from visleak.cli.progress import bars
    from visleak.impact.leaderboard import add_to
    from visleak.impact.output import write
    from visleak.impact.section import NAME, section
    from visleak.impact.stored import RESULT
    from visleak.storage import claimed, free_folder, refuse_sets

    audit = Audit(folder)
    files = Files.of(predictions, fair)
    lists = _lists(choices)
    _refuse(files, board)
    refuse_sets(audit.summary, place.out)
    free_folder(place.out, RESULT, force=place.force)
    with bars() as progress:
        result = _measured(folder, files, lists, choices, progress)
        progress("writing the result", 0, 0)
        with claimed(place.out):
            write(result, place.out)
        show_in_report(audit, NAME, section(result), private=place.private)
        progress("writing the result", 1, 1)
    if board.file is not None:
        entry = {"framework": board.framework, "code": board.code, "weights": board.weights}
        add_to(board.file, result, **entry)
    _say(result, place, board)


def several_audits(
    folders: Mapping[str, Path],
    predictions: Sequence[str],
    fair: Sequence[str],
    choices: Choices,
    place: Place,
    board: Board,
) -> None:
    """Measure, write and print the impact of several audits side by side."""
    from visleak.auditing import Audit
    from visleak.cli.options import told
    from visleak.cli.pictures import show_in_report
    from visleak.cli.progress import bars
    from visleak.impact.section import NAME, section
    from visleak.impact.stored import RESULT
    from visleak.impact.together import write_together
    from visleak.storage import claimed, free_folder, refuse_sets

    audits = {name: Audit(folder) for name, folder in folders.items()}
    for folder in folders.values():
        told(folder)
    files = _files_of_several(folders, predictions, fair)
    _refuse_several(choices, board)
    for audit in audits.values():
        refuse_sets(audit.summary, place.out)
    free_folder(place.out, RESULT, force=place.force)
    with bars() as progress:
        results = {
            name: _measured(folder, files[name], {}, choices, progress)
            for name, folder in folders.items()
        }
        progress("writing the result", 0, 0)
        with claimed(place.out):
            write_together(results, place.out)
        for name, result in results.items():
            show_in_report(audits[name], NAME, section(result), private=place.private)
        progress("writing the result", 1, 1)
    _say_together(results, place)


def check_files(
    folders: Path | Mapping[str, Path],
    predictions: Sequence[str],
    fair: Sequence[str],
    choices: Choices,
    *,
    json: bool,
) -> None:
    """Print whether files fit their audits, and end with 1 where one is in doubt."""
    from visleak.cli.impact_view import checked_content, checked_lines
    from visleak.cli.progress import bars
    from visleak.impact import check

    if isinstance(folders, Path):
        every, named = {"": Files.of(predictions, fair)}, {"": folders}
    else:
        every, named = _files_of_several(folders, predictions, fair), dict(folders)
    for files in every.values():
        _refuse_nothing(files)
    with bars() as progress:
        found = {
            name: check(
                named[name],
                files.predictions,
                fair=files.fair,
                test_set=choices.test_set,
                metrics=choices.metrics,
                lower=choices.lower,
                allow_partial=choices.allow_partial,
                progress=progress,
            )
            for name, files in every.items()
        }
    if json:
        edges.say(checked_content(found))
    else:
        for name, each in found.items():
            edges.say("".join(f"{name}: {line}" if name else line for line in checked_lines(each)))
    if any(each.doubts for each in found.values()):
        raise typer.Exit(1)


def _measured(
    folder: Path,
    files: Files,
    lists: Mapping[str, Path],
    choices: Choices,
    progress: Progress,
) -> Impact:
    from visleak.impact import impact

    return impact(
        folder,
        files.predictions,
        fair=files.fair,
        test_set=choices.test_set,
        references=choices.references,
        subsets=lists,
        metrics=choices.metrics,
        lower=choices.lower,
        judged_only=choices.judged_only,
        by_label=choices.by_label,
        difficulty=choices.difficulty,
        draws=choices.draws,
        size=choices.size,
        mid=choices.mid,
        seed=choices.seed,
        allow_partial=choices.allow_partial,
        progress=progress,
    )


def _lists(choices: Choices) -> dict[str, Path]:
    from visleak.cli.named_files import named_files

    return named_files("--subset", choices.subsets, what="subset", needs_name=True)


def _files_of_several(
    folders: Mapping[str, Path], predictions: Sequence[str], fair: Sequence[str]
) -> dict[str, Files]:
    from visleak.cli.named_files import by_prefix

    own = by_prefix("--predictions", predictions, folders)
    on_fair = by_prefix("--fair", fair, folders)
    found = {name: Files.of(own[name], on_fair[name]) for name in folders}
    for name, files in found.items():
        _refuse_nothing(files, f"{name}:")
    return found


def _refuse_nothing(files: Files, prefix: str = "") -> None:
    from visleak.errors import UsageError

    if not files.predictions:
        raise UsageError(
            f"nothing to measure: give --predictions {prefix}[NAME=]FILE, a model's answers"
        )


def _refuse_several(choices: Choices, board: Board) -> None:
    """Refuse options that are of one audit only.

    Raises:
        UsageError: see its message.
    """
    from visleak.errors import UsageError
    from visleak.impact.difficulty import PROBE

    given = {
        "--set": choices.test_set,
        "--reference": choices.references,
        "--subset": choices.subsets,
        "--difficulty FILE": choices.difficulty not in (None, PROBE),
        "--add-to": board.file,
    }
    for option, value in given.items():
        if value:
            raise UsageError(f"{option} is of one audit; run visleak impact A for each of several")
    if board.framework or board.code or board.weights:
        raise UsageError("--framework, --code and --weights go with --add-to FILE.json")


def _refuse(files: Files, board: Board) -> None:
    """Refuse what cannot end well before anything is read.

    Raises:
        UsageError: see its message.
    """
    from visleak.errors import UsageError
    from visleak.impact.leaderboard import check, read_leaderboard

    _refuse_nothing(files)
    entry = (board.framework, board.code, board.weights)
    if board.file is None:
        if any(entry):
            raise UsageError("--framework, --code and --weights go with --add-to FILE.json")
        return
    if len(files.fair) != 1:
        raise UsageError(
            "--add-to puts one model on the leaderboard: give --fair FILE of one model, what it"
            f" answered on the fair test set; got {len(files.fair)}"
        )
    check(*entry)
    if board.file.is_dir():
        raise UsageError(
            f"--add-to: {board.file} is a folder; give a file, such as leaderboard.json"
        )
    if board.file.exists():
        # a file that is no leaderboard is found before the work, not after it
        read_leaderboard(board.file)


def _say(result: Impact, place: Place, board: Board) -> None:
    from visleak.cli.impact_view import shown
    from visleak.cli.terminal import rendered
    from visleak.impact.stored import RESULT

    if place.json:
        edges.say_bytes((place.out / RESULT).read_bytes())
        return
    edges.say(rendered(shown(result)))
    for path in (place.out, *([board.file] if board.file is not None else [])):
        edges.say(f"{edges.plain(str(path))}\n")


def _say_together(results: Mapping[str, Impact], place: Place) -> None:
    from visleak.cli.impact_view import shown_together
    from visleak.cli.terminal import rendered
    from visleak.impact.stored import RESULT

    if place.json:
        edges.say_bytes((place.out / RESULT).read_bytes())
        return
    edges.say(rendered(shown_together(results)))
    edges.say(f"{edges.plain(str(place.out))}\n")
