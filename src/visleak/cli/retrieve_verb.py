"""``visleak evaluate retrieve``: at which rank pictures find their own captions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visleak.cli import edges, evaluate_options, evaluate_view, options
from visleak.cli.audit_verb import cache_folder
from visleak.errors import UsageError

if TYPE_CHECKING:
    from visleak.impact.evaluators.retrieve import Retrieved


def retrieve(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME=]S",
            show_default=False,
            help="A set of pictures with captions; left out with --images and --texts.",
        ),
    ] = None,
    model: evaluate_options.Clip = None,
    out: evaluate_options.Predictions = Path("predictions.parquet"),
    id_: options.Id = None,
    captions: Annotated[
        Path | None,
        typer.Option(
            "--captions",
            metavar="FILE",
            rich_help_panel=options.SETS,
            help="The collection: .csv, .tsv or .parquet (id, caption), .json (Karpathy's split,"
            " COCO, {ID: CAPTION}) or Flickr30k's .token; by default the set's own captions.",
        ),
    ] = None,
    caption: Annotated[
        str | None,
        typer.Option(
            "--caption",
            metavar="first|all|N",
            rich_help_panel=options.HOW,
            help="Which of several captions of an image: the first, the N-th, or all of them, where"
            " the best counts. By default the first.",
        ),
    ] = None,
    images: Annotated[
        str | None,
        typer.Option(
            "--images",
            metavar="FILE",
            rich_help_panel=options.SETS,
            help="Instead of S and --model: vectors of images, emb:FOLDER, .npy, .npz or .parquet.",
        ),
    ] = None,
    texts: Annotated[
        str | None,
        typer.Option(
            "--texts",
            metavar="FILE",
            rich_help_panel=options.SETS,
            help="Vectors of captions, the same; each has the id of the image it is of.",
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            metavar="K",
            min=0,
            rich_help_panel=options.HOW,
            help="Seed of the draws of 200 queries.",
        ),
    ] = 0,
    device: options.Device = None,
    precision: options.Precision = None,
    batch: options.Batch = None,
    workers: options.Workers = None,
    cache: options.CacheFolder = None,
    json_: evaluate_options.Json = False,
    force: evaluate_options.Force = False,
) -> None:
    """Write at which rank each picture finds its own caption among all, and say R@1, R@5, R@10."""
    from visleak.cli import sets
    from visleak.cli.progress import bars
    from visleak.impact.evaluators.captions import FIRST
    from visleak.impact.evaluators.predictions import check_target
    from visleak.impact.evaluators.retrieve import retrieve as written
    from visleak.impact.evaluators.retrieve import retrieve_stored
    from visleak.storage import refuse_inputs

    running = evaluate_options.running(device, precision, batch)
    of_pictures = {
        "--model": model,
        "--id": id_,
        "--captions": captions,
        "--caption": caption,
        **{f"--{name}": value for name, value in running.items()},
    }
    _refuse_mixtures(source, images, texts, [name for name, v in of_pictures.items() if v])
    check_target(out, force=force)
    with bars() as progress:
        if images is not None and texts is not None:
            result = retrieve_stored(images, texts, out, progress=progress, seed=seed, force=force)
        else:
            progress("listing images", 0, 0)
            listed = sets.one(source or "", sets.Columns(id_))
            refuse_inputs(out, [(listed.name, listed.source)], Path())
            progress("listing images", 1, 1)
            result = written(
                listed,
                model or evaluate_options.CLIP,
                out,
                options=running,
                captions=captions,
                caption=caption or FIRST,
                workers=workers,
                cache=cache_folder(cache),
                progress=progress,
                seed=seed,
                force=force,
            )
    evaluate_view.show(result, _told(result), _plain(result), as_json=json_)


def _refuse_mixtures(
    source: str | None, images: str | None, texts: str | None, of_pictures: list[str]
) -> None:
    """Refuse a call that gives nothing to search, or two things.

    Raises:
        UsageError: see its message.
    """
    if images is None and texts is None:
        if source is None:
            raise UsageError(
                "nothing to search: give a set S of pictures with captions, or --images FILE and"
                " --texts FILE with vectors"
            )
        return
    if images is None or texts is None:
        there, missing = ("--texts", "--images") if images is None else ("--images", "--texts")
        raise UsageError(f"{there} needs {missing}: vectors of both sides")
    if source is not None or of_pictures:
        given = "S" if source is not None else of_pictures[0]
        raise UsageError(
            f"give either pictures (S, --model ...) or vectors (--images and --texts); got {given}"
            " with vectors"
        )


def _told(result: Retrieved) -> Iterator[str]:
    """Yield the summary, a line each."""
    who = f" of {result.name} by {result.model}" if result.name else ""
    yield edges.plain(f"{result.queries:,} images{who}, each among {result.collection:,} captions")
    for each in result.recalls:
        name = f"R@{each.k}"
        yield f"{name:<11}{evaluate_view.percent(each.share)}"
    if any(each.drawn is None for each in result.recalls):
        return
    drawn = ", ".join(
        f"R@{each.k} {100 * each.drawn.mean:.2f} +- {100 * each.drawn.deviation:.2f}"
        for each in result.recalls
        if each.drawn is not None
    )
    first = result.recalls[0].drawn
    if first is not None:
        yield f"{'drawn':<11}{drawn} % ({first.draws} draws of {first.queries} images)"


def _plain(result: Retrieved) -> dict[str, Any]:
    """Return the summary as JSON has it."""
    return {
        "set": result.name,
        "model": result.model,
        "queries": result.queries,
        "collection": result.collection,
        "recall": [each.plain() for each in result.recalls],
    }
