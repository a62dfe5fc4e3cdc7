from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from toy_audit import pair_row, write_rows
from visleak.report import findings
from visleak.report.findings import COLUMNS, FLOOR, choose, ledger
from visleak.storage import PAIRS_SCHEMA
from visleak.verdicts import judged_pairs

STORED = [name for name in COLUMNS if name != "machine_grade"]
SCHEMA = pa.schema([*(PAIRS_SCHEMA.field(name) for name in STORED), ("machine_grade", pa.string())])


def table(*rows):
    """Return pairs of the machine's own grade."""
    labels = dict.fromkeys(("query_label", "reference_label"))
    full = [pair_row("test/q", f"train/r{at}") | labels | row for at, row in enumerate(rows)]
    return pa.Table.from_pylist([row | {"machine_grade": row["grade"]} for row in full], SCHEMA)


def chosen(pairs, cap=300):
    return choose(ledger(pairs), cap).rows.tolist()


def test_duplicates_and_leaks_are_counted_apart():
    leak = {"query": "a", "probability": 1.0}
    repeat = {"query": "a", "reference_set": "test", "coverage": "within"}
    made = ledger(table(leak, repeat | {"probability": 0.9}, repeat | {"probability": 0.8}))
    assert made.within.tolist() == [False, True, True]
    assert choose(made).more.tolist() in ([0], [1])


def test_every_kind_is_represented_under_a_flood():
    flood = [{"query": f"f{i}", "probability": 1.0, "grade": "exact"} for i in range(2000)]
    rare = [
        {"query": "r1", "probability": 0.3, "grade": "similar"},
        {"query": "r2", "probability": 0.01, "grade": "different"},
        {"query": "r3", "reference_set": "web", "coverage": "inter", "probability": 0.6},
        {"query": "r4", "label_relation": "different", "probability": 0.7},
        {"query": "r5", "reference_set": "test", "coverage": "within", "probability": 0.8},
    ]
    picked = chosen(table(*flood, *rare), cap=20)
    assert len(picked) == 20
    assert set(range(2000, 2005)) <= set(picked)


def test_set_that_always_comes_second_gets_a_card():
    rows = [
        {"query": f"q{i}", "reference_set": name, "probability": sure}
        for i in range(40)
        for name, sure in (("train", 0.9), ("web", 0.8))
    ]
    shown = [rows[row]["reference_set"] for row in chosen(table(*rows))]
    assert (shown.count("train"), shown.count("web")) == (39, 1)


def test_different_pairs_stand_for_their_kind_only():
    rows = [{"query": f"d{i}", "probability": 0.1, "grade": "different"} for i in range(50)]
    assert len(chosen(table(*rows, {"query": "a"}))) == FLOOR + 1


def test_without_grades_the_degree_decides():
    rows = [
        {"query": "a", "degree": "soft", "similarity": 0.91},
        {"query": "b", "degree": "hard", "similarity": 0.99},
        {"query": "c", "degree": None, "similarity": 0.5},
    ]
    pairs = ledger(table(*({**row, "grade": None, "probability": None} for row in rows)))
    assert not pairs.verified
    assert pairs.leak.tolist() == [True, True, False]
    assert choose(pairs).rows.tolist() == [1, 0, 2]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 120), st.integers(1, 40))
def test_choice_keeps_its_promises(seed, count, cap):
    rng = np.random.default_rng(seed)
    rows = [
        {
            "query": f"q{rng.integers(30)}",
            "query_set": rng.choice(["test", "val"]),
            "reference_set": rng.choice(["train", "web"]),
            "grade": rng.choice(["exact", "near", "similar", "different"]),
            "probability": float(rng.random()),
            "label_relation": rng.choice(["same", "different", "unknown"]),
        }
        for _ in range(count)
    ]
    made = ledger(table(*rows))
    choice = choose(made, cap)
    keys = made.key[choice.rows].tolist()
    assert len(keys) <= cap
    assert max(Counter(keys).values(), default=1) == 1
    shown = [rows[row] for row in choice.rows]
    ranks = [(each["grade"] == "different", -each["probability"]) for each in shown]
    assert ranks == sorted(ranks)
    for row, more in zip(choice.rows, choice.more, strict=True):
        mine = [
            i
            for i, other in enumerate(rows)
            if i != row
            and (other["query_set"], other["query"]) == (rows[row]["query_set"], rows[row]["query"])
            and other["grade"] in ("exact", "near")
        ]
        assert more == len(mine)
    assert choose(made, cap).rows.tolist() == choice.rows.tolist()


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 60), st.booleans())
def test_pairs_of_different_images_that_are_not_read_are_not_missed(
    tmp_path_factory, random, count, within
):
    folder = tmp_path_factory.mktemp("audit")
    grades = (*["different"] * 5, None, "similar", "near")
    made = {}
    for number in range(count):
        pair = f"test/q{random.randrange(6)}", f"{random.choice('ab')}/r{number}"
        if within and random.random() < 0.3:
            pair = pair[0], f"test/s{number}"
        chance, degree = random.random(), random.choice(("hard", "soft", None))
        made[pair] = pair_row(*pair, random.choice(grades), similarity=chance, degree=degree)
    rows = [
        made[pair] for pair in sorted(made, key=lambda pair: (pair[0], -made[pair]["similarity"]))
    ]
    write_rows(folder, pairs=rows)
    whole = judged_pairs(folder, [*COLUMNS, "judged"])
    every = ledger(whole)
    shown = findings.read(folder, ["test"], None, 300)
    assert shown.pairs == len(rows)
    assert [card.row["reference"] for card in shown.cards] == [
        whole["reference"][int(row)].as_py() for row in choose(every).rows
    ]
    assert shown.listing.total == int((every.leak | every.shown).sum())
