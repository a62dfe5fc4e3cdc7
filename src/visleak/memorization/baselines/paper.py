"""Table 2 of Hong et al. 2024: what their methods cost on one A100, as printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Printed:
    """What the paper prints of a method.

    Attributes:
        name: as the paper has it.
        hours: of 200 candidates on one A100; ``None`` where it prints none.
        images: memorized images found.
        hours_an_image: as printed, not their quotient (ConZIC: 24 / 6 would be 4).
    """

    name: str
    hours: float | None = None
    images: int | None = None
    hours_an_image: float | None = None


TABLE_2: Final[Mapping[str, Printed]] = MappingProxyType(
    {
        "gibbs": Printed("ours", hours_an_image=2.08),
        "greedy": Printed("greedy search", hours_an_image=5.7),
        "conzic": Printed("ConZIC", 24.0, 6, 3.81),
        "zerocap": Printed("ZeroCap", 44.0, 0),
        "pez": Printed("PEZ", 33.0, 0),
    }
)

#: Said wherever these figures stand.
SOURCE: Final = (
    "Hong et al. 2024, table 2: Stable Diffusion 1, 200 candidates, one A100; other models, budgets"
    " and machines are not comparable"
)
