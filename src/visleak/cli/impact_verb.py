"""``visleak impact``: the impact of leaked images on scores, of one audit or of several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from visleak.cli.command import Call, Reply, warn_if_unfinished
from visleak.impact.inputs import Board, Inputs, named_files, refuse_several
from visleak.impact.settings import ImpactSettings
from visleak.options import OUTPUT, Printed, Replaced, option, output

ROWS: Final = 60  # rows of a table on a terminal


@dataclass(frozen=True)
class Output(Printed, Replaced):
    """Where the result is written."""

    out: Path = output(Path("visleak-impact"), "Folder of the result.")
    no_images: bool = option(False, "Put no images into the report.", panel=OUTPUT)


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
        refuse_several(inputs, settings, board)
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


def _checked(
    folders: Mapping[str, Path],
    files: Mapping[str, tuple[Mapping[str, Path], Mapping[str, Path]]],
    settings: ImpactSettings,
    call: Call,
) -> Reply:
    """Compare files with their audits; exit with 1 where one is in doubt."""
    from visleak.impact import check
    from visleak.impact.document import check_lines

    found = {
        name: check(folders[name], own, settings, fair=fair, progress=call.progress)
        for name, (own, fair) in files.items()
    }
    lines = [
        f"{name}: {line}" if name else line
        for name, each in found.items()
        for line in check_lines(each)
    ]
    every = {name: asdict(each) for name, each in found.items()}
    doubtful = any(each.doubts for each in found.values())
    return Reply(lines, every.get("", every), code=int(doubtful))
