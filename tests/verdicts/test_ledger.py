"""The ledger: durable, undone in batches, safe under threads, processes and kills."""

import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from refusals import refused
from visleak.errors import UsageError, VisleakError
from visleak.records import GRADES
from visleak.storage.database import EVERY
from visleak.verdicts import Ledger, Verdict, agreement, consensus_of, read_verdicts
from visleak.verdicts.ledger import PLAIN, cohen_kappa, read_plain, write_plain


def digest(number):
    return f"{number:032x}"


def said(number, judgment="near", reviewer="Ada", **about):
    return Verdict.of(digest(number), digest(number + 1), judgment, reviewer, **about)


@given(st.lists(st.tuples(st.sampled_from(["Ada", "Ben", "undo Ada"]), st.integers(0, 3),
                          st.sampled_from(GRADES), st.integers(1, 2)), max_size=12))  # fmt: skip
def test_standing_equals_a_plain_history(steps):
    """The last batch of a reviewer is withdrawn as a whole; nobody else's is."""
    history = []
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder)) as ledger:
        for who, number, judgment, size in steps:
            if who == "undo Ada":
                ledger.undo("Ada")
                mine = [index for index, batch in enumerate(history) if batch[0].reviewer == "Ada"]
                history = [batch for index, batch in enumerate(history) if [index] != mine[-1:]]
            else:
                history.append([said(number + n, judgment, who) for n in range(size)])
                ledger.add(*history[-1])
        last = {(v.reviewer, v.key): v for batch in history for v in batch}
        assert {(v.reviewer, v.key): v for v in ledger.standing()} == last


def test_the_plain_copy_is_written_every_twenty(tmp_path):
    with Ledger(tmp_path) as ledger:
        for number in range(20):
            assert not (tmp_path / PLAIN).exists()
            ledger.add(said(number))
        assert len(read_plain(tmp_path / PLAIN)) == 20


def test_a_kill_loses_no_verdict_that_was_said(tmp_path):
    script = (
        "import sys; from pathlib import Path; from visleak.verdicts import Ledger, Verdict\n"
        "ledger = Ledger(Path(sys.argv[1]))\n"
        "for n in range(100000):\n"
        "    ledger.add(Verdict.of(f'{n:032x}', f'{n + 1:032x}', 'near', 'Ada'))\n"
        "    print(n, flush=True)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(31):
        process.stdout.readline()
    time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    rest = process.stdout.read().split()
    process.wait()
    process.stdout.close()
    told = int(rest[-1]) + 1 if rest else 31
    assert len(read_verdicts(tmp_path)) >= told
    with Ledger(tmp_path) as ledger:
        ledger.add(said(500_000))
    assert len(read_plain(tmp_path / PLAIN)) > told


@given(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=20), st.none() | st.floats(-1, 1)
)
def test_the_plain_copy_keeps_every_character(name, similarity):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / PLAIN
        verdict = said(1, query=name, reference=f"={name}", similarity=similarity)
        write_plain(path, [verdict])
        assert read_plain(path) == (verdict,)


def test_damage_is_told_with_its_line(tmp_path):
    path = tmp_path / PLAIN
    write_plain(path, [said(1), said(2)])
    path.write_text(path.read_text().replace(f"{digest(2)},{digest(3)},near", "x,y,near"))
    refused(VisleakError, r"verdicts\.csv, line 3: .* got 'x'", tmp_path, read_verdicts)


