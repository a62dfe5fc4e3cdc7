"""How much the built-in similarity finds of reproductions that are not verbatim.

Measured once, by ``benchmarks/reproductions.py``: photographs were reproduced cropped, in other
colours, blurred, noisy, warped, with a part of another photograph painted in, redrawn, mirrored,
and with several of these at once. Results of ``extract`` and ``trace`` quote the figures, because
an image that was not found is not shown to be new.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from visleak.rates import percent

#: Where the figures were measured, and when.
SOURCE: Final = "benchmarks/reproductions.json, 2026-11-24"

#: What was measured: ``extract``: pairs of reproductions of one photograph that are neighbours;
#: ``trace``: reproductions that are verified as copies of their photograph among 437.
Step = Literal["extract", "trace"]

#: Reproductions of each kind.
EACH: Final = 60

_KINDS: Final = (
    *("noise 15", "blur 2", "crop to 80 %", "crop to 60 %", "other colours", "warp 1 %"),
    *("warp 3 %", "10 % painted in", "25 % painted in", "redrawn", "mirrored", "several at once"),
)
_FOUND: Final[Mapping[Step, Mapping[str, int]]] = {
    "extract": dict(zip(_KINDS, (60, 60, 32, 10, 59, 7, 0, 51, 10, 60, 40, 0), strict=True)),
    "trace": dict(zip(_KINDS, (60, 60, 60, 60, 60, 5, 2, 59, 43, 47, 59, 32), strict=True)),
}

_WORDS: Final[Mapping[Step, str]] = {
    "extract": "links {share} % of pairs of non-verbatim reproductions of one photograph at its"
    " own eps",
    "trace": "verifies {share} % of non-verbatim reproductions of photographs",
}


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
