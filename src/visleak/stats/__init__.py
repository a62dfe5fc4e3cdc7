"""Numbers about numbers: rates, rankings, calibration and the intervals that belong to them.

Rates are at hand here. The rest is imported from its module, for it needs numpy or scipy:
``ranking``, ``calibration``, ``binomial``, ``resampling``; of differences ``differences``,
``permutation`` and ``multiple``; of scores that are not shares ``bootstrap``, of rows with
different weights ``weighted``.
"""

from visleak.stats.rates import Rate, chance, percent, wilson

__all__ = ["Rate", "chance", "percent", "wilson"]
