"""The benchmark of mitigations: does a method against memorization work, and what does it cost?"""

from visleak.memorization.benchmark.leaderboard import add_to, read_leaderboard
from visleak.memorization.benchmark.plan import Judges, Plan, RealImages, sampled
from visleak.memorization.benchmark.references import References, references_of
from visleak.memorization.benchmark.results import Benchmark
from visleak.memorization.benchmark.run import benchmark, read_benchmark

__all__ = [
    "Benchmark",
    "Judges",
    "Plan",
    "RealImages",
    "References",
    "add_to",
    "benchmark",
    "read_benchmark",
    "read_leaderboard",
    "references_of",
    "sampled",
]
