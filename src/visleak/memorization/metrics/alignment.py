"""CLIP score: how well a picture fits its prompt.

The cosine of a picture's and a text's unit vectors by one CLIP, without the factors of 100 or 2.5
and without cutting off at 0 that others have; so do MemBench and its code (ViT-g-14 of open_clip,
``laion2b_s12b_b42k``). Scores of different networks are different numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from visleak.encoders.clip import clip_encoder
from visleak.encoders.network import digest
from visleak.encoders.request import Request, parse
from visleak.encoders.text_towers import TextTower
from visleak.encoders.vision_language import load_text_tower
from visleak.errors import UsageError
from visleak.memorization.metrics.features import EncoderFeatures, options_of, precision_note
from visleak.records import Bool, Bytes8, Encoder

Float64 = npt.NDArray[np.float64]

#: What MemBench's CLIP scores are of, and what its aesthetic scores are made of.
MEMBENCH_CLIP: Final = "open_clip:ViT-g-14/laion2b_s12b_b42k"
AESTHETIC_CLIP: Final = "clip:openai/clip-vit-large-patch14"

_OPEN_CLIP: Final = "open_clip"


class Alignment(Protocol):
    """A model of pictures and texts.

    Attributes:
        name: as the command line calls it.
        digest: changes whenever any of its numbers could.
    """

    name: str
    digest: str

    def texts(self, prompts: Sequence[str]) -> Float64:
        """Return unit rows (n, width) of texts."""
        ...

    def images(self, pictures: Sequence[Bytes8]) -> Float64:
        """Return unit rows (n, width) of pictures, ``uint8`` (height, width, 3) of any sizes."""
        ...


class ClipAlignment:
    """A CLIP as an :class:`Alignment`.

    Args:
        tower: of the texts.
        encoder: of the pictures, of the same network.

    Attributes:
        encoder: makes the vectors of pictures; what reads whole sets uses it.
        width: of vectors.
    """

    number = "cosine of unit vectors of picture and text, without a factor"

    def __init__(self, tower: TextTower, encoder: Encoder) -> None:
        self.encoder, self._tower = encoder, tower
        self._features = EncoderFeatures(encoder)
        self.name, self.width = encoder.name, encoder.width
        self.digest = digest(tower.digest, self._features.digest + precision_note(tower))

    def texts(self, prompts: Sequence[str]) -> Float64:
        """Return unit rows (n, width) of texts; a text that is too long is cut, see :meth:`cut`.

        Raises:
            VisleakError: a vector is no direction.
        """
        if not len(prompts):
            return np.empty((0, self.width))
        return unit(self._tower.encode(list(prompts)).matrix)

    def images(self, pictures: Sequence[Bytes8]) -> Float64:
        """Return unit rows (n, width) of pictures.

        Raises:
            VisleakError: a vector is no direction.
        """
        return unit(self._features.images(pictures))

    def cut(self, prompts: Sequence[str]) -> Bool:
        """Return which texts are longer than the model reads, (n,)."""
        return self._tower.cut(prompts) if len(prompts) else np.empty(0, np.bool_)

    def about(self) -> dict[str, object]:
        """Return what a result has to name, as plain data."""
        recipe = getattr(getattr(self.encoder, "preparation", None), "recipe", dict)
        return {
            "name": self.name,
            "digest": self.digest,
            "number": self.number,
            "pictures": recipe(),
            "context": self._tower.context,
            "precision": self._tower.precision,
            "device": self._tower.device,
        }


def load_alignment(spec: str, device: str = "auto", precision: str = "fp32") -> ClipAlignment:
    """Return the model of pictures and texts that a text names.

    A folder of transformers that says nothing of how pictures are prepared is taken to do so as
    CLIP's own processor does, at the size of its network.

    Args:
        spec: folder of a CLIP of transformers, or its name on the hub (``OWNER/NAME``);
            ``open_clip:MODEL/WEIGHTS`` or ``open_clip:MODEL:FILE`` for one of open_clip, also
            ``open_clip:hf-hub:OWNER/NAME`` and ``open_clip:FOLDER``; or all of this as encoders
            are named, ``clip:...``. Options follow a ``?``, such as ``?batch=64``.
        device: ``auto``, ``cpu``, ``cuda:N`` or ``mps``.
        precision: ``fp32``, ``fp16``, ``bf16`` or ``auto``: half of it on a GPU gives other
            numbers, and another digest.

    Raises:
        UsageError: it is no CLIP, or an option or a name cannot be.
        MissingExtra: the library is not installed.
        VisleakError: weights or tokenizer cannot be had.
    """
    request = clip_request(spec, device, precision)
    # texts first: fetching their tokenizer may bring newer weights, which the pictures share then
    tower = load_text_tower(written(request))
    return ClipAlignment(tower, clip_encoder(request, assumed=True))


def clip_request(spec: str, device: str, precision: str) -> Request:
    """Return the request for a CLIP that a text stands for, see :func:`load_alignment`.

    Raises:
        UsageError: it names nothing, or another kind of encoder.

    >>> clip_request("open_clip:ViT-g-14:weights.bin", "cpu", "fp32").options["backend"]
    'open_clip'
    """
    # a folder may have any name
    whole = Path(spec).expanduser().is_dir()
    request = Request(spec, "clip", spec) if spec and whole else parse(spec, "encoder")
    if request.name == _OPEN_CLIP:
        request.wanted_argument("MODEL/WEIGHTS")
        request = replace(request, options={"backend": _OPEN_CLIP, **request.options})
    elif request.name != "clip":
        _refuse_others(request)
        named, _, _ = spec.rpartition("?") if request.options else (spec, "", "")
        request = replace(request, argument=named)
    options = options_of(replace(request, name="clip"), device, precision)
    return replace(request, name="clip", options=options)


def _refuse_others(request: Request) -> None:
    """Refuse what cannot be a name on the hub, or is another encoder."""
    if request.argument or "/" not in request.name:
        raise UsageError(
            "an alignment model is the folder or hub name (OWNER/NAME) of a CLIP,"
            f" open_clip:MODEL/WEIGHTS or clip:...; got {request.text!r}"
        )


def written(request: Request) -> str:
    """Return a request as the text of an encoder."""
    options = "&".join(f"{name}={value}" for name, value in request.options.items())
    argument = f":{request.argument}" if request.argument else ""
    return f"{request.name}{argument}{'?' if options else ''}{options}"


def clip_scores(
    alignment: Alignment, prompts: Sequence[str], pictures: Sequence[Bytes8]
) -> Float64:
    """Return the CLIP score of each picture with its own prompt.

    Args:
        alignment: the model.
        prompts: one per picture.
        pictures: ``uint8`` (height, width, 3).

    Returns:
        (n,): cosines, -1 to 1.

    Raises:
        UsageError: there is not one prompt per picture.
    """
    if len(prompts) != len(pictures):
        raise UsageError(
            f"a CLIP score is of a picture and its prompt; got {len(prompts)} prompts for"
            f" {len(pictures)} pictures"
        )
    return cosines(alignment.texts(prompts), alignment.images(pictures))


def cosines(texts: npt.ArrayLike, images: npt.ArrayLike) -> Float64:
    """Return the cosines of unit rows in pairs, (n,).

    >>> cosines([[1.0, 0.0]], [[0.6, 0.8]]).tolist()
    [0.6]
    """
    one, other = np.asarray(texts, np.float64), np.asarray(images, np.float64)
    return np.asarray(np.clip(np.einsum("ij,ij->i", one, other), -1.0, 1.0))


def unit(rows: npt.NDArray[Any]) -> Float64:
    """Return rows that are of unit length up to rounding, at unit length in ``float64``."""
    made = np.asarray(rows, np.float64)
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True))
