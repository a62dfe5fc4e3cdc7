"""Verdicts: the paper's own curves, hand-made ones, and what must hold of any."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from dlede_making import CIRRUS, KITTI, judge
from dlede_making import curves as curves_of
from hypothesis import given, settings
from hypothesis import strategies as st

from refusals import refusal
from visleak.dlede.judge import RULES, excess, increase
from visleak.dlede.judge.judge import judge_by_others
from visleak.dlede.judge.scores import Scores, deciding_metrics, deciding_steps, missing_metrics
from visleak.dlede.results import metric_name
from visleak.dlede.settings import DecisionSettings
from visleak.errors import UsageError

FEW = 500


def published(means):
    """Return the published means that decide as scores of one repetition."""
    return curves_of({name: means[name] for name in ("map50", "f1")})


@pytest.mark.parametrize(
    ("means", "decimals", "of_map", "of_f1"),
    [
        (
            *(CIRRUS, 1),
            "0.0 22.4 14.1 3.2 5.0 3.3 3.0 1.0 3.0 1.7 0.7",
            "0.0 16.3 12.3 4.7 4.5 2.9 2.8 1.4 2.7 1.3 1.3",
        ),
        (
            *(KITTI, 2),
            "0.00 0.47 1.17 0.81 0.92 0.91 1.01 0.33 0.44 0.88 0.88",
            "0.00 0.36 0.95 0.59 0.82 0.81 1.04 0.11 0.68 0.79 1.12",
        ),
    ],
)
def test_tables_3_and_4_to_the_printed_digit(means, decimals, of_map, of_f1):
    """Relative increases in percent."""
    for judged, cells in zip(judge(published(means)).metrics, (of_map, of_f1), strict=True):
        rises = [f"{100 * step.increase.value:.{decimals}f}" for step in judged.steps]
        assert " ".join(rises) == cells


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("means", "verdict"), [(CIRRUS, "clean"), (KITTI, "leaking")])
def test_verdicts_of_the_paper_under_every_rule(means, verdict, rule):
    found = judge(published(means), rule=rule)
    assert found.on_means == verdict
    assert {each.on_means for each in found.metrics} == {verdict}
    # published means say nothing of how certain they are
    assert found.verdict == "undecided"
    assert math.isnan(found.leaking)
    assert math.isnan(found.clean)
    # KITTI starts so high that a split without leaks would not rise by 5 % either
    high = verdict == "leaking"
    assert found.more == (None if high else 4)
    assert found.reason_code == ("score-too-high" if high else "one-repetition")


def test_a_calibrated_threshold_may_be_of_any_size():
    """From a score near zero, splits without leaks may rise by more than 100 times."""
    found = judge_by_others(published(CIRRUS), DecisionSettings(), 250.0, calibrated=True)
    assert {each.rule for each in found} == RULES.keys() - {DecisionSettings().rule}


def chains(*means, repetitions=6, noise=0.004, seed=0):
    """Return scores of the metrics mAP50, f1, ... around their means."""
    shape = (len(means), repetitions, len(means[0]))
    values = np.array(means)[:, None] + np.random.default_rng(seed).normal(0, noise, shape)
    names = ("mAP50", "f1", "recall")[: len(means)]
    return Scores(names, tuple(range(0, 10 * shape[2], 10)), tuple(range(repetitions)), values)


def of_both(*means, **more):
    """Return scores of two metrics that have the same means."""
    return chains(means, means, **more)


def test_leaking_clean_and_undecided():
    leaking, clean = judge(of_both(0.5, 0.505, 0.51)), judge(of_both(0.5, 0.57, 0.6))
    assert (leaking.verdict, leaking.on_means, leaking.more) == ("leaking", "leaking", None)
    assert leaking.leaking > 0.99
    assert (clean.verdict, clean.on_means, clean.more) == ("clean", "clean", None)
    assert clean.clean > 0.99
    between = judge(of_both(0.5, 0.525, 0.535, noise=0.02))
    assert (between.verdict, between.reason_code) == ("undecided", "not-certain")
    assert not between.disagree


def test_metrics_that_contradict_each_other_leave_it_undecided():
    scores = chains((0.5, 0.57, 0.6), (0.5, 0.505, 0.51))
    found = judge(scores)
    assert [each.verdict for each in found.metrics] == ["clean", "leaking"]
    assert (found.on_means, found.verdict, found.disagree) == ("undecided", "undecided", True)
    assert (found.more, found.reason_code) == (None, "metrics-disagree")
    # neither claim is made of all metrics
    assert max(found.leaking, found.clean) < 0.05
    assert judge(scores, metrics=["F1"]).verdict == "leaking"


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("repetitions", [1, 2, 10])
@pytest.mark.parametrize(
    ("means", "noise", "code"),
    [
        ((0.02, 0.02, 0.02), 0.0003, "model-did-not-learn"),
        ((0.0905, 0.091, 0.0915), 0.0001, "model-did-not-learn"),
        ((0.80, 0.82, 0.84), 0.003, "score-too-high"),
        ((0.97, 0.975, 0.98), 0.001, "score-too-high"),
        ((1.0, 1.0, 1.0), 0.0, "score-too-high"),
    ],
)
def test_what_would_not_rise_without_a_leak_either_is_undecided(
    means, noise, code, repetitions, rule
):
    # memorizing 20 % raises .80 to .84, by exactly 5 %
    threshold = 0.06 if rule == "cumulative" else 0.05
    scores = of_both(*means, repetitions=repetitions, noise=noise)
    found = judge(scores, rule=rule, threshold=threshold)
    assert (found.verdict, found.reason_code, found.more) == ("undecided", code, None)
    assert not found.leaking > 0.0
    for each in found.metrics:
        assert (each.verdict, each.reason_code) == ("undecided", code)
        assert metric_name(each.metric) in each.reason


def test_a_calibrated_threshold_allows_for_a_high_start_and_not_for_a_low_one():
    high = of_both(0.80, 0.801, 0.802, noise=0.001)
    assert judge(high, calibrated=True).verdict == "leaking"
    # memorizing raises .80 by 2.5 %
    assert judge(high, threshold=0.02).verdict == "leaking"
    low = of_both(0.02, 0.02, 0.02, noise=0.0001)
    assert judge(low, calibrated=True).reason_code == "model-did-not-learn"


def test_an_accuracy_needs_to_know_what_guessing_scores():
    made = chains((0.5, 0.505, 0.51))
    scores = replace(made, metrics=("Accuracy",))
    assert judge(scores).reason_code == "chance-not-known"
    assert judge(scores, chance={"accuracy": 0.2}).verdict == "leaking"
    assert judge(scores, chance={"Accuracy": 0.5}).reason_code == "model-did-not-learn"
    assert judge(scores, calibrated=True).verdict == "leaking"
    for chance, said in (
        ({"f1": 0.2}, "no metric 'f1'"),
        ({"accuracy": 1.0}, "and below 1; got 1"),
    ):
        assert said in refusal(UsageError, judge, scores, chance=chance)


@pytest.mark.parametrize(
    ("names", "start", "code"),
    [
        # guessing scores about as much as these
        (("auroc",), 0.5, "chance-not-known"),
        (("precision", "recall"), 0.5, "chance-not-known"),
        (("test/acc",), 0.25, "chance-not-known"),
        (("loss",), 2.303, "scale-not-known"),
        # percent of a name that is not known for a share
        (("quality",), 81.0, "scale-not-known"),
    ],
)
def test_no_leak_is_told_by_a_metric_of_which_guessing_is_not_known(names, start, code):
    for seed in range(5):
        noise = np.random.default_rng(seed).normal(0, 0.003, (len(names), 10, 3))
        lower = frozenset(name for name in names if name == "loss")
        scores = Scores(names, (0, 10, 20), tuple(range(10)), start + noise, lower)
        found = judge(scores, resamples=FEW)
        assert (found.verdict, found.reason_code) == ("undecided", code)
        assert judge(scores, calibrated=True, resamples=FEW).verdict == "leaking"


def test_repetitions_that_are_all_the_same_are_one():
    for means in ((0.5, 0.505, 0.51), (0.5, 0.6, 0.7)):
        found = judge(of_both(*means, repetitions=10, noise=0.0))
        assert (found.verdict, found.reason_code) == ("undecided", "identical-repetitions")
        assert np.isnan([found.leaking, found.clean]).all()


@pytest.mark.parametrize("repetitions", [2, 3, 10])
def test_rounded_scores_are_not_surer_than_their_digits(repetitions):
    """The increase lies on the threshold, where a verdict is to be wrong in 5 % of cases."""
    rng = np.random.default_rng(repetitions)
    runs, wrong = 200, 0
    for _ in range(runs):
        start = 0.5 + rng.uniform(0, 0.01)
        means = start * np.array([1.0, 1.05, 1.05 * 1.02])
        values = (means + rng.normal(0, 0.003, (1, repetitions, 3))).round(2)
        scores = Scores(("map50",), (0, 10, 20), tuple(range(repetitions)), values)
        wrong += judge(scores, resamples=FEW).verdict != "undecided"
    # 32, 22 and 9 % where scores count as exact
    assert wrong / runs <= 0.05


@pytest.mark.parametrize(
    ("learned", "start", "code"),
    [(2, 0.6, "repetitions-did-not-learn"), (7, 0.8, "score-too-high")],
)
def test_repetitions_that_did_not_learn_are_no_sign_of_a_leak(learned, start, code):
    values = 0.02 + np.random.default_rng(0).normal(0, 0.0003, (1, 10, 3))
    values[0, :learned] += start
    found = judge(Scores(("map50",), (0, 10, 20), tuple(range(10)), values))
    assert found.on_means == "leaking"
    assert (found.verdict, found.reason_code) == ("undecided", code)


def test_scores_that_no_leak_moves_are_undecided():
    still = np.broadcast_to(np.array([0.5, 0.51, 0.52])[:, None], (2, 3, 3))
    found = judge(Scores(("map50", "f1"), (0, 10, 20), (1, 2, 3), still))
    assert (found.verdict, found.reason_code) == ("undecided", "constant-scores")


@pytest.mark.parametrize("means", [(0.45, 0.4, 0.35), (0.5, 0.505, 0.45)])
def test_scores_that_worsen_where_test_images_leak_are_undecided(means):
    found = judge(of_both(*means))
    assert (found.verdict, found.reason_code) == ("undecided", "worsening-scores")
    assert judge(of_both(0.5, 0.49, 0.485)).verdict == "leaking"


def test_chains_that_lack_a_deciding_step_are_left_out_and_counted():
    whole = of_both(0.5, 0.57, 0.6, 0.61, repetitions=5)
    torn = whole.values.copy()
    # chain 2 lacks a deciding step in one metric only; chain 4 only what decides nothing
    torn[1, 1, 2] = np.nan
    torn[:, 3, 3] = np.nan
    found = judge(replace(whole, values=torn))
    assert (found.repetitions, found.left_out) == (4, 1)
    kept = torn[0, [0, 2, 3, 4]]
    steps = found.metrics[0].steps
    assert [step.training_runs for step in steps] == [4, 4, 4, 3]
    assert steps[0].mean.value == pytest.approx(kept[:, 0].mean())
    assert steps[0].deviation == pytest.approx(kept[:, 0].std(ddof=1))
    # a later step is compared over the chains that have both
    pair = kept[[0, 1, 3]].mean(axis=0)
    assert steps[3].increase.value == pytest.approx(pair[3] / pair[2] - 1)
    assert steps[3].mean.value == pytest.approx(pair[3])


def test_a_metric_that_is_nothing_at_first_says_nothing_and_says_why():
    scores = of_both(0.5, 0.57, 0.6)
    scores.values[0, :, 0] = 0.0
    found = judge(scores)
    assert [each.verdict for each in found.metrics] == ["undecided", "clean"]
    assert "mAP50 has a mean of 0 at 0 %" in found.metrics[0].reason
    assert (found.verdict, found.more, found.leaking, found.clean) == ("undecided", None, 0.0, 0.0)
    assert math.isnan(found.metrics[0].steps[1].increase.value)
    # what does not decide may be nothing
    assert judge(scores, metrics=["f1"]).verdict == "clean"


def test_less_is_better():
    scores = of_both(0.5, 0.44, 0.4)
    assert judge(scores).on_means == "leaking"
    found = judge(replace(scores, lower=frozenset(scores.metrics)))
    assert found.verdict == "clean"
    assert found.metrics[0].steps[1].increase.value == pytest.approx(0.12, abs=0.02)


def test_other_steps_may_decide():
    scores = of_both(0.5, 0.505, 0.51, 0.6)
    assert judge(scores).verdict == "leaking"
    found = judge(scores, decided_by=(0, 10, 20, 30))
    assert (found.verdict, found.decided_by) == ("clean", (0, 10, 20, 30))
    far = judge(scores, decided_by=(0, 30)).metrics[0].statistic.value
    assert far == pytest.approx(0.2, abs=0.02)


@st.composite
def drawn(draw):
    """Return scores that rise, or fall, by any two increases."""
    rises = draw(st.tuples(st.floats(-0.1, 0.3), st.floats(-0.1, 0.3)))
    return of_both(
        *0.4 * np.cumprod([1.0, 1.0 + rises[0], 1.0 + rises[1]]),
        repetitions=draw(st.integers(2, 5)),
        noise=draw(st.sampled_from([0.002, 0.01, 0.03])),
        seed=draw(st.integers(0, 2**32 - 1)),
    )


RULE = st.sampled_from(list(RULES))


@settings(max_examples=25, deadline=None)
@given(scores=drawn(), factor=st.sampled_from([0.01, 3.0, 100.0]), rule=RULE)
def test_the_unit_of_a_metric_changes_no_increase(scores, factor, rule):
    other = replace(scores, values=scores.values * factor)
    first, second = (judge(each, rule=rule, resamples=FEW) for each in (scores, other))
    for one, two in zip(first.metrics, second.metrics, strict=True):
        # of a share it is known whether it starts too low or too high, of another unit it is not
        assert "" in (one.reason, two.reason) or one.reason_code == two.reason_code
        assert one.on_means == two.on_means
        if one.reason == two.reason == "":
            assert (one.verdict, one.leaking) == (two.verdict, two.leaking)
        assert one.statistic.value == pytest.approx(two.statistic.value)
        assert one.statistic.low == pytest.approx(two.statistic.low)
        assert [step.above for step in one.steps][1:] == [step.above for step in two.steps][1:]


@settings(max_examples=25, deadline=None)
@given(scores=drawn(), rule=RULE)
def test_a_higher_threshold_never_turns_leaking_into_clean(scores, rule):
    found = [
        judge(scores, rule=rule, threshold=threshold, resamples=FEW, calibrated=True)
        for threshold in (-0.02, 0.02, 0.05, 0.1, 0.2)
    ]
    for one, two in pairwise(found):
        # of two chains, some draws take the score before below 0
        assert one.leaking <= two.leaking + 0.01
        assert one.clean >= two.clean - 0.01
        if one.verdict == "leaking":
            assert two.verdict == "leaking"
        if one.on_means == "leaking":
            assert two.on_means == "leaking"


# increases 25 %, 20 %, 5 %
CURVE = [0.4, 0.5, 0.6, 0.63]


@pytest.mark.parametrize(
    ("rule", "three", "four"),
    [("both-steps", 0.25, 0.25), ("any-step", 0.20, 0.05), ("cumulative", 0.2 / 0.4, 0.23 / 0.4)],
)
def test_statistic(rule, three, four):
    assert RULES[rule].statistic(CURVE[:3]) == pytest.approx(three)
    assert RULES[rule].statistic(CURVE) == pytest.approx(four)


score = st.floats(0.01, 1.0)


@given(before=score, after=score, threshold=st.floats(-0.5, 0.5), lower=st.booleans())
def test_the_excess_is_positive_where_the_increase_is_above_the_threshold(
    before, after, threshold, lower
):
    first, last = np.array(before), np.array(after)
    above = float(increase(first, last, lower)) - threshold
    if abs(above) > 1e-9:
        assert (float(excess(first, last, threshold, lower)) > 0) == (above > 0)


def having(*metrics, steps=(0, 10, 20, 30)):
    return Scores(metrics, steps, (1,), np.ones((len(metrics), 1, len(steps))))


@pytest.mark.parametrize(
    "name", ["map50", "mAP50", "mAP@0.5", "mAP@.5", "mAP_0.5", "AP50", "metrics/mAP50(B)", "mAP"]
)
@pytest.mark.parametrize("f1", ["f1", "F1", "F1-score", "f1_score"])
def test_map_and_f1_decide_whatever_they_are_called(name, f1):
    assert deciding_metrics(having("precision", f1, name)) == (name, f1)


@pytest.mark.parametrize(
    ("there", "requested", "deciding"),
    [
        # of COCO's metrics "map" is the mean over 0.5:0.95
        (("map", "f1", "map_50"), [], ("map_50", "f1")),
        (("mAP50-95", "f1", "mAP50"), [], ("mAP50", "f1")),
        # in any case, and by alias
        (("mAP_0.5", "mIoU", "miou"), ["map50"], ("mAP_0.5",)),
        (("mAP_0.5", "mIoU", "miou"), ["miou", "mIoU"], ("miou", "mIoU")),
        (("mAP_0.5", "mIoU", "miou"), ["MIOU"], ("mIoU",)),
    ],
)
def test_metrics_that_decide(there, requested, deciding):
    assert deciding_metrics(having(*there), requested) == deciding


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        (("precision", "recall", "f1", "map50_95"), "map50 is missing"),
        (("map50", "recall"), "f1 is missing"),
        (("mAP@0.5", "F1-score"), ""),
        (("accuracy", "f1"), ""),
        (("loss",), ""),
    ],
)
def test_one_metric_of_the_paper_without_the_other_is_told(there, missing):
    line = missing_metrics(having(*there), ())
    assert line.startswith(missing)
    assert bool(line) == bool(missing)
    assert missing_metrics(having(*there), there[:1]) == ""


def test_a_metric_cannot_decide_twice():
    said = refusal(UsageError, deciding_metrics, having("map50", "f1"), ["f1", "F1"])
    assert said == "the metric 'f1' is requested twice; name it once"


def test_the_first_three_steps_decide():
    assert deciding_steps(having("f1")) == (0, 10, 20)
    assert deciding_steps(having("f1", steps=(0, 50))) == (0, 50)
    assert deciding_steps(having("f1"), (0, 20, 30)) == (0, 20, 30)


@pytest.mark.parametrize("asked", [(), (0,), (10, 20), (0, 15), (0, 20, 10), (0, 10, 10)])
def test_steps_that_cannot_decide(asked):
    said = refusal(UsageError, deciding_steps, having("f1"), asked)
    assert "beginning with 0 %; there are 0, 10, 20, 30, got" in said
