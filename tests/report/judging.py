"""What people say of the made audit."""

from collections import Counter

from made_audit import HOSTILE_NAME

from visleak.verdicts import Ledger, Verdict, digests_of, judged_pairs

HOSTILE = "<img src=x onerror=alert(1)>"

Row = dict[str, object]


def keys(folder):
    table = judged_pairs(folder, verdicts=())
    left, right = (digests.to_pylist() for digests in digests_of(folder, table))
    rows = zip(table.to_pylist(), left, right, strict=True)
    return [(row, first, second) for row, first, second in rows if first and second]


def judge(folder):
    """Judge a near pair similar, dispute another and find a new one; return the first two rows."""
    rows = keys(folder)
    plain = [each for each in rows if each[0]["query"] != HOSTILE_NAME]
    often = Counter(row["query"] for row in judged_pairs(folder, verdicts=()).to_pylist())
    plain = [e for e in plain if often[e[0]["query"]] == 1 and e[0]["coverage"] != "within"]
    changed, disputed = [each for each in plain if each[0]["grade"] == "near"][:2]
    tests = [first for row, first, _ in rows if row["query_set"] == "test"]
    trains = [second for row, _, second in rows if row["reference_set"] == "train"]
    listed = {(first, second) for _, first, second in rows}
    new = next((a, b) for a in tests for b in trains if (a, b) not in listed)
    with Ledger(folder) as ledger:
        ledger.add(
            Verdict.of(*changed[1:], "similar", HOSTILE),
            Verdict.of(*disputed[1:], "near", HOSTILE),
            Verdict.of(*disputed[1:], "different", "Ada"),
            Verdict.of(*new, "exact", "Ada"),
        )
    return changed[0], disputed[0]
