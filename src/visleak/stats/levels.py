"""Grades and degrees on the command line, and the rates that count them."""

from __future__ import annotations

from typing import Final

#: Grade or degree, meant as *it or stronger*, to the rate of ``audit.json`` that counts it, and
#: what an image that it counts has.
RATES: Final = {
    "exact": ("exact", "an exact copy"),
    "near": ("near_or_exact", "a near-duplicate or exact copy"),
    "similar": ("similar_or_closer", "a similar or closer image"),
    "hard": ("hard", "a hard leak"),
    "soft": ("hard_or_soft", "a hard or soft leak"),
}

#: Share of a set that may be unreadable where a gate does not bound it: an image that cannot be
#: read is compared with nothing, so it trips no other gate.
UNREADABLE_SHARE: Final = 0.05
