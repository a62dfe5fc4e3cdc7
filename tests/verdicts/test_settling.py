"""What several reviewers say together: last wins, disputes, Cohen's kappa."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from visleak.errors import UsageError
from visleak.records import GRADES
from visleak.verdicts import Verdict, agreement, consensus_of
from visleak.verdicts.ledger import cohen_kappa

A, B, C = "a" * 32, "b" * 32, "c" * 32


def said(judgment: str, reviewer: str, left: str = A, right: str = B) -> Verdict:
    return Verdict.of(left, right, judgment, reviewer)


def test_the_last_verdict_of_a_reviewer_wins() -> None:
    verdicts = [said("different", "Ada"), said("near", "Ben"), said("exact", "Ada")]
    consensus = consensus_of(verdicts)[A, B]
    # both say near-or-not alike now; of one vote each the weaker claim stands
    assert (consensus.grade, consensus.disputed) == ("near", False)


@pytest.mark.parametrize(("left", "right"), list(itertools.product(GRADES, GRADES)))
def test_disputed_is_disagreement_on_near_or_not_and_nothing_else(left: str, right: str) -> None:
    consensus = consensus_of([said(left, "Ada"), said(right, "Ben")])[A, B]
    near = ("exact", "near")
    assert consensus.disputed == ((left in near) != (right in near))
    if not consensus.disputed:
        assert consensus.grade == max(left, right, key=GRADES.index)


@given(st.lists(st.sampled_from(GRADES), min_size=1, max_size=5))
def test_a_majority_decides_near_or_not(judgments: list[str]) -> None:
    verdicts = [said(judgment, f"r{number}") for number, judgment in enumerate(judgments)]
    consensus = consensus_of(verdicts)[A, B]
    near = sum(judgment in ("exact", "near") for judgment in judgments)
    assert consensus.disputed == (2 * near == len(judgments))
    assert agreement(verdicts).outvoted == (not consensus.disputed and 0 < near < len(judgments))
    if consensus.grade is not None:
        assert (consensus.grade in ("exact", "near")) == (2 * near > len(judgments))
        assert consensus.grade in judgments


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_kappa_equals_scikit_learn(rows: list[tuple[bool, bool]]) -> None:
    left, right = ([row[side] for row in rows] for side in (0, 1))
    if len({*left, *right}) == 1:  # chance alone makes them agree: not defined
        assert math.isnan(cohen_kappa(left, right))
    else:
        assert cohen_kappa(left, right) == pytest.approx(cohen_kappa_score(left, right))


def test_agreement_counts_only_pairs_that_both_judged() -> None:
    verdicts = [
        said("near", "Ada"),
        said("near", "Ben"),
        said("different", "Ada", A, C),
        said("exact", "Ben", A, C),
        said("similar", "Ada", B, C),
    ]
    found = agreement(verdicts)
    assert (found.judged, found.disputed) == (3, 1)
    assert found.reviewers == {"Ada": 3, "Ben": 2}
    (kappa,) = found.kappas
    assert (kappa.reviewers, kappa.pairs, kappa.agreed) == (("Ada", "Ben"), 2, 1)
    assert kappa.kappa == pytest.approx(cohen_kappa_score([True, False], [True, True]))


def test_a_verdict_refuses_to_be_born_wrong() -> None:
    with pytest.raises(UsageError, match="a judgment is one of exact, near, similar, different"):
        said("maybe", "Ada")
    with pytest.raises(UsageError, match="one line of 1 to 100 characters; got '  '"):
        said("near", "  ")
    with pytest.raises(UsageError, match="one line"):
        said("near", "two\nlines")
    with pytest.raises(UsageError, match=r"of both images; got .cat[.]png"):
        said("near", "Ada", "cat.png", A)
