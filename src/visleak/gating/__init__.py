"""Gates that trip on new leaks only: what was known before, and what came since."""

from visleak.gating.baseline import Baseline, NewLeaks, named, new_leaks, read_baseline
from visleak.gating.gates import LeakFound, assert_no_leak

__all__ = [
    "Baseline",
    "LeakFound",
    "NewLeaks",
    "assert_no_leak",
    "named",
    "new_leaks",
    "read_baseline",
]