def test_the_copy_does_not_stand_for_a_damaged_file(tmp_path):
    with Ledger(tmp_path) as ledger:
        ledger.add(*map(said, range(EVERY)))
        ledger.add(said(EVERY))
        # a kill here leaves a copy without the last verdict
        assert (len(read_verdicts(tmp_path)), len(read_plain(tmp_path / PLAIN))) == (21, 20)
    for name in ("verdicts.sqlite-wal", "verdicts.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "verdicts.sqlite").write_bytes(b"no database at all" * 100)
    refused(VisleakError, r"cannot be read .* may lack the last 19", tmp_path, read_verdicts)
    refused(VisleakError, r"cannot be used .* resume from verdicts\.csv", tmp_path, Ledger)
    (tmp_path / "verdicts.sqlite").unlink()
    assert len(read_verdicts(tmp_path)) == 21


@pytest.mark.parametrize("killed", [False, True])
def test_a_folder_with_the_plain_copy_alone_begins_with_it(tmp_path, killed):
    """A kill before the first table leaves an empty file beside it."""
    if killed:
        (tmp_path / "verdicts.sqlite").touch()
        assert read_verdicts(tmp_path) == ()
    copied = (said(1), said(2, "exact", "Ben", similarity=0.5))
    write_plain(tmp_path / PLAIN, copied)
    assert read_verdicts(tmp_path) == copied
    with Ledger(tmp_path) as ledger:
        ledger.add(said(3))
        assert ledger.standing()[:2] == copied
    assert len(read_plain(tmp_path / PLAIN)) == 3


def test_reading_leaves_no_file_behind(tmp_path):
    with Ledger(tmp_path) as ledger:
        ledger.add(said(1))
        with Ledger(tmp_path) as other:
            other.add(said(2))
        # the other one closed first, and left this one its log
        ledger.add(said(3))
    assert len(read_verdicts(tmp_path)) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["verdicts.csv", "verdicts.sqlite"]


A, B, C = "a" * 32, "b" * 32, "c" * 32


def judged(judgment, reviewer, left=A, right=B):
    return Verdict.of(left, right, judgment, reviewer)


@pytest.mark.parametrize("first", GRADES)
@pytest.mark.parametrize("second", GRADES)
def test_disputed_is_disagreement_on_near_or_not_and_nothing_else(first, second):
    """The last verdict of a reviewer counts; of one vote each the weaker claim stands."""
    verdicts = [judged("different", "Ada"), judged(second, "Ben"), judged(first, "Ada")]
    consensus = consensus_of(verdicts)[A, B]
    near = ("exact", "near")
    assert consensus.disputed == ((first in near) != (second in near))
    if not consensus.disputed:
        assert consensus.grade == max(first, second, key=GRADES.index)


@given(st.lists(st.sampled_from(GRADES), min_size=1, max_size=5))
def test_a_majority_decides_near_or_not(judgments):
    verdicts = [judged(judgment, f"r{number}") for number, judgment in enumerate(judgments)]
    consensus = consensus_of(verdicts)[A, B]
    near = sum(judgment in ("exact", "near") for judgment in judgments)
    assert consensus.disputed == (2 * near == len(judgments))
    assert agreement(verdicts).outvoted == (not consensus.disputed and 0 < near < len(judgments))
    if consensus.grade is not None:
        assert (consensus.grade in ("exact", "near")) == (2 * near > len(judgments))
        assert consensus.grade in judgments


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_kappa_equals_scikit_learn(rows):
    left, right = ([row[side] for row in rows] for side in (0, 1))
    if len({*left, *right}) == 1:  # chance alone makes them agree: not defined
        assert math.isnan(cohen_kappa(left, right))
    else:
        assert cohen_kappa(left, right) == pytest.approx(cohen_kappa_score(left, right))


def test_agreement_counts_only_pairs_that_both_judged():
    verdicts = [judged("near", "Ada"), judged("near", "Ben"), judged("similar", "Ada", B, C)]
    verdicts += [judged("different", "Ada", A, C), judged("exact", "Ben", A, C)]
    found = agreement(verdicts)
    assert (found.judged, found.disputed) == (3, 1)
    assert found.reviewers == {"Ada": 3, "Ben": 2}
    (kappa,) = found.kappas
    assert (kappa.reviewers, kappa.pairs, kappa.agreed) == (("Ada", "Ben"), 2, 1)
    assert kappa.kappa == pytest.approx(cohen_kappa_score([True, False], [True, True]))


def test_a_verdict_refuses_to_be_born_wrong():
    for arguments, words in (
        (("maybe", "Ada"), "a judgment is one of exact, near, similar, different"),
        (("near", "  "), "one line of 1 to 100 characters; got '  '"),
        (("near", "two\nlines"), "one line"),
        (("near", "Ada", "cat.png"), r"of both images; got .cat[.]png"),
    ):
        with pytest.raises(UsageError, match=words):
            judged(*arguments)
