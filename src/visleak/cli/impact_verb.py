"""``visleak impact``: the impact of leaked images on scores, of one audit or of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from visleak.cli.command import Call, Reply, warn_if_unfinished
from visleak.cli.named_files import by_prefix, fair_files, named_files, named_folders
from visleak.errors import UsageError
from visleak.impact.settings import FILES, LEAKS, ImpactSettings
from visleak.options import AUDIT_DIR, OUTPUT, Options, Printed, Replaced, argument, option

if TYPE_CHECKING:
    from visleak.impact import Check
    from visleak.impact.run import CheckedFile

BOARD: Final = "Leaderboard"  # panel of `--help`
ROWS: Final = 60  # rows of a table on a terminal


@dataclass(frozen=True)
class Inputs(Options):
    """Audits and prediction files."""

    folder: Path | None = argument(None, "An audit folder.", metavar=AUDIT_DIR)
    audit: tuple[str, ...] = option(
        (),
        "Several audits in one table instead of AUDIT_DIR, such as c10=audit-c10; predictions are"
        " then [AUDIT:][NAME=]FILE, such as c10:resnet=resnet.csv. May be repeated.",
        metavar="NAME=FOLDER",
        panel=FILES,
    )
    predictions: tuple[str, ...] = option(
        (),
        "A model's predictions by image id (.csv, .parquet, .npz): correct, prediction, class"
        " scores, or any metric per image. NAME is the model, by default the file's stem. May be"
        " repeated.",
        metavar="[NAME=]FILE",
        panel=FILES,
    )
    fair_predictions: tuple[str, ...] = option(
        (),
        "Its predictions on the fair test set that visleak replace wrote. May be repeated.",
        metavar="[NAME=]FILE",
        panel=FILES,
    )
    check: bool = option(
        False,
        "Only check whether the files fit the audit: ids off by one, shuffled rows, permuted class"
        " names, swapped files. Writes nothing; exits with 1 if one is in doubt.",
        panel=FILES,
    )
    subset: tuple[str, ...] = option(
        (),
        "Leaked images of your own, one id per line. May be repeated.",
        metavar="NAME=IDS.txt",
        panel=LEAKS,
    )

    def folders(self) -> Mapping[str, Path]:
        """Return the audit folders by name; one alone has an empty name."""
        if (self.folder is None) == (not self.audit):
            raise UsageError("give one audit folder, or several with --audit NAME=FOLDER")
        return named_folders("--audit", self.audit) if self.folder is None else {"": self.folder}

    def files(self, audits: Sequence[str]) -> dict[str, tuple[dict[str, Path], dict[str, Path]]]:
        """Return prediction files by model, of the test set and of its fair one, per audit."""
        own, fair = {"": list(self.predictions)}, {"": list(self.fair_predictions)}
        if "" not in audits:
            own = by_prefix("--predictions", self.predictions, audits)
            fair = by_prefix("--fair-predictions", self.fair_predictions, audits)
        found = {}
        for name in audits:
            files = named_files("--predictions", own[name])
            if not files:
                prefix = f"{name}:" if name else ""
                raise UsageError(
                    f"nothing to measure: give --predictions {prefix}[NAME=]FILE, the predictions"
                    " of a model"
                )
            found[name] = (files, fair_files(fair[name], files))
        return found


@dataclass(frozen=True)
class Output(Printed, Replaced):
    """Where the result is written."""

    out: Path = option(
        Path("visleak-impact"),
        "Folder of the result.",
        "--output -o",
        metavar="DIR",
        panel=OUTPUT,
    )
    no_images: bool = option(False, "Put no images into the report.", panel=OUTPUT)


@dataclass(frozen=True)
class Board(Options):
    """An entry of a leaderboard."""

    leaderboard: Path | None = option(
        None,
        "Add the model's error on the fair test set to this leaderboard; needs --fair-predictions,"
        " --framework, --code and --weights.",
        metavar="FILE.json",
        panel=BOARD,
    )
    framework: str = option("", "Framework of the model.", metavar="NAME", panel=BOARD)
    code: str = option("", "URL of its code.", metavar="URL", panel=BOARD)
    weights: str = option("", "URL of its weights.", metavar="URL", panel=BOARD)

    def refuse(self, fair: Mapping[str, Path]) -> None:
        """Refuse what cannot become an entry, before anything is computed."""
        from visleak.impact.leaderboard import check, read_leaderboard

        file = self.leaderboard
        if file is None:
            if self.framework or self.code or self.weights:
                raise UsageError("--framework, --code and --weights need --leaderboard FILE.json")
            return
        if len(fair) != 1:
            raise UsageError(
                "--leaderboard adds one model: give --fair-predictions FILE of one model; got"
                f" {len(fair)}"
            )
        check(self.framework, self.code, self.weights)
        if file.is_dir():
            raise UsageError(
                f"--leaderboard: {file} is a folder; give a file, such as leaderboard.json"
            )
        if file.exists():
            read_leaderboard(file)


def impact(
    inputs: Inputs, settings: ImpactSettings, board: Board, output: Output, call: Call
) -> Reply:
    """Measure the impact of leaked images on the scores of models, and its significance.

    Writes tables, figures and impact.json to a folder, and a section into the report of the audit.
    """
    from visleak.auditing import Audit
    from visleak.impact import impact as measured
    from visleak.impact.document import (
        KIND,
        SECTION,
        document,
        several_document,
        write,
        write_several,
    )
    from visleak.impact.leaderboard import add_to
    from visleak.report import show_in_report
    from visleak.reporting import section, terminal
    from visleak.storage import RunFolder, free_folder, refuse_sets

    folders = inputs.folders()
    files = inputs.files(list(folders))
    one = "" in folders
    if one:
        lists = named_files("--subset", inputs.subset, what="subset", needs_name=True)
        settings = replace(settings, subsets=lists)
    else:
        _refuse_several(inputs, settings, board)
        for folder in folders.values():
            warn_if_unfinished(folder)
    if inputs.check:
        return _checked(folders, files, settings, call)
    board.refuse(files[""][1] if one else {})
    audits = {name: Audit(folder) for name, folder in folders.items()}
    for audit in audits.values():
        refuse_sets(audit.summary, output.out)
    run = RunFolder(output.out, KIND)
    force = call.replaces(run.path, run.result.name, force=output.force)
    free_folder(run.path, run.result.name, force=force)
    results = {
        name: measured(folders[name], own, settings, fair=fair, progress=call.progress)
        for name, (own, fair) in files.items()
    }
    call.progress("writing the result", 0, 0)
    with run.claimed():
        write(results[""], run.path) if one else write_several(results, run.path)
    for name, result in results.items():
        content = section(document(result, "page"))
        show_in_report(audits[name], SECTION, content, private=output.no_images)
    call.progress("writing the result", 1, 1)
    if board.leaderboard is not None:
        entry = {"framework": board.framework, "code": board.code, "weights": board.weights}
        add_to(board.leaderboard, results[""], **entry)
    page = document(results[""], "terminal") if one else several_document(results, "terminal")
    written = [run.path, *([board.leaderboard] if board.leaderboard is not None else [])]
    return Reply(list(terminal(page, tables=None, rows=ROWS)), run.result, files=written)


def _refuse_several(inputs: Inputs, settings: ImpactSettings, board: Board) -> None:
    """Refuse options that are about one audit only."""
    given = {
        "--set": settings.test_set,
        "--reference": settings.references,
        "--subset": inputs.subset,
        "--difficulty FILE": settings.difficulty not in (None, "probe"),
        "--leaderboard": board.leaderboard,
    }
    for flag, value in given.items():
        if value:
            raise UsageError(
                f"{flag} is about one audit; run visleak impact AUDIT_DIR for each of several"
            )
    board.refuse({})


def _checked(
    folders: Mapping[str, Path],
    files: Mapping[str, tuple[Mapping[str, Path], Mapping[str, Path]]],
    settings: ImpactSettings,
    call: Call,
) -> Reply:
    """Compare files with their audits; exit with 1 where one is in doubt."""
    from visleak.impact import check

    found = {
        name: check(folders[name], own, settings, fair=fair, progress=call.progress)
        for name, (own, fair) in files.items()
    }
    lines = [
        f"{name}: {line}" if name else line
        for name, each in found.items()
        for line in _check_lines(each)
    ]
    every = {name: asdict(each) for name, each in found.items()}
    doubtful = any(each.doubts for each in found.values())
    return Reply(lines, every.get("", every), code=int(doubtful))


def _check_lines(found: Check) -> list[str]:
    """Return doubts first, then file by file."""
    files = "file fits" if len(found.files) == 1 else f"{len(found.files):,} files fit"
    fits = f"the {files} {found.test_set}, as far as can be checked"
    lines = [f"warning: {doubt}" for doubt in found.doubts] or [fits]
    for file in found.files:
        lines += [_check_line(file, found.images), *(f"  {note}" for note in file.notes)]
    return lines


def _check_line(file: CheckedFile, images: int) -> str:
    from visleak.impact.numbers import score

    where = " (fair test set)" if file.fair else ""
    scores = ", ".join(f"{name} {score(v, percent=False)}" for name, v in file.scores.items())
    how = (
        f"{' and '.join(file.checked)} compared with the audited labels"
        if file.checked
        else "no predicted classes or labels to compare, so ids and order were only compared with"
        " other models"
    )
    return (
        f"{file.model}{where}: predictions for {file.answered:,} of {images:,} images; {scores};"
        f" {how}"
    )
