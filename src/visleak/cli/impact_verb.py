"""``visleak impact`` and ``visleak evaluate``: leaks and scores, and models run for predictions."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from visleak.cli import edges
from visleak.cli.command import Call, CommandGroup, Reply, add, begin_with
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
from visleak.options import OUTPUT, Execution, Printed, Replaced, keywords, option, output

if TYPE_CHECKING:
    from visleak.impact.evaluators.classification import Classification
    from visleak.records import ImageSet
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
            begin_with(folder)
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


# -- ``visleak evaluate``: the built-in evaluators, each a command of its own ---------------------


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

    target = _target(target, call)
    given = keywords(settings)
    if settings.images is None and settings.texts is None:
        if settings.source is None:
            raise UsageError(
                "nothing to search: give SOURCE, a set of images with captions, or --images FILE"
                " and --texts FILE with vectors"
            )
        images = _opened(settings.source, settings.id, None, target, call)
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
    """Classify a set and save the predictions."""
    from visleak.impact.evaluators.classification import content, document

    target = _target(target, call)
    images = _opened(data.source, data.id, data.label, target, call)
    result = run(images, progress=call.progress, **given, **keywords(target))
    return _reply(document(result), content(result), target)


def _target(target: Target, call: Call) -> Target:
    """Return where predictions are written; earlier ones are kept aside."""
    from visleak.impact.evaluators.predictions import KIND

    return replace(target, force=call.replaces_file(target.out, KIND, force=target.force))


def _opened(
    source: str, id_: str | None, label: str | None, target: Target, call: Call
) -> ImageSet:
    """Return the images of a source; refuse a target that cannot be written first."""
    from visleak.formats.opening import open_set
    from visleak.impact.evaluators.predictions import check_target
    from visleak.settings import SideColumns
    from visleak.storage import refuse_inputs

    check_target(target.out, force=target.force)
    call.progress("listing images", 0, 0)
    images = open_set(source, SideColumns(id_, label))
    refuse_inputs(target.out, [(images.name, images.source)], Path())
    call.progress("listing images", 1, 1)
    return images


def _reply(document: Document, content: Mapping[str, object], target: Target) -> Reply:
    from visleak.reporting import terminal

    command = f"next: visleak impact AUDIT_DIR --predictions {shlex.quote(str(target.out))}"
    return Reply([*terminal(document), str(target.out), command], content)


evaluate = typer.Typer(
    cls=CommandGroup,
    help="Run a model on a test set; the file of its predictions is for visleak impact.",
    rich_markup_mode="rich",
)


@evaluate.callback(invoke_without_command=True)
def _evaluate(context: typer.Context) -> None:
    # idle threads of torch spin on the cores that the workers need: measured, two to four times
    # slower on a busy machine; it is read once, when torch is imported
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if context.invoked_subcommand is None:
        edges.say(context.get_help() + "\n")


add(
    evaluate,
    "classify",
    classify,
    "evaluate classify test/ --model hf:microsoft/resnet-50 -o resnet-50.parquet",
)
add(
    evaluate,
    "zeroshot",
    zeroshot,
    "evaluate zeroshot val/ --classes names.tsv --templates openai -o clip.parquet",
)
add(
    evaluate,
    "retrieve",
    retrieve,
    "evaluate retrieve flickr30k-images/ --captions dataset_flickr30k.json -o clip.parquet",
)
