"""``--near-at``: the probability from which a pair is near."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from calling import MOSTLY_READABLE, refused, run

from visleak.auditing import Audit

#: Above the probability of every pair that is not exact.
NEVER = "0.9999999"


@pytest.fixture(scope="module")
def strict(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The audit of the data set in which only exact pairs are near or exact."""
    folder = tmp_path_factory.mktemp("strict") / "out"
    assert run("audit", dataset, "-o", folder, "--near-at", NEVER).code == 0
    return folder


def test_pairs_below_it_are_not_near(audited: Path, strict: Path) -> None:
    """They keep their probability, and are similar instead; exact ones stay exact."""
    default, found = (Audit(folder).pairs().to_pylist() for folder in (audited, strict))
    changed = 0
    for before, after in zip(default, found, strict=True):
        assert after["probability"] == before["probability"]
        if before["grade"] == "near":
            changed += 1
            assert after["grade"] == "similar"
        else:
            assert after["grade"] == before["grade"]
    assert changed


def test_rates_and_gates_use_it(dataset: Path, strict: Path) -> None:
    near = Audit(strict).rate("near_or_exact").count
    assert near == Audit(strict).rate("exact").count == 2
    call = ("audit", dataset, "-o", strict, "--near-at", NEVER, *MOSTLY_READABLE)
    assert run(*call, "--fail-on", "near=34%").code == 0
    assert run(*call, "--fail-on", "near=33%").code == 3


def test_it_is_part_of_the_audit(dataset: Path, audited: Path, strict: Path) -> None:
    """Stored, shown where it is not the default, and an audit of another value is not reused."""
    content = json.loads((strict / "audit.json").read_text())
    assert content["grader"]["near_at"] == content["settings"]["near_at"] == float(NEVER)
    assert "reused" in run("audit", dataset, "-o", strict, "--near-at", NEVER).err
    code, message = refused("audit", dataset, "-o", strict)
    assert code == 2
    assert "another audit" in message
    assert "probability 0.9999999" in run("audit", dataset, "-o", strict, "--near-at", NEVER).out
    assert "near from probability" not in run("audit", dataset, "-o", audited).out
    assert "near from probability <strong>0.9999999<" in (strict / "report.html").read_text()
    assert "grader near_at: 0.5 -> 0.9999999" in run("diff", audited, strict).out


@pytest.mark.parametrize("value", ["0", "1", "-0.5", "1.5", "nan", "much"])
def test_it_is_a_probability(value: str, dataset: Path, tmp_path: Path) -> None:
    code, message = refused("audit", dataset, "-o", tmp_path / "a", "--near-at", value)
    assert code == 2
    assert "near_at" in message or "near-at" in message


def test_it_needs_verification(dataset: Path, tmp_path: Path) -> None:
    given = ("--near-at", "0.7", "--no-verify")
    code, message = refused("audit", dataset, "-o", tmp_path / "a", *given)
    assert code == 2
    assert "near_at (0.7) is for verified pairs" in message
