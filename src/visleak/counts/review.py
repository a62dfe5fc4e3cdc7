"""What people said of an audit: how much, who, how far they agree, and what they dispute."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from visleak.records import GRADES
from visleak.verdicts import Agreement, Verdict, agreement, consensus_of


@dataclass(frozen=True, slots=True)
class Dispute:
    """A pair on which reviewers disagree on near-or-not, and what each of them says."""

    query_set: str
    query: str
    reference_set: str
    reference: str
    said: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Review:
    """The verdicts of an audit folder, counted.

    Attributes:
        agreement: who judged how much, and kappa of every two.
        judgments: reviewer to how often they say each grade.
        settled: how many pairs stand at each grade; disputed ones at none.
        disputes: the disputed pairs.
    """

    agreement: Agreement
    judgments: Mapping[str, Mapping[str, int]]
    settled: Mapping[str, int]
    disputes: tuple[Dispute, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints; a kappa that is not defined is ``None``."""
        return {
            "judged": self.agreement.judged,
            "disputed": self.agreement.disputed,
            "settled": dict(self.settled),
            "reviewers": {name: dict(counts) for name, counts in self.judgments.items()},
            "kappas": [
                {
                    "reviewers": list(each.reviewers),
                    "pairs": each.pairs,
                    "agreed": each.agreed,
                    "kappa": None if math.isnan(each.kappa) else each.kappa,
                }
                for each in self.agreement.kappas
            ],
            "disputes": [
                {
                    "query_set": each.query_set,
                    "query": each.query,
                    "reference_set": each.reference_set,
                    "reference": each.reference,
                    "said": dict(each.said),
                }
                for each in self.disputes
            ],
        }


def review_of(verdicts: Sequence[Verdict]) -> Review:
    """Count verdicts.

    Args:
        verdicts: in order of time.
    """
    settled = consensus_of(verdicts)
    agreed = agreement(verdicts)
    said = Counter(
        (verdict.reviewer, verdict.judgment)
        for each in settled.values()
        for verdict in each.verdicts
    )
    standing = Counter(each.grade for each in settled.values())
    return Review(
        agreement=agreed,
        judgments={name: {g: said[name, g] for g in GRADES} for name in agreed.reviewers},
        settled={grade: standing[grade] for grade in GRADES},
        disputes=tuple(_dispute(each.verdicts) for each in settled.values() if each.disputed),
    )


def _dispute(verdicts: Sequence[Verdict]) -> Dispute:
    last = verdicts[-1]
    said = {verdict.reviewer: verdict.judgment for verdict in verdicts}
    return Dispute(last.query_set, last.query, last.reference_set, last.reference, said)
