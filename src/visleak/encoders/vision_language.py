"""A CLIP with both of its towers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from visleak.encoders import load_encoder
from visleak.encoders.clip import backend_of
from visleak.encoders.clip_texts import load_clip_text
from visleak.encoders.network import Running
from visleak.encoders.open_clip_texts import load_open_clip_text
from visleak.encoders.request import Request, parse
from visleak.encoders.text_towers import LoadedText, TextTower
from visleak.errors import UsageError
from visleak.records import Encoder

#: What loads the text tower, by the library that loads the tower of the pictures.
_LOADERS: Final[Mapping[str, Callable[[Request], LoadedText]]] = {
    "transformers": load_clip_text,
    "open_clip": load_open_clip_text,
}


@dataclass(frozen=True)
class VisionLanguage:
    """The two towers of one model.

    Attributes:
        pictures: the encoder of the pictures, unit vectors.
        texts: the tower of the texts, unit vectors of the same width.
    """

    pictures: Encoder
    texts: TextTower

    def about(self) -> dict[str, Any]:
        """Return what tells this model from others, as plain values."""
        return {
            "name": self.pictures.name,
            "digest": self.pictures.digest,
            "text digest": self.texts.digest,
            "precision": self.texts.precision,
            "device": self.texts.device,
            "context": self.texts.context,
        }


def load_vision_language(text: str, **options: object) -> VisionLanguage:
    """Return a CLIP by the text that names it as an encoder.

    Args:
        text: ``clip[:ARGUMENT][?OPTION=VALUE&...]``.
        options: more options, by name; they come before those in the text.

    Raises:
        UsageError: it is no CLIP, or an option or a name cannot be.
        MissingExtra: the library is not installed.
        VisleakError: weights or tokenizer cannot be had.
    """
    # texts first: fetching their tokenizer may bring newer weights, which the pictures share then
    texts = load_text_tower(text, **options)
    return VisionLanguage(load_encoder(text, **options), texts)


def load_text_tower(text: str, **options: object) -> TextTower:
    """Return the text tower of the CLIP that an encoder's text names.

    Args:
        text: ``clip[:ARGUMENT][?OPTION=VALUE&...]``, as the encoder of its pictures is named.
        options: more options, by name; they come before those in the text.

    Raises:
        UsageError: it is no CLIP, or an option or a name cannot be.
        MissingExtra: the library is not installed.
        VisleakError: weights or tokenizer cannot be had.
    """
    request = parse(text)
    told = {**request.options, **{name: str(value) for name, value in options.items()}}
    request = replace(request, options=told)
    if request.name != "clip":
        raise UsageError(
            "the model must be a CLIP, which has a tower for texts: clip, clip:FOLDER,"
            f" clip:OWNER/NAME or clip:MODEL/WEIGHTS?backend=open_clip; got {text!r}"
        )
    load = _LOADERS[backend_of(request)]
    running = Running.asked(request)
    return TextTower(request.named("backend"), load(request), running)
