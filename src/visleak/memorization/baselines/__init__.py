"""Other searches for trigger prompts (table 2 of Hong et al. 2024), and how they compare."""

from visleak.memorization.baselines.conzic import Conzic, ConzicSettings
from visleak.memorization.baselines.document import Attempt, Comparison, Replayed, Verified
from visleak.memorization.baselines.pez import Pez, PezSettings
from visleak.memorization.baselines.run import (
    SEARCHERS,
    Contest,
    Means,
    TracedImages,
    Verifier,
    compare,
    load_searchers,
    read_comparison,
)
from visleak.memorization.baselines.zerocap import Zerocap, ZerocapSettings, load_causal

__all__ = [
    "SEARCHERS",
    "Attempt",
    "Comparison",
    "Contest",
    "Conzic",
    "ConzicSettings",
    "Means",
    "Pez",
    "PezSettings",
    "Replayed",
    "TracedImages",
    "Verified",
    "Verifier",
    "Zerocap",
    "ZerocapSettings",
    "compare",
    "load_causal",
    "load_searchers",
    "read_comparison",
]
