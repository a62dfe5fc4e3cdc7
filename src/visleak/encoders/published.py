"""Thresholds that papers publish for networks; readable without weights or torch."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from visleak.encoders.request import Request, parse

#: CLIP of the paper: the network's name in transformers, and in open_clip.
OPENAI_CLIP: Final = "openai/clip-vit-base-patch32"
OPENAI_CLIP_NAMES: Final = (OPENAI_CLIP, "ViT-B-32/openai", "ViT-B-32-quickgelu/openai")

#: Ramos et al. (2025), "Data Leakage in Visual Datasets", sections 3 and 4: for cosines of CLIP
#: ViT-B/32 with OpenAI's weights, LAION's own vectors, made of resized pictures, among them.
RAMOS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "hard": 0.98,
        "soft": 0.95,
        "provenance": "Ramos et al. 2025, for CLIP ViT-B/32 with OpenAI's weights",
    }
)


def published(request: str | Request) -> Mapping[str, Any] | None:
    """Return the thresholds published for the encoder of a text; ``None`` where there are none.

    Only a name tells whose weights they are: a folder has none, whatever it holds.

    >>> published("clip?device=cpu")["hard"]
    0.98
    >>> published("clip:laion/CLIP-ViT-B-32-laion2B-s34B-b79K") is None
    True
    """
    request = parse(request) if isinstance(request, str) else request
    theirs = request.name == "clip" and (request.argument or OPENAI_CLIP) in OPENAI_CLIP_NAMES
    if not theirs or request.options.get("prep", "none") not in ("none", "laion"):
        return None
    return dict(RAMOS)
