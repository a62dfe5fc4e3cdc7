"""``visleak impact`` and ``visleak evaluate``: leaks and scores, and models run for predictions."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from visleak.cli.command import Call, Reply, announce_audit, free, replaces
from visleak.errors import UsageError
from visleak.impact.evaluators import (
    CLIP,
    Classify,
    Network,
    Retrieve,
    Source,
    Target,
    Zeroshot,
)
from visleak.impact.settings import Board, ImpactSettings, Inputs, named_files, refuse_several
from visleak.options import OUTPUT, Columns, Execution, Printed, Replaced, keywords, option, output

if TYPE_CHECKING:
    from visleak.impact.evaluators.classification import Classification
    from visleak.reporting import Document

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
    from visleak.impact import check
    from visleak.impact import impact as measured
    from visleak.impact.document import (
        KIND,
        SECTION,
        check_lines,
        document,
        several_document,
        write,
        write_several,
    )
    from visleak.impact.leaderboard import add_to
    from visleak.report import show_in_report
    from visleak.reporting import section, terminal
    from visleak.storage import RunFolder, refuse_sets

    folders = inputs.folders()
    files = inputs.files(list(folders))
    one = "" in folders
    if one:
        lists = named_files("--subset", inputs.subset, what="subset", needs_name=True)
        settings = replace(settings, subsets=lists)
    else:
        refuse_several(inputs, settings, board)
        for folder in folders.values():
            announce_audit(folder)
    if inputs.check:
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
    board.refuse(files[""][1] if one else {})
    audits = {name: Audit(folder) for name, folder in folders.items()}
    for audit in audits.values():
        refuse_sets(audit.summary, output.out)
    run = RunFolder(output.out, KIND)
    free(run.path, run.result.name, force=output.force)
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


def classify(
    data: Source,
    settings: Classify,
    network: Network,
    execution: Execution,
    target: Target,
    printed: Printed,
    call: Call,
) -> Reply:
    """Run a classifier on a set and save its predictions."""
    from visleak.impact.evaluators.classification import classify as run

    given = {"running": keywords(network), **keywords(settings), **execution.chosen()}
    return _classified(run, given, data, target, call)


def zeroshot(
    data: Source,
    settings: Zeroshot,
    network: Network,
    execution: Execution,
    target: Target,
    printed: Printed,
    call: Call,
) -> Reply:
    """Classify a set with CLIP and class names, without training, and save the predictions."""
    from visleak.impact.evaluators.zeroshot import zeroshot as run

    given = {"options": keywords(network), **keywords(settings), **execution.chosen()}
    return _classified(run, given, data, target, call)


def retrieve(
    settings: Retrieve,
    network: Network,
    execution: Execution,
    target: Target,
    printed: Printed,
    call: Call,
) -> Reply:
    """Rank all captions for each image and save the rank of its own, with R@1, R@5 and R@10."""
    from visleak.impact.evaluators.retrieve import content, document, retrieve_stored
    from visleak.impact.evaluators.retrieve import retrieve as run

    target = _target(target)
    given = keywords(settings)
    if settings.images is None and settings.texts is None:
        if settings.source is None:
            raise UsageError(
                "nothing to search: give SOURCE, a set of images with captions, or --images FILE"
                " and --texts FILE with vectors"
            )
        images = call.opened(settings.source, Columns(settings.id), target.out)
        given = {name: value for name, value in given.items() if name not in ("source", "id")}
        result = run(
            images,
            options=keywords(network),
            progress=call.progress,
            **{"model": CLIP, **given, **keywords(target)},
            **execution.chosen(),
        )
    else:
        for there, missing in (("images", "texts"), ("texts", "images")):
            if there in given and missing not in given:
                raise UsageError(f"--{there} needs --{missing}: vectors of both sides")
        allowed = ("images", "texts", "seed", "out", "force", "json", "workers", "cache")
        call.only_with("--images and --texts", allowed)
        result = retrieve_stored(progress=call.progress, **given, **keywords(target))
    return _reply(document(result), content(result), target)


def _classified(
    run: Callable[..., Classification],
    given: Mapping[str, object],
    data: Source,
    target: Target,
    call: Call,
) -> Reply:
    from visleak.impact.evaluators.classification import content, document

    target = _target(target)
    images = call.opened(data.source, Columns(data.id, data.label), target.out)
    result = run(images, progress=call.progress, **given, **keywords(target))
    return _reply(document(result), content(result), target)


def _target(target: Target) -> Target:
    """Return where predictions are written; earlier ones are kept aside."""
    from visleak.impact.evaluators.predictions import KIND, check_target

    free = replaces(target.out, KIND, force=target.force, file=True)
    check_target(target.out, force=free)
    return replace(target, force=free)


def _reply(document: Document, content: Mapping[str, object], target: Target) -> Reply:
    from visleak.reporting import terminal

    command = f"next: visleak impact AUDIT_DIR --predictions {shlex.quote(str(target.out))}"
    return Reply([*terminal(document), str(target.out), command], content)
