"""Rates, rankings, tests and the intervals that belong to them.

Rates are imported here; the rest is imported from its module, because it needs numpy or scipy.
"""

from visleak.stats.rates import Rate, chance, percent, wilson

__all__ = ["Rate", "chance", "percent", "wilson"]
