from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from calling import MOSTLY_READABLE, refused, run

from visleak.errors import UsageError
from visleak.gating.gates import Gate, check, parse, parse_all, tripped
from visleak.stats import Rate
from visleak.storage import AuditSummary, SetSummary, TotalSummary


def summary(count: int, total: int) -> AuditSummary:
    keys = ("exact", "near_or_exact", "similar_or_closer", "hard", "hard_or_soft")
    rates = dict.fromkeys(keys, Rate.of(count, total))
    return AuditSummary(
        totals=(TotalSummary("test", rates=rates),),
        sets=(SetSummary("test", readable=total - count, unreadable=count),),
    )


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


@pytest.mark.parametrize("name", ["exact", "near", "similar", "hard", "soft"])
def test_a_rate_of_no_image_does_not_pass(name: str) -> None:
    assert len(tripped([Gate(name, 1.0)], summary(0, 0))) == 1


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
        "visleak: gate unreadable: 1 of 7 test images (14.29 %) could not be read; allowed 1.00 %",
    ]
    assert ran.out.startswith("3 of 6 test images")
    assert (out / "report.html").is_file()


def test_gates_hold_for_a_reused_audit(dataset: Path, audited: Path) -> None:
    call = ("audit", dataset, "-o", audited, *MOSTLY_READABLE)
    assert run(*call, "--fail-on", "near", "--json").code == 3
    assert run(*call, "--fail-on", "near=50%").code == 0


def test_a_gate_fails_where_too_little_was_compared(dataset: Path, audited: Path) -> None:
    ran = run("audit", dataset, "-o", audited, "--fail-on", "near=50%")
    assert ran.code == 3
    (line,) = [line for line in ran.err.splitlines() if "gate" in line]
    assert "1 of 7 test images" in line
    assert "--fail-on unreadable=RATE" in line


@pytest.mark.parametrize("gate", [(), ("--fail-on", "near"), ("--fail-on", "unreadable=1")])
@pytest.mark.parametrize("side", ["--test", "--train"])
def test_a_side_without_a_readable_image_is_an_error(
    dataset: Path, tmp_path: Path, side: str, gate: tuple[str, ...]
) -> None:
    """Missing files of a table; with a gate and without, and nothing is taken for an audit."""
    gone = tmp_path / "gone.csv"
    gone.write_text("path\n" + "".join(f"nowhere/{number}.png\n" for number in range(7)))
    sides = {"--test": dataset / "test", "--train": dataset / "train"} | {side: gone}
    call = [text for item in sides.items() for text in item]
    code, message = refused("audit", *call, "-o", tmp_path / "out", *gate)
    assert code == 1
    assert f"({gone}): none of its 7 images could be read (7 missing)" in message
    assert not (tmp_path / "out" / "audit.json").exists()
