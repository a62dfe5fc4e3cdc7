"""What an anonymous folder of embeddings calls its images, and what its owner keeps."""

from __future__ import annotations

import hashlib
import os
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from visleak.encoders.request import parse
from visleak.errors import UsageError, VisleakError
from visleak.records import ImageSet
from visleak.storage import replacing, write_csv

#: A shorter salt can be guessed.
SHORTEST: Final = 16

#: Columns of the file that maps hashed ids back.
MAPPING_COLUMNS: Final = ("hashed", "id", "locator")

#: Encoders whose vectors show what the pictures look like to anybody who reads their source.
THUMBNAILS: Final = ("builtin",)


@dataclass(frozen=True, slots=True)
class Salt:
    """The secret of an anonymous folder.

    Attributes:
        path: the file it is kept in, outside the folder.
        key: made of it, 64 bytes.
    """

    path: Path
    key: bytes

    def hashed(self, ids: pa.StringArray) -> pa.StringArray:
        """Return what the images are called: keyed BLAKE2b-128 of their ids, in hexadecimal."""
        return pa.array(
            (
                hashlib.blake2b(id_.encode(), key=self.key, digest_size=16).hexdigest()
                for id_ in ids.to_pylist()
            ),
            pa.string(),
        )


def salt_for(folder: Path, given: Path | None) -> Salt:
    """Return the salt of a folder: that of a file, the one beside the folder, or a new one.

    Args:
        folder: the folder that is published.
        given: a file with a salt.

    Raises:
        UsageError: the file is not there, lies in the folder, or its salt is too short.
        VisleakError: it cannot be read or written.
    """
    path = given if given is not None else beside(folder, ".salt")
    if given is not None and not given.is_file():
        raise UsageError(f"salt {given} is no file; leave --salt out to have one made")
    if path.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"salt {path} lies in {folder}, which is published; keep it elsewhere")
    try:
        if not path.exists():
            _write_secret(path, secrets.token_hex(32) + "\n")
        text = path.read_bytes().strip()
    except OSError as error:
        raise VisleakError(f"the salt {path} cannot be read or written: {error}") from error
    if len(text) < SHORTEST:
        raise UsageError(
            f"the salt in {path} has {len(text)} characters and can be guessed; it needs"
            f" {SHORTEST} or more"
        )
    return Salt(path, hashlib.blake2b(text).digest())


def beside(folder: Path, ending: str) -> Path:
    """Return a name beside a folder."""
    plain = folder.resolve()
    return plain.with_name(plain.name + ending)


def public_name(text: str) -> str:
    """Return an encoder's text without the folders of this machine.

    >>> public_name("clip"), public_name("sscd:/nowhere/at/all.pt?resize=288")
    ('clip', 'sscd:/nowhere/at/all.pt?resize=288')
    """
    request = parse(text)
    if not request.argument or not Path(request.argument).exists():
        return text
    return replace(request, argument=Path(request.argument).name).named(*request.options)


def write_mapping(folder: Path, images: ImageSet, hashed: pa.StringArray) -> Path:
    """Write, beside a folder, which image is called what; for its owner alone.

    Raises:
        VisleakError: it cannot be written.
    """
    path = beside(folder, ".ids.csv")
    rows = zip(hashed.to_pylist(), images.ids.to_pylist(), images.locators.to_pylist(), strict=True)
    try:
        write_csv(path, MAPPING_COLUMNS, (tuple(cell or "" for cell in row) for row in rows))
        path.chmod(0o600)
    except OSError as error:
        raise VisleakError(f"{path} cannot be written: {error}") from error
    return path


def _write_secret(path: Path, text: str) -> None:
    """Write a file that others cannot read."""
    with replacing(path) as part:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(text)
