"""A CLIP with both of its towers, and what its picture tower makes of a set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from visleak.encoders import load_encoder
from visleak.impact.evaluators.feeding import nothing_read, refuse_embeddings
from visleak.impact.evaluators.text_towers import TextTower, load_text_tower
from visleak.pipeline.fingerprinting import fingerprint
from visleak.pipeline.workplace import Workplace
from visleak.records import Encoder, Fingerprints, ImageSet


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


def picture_vectors(images: ImageSet, encoder: Encoder, place: Workplace) -> Fingerprints:
    """Return the unit vectors of the readable pictures of a set; from the cache where known.

    Raises:
        UsageError: the set has no pictures.
        VisleakError: none can be read.
    """
    refuse_embeddings(images)
    prints = fingerprint(images, encoder, place)
    if len(prints):
        return prints
    raise nothing_read(images, (*images.problems, *prints.problems))
