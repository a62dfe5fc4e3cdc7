from __future__ import annotations

from pathlib import Path

import pytest
from calling import run

from visleak.cli.gates import Gate, check, parse, tripped
from visleak.errors import UsageError
from visleak.stats import Rate


def summary(count: int, total: int) -> dict[str, object]:
    rate = Rate.of(count, total).as_dict()
    keys = ("exact", "near_or_exact", "similar_or_closer", "hard", "hard_or_soft")
    return {
        "totals": [{"query_set": "test", "rates": dict.fromkeys(keys, rate)}],
        "sets": [{"images": total, "unreadable": count}],
    }


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        ("near", Gate("near", 0.0)),
        ("exact=0", Gate("exact", 0.0)),
        ("soft=0.01", Gate("soft", 0.01)),
        ("hard=.5", Gate("hard", 0.5)),
        ("similar=2.5%", Gate("similar", 0.025)),
        ("unreadable=100%", Gate("unreadable", 1.0)),
        ("near=1e-3", Gate("near", 0.001)),
    ],
)
def test_gates_are_read(text: str, gate: Gate) -> None:
    assert parse(text) == gate


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nears",
        "=0.1",
        "near=",
        "near=x",
        "near=2",
        "near=-1",
        "near=101%",
        "near=nan",
        "near=1_0",
    ],
)
def test_malformed_gates_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--fail-on"):
        parse(text)


@pytest.mark.parametrize("name", ["exact", "near", "similar", "hard", "soft", "unreadable"])
def test_a_gate_trips_above_its_rate_only(name: str) -> None:
    content = summary(1, 100)
    assert len(tripped([Gate(name)], content)) == 1
    assert len(tripped([Gate(name, 0.0099)], content)) == 1
    assert tripped([Gate(name, 0.01)], content) == []
    assert tripped([Gate(name)], summary(0, 100)) == []
    assert tripped([Gate(name)], summary(0, 0)) == []


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
    content = {"totals": [{"query_set": "test", "rates": {"hard": None}}], "sets": []}
    with pytest.raises(UsageError, match="did not measure it"):
        tripped([Gate("hard")], content)


def test_tripped_gates_end_with_three_after_all_is_written(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = run(
        *("audit", dataset, "-o", out, "--fail-on", "near", "--fail-on", "exact=50%"),
        *("--fail-on", "unreadable=0.01"),
    )
    assert ran.code == 3
    assert ran.err.splitlines() == [
        "visleak: gate near: 3 of 6 test images (50.00 %) have a near-duplicate or exact copy;"
        " allowed 0.00 %",
        "visleak: gate unreadable: 1 of 13 images of all sets (7.69 %) could not be read;"
        " allowed 1.00 %",
    ]
    assert ran.out.startswith("3 of 6 test images")
    assert (out / "report.html").is_file()


def test_gates_hold_for_a_reused_audit(dataset: Path, audited: Path) -> None:
    assert run("audit", dataset, "-o", audited, "--fail-on", "near", "--json").code == 3
    assert run("audit", dataset, "-o", audited, "--fail-on", "near=50%").code == 0
