"""Estimated cost of a pass over hundreds of millions of images on a cluster.

usage: python benchmarks/cluster_cost.py [PRICE]

Prints the table of docs/cluster.md from the measured rates in ray_rates.json. PRICE is that of a
core hour, in any currency; without it costs are in core hours.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RATES = Path(__file__).with_name("ray_rates.json")

#: Numbers of images: LAION-400M and LAION-5B.
SIZES = {"400 million": 400_000_000, "5 billion": 5_000_000_000}

#: Cores for the wall time.
CORES = 100


@dataclass(frozen=True, slots=True)
class Job:
    """A pass whose rate was measured.

    Attributes:
        name: description.
        rate: images per second and core, through Ray.
        size: bytes read per image.
    """

    name: str
    rate: float
    size: float

    def core_hours(self, images: int) -> float:
        """Return the core hours for a number of images.

        >>> Job("", rate=1000.0, size=0.0).core_hours(3_600_000)
        1.0
        """
        return images / self.rate / 3600

    def terabytes(self, images: int) -> float:
        """Return the terabytes (1e12 bytes) that are read."""
        return images * self.size / 1e12


def jobs(figures: Mapping[str, Any]) -> list[Job]:
    """Return the passes that were measured, from the figures of ray_rates.json.

    Times of decoding, encoding, background and comparison add up.
    """
    seconds = sum(
        1 / figures[step]
        for step in (
            "images_per_second_and_core_ray",
            "backgrounds_per_second_and_core",
            "comparisons_per_second_and_core",
        )
    )
    queries = f"{figures['queries']:,} test images"
    return [
        Job(
            f"embeddings against {queries}",
            figures["vectors_per_second_and_core_ray"],
            figures["bytes_per_vector"],
        ),
        Job(
            f"images: decode, `builtin`, all views against {queries}",
            1 / seconds,
            figures["bytes_per_image"],
        ),
    ]


def table(figures: Mapping[str, Any], price: float | None = None) -> str:
    """Return the estimate as Markdown.

    Args:
        figures: of ray_rates.json.
        price: of a core hour; ``None`` omits the column.
    """
    columns = ["pass", "images", "core hours", f"hours on {CORES} cores", "TB read"]
    columns += ["cost"] if price is not None else []
    lines = ["| " + " | ".join(columns) + " |", "|---|---" + "|---:" * (len(columns) - 2) + "|"]
    for job in jobs(figures):
        for name, images in SIZES.items():
            hours = job.core_hours(images)
            cells = [job.name, name, number(hours), number(hours / CORES)]
            cells.append(number(job.terabytes(images)))
            cells += [number(hours * price)] if price is not None else []
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def number(value: float) -> str:
    """Return a number with two significant digits, the precision of the rates.

    >>> number(1234.5), number(0.0456), number(99.6)
    ('1,200', '0.046', '100')
    """
    rounded = float(f"{value:.1e}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def main() -> None:
    """Print the table."""
    price = float(sys.argv[1]) if len(sys.argv) > 1 else None
    print(table(json.loads(RATES.read_text())["figures"], price), end="")


if __name__ == "__main__":
    main()
