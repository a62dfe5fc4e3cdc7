"""Gates: how they are read, and when they fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from visleak.errors import UsageError
from visleak.gating.gates import Gate, check, parse, parse_all, tripped
from visleak.rates import Rate
from visleak.records import FileCount
from visleak.storage import AuditSummary, SetSummary, TotalSummary


def summary(count: int, total: int) -> AuditSummary:
    keys = ("exact", "near_or_exact", "similar_or_closer", "hard", "hard_or_soft")
    rates = dict.fromkeys(keys, Rate.of(count, total))
    return AuditSummary(
        totals=(TotalSummary("test", rates=rates),),
        sets=(SetSummary("test", readable=total - count, unreadable=count),),
    )


def test_gates_are_read() -> None:
    assert parse("near") == Gate("near", 0.0)
    rates = {"0": 0, "0.01": 0.01, ".5": 0.5, "2.5%": 0.025, "100%": 1, "1e-3": 0.001}
    for name in ("exact", "soft", "unreadable"):
        assert [parse(f"{name}={text}") for text in rates] == [
            Gate(name, r) for r in rates.values()
        ]


def test_malformed_gates_are_refused() -> None:
    rates = ("", "x", "2", "-1", "101%", "nan", "1_0")
    for text in ("", "nears", "=0.1", *(f"near={rate}" for rate in rates)):
        with pytest.raises(UsageError, match=r"^--fail-on"):
            parse(text)


@pytest.mark.parametrize("name", ["exact", "near", "similar", "hard", "soft", "unreadable"])
def test_a_gate_trips_above_its_rate_only(name: str) -> None:
    content = summary(1, 100)
    assert len(tripped([Gate(name)], content)) == 1
    assert len(tripped([Gate(name, 0.0099)], content)) == 1
    assert tripped([Gate(name, 0.01)], content) == []
    assert tripped([Gate(name)], summary(0, 100)) == []
    # a rate of no image does not pass
    assert len(tripped([Gate(name, 1.0)], summary(0, 0))) == (name != "unreadable")


def test_gates_bound_what_cannot_be_read_in_each_set() -> None:
    """Another gate bounds it by 5 %, whichever side it is; a bound of one's own replaces that."""
    for unreadable, trips in ((5, False), (6, True)):
        sets = (
            SetSummary("test", readable=1000),
            SetSummary("train", readable=100 - unreadable, unreadable=unreadable),
        )
        content = replace(summary(0, 100), sets=sets)
        lines = tripped(parse_all(["near"]), content)
        assert [("train" in line and "unreadable=RATE" in line) for line in lines] == [True] * trips
        assert tripped(parse_all(["near", "unreadable=10%"]), content) == []
        assert tripped(parse_all([]), content) == []


def test_files_of_vectors_that_are_missing_are_not_compared_either() -> None:
    for present, trips in ((19, False), (18, True)):
        files = FileCount(present, 20, ("img_emb_0003.npy",))
        sets = (SetSummary("test", readable=100), SetSummary("train", files=files, readable=1000))
        content = replace(summary(0, 100), sets=sets)
        lines = tripped(parse_all(["hard"]), content)
        assert ["2 of 20 train files" in line for line in lines] == [True] * trips
        assert tripped(parse_all(["hard", "unreadable=10%"]), content) == []
        assert len(tripped(parse_all(["hard", "unreadable"]), content)) == 1


def test_percent_means_what_it_says() -> None:
    """No rate that equals the bound trips it, whatever the fraction."""
    for count in range(1, 101):
        assert tripped([parse(f"near={count}%")], summary(count, 100)) == []
        assert tripped([parse(f"near={count / 100}")], summary(count, 100)) == []


def test_grades_need_verification() -> None:
    check([Gate("hard"), Gate("unreadable")], verify=False)
    with pytest.raises(UsageError, match="asks for a grade, and --no-verify gives none"):
        check([Gate("exact")], verify=False)


def test_unmeasured_rate_is_no_pass() -> None:
    content = AuditSummary(totals=(TotalSummary("test", rates={"hard": None}),))
    with pytest.raises(UsageError, match="did not measure it"):
        tripped([Gate("hard")], content)
