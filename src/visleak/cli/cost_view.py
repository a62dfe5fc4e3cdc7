"""What an audit will cost, in a line or two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from visleak.quantities import duration, size

if TYPE_CHECKING:
    from visleak.pipeline.cost import Cost

#: Steps of an audit and what is done in them.
STEPS: Final = {
    "fingerprint": "reading and encoding",
    "search": "search",
    "local": "local features",
    "screening": "screening of {candidates:,} pairs",
    "verification": "verification of {verified:,} pairs",
}


def line(cost: Cost) -> str:
    """Return the cost as one line."""
    parts = [f"{cost.images:,} images"]
    if cost.bytes is not None:
        parts[0] += f" ({size(cost.bytes)})"
    if cost.embeddings:
        parts.append(f"{cost.embeddings:,} embeddings")
    if cost.seconds is not None and cost.images:
        crew = f"{cost.processes} process{'' if cost.processes == 1 else 'es'}"
        steps = ", ".join(
            f"{duration(seconds)} {STEPS[name].format(**cost.as_dict())}"
            for name, seconds in cost.steps.items()
        )
        parts.append(
            f"about {duration(max(1.0, cost.seconds))} with {crew}: {steps} (estimated from"
            f" {cost.timed:,} images and {cost.timed_pairs:,} pairs)"
        )
    disk = f"at least {size(cost.scratch)} of scratch"
    if cost.cache:
        disk += f", up to {size(cost.cache)} of cache"
    return "; ".join([*parts, disk])
