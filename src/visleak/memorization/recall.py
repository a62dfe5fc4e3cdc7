"""How much the built-in similarity finds of reproductions that are not verbatim.

Measured once, by ``benchmarks/reproductions.py``: photographs were reproduced cropped, in other
colours, blurred, noisy, warped, with a part of another photograph painted in, redrawn, mirrored,
and with several of these at once. Results of ``extract`` and ``trace`` quote the figures, because
an image that was not found is not shown to be new.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from visleak.stats import percent

#: Where the figures were measured, and when.
SOURCE: Final = "benchmarks/reproductions.json, 2026-11-24"

#: What was measured: ``extract``: pairs of reproductions of one photograph that are neighbours;
#: ``trace``: reproductions that are verified as copies of their photograph among 437.
Step = Literal["extract", "trace"]

#: Reproductions of each kind.
EACH: Final = 60

_FOUND: Final[Mapping[Step, Mapping[str, int]]] = MappingProxyType(
    {
        "extract": {
            "noise 15": 60,
            "blur 2": 60,
            "crop to 80 %": 32,
            "crop to 60 %": 10,
            "other colours": 59,
            "warp 1 %": 7,
            "warp 3 %": 0,
            "10 % painted in": 51,
            "25 % painted in": 10,
            "redrawn": 60,
            "mirrored": 40,
            "several at once": 0,
        },
        "trace": {
            "noise 15": 60,
            "blur 2": 60,
            "crop to 80 %": 60,
            "crop to 60 %": 60,
            "other colours": 60,
            "warp 1 %": 5,
            "warp 3 %": 2,
            "10 % painted in": 59,
            "25 % painted in": 43,
            "redrawn": 47,
            "mirrored": 59,
            "several at once": 32,
        },
    }
)

_WORDS: Final[Mapping[Step, str]] = MappingProxyType(
    {
        "extract": "links {share} % of pairs of non-verbatim reproductions of one photograph at"
        " its own eps",
        "trace": "verifies {share} % of non-verbatim reproductions of photographs",
    }
)


def recall_of(similarity: str, step: Step) -> dict[str, object] | None:
    """Return the measured recall of a similarity as plain data; ``None`` if it was not measured."""
    if similarity != "builtin":
        return None
    return {
        "share": _share(step),
        "by_kind": {kind: {"found": n, "of": EACH} for kind, n in _FOUND[step].items()},
        "source": SOURCE,
    }


def _share(step: Step) -> float:
    return sum(_FOUND[step].values()) / (EACH * len(_FOUND[step]))


def recall_line(similarity: str, step: Step) -> str:
    """Return what is known of the recall of a similarity, as a line.

    >>> recall_line("pixels", "extract")
    'recall: not measured for the similarity pixels on non-verbatim reproductions'
    """
    if similarity != "builtin":
        return f"recall: not measured for the similarity {similarity} on non-verbatim reproductions"
    words = _WORDS[step].format(share=percent(_share(step)))
    kinds = ", ".join(f"{kind}: {round(100 * n / EACH)}" for kind, n in _FOUND[step].items())
    return (
        f"recall: the default similarity {words}, kinds in equal parts (in % of {EACH} each:"
        f" {kinds}; {SOURCE}); an image that is not found is not shown to be new"
    )
