"""A detection in sentences that a person can repeat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from visleak.memorization.detection.results import Detection, Estimate, Threshold
from visleak.stats import percent


def number(value: float) -> str:
    """Return a D with four digits.

    >>> number(0.93128), number(26.7312), number(0.0), number(1234.5)
    ('0.9313', '26.73', '0', '1234')
    """
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"


def name_of_d(settings: Mapping[str, Any]) -> str:
    """Return what D is called in texts: squares live on another scale than norms.

    >>> name_of_d({"norm": "l2"}), name_of_d({"norm": "squared"})
    ('D', 'D (squared)')
    """
    return "D (squared)" if settings.get("norm") == "squared" else "D"


def headlines(result: Detection) -> list[str]:
    """Return the sentences, the most important first."""
    return [_reached(result), *_told_apart(result)]


def _reached(result: Detection) -> str:
    d, count = name_of_d(result.settings), f"{result.prompts:,} prompts"
    if result.threshold is None:
        first = result.top[0]
        median = sorted(spread.median for spread in result.spreads if spread.count)
        middle = f", median {number(median[0])}" if len(result.spreads) == 1 else ""
        return (
            f"{count}: the highest {d} is {number(first.d)}{middle}; without ordinary prompts there"
            " is no threshold (--general FILE)"
        )
    said = f"{result.reached:,} of {count} reach {d} >= {threshold_text(result.threshold)}"
    if result.known and result.threshold.negatives:
        said += f", among them {result.known_reached:,} of {result.known:,} known to be memorized"
    return f"{said} ({alarms(result.threshold)})"


def threshold_text(threshold: Threshold) -> str:
    """Return a threshold so that it can be given again."""
    return f"{threshold.value:.10g}"


def alarms(threshold: Threshold) -> str:
    """Return what is known of the false alarms of a threshold.

    >>> alarms(Threshold(0.93, "observed", 0.01, 300, 3, 0.0257))
    'false alarms: 3 of 300 ordinary prompts, 1.00 %; at most 2.57 % with 95 % confidence'
    """
    if not threshold.negatives:
        return "its rate of false alarms is not known: no ordinary prompts were given"
    share = percent(threshold.alarms / threshold.negatives)
    return (
        f"false alarms: {threshold.alarms:,} of {threshold.negatives:,} ordinary prompts,"
        f" {share} %; at most {percent(threshold.upper)} % with 95 % confidence"
    )


def estimate(found: Estimate) -> str:
    """Return a figure with its interval; one that is not 1 never reads as 1.

    >>> estimate(Estimate(0.99996, 0.99, 1.0)), estimate(Estimate(1.0, 0.9148, 1.0))
    ('>0.9999 (95 % CI 0.9900-1.0000)', '1.0000 (95 % CI 0.9148-1.0000)')
    """
    return f"{_share(found.value)} (95 % CI {_share(found.low)}-{_share(found.high)})"


def _share(value: float) -> str:
    if 0.99995 <= value < 1.0:
        return ">0.9999"
    return "<0.0001" if 0.0 < value < 0.00005 else f"{value:.4f}"


def _told_apart(result: Detection) -> list[str]:
    found = result.separation
    if found is None:
        return []
    kinds = (
        f"{found.positives:,} memorized against {found.negatives:,} others"
        if found.by == "labels"
        else f"{found.positives:,} of the list against {found.negatives:,} general ones"
    )
    return [
        f"AUC {estimate(found.auc)}, true-positive rate {estimate(found.tpr_within)} at a"
        f" false-positive rate of {100 * found.rate:g} % ({kinds})"
    ]
