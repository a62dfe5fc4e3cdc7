"""Which encoder an audit uses where vectors were made elsewhere, and whether they are its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from visleak.encoders import known_request, load_encoder
from visleak.encoders.request import parse
from visleak.encoders.thresholds import published
from visleak.errors import UsageError, VisleakError
from visleak.records import AnySet, Bool, EmbeddingSet, Encoder, Encodes, Float32, Picture

#: The encoder of an audit of pictures for which nobody named one.
DEFAULT: Final = "builtin"

#: Encoders that compute on no device: one that is asked for is meant for the comparison.
WITHOUT_DEVICE: Final = (DEFAULT, "phash", "pdq")

#: Name of an encoder that is not one of visleak's: ``other:NAME``.
FOREIGN: Final = "other"

#: What the digest of an encoder begins with of which only the name is known.
BY_NAME: Final = "by name: "


@dataclass(eq=False)
class StoredEncoder:
    """The encoder of vectors that are already there: nothing of it is needed but its name.

    Attributes:
        name, digest, width, enough, views, thresholds, cohort: as of
            :class:`visleak.records.Encoder`.
    """

    name: str
    digest: str
    width: int
    thresholds: Mapping[str, Any] | None
    enough: int = 0
    views: int = 1
    cohort: Float32 | None = None

    def encode(self, pictures: Sequence[Picture]) -> tuple[Float32, Bool]:
        """Refuse: there is no network.

        Raises:
            VisleakError: always.
        """
        self._refuse("encode pictures")

    def view(self, vectors: Float32, view: int) -> Float32:
        """Refuse: views of stored vectors cannot be made.

        Raises:
            VisleakError: always.
        """
        self._refuse("make views of vectors")

    def _refuse(self, what: str) -> NoReturn:
        raise VisleakError(
            f"encoder {self.name} is known by its stored vectors only and cannot {what};"
            f" name it with --encoder"
        )


def encoder_for(
    sets: Sequence[AnySet],
    asked: str | Encoder | Encodes,
    options: Mapping[str, object] | None = None,
) -> Encoder:
    """Return the encoder of an audit.

    Args:
        sets: what is compared.
        asked: an encoder or its text; empty takes that of the embeddings, else ``builtin``.
        options: of ``load_encoder``, where a model is loaded.

    Raises:
        VisleakError: some vectors are of another encoder, or of another width.
        UsageError, MissingExtra: as ``load_encoder``.
    """
    stored = [images for images in sets if isinstance(images, EmbeddingSet)]
    if not stored:
        return load_encoder(asked or DEFAULT, **(options or {}))
    _refuse_unknown_names(stored)
    encoder = _chosen(stored, asked, options or {}, alone=len(stored) == len(sets))
    for images in stored:
        _check(images, encoder)
    return encoder


def _refuse_unknown_names(stored: Sequence[EmbeddingSet]) -> None:
    """Refuse sets whose encoder is known by name only, and that name means nothing.

    Raises:
        UsageError: such a name was given.
    """
    for images in stored:
        prefix, _, foreign = images.encoder_name.partition(":")
        if images.encoder or (prefix == FOREIGN and foreign):
            continue
        try:
            known_request(images.encoder_name)
        except UsageError as error:
            raise UsageError(
                f"set {images.name!r} ({images.source}): {error}. For vectors of another model"
                f" write ?encoder={FOREIGN}:NAME"
            ) from error


def _chosen(
    stored: Sequence[EmbeddingSet],
    asked: str | Encoder | Encodes,
    options: Mapping[str, object],
    *,
    alone: bool,
) -> Encoder:
    """Return the encoder; a model is loaded only where pictures must be encoded."""
    if not isinstance(asked, str):
        return load_encoder(asked, **options)
    lead = next((images for images in stored if images.encoder), stored[0])
    if not alone:
        name = asked or lead.encoder_name
        unused = {"device"} if parse(name).name in WITHOUT_DEVICE else set()
        return load_encoder(name, **{key: options[key] for key in options if key not in unused})
    if asked and _network(asked) != _network(lead.encoder_name):
        if parse(asked).name != parse(lead.encoder_name).name or not lead.encoder:
            _mismatch(lead, asked, "")
        # the same kind under another name or from another folder: its digest tells
        return load_encoder(asked)
    if lead.encoder_name == DEFAULT:
        own = load_encoder(DEFAULT)
        # its cohort and views serve vectors that were stored as well
        if lead.encoder in ("", own.digest):
            return own
    return StoredEncoder(
        name=lead.encoder_name,
        digest=lead.encoder or BY_NAME + lead.encoder_name,
        width=lead.width,
        thresholds=lead.thresholds if lead.encoder else published(lead.encoder_name),
    )


def _network(text: str) -> str:
    """Return an encoder's text without how pictures are resized before it.

    A name is all that is known of many vectors; LAION's were made by ``clip`` of resized pictures,
    and are compared with queries of ``clip`` as well as of ``clip?prep=laion``.
    """
    request = parse(text)
    return request.named(*sorted(set(request.options) - {"prep"}))


def _check(images: EmbeddingSet, encoder: Encoder) -> None:
    """Refuse vectors that are not the encoder's."""
    known = images.encoder and not encoder.digest.startswith(BY_NAME)
    same = (
        images.encoder == encoder.digest
        if known
        else _network(images.encoder_name) == _network(encoder.name)
    )
    if not same:
        _mismatch(images, encoder.name, encoder.digest)
    if images.width != encoder.width:
        raise VisleakError(
            f"set {images.name!r} ({images.source}) holds vectors of {images.width} numbers,"
            f" {encoder.name} makes {encoder.width}; they cannot be compared"
        )


def _mismatch(images: EmbeddingSet, name: str, digest: str) -> NoReturn:
    theirs = _called(images.encoder_name, images.encoder)
    raise VisleakError(
        f"set {images.name!r} ({images.source}) was made with encoder {theirs}, the audit uses"
        f" {_called(name, digest)}; vectors of two encoders cannot be compared"
    )


def _called(name: str, digest: str) -> str:
    """Return an encoder in words, with the beginning of its digest where that is known."""
    known = digest and not digest.startswith(BY_NAME)
    return f"{name} (digest {digest[:12]})" if known else name
