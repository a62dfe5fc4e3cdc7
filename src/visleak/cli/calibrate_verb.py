"""``visleak calibrate``: thresholds at a false-positive rate, for ``audit --thresholds``."""

from __future__ import annotations

import json as js
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visleak.cli import edges, options
from visleak.cli.audit_verb import cache_folder

if TYPE_CHECKING:
    from visleak.robustness.thresholding import Calibration


def calibrate(
    source: options.Collection,
    fpr: Annotated[
        str,
        typer.Option(
            "--fpr",
            metavar="R[,R]",
            show_default=False,
            rich_help_panel=options.HOW,
            help="False-positive rate of the hard threshold, such as 1e-6, and of the soft one; if"
            " that is not given: a hundred times the hard one's, up to 0.01.",
        ),
    ],
    encoder: options.EncoderName = None,
    conditions: options.Conditions = "paper",
    queries: options.Queries = 0,
    seed: options.Seed = 0,
    no_verify: options.Repeats = False,
    out: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", rich_help_panel=options.OUT, help="The file."
        ),
    ] = Path("thresholds.json"),
    json: Annotated[
        bool,
        typer.Option(
            "--json", rich_help_panel=options.OUT, help="Print the file instead of the summary."
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", rich_help_panel=options.OUT, help="Replace a file that is there already."
        ),
    ] = False,
    workers: options.Workers = None,
    cache: options.CacheFolder = None,
) -> None:
    """Find the thresholds of an encoder at false-positive rates.

    Compares different pictures of a set, changed in many ways, and writes a file for
    audit --thresholds.
    """
    from visleak.cli import sets
    from visleak.cli.progress import bars
    from visleak.robustness import calibrate as calibrated
    from visleak.storage import free_file, refuse_inputs, write_json

    rates = _rates(fpr)
    free_file(out, force=force)
    images = sets.one(source)
    refuse_inputs(out, [(images.name, images.source)], Path())
    with bars() as progress:
        result = calibrated(
            images,
            encoder or "builtin",
            fpr=rates,
            conditions=[name for name in conditions.split(",") if name],
            queries=queries,
            seed=seed,
            verify=not no_verify,
            workers=workers,
            cache=cache_folder(cache),
            progress=progress,
        )
    content = result.as_dict()
    write_json(out, content)
    for line in result.notes:
        edges.complain(line)
    if json:
        edges.say(js.dumps(content, indent=1) + "\n")
        return
    edges.say("".join(f"{line}\n" for line in _summary(result, out)))


def _rates(text: str) -> Sequence[float]:
    """Return the numbers of ``--fpr``."""
    from visleak.errors import UsageError

    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"--fpr must be one rate or two, such as 1e-6 or 1e-6,1e-4; got {text!r}"
        ) from None


def _summary(result: Calibration, out: Path) -> list[str]:
    lines = [
        f"{result.encoder}: hard {result.hard.threshold:g}, soft {result.soft.threshold:g}, by"
        f" {result.hard.pictures:,} pairs of pictures of {result.collection} under"
        f" {len(result.conditions)} conditions",
        "",
    ]
    for level in (result.hard, result.soft):
        lines += [
            f"  {level.name} {level.threshold:g}: {level.false:,} of {level.pairs:,} wrong pairs"
            f" ({level.rate:.2g}; asked {level.asked:g})",
            f"    95 % upper bound: {level.upper_pairs:.2g} if all are independent,"
            f" {level.upper_pictures:.2g} if pairs of pictures are,"
            f" {level.upper_images:.2g} however pairs of one picture depend",
            f"    found again: {level.original} unchanged, {level.changed} changed",
        ]
    if result.twins:
        lines.append(f"  {result.twins:,} pairs of the set are one picture twice: left out")
    lines += ["", str(out)]
    return [edges.plain(line) for line in lines]
