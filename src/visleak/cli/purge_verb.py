"""``visleak purge``: a data set without the images that leak, and taking it back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visleak.cli import edges, options

if TYPE_CHECKING:
    from visleak.remedy.undoing import Undo


def purge(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="A", show_default=False, callback=options.told, help="An audit folder."
        ),
    ] = None,
    side: Annotated[
        str | None,
        typer.Option(
            "--remove-from",
            metavar="test|train",
            show_default=False,
            help="Where images go: of a leaking pair the test image, or the training image.",
        ),
    ] = None,
    grade: Annotated[
        str | None,
        typer.Option(
            "--grade",
            metavar="exact|near|similar",
            show_default=False,
            help="Weakest grade of the pairs that count: near (the default) means near and"
            " exact. ciFAIR (Barz & Denzler 2020) counts similar and stronger: --grade similar.",
        ),
    ] = None,
    degree: Annotated[
        str | None,
        typer.Option(
            "--degree",
            metavar="hard|soft",
            show_default=False,
            help="Weakest degree of the pairs that count, where there are no grades: soft means"
            " soft and hard.",
        ),
    ] = None,
    set_name: Annotated[
        str | None,
        typer.Option("--set", metavar="NAME", help="The set to purge, where there are several."),
    ] = None,
    within: Annotated[
        str,
        typer.Option(
            "--within",
            metavar="keep|drop",
            help="Test images that repeat each other: keep all, or drop all but the first of each"
            " group.",
        ),
    ] = "keep",
    include_disputed: options.IncludeDisputed = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", show_default=False, help="Folder of the clean data."
        ),
    ] = None,
    as_: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="manifest|link|copy",
            help="Lists of what stays and goes; or the data set in its own layout, of symbolic"
            " links or of copies.",
        ),
    ] = "manifest",
    undo: Annotated[
        Path | None,
        typer.Option(
            "--undo",
            metavar="MANIFEST",
            show_default=False,
            help="Take back what a purge, split or replace wrote: its manifest.json, or its"
            " folder. What was changed since stays.",
        ),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Do it; without this, only the plan is printed.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the plan and the result as json.")
    ] = False,
) -> None:
    """Plan a data set without the images that leak, and write it with --apply.

    The sets themselves are never changed.
    """
    from visleak.errors import UsageError

    if undo is not None:
        others = (folder, side, grade, degree, set_name, out)
        if any(other is not None for other in others):
            raise UsageError("--undo takes a manifest alone, and --apply")
        _undo(undo, apply=apply, json=json)
        return
    if folder is None or side is None:
        what = "an audit folder" if folder is None else "--remove-from test or --remove-from train"
        raise UsageError(f"purge needs {what}, or --undo MANIFEST; see visleak purge --help")
    if apply and out is None:
        raise UsageError("--apply needs a folder to write: -o DIR")
    if grade is not None and degree is not None:
        raise UsageError("give either --grade or --degree")
    from visleak.auditing import Audit
    from visleak.cli.progress import bars
    from visleak.cli.purge_view import shown
    from visleak.cli.terminal import rendered
    from visleak.remedy import purge as purged

    audit = Audit(folder)
    with bars() as progress:
        result = purged(
            audit,
            side=side,
            grade=grade or "near",
            degree=degree,
            set_name=set_name,
            within=within,
            include_disputed=include_disputed,
            out=out if apply else None,
            how=as_,
            progress=progress,
        )
    if json:
        _say_json(result.as_dict())
    else:
        edges.say(rendered(shown(result, audit.summary, out)))


def _undo(manifest: Path, *, apply: bool, json: bool) -> None:
    from visleak.cli.progress import bars
    from visleak.remedy import undo

    with bars() as progress:
        result = undo(manifest, apply=apply, progress=progress)
    if json:
        _say_json(result.as_dict())
    else:
        edges.say("".join(f"{edges.plain(line)}\n" for line in _undone(result)))


def _undone(result: Undo) -> list[str]:
    from visleak.remedy.staging import sized

    done = "removed" if result.applied else "would be removed"
    lines = [f"{len(result.removed):,} files of {result.folder} {done} ({sized(result.bytes)})"]
    lines += [f"  stays: {name}: {what}" for name, what in result.kept]
    lines += [f"  stays: {name}: not written by visleak" for name in result.others]
    if not result.applied:
        lines.append("nothing was removed; --apply does it")
    return lines


def _say_json(content: dict[str, Any]) -> None:
    import json

    text = json.dumps(content, indent=1, ensure_ascii=False)
    edges.say(text.encode("utf-8", "backslashreplace").decode() + "\n")
