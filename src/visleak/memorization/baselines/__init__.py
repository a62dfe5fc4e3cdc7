"""Other searches for trigger prompts (table 2 of Hong et al. 2024), and how they compare."""

from visleak.memorization.baselines.conzic import Conzic, ConzicSettings
from visleak.memorization.baselines.greedy import Greedy
from visleak.memorization.baselines.methods import SEARCHERS, Means, load_searchers
from visleak.memorization.baselines.pez import Pez, PezSettings
from visleak.memorization.baselines.records import Attempt, Comparison, Replayed, Verified
from visleak.memorization.baselines.run import Contest, compare, read_comparison
from visleak.memorization.baselines.verifying import TracedImages, Verifier
from visleak.memorization.baselines.zerocap import Zerocap, ZerocapSettings

__all__ = [
    "SEARCHERS",
    "Attempt",
    "Comparison",
    "Contest",
    "Conzic",
    "ConzicSettings",
    "Greedy",
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
    "load_searchers",
    "read_comparison",
]
