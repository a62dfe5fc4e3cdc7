"""Thresholds that a paper publishes, or that the maker of an encoder states with their source."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from visleak.encoders.request import Request, parse


def stated_thresholds(value: object) -> Mapping[str, Any] | None:
    """Return stated thresholds as plain values, ``None`` for none.

    >>> stated_thresholds({"hard": 1, "soft": 0.5, "provenance": "measured"})
    {'hard': 1.0, 'soft': 0.5, 'provenance': 'measured'}
    """
    if value is None:
        return None
    found: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
    provenance = found.get("provenance")
    stated = [found.get(key) for key in ("hard", "soft")]
    numbers = [float(n) for n in stated if isinstance(n, int | float)]
    if (
        len(numbers) != 2
        or not -1 <= numbers[1] <= numbers[0] <= 1
        or not isinstance(provenance, str)
    ):
        raise ValueError(
            "thresholds must hold hard and soft, similarities with -1 <= soft <= hard <= 1, and"
            f" provenance, a text; got {value!r}"
        )
    return {"hard": numbers[0], "soft": numbers[1], "provenance": provenance}


#: CLIP of the paper: its name in transformers, and with the names in open_clip.
OPENAI_CLIP: Final = "openai/clip-vit-base-patch32"
OPENAI_CLIP_NAMES: Final = (OPENAI_CLIP, "ViT-B-32/openai", "ViT-B-32-quickgelu/openai")
#: Ramos et al. (2025), "Data Leakage in Visual Datasets", sections 3 and 4: for cosines of CLIP
#: ViT-B/32 with OpenAI's weights, including LAION's own vectors, made of resized images.
RAMOS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "hard": 0.98,
        "soft": 0.95,
        "provenance": "Ramos et al. 2025, for CLIP ViT-B/32 with OpenAI's weights",
    }
)


def published(request: str | Request) -> Mapping[str, Any] | None:
    """Return the thresholds published for the encoder of a text; ``None`` where there are none.

    Only a name identifies the weights: a folder has no published thresholds.

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
