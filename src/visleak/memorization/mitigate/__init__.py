"""Mitigations: ways to make images of prompts that reproduce less of the training set."""

from visleak.memorization.mitigate.method import (
    Mitigation,
    NumberAddition,
    TokenAddition,
    Unmitigated,
)
from visleak.memorization.mitigate.methods import (
    METHODS,
    methods_of,
    mitigation,
    paper_settings,
    usual_methods,
    with_none,
)
from visleak.memorization.mitigate.ren import AttentionRescaling
from visleak.memorization.mitigate.wen import PromptOptimisation

__all__ = [
    "METHODS",
    "AttentionRescaling",
    "Mitigation",
    "NumberAddition",
    "PromptOptimisation",
    "TokenAddition",
    "Unmitigated",
    "methods_of",
    "mitigation",
    "paper_settings",
    "usual_methods",
    "with_none",
]
