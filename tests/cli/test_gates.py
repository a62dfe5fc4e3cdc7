"""``--fail-on``: exit codes and what the audit leaves behind."""

import json

import pytest
from calling import MOSTLY_READABLE, check_refused, refused, run


def test_tripped_gates_end_with_three_after_all_is_written(dataset, tmp_path):
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


def test_gates_hold_for_a_reused_audit(dataset, audited):
    call = ("audit", dataset, "-o", audited, *MOSTLY_READABLE)
    assert run(*call, "--fail-on", "near", "--json").code == 3
    assert run(*call, "--fail-on", "near=50%").code == 0


def test_a_gate_fails_where_too_little_was_compared(dataset, audited):
    ran = run("audit", dataset, "-o", audited, "--fail-on", "near=50%")
    assert ran.code == 3
    (line,) = [line for line in ran.err.splitlines() if "gate" in line]
    assert "1 of 7 test images" in line
    assert "--fail-on unreadable=RATE" in line


@pytest.mark.parametrize(
    ("side", "gate"), [("--test", ()), ("--train", ("--fail-on", "unreadable=1"))]
)
def test_a_side_without_a_readable_image_is_an_error(dataset, tmp_path, side, gate):
    gone = tmp_path / "gone.csv"
    gone.write_text("path\n" + "".join(f"nowhere/{number}.png\n" for number in range(7)))
    sides = {"--test": dataset / "test", "--train": dataset / "train"} | {side: gone}
    call = [text for item in sides.items() for text in item]
    code, message = refused("audit", *call, "-o", tmp_path / "out", *gate)
    assert code == 1
    assert f"({gone}): none of its 7 images could be read (7 missing)" in message
    assert not (tmp_path / "out" / "audit.json").exists()


def test_results_for_other_tools(dataset, tmp_path, monkeypatch):
    """A format replaces what is printed, and no exit code."""
    shown: list[str] = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    given = ("audit", dataset, "-o", tmp_path / "out", "--fail-on", "near", *MOSTLY_READABLE)
    ran = run(*given, "--format", "sarif", "--open")
    assert ran.code == 3
    assert json.loads(ran.out)["version"] == "2.1.0"
    assert shown == [(tmp_path / "out" / "report.html").as_uri()]
    assert run(*given, "--format", "junit").out.startswith("<?xml")
    assert run(*given, "--format", "json").out == (tmp_path / "out" / "audit.json").read_text()
    check_refused(f"audit {dataset} --format junit", "--format junit reports gates")
