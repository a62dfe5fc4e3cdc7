"""``manifest.json`` of a folder of embeddings: who made the vectors, and of what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from visleak.errors import VisleakError

#: Names within the folder, as clip-retrieval has them.
MANIFEST: Final = "manifest.json"
VECTORS: Final = "img_emb"
TEXTS: Final = "metadata"

#: There while a folder is being written, with what is needed to go on.
UNFINISHED: Final = "unfinished.json"

#: What the manifest says it is, and the version of its layout.
KIND: Final = "visleak embeddings"
SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a folder of embeddings says of itself.

    Attributes:
        encoder: digest of the encoder.
        encoder_name: how the command line calls it.
        width: number of coordinates.
        thresholds: that the encoder came with, or ``None``.
        anonymous: ids are salted hashes, and nothing else is known of the images.
        shards: number of vectors in each shard.
        digests: BLAKE2b-128 of each shard's file of vectors; empty where it is not stated.
        tables: those of their tables.
    """

    encoder: str
    encoder_name: str
    width: int
    thresholds: Mapping[str, Any] | None
    anonymous: bool
    shards: tuple[int, ...]
    digests: tuple[str, ...]
    tables: tuple[str, ...]


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a folder, ``None`` if it has none.

    Raises:
        VisleakError: it is damaged, of a newer visleak, or the folder was never finished.
    """
    path = folder / MANIFEST
    if not path.is_file():
        if (folder / UNFINISHED).is_file():
            raise VisleakError(
                f"{folder} is not finished; run the same `visleak encode` again, it goes on"
                " where it stopped"
            )
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise VisleakError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("kind") != KIND:
        # clip-retrieval and others have files of that name too
        return None
    schema = content.get("schema")
    if not isinstance(schema, int) or schema > SCHEMA:
        raise VisleakError(
            f"{path} has layout {schema!r}, this visleak reads up to {SCHEMA}; use a newer one"
        )
    try:
        return _manifest(content)
    except (KeyError, TypeError, ValueError) as error:
        raise VisleakError(f"{path} is damaged ({error!r}); encode the set again") from error


def _manifest(content: Mapping[str, Any]) -> Manifest:
    encoder, thresholds = content["encoder"], content["thresholds"]
    if thresholds is not None:
        hard, soft = float(thresholds["hard"]), float(thresholds["soft"])
        if not -1.0 <= soft <= hard <= 1.0:
            raise ValueError("thresholds are similarities with -1 <= soft <= hard <= 1")
        thresholds = {
            "hard": hard,
            "soft": soft,
            "provenance": str(thresholds.get("provenance", "")),
            "provisional": bool(thresholds.get("provisional", False)),
        }
    return Manifest(
        encoder=str(encoder["digest"]),
        encoder_name=str(encoder["name"]),
        width=int(encoder["width"]),
        thresholds=thresholds,
        anonymous=bool(content["anonymous"]),
        shards=tuple(int(shard["rows"]) for shard in content["shards"]),
        digests=tuple(str(shard.get("digest", "")) for shard in content["shards"]),
        tables=tuple(str(shard.get("metadata_digest", "")) for shard in content["shards"]),
    )
