"""How many images a prompt gets, and what counts as a cluster of them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Final, Literal

from visleak.errors import UsageError

Rule = Literal["paper", "code"]

#: Images a prompt and least size of a cluster: as the paper says and as its authors' code does,
#: where every cluster of DBSCAN is kept.
RULES: Final = {"paper": (100, 20), "code": (50, 1)}

#: Neighbours that make an image a core of DBSCAN, itself counted (the authors' code; the paper
#: names none).
MIN_SAMPLES: Final = 3

MOST_IMAGES: Final = 100_000


@dataclass(frozen=True, slots=True)
class ExtractSettings:
    """What candidate images are taken from (Hong et al. 2024, section 4).

    Attributes:
        images: made of each prompt.
        eps: largest distance (1 - similarity) of neighbours; ``None`` is that of the similarity.
        min_samples: neighbours within ``eps``, itself counted, that make an image a core.
        min_cluster: least images of a cluster that is kept.
        seed: of the noises.
        paired: all prompts start from the same noises; else each prompt has its own.
        rule: whose numbers stand in for those nobody named: ``paper`` or ``code``.
    """

    images: int = RULES["paper"][0]
    eps: float | None = None
    min_samples: int = MIN_SAMPLES
    min_cluster: int = RULES["paper"][1]
    seed: int = 0
    paired: bool = True
    rule: Rule = "paper"

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise UsageError(f"rule is one of {', '.join(RULES)}; got {self.rule!r}")
        if not 1 <= self.images <= MOST_IMAGES:
            raise UsageError(f"images is 1 to {MOST_IMAGES:,} a prompt; got {self.images}")
        if self.eps is not None and not (math.isfinite(self.eps) and 0.0 < self.eps <= 2.0):
            raise UsageError(f"eps, a distance (1 - similarity), is above 0 to 2; got {self.eps}")
        if self.min_samples < 1:
            raise UsageError(f"min-samples is at least 1; got {self.min_samples}")
        if not 1 <= self.min_cluster <= self.images:
            raise UsageError(
                f"min-cluster is 1 to the number of images ({self.images}), or no cluster could"
                f" be found; got {self.min_cluster}"
            )
        if self.seed < 0:
            raise UsageError(f"seed is a whole number from 0; got {self.seed}")

    @classmethod
    def by(
        cls,
        rule: Rule,
        *,
        images: int | None = None,
        min_cluster: int | None = None,
        eps: float | None = None,
        min_samples: int = MIN_SAMPLES,
        seed: int = 0,
        paired: bool = True,
    ) -> ExtractSettings:
        """Return settings whose missing numbers are the paper's or its authors' code's.

        >>> ExtractSettings.by("code").images, ExtractSettings.by("paper").min_cluster
        (50, 20)

        Raises:
            UsageError: a value that cannot be.
        """
        if rule not in RULES:
            raise UsageError(f"rule is one of {', '.join(RULES)}; got {rule!r}")
        usual, least = RULES[rule]
        made = usual if images is None else images
        kept = least if min_cluster is None else min_cluster
        return cls(made, eps, min_samples, kept, seed, paired, rule)

    def about(self) -> dict[str, object]:
        """Return the settings as plain data."""
        return asdict(self)
