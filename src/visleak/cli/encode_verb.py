"""``visleak encode``: write the vectors of a set as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visleak.cli import edges, options
from visleak.cli.audit_verb import cache_folder
from visleak.cli.engines import engine_of

if TYPE_CHECKING:
    from visleak.embedding import Encoded


def encode(
    source: options.Collection,
    out: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            show_default=False,
            rich_help_panel=options.OUT,
            help="Folder of the embeddings.",
        ),
    ],
    encoder: Annotated[
        str,
        typer.Option(
            "--encoder", metavar="NAME", rich_help_panel=options.HOW, help="Makes the vectors."
        ),
    ] = "builtin",
    id_: options.Id = None,
    label: options.Label = None,
    group: options.Group = None,
    shard: Annotated[
        int,
        typer.Option(
            "--shard",
            metavar="N",
            min=1,
            rich_help_panel=options.OUT,
            help="Images a file of vectors.",
        ),
    ] = 1_000_000,
    dtype: Annotated[
        str,
        typer.Option(
            "--dtype",
            metavar="float16|float32",
            rich_help_panel=options.OUT,
            help="Numbers as they are stored.",
        ),
    ] = "float16",
    anonymous: Annotated[
        bool,
        typer.Option(
            "--anonymous",
            rich_help_panel=options.OUT,
            help="Call images by salted hashes and write nothing else of them. The salt, and a"
            " table that maps the hashes back, are written beside the folder: keep them.",
        ),
    ] = False,
    salt: Annotated[
        Path | None,
        typer.Option(
            "--salt",
            metavar="FILE",
            rich_help_panel=options.OUT,
            help="File with the salt; by default one is made, DIR.salt.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            rich_help_panel=options.OUT,
            help="Replace embeddings of another set or encoder.",
        ),
    ] = False,
    workers: options.Workers = None,
    engine: options.EngineName = "local",
    ray_address: options.RayAddress = None,
    cache: options.CacheFolder = None,
) -> None:
    """Write the vectors of a set of pictures as files that others can compare with.

    A run that was stopped goes on where it was. Compare with --train emb:DIR.
    """
    from visleak.cli import sets
    from visleak.cli.progress import bars
    from visleak.embedding import encode as written
    from visleak.embedding.encoding import THUMBNAILS
    from visleak.errors import VisleakError
    from visleak.storage import UNREADABLE

    if anonymous and encoder in THUMBNAILS:
        edges.note(
            "note: the built-in fingerprint contains a thumbnail (colours and edges) of every"
            " picture, whatever the ids are; publish a learned encoder's vectors:"
            " --encoder clip"
        )
    try:
        with bars() as progress:
            progress("listing images", 0, 0)
            images = sets.one(source, sets.Columns(id_, label, group))
            progress("listing images", 1, 1)
            result = written(
                images,
                encoder,
                out,
                shard=shard,
                dtype=dtype,
                anonymous=anonymous,
                salt=salt,
                workers=workers,
                cache=cache_folder(cache),
                progress=progress,
                engine=engine_of(engine, ray_address),
                force=force,
            )
    except KeyboardInterrupt as error:
        word, code = edges.verdict(error)
        kept = f"finished shards in {out} are kept, and the same command goes on from there"
        raise edges.Stopped(f"{word}; {kept}", code) from error
    _render(result)
    if result.unreadable and not result.vectors:
        raise VisleakError(
            f"none of the {result.unreadable:,} images of {images.name} could be read; see"
            f" {result.folder / UNREADABLE} for the reasons"
        )


def _render(result: Encoded) -> None:
    if result.reused:
        edges.note(f"reused: {result.folder} holds these very vectors, finished")
    unreadable = f", {result.unreadable:,} unreadable" if result.unreadable else ""
    files = "file" if result.shards == 1 else "files"
    edges.say(f"{result.vectors:,} vectors in {result.shards:,} {files}{unreadable}\n")
    edges.say(f"{edges.plain(str(result.folder))}\n")
    if result.salt is not None:
        edges.say(
            f"keep, and never publish: {edges.plain(str(result.salt))} (the salt) and"
            f" {edges.plain(str(result.mapping))} (which hash is which image)\n"
        )
