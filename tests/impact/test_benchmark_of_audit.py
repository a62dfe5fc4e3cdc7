"""Which images leak, in every sense of the word, read from audit folders written by hand."""

import numpy as np
import pytest

from refusals import refused
from toy_audit import Image, Pair, digest_of, split_audit
from visleak.errors import UsageError, VisleakError
from visleak.impact.benchmark import RELATIONS, benchmark_of, with_subsets
from visleak.verdicts import Ledger, Verdict

TEST = [Image(f"q{n}", "cat" if n % 2 else "dog") for n in range(6)]
TRAIN = [Image(f"r{n}") for n in range(4)]


def leaked(benchmark, name):
    """Return the leaking images of a leak with the relation of their labels."""
    leak = next(each for each in benchmark.leaks if each.name == name)
    assert ((leak.relation >= 0) == leak.leaked).all()
    rows = np.flatnonzero(leak.leaked)
    return {benchmark.ids[int(row)].as_py(): RELATIONS[leak.relation[row]] for row in rows}


def pair(query, reference, s, degree, grade, same):
    return Pair(query, reference, grade, s, degree=degree, label_relation=same)


@pytest.fixture
def folder(tmp_path):
    """q0 is hard and exact, q1 soft and near, q2 soft and similar, q3 nothing."""
    pairs = [
        pair("q0", "r0", 0.99, "hard", "exact", "different"),
        # a weaker pair of the same image must not count where the stronger does
        pair("q0", "r1", 0.90, "soft", "near", "same"),
        pair("q1", "r1", 0.90, "soft", "near", "same"),
        # more alike, yet different: it counts for the degree and not for the grade
        pair("q1", "r2", 0.91, "soft", "different", "different"),
        pair("q2", "r2", 0.85, "soft", "similar", "unknown"),
        pair("q3", "r3", 0.30, None, "different", "same"),
        Pair("q4", "q5", "exact", 1.0, within=True),
    ]
    return split_audit(tmp_path / "audit", TEST, TRAIN, pairs)


def test_every_row_of_the_papers_table_is_the_images_it_names(folder):
    benchmark = benchmark_of(folder)
    assert (benchmark.name, benchmark.references, len(benchmark)) == ("test", ("train",), 6)
    assert not benchmark.judged
    assert leaked(benchmark, "hard") == {"q0": "different"}
    soft = {"q1": "different", "q2": "unknown"}
    assert leaked(benchmark, "soft only") == soft
    assert leaked(benchmark, "hard or soft") == soft | {"q0": "different"}
    assert leaked(benchmark, "exact") == {"q0": "different"}
    assert leaked(benchmark, "near or exact") == {"q0": "different", "q1": "same"}
    assert leaked(benchmark, "near only") == {"q1": "same"}
    assert leaked(benchmark, "similar or closer").keys() == {"q0", "q1", "q2"}
    assert leaked(benchmark, "similar only") == {"q2": "unknown"}


def test_the_label_is_compared_with_that_of_the_most_similar_copy_that_counts(tmp_path):
    """Ramos et al. (2025), table 3; PAPERS.md B5. Ties go by the reference's id."""
    pairs = [
        pair("q0", "r2", 0.9, "soft", "near", "same"),
        pair("q0", "r1", 0.9, "soft", "near", "different"),
        pair("q1", "r0", 0.8, "soft", "near", "same"),
        pair("q1", "r1", 0.7, "soft", "near", "different"),
    ]
    benchmark = benchmark_of(split_audit(tmp_path / "a", TEST, TRAIN, pairs))
    assert leaked(benchmark, "near or exact") == {"q0": "different", "q1": "same"}


def test_blank_pictures_and_repeats_within_the_test_set_are_no_leaks(tmp_path):
    test = [Image("q0", flat=True), Image("q1"), Image("q2")]
    pairs = [Pair("q0", "r0", "exact"), Pair("q1", "q2", "exact", within=True)]
    benchmark = benchmark_of(split_audit(tmp_path / "a", test, TRAIN, pairs))
    assert len(benchmark) == 3
    assert not any(leak.leaked.any() for leak in benchmark.leaks)


def test_what_people_say_counts_and_can_be_all_that_counts(folder):
    def said(query, reference, judgment):
        pair = digest_of("test", TEST[query]), digest_of("train", TRAIN[reference])
        return Verdict.of(*pair, judgment, "Ada")

    with Ledger(folder) as ledger:
        # q1 is none after all; q5 is one that the machine had not listed
        ledger.add(said(1, 1, "different"), said(5, 0, "exact"))
    benchmark = benchmark_of(folder)
    assert benchmark.judged
    assert leaked(benchmark, "near or exact").keys() == {"q0", "q5"}
    alone = benchmark_of(folder, judged_only=True)
    assert leaked(alone, "near or exact").keys() == {"q5"}


def test_lists_of_ids_are_leaks_of_their_own(folder, tmp_path):
    listed = tmp_path / "mine.txt"
    listed.write_text("\ufeffq1\n\n q4 \nq1\nnobody\n", encoding="utf-8")
    benchmark, notes = with_subsets(benchmark_of(folder), {"mine": listed})
    assert leaked(benchmark, "mine") == {"q1": "unknown", "q4": "unknown"}
    assert notes == ("subset 'mine': 1 of its 3 ids are not readable images of 'test'",)
    listed.write_text("q1")
    assert with_subsets(benchmark_of(folder), {"mine": listed})[1] == ()


def test_refusals_are_one_line(folder, tmp_path):
    alone = split_audit(tmp_path / "alone", TEST, [], [])
    for arguments, said in (
        ({"test_set": "train"}, "^the test set must be one of test; got 'train'$"),
        ({"references": ["web"]}, "^'test' was compared with train; not with 'web'$"),
        ({"judged_only": True}, "has no verdicts: leave --reviewed-only out"),
    ):
        refused(UsageError, said, folder, benchmark_of, **arguments)
    refused(UsageError, "has no training side, which an impact needs", alone, benchmark_of)
    listed = tmp_path / "ids.txt"
    listed.write_text("a\nb\n")
    for kind, name, file, said in (
        (
            VisleakError,
            "x",
            listed,
            "none of the 2 ids of .*ids.txt, such as 'a', is one of 'test'",
        ),
        (UsageError, "hard", listed, "^subset 'hard': the name is taken"),
        (VisleakError, "x", tmp_path / "gone.txt", "gone.txt cannot be read .*one id per line"),
    ):
        refused(kind, said, benchmark_of(folder), with_subsets, subsets={name: file})
