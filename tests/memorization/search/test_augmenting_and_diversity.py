"""Algorithms 2 and 3 against literal readings of them."""

import dataclasses
import math

import numpy as np
import pytest

from toy_prompt_models import WORDS, FiveProposer, FiveWords, all_states, d_of, task, text_of
from visleak.errors import UsageError, VisleakError
from visleak.memorization.scores import seeds_of
from visleak.memorization.search import gibbs
from visleak.memorization.search.driver import generator
from visleak.memorization.search.gibbs import AugmentSettings, augment
from visleak.memorization.search.run import diversify, farthest_points

SETTINGS = AugmentSettings(
    iterations=6, candidates=4, temperature=0.4, kappa=1.0, patience=2, top=None, norm="l2"
)
CODE = dataclasses.replace(SETTINGS, preset="official-code", floor=0.8, repeats=2)
TRIGGERS = ("ant bee cat", "eel dog", "cat cat cat cat")


def literal(trigger, settings, seed=0):
    """Return every D of every prompt that Algorithm 2 scores, as two plain loops."""
    proposer = FiveProposer()
    first = [WORDS.index(word) for word in trigger.split()]
    bank = {}
    for repeat in range(settings.repeats):
        state, count, step = list(first), 0, 0
        chains = len(first) + (not settings.code)
        for k in range(chains):
            if settings.code:
                state, count = list(first), 0
            for j in range(settings.iterations):
                rng = generator(seed, f"{trigger}\0{repeat}", step)
                step += 1
                i = int(rng.integers(len(first)))
                if j == 0 and k < len(first):
                    i = k
                chance = float(rng.random())
                forced = [first[i], state[i]] if settings.code else []
                (found,) = proposer.candidates([state], [i], settings.candidates, [forced])
                options = sorted(found.ids.tolist())
                prompts = [text_of([*state[:i], word, *state[i + 1 :]]) for word in options]
                scores = [d_of(prompt) for prompt in prompts]
                for prompt, score in zip(prompts, scores, strict=True):
                    bank.setdefault(prompt, []).append(score)
                weights = [2.718281828459045 ** (s / settings.temperature) for s in scores]
                passed, taken = 0.0, 0
                for taken, weight in enumerate(weights):  # noqa: B007
                    passed += weight / sum(weights)
                    if passed > chance:
                        break
                state[i] = options[taken]
                count = count + 1 if scores[taken] < settings.kappa else 0
                if count > settings.patience or (settings.code and count == settings.patience):
                    break
    return bank


@pytest.mark.parametrize("settings", [SETTINGS, CODE], ids=["paper", "code"])
@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("kappa", [0.2, 1.0, 1.6, 3.0])
def test_the_bank_is_that_of_a_literal_reading(settings, trigger, kappa):
    settings = dataclasses.replace(settings, kappa=kappa, floor=None)
    wanted = literal(trigger, settings)
    held = []
    made = augment(task(), FiveProposer(), [trigger], settings, bank=held.extend)
    assert {each.prompt: each.times for each in held} == {
        prompt: len(scores) for prompt, scores in wanted.items()
    }
    assert all(each.mean == pytest.approx(d_of(each.prompt)) for each in held)
    (only,) = made.triggers
    assert only.scored == len(wanted)
    assert only.above == sum(each.mean >= kappa for each in held)
    assert made.complete


def test_top_and_floor_keep_the_best():
    held = []
    every, top, floor = (
        augment(task(), FiveProposer(), TRIGGERS, dataclasses.replace(SETTINGS, **given), **more)
        for given, more in (({}, {}), ({"top": 5}, {}), ({"floor": 1.5}, {"bank": held.extend}))
    )
    for all_, few, high in zip(every.triggers, top.triggers, floor.triggers, strict=True):
        assert len(all_.prompts) == all_.scored
        means = [each.mean for each in all_.prompts]
        assert means == sorted(means, reverse=True)
        assert few.prompts == all_.prompts[:5]
        assert high.prompts == tuple(each for each in all_.prompts if each.mean >= 1.5)
        assert (few.scored, high.scored) == (all_.scored, all_.scored)
    assert min(each.mean for each in held) >= 1.5
    assert len(held) == sum(len(each.prompts) for each in floor.triggers)


def test_a_trigger_gives_the_same_alone_and_among_others(monkeypatch):
    together = augment(task(FiveWords(noisy=True)), FiveProposer(), TRIGGERS, CODE)
    monkeypatch.setattr(gibbs, "TOGETHER", 2)
    waves = augment(task(FiveWords(noisy=True)), FiveProposer(), TRIGGERS, CODE)
    assert waves.triggers == together.triggers
    for each in together.triggers:
        alone = augment(task(FiveWords(noisy=True)), FiveProposer(), [each.trigger], CODE)
        assert alone.triggers == (each,)


@pytest.mark.parametrize("rows", [3, 111])
def test_an_interrupted_augmentation_ends_with_identical_results(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(gibbs, "TOGETHER", 2)
    whole = augment(task(FiveWords(noisy=True)), FiveProposer(), TRIGGERS, CODE)
    stopped = task(FiveWords(noisy=True, kill_after=rows), folder=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        augment(stopped, FiveProposer(), TRIGGERS, CODE)
    made = augment(task(FiveWords(noisy=True), folder=tmp_path), FiveProposer(), TRIGGERS, CODE)
    assert dataclasses.replace(made, seconds=whole.seconds) == whole
    again = augment(task(model := FiveWords(), folder=tmp_path), FiveProposer(), TRIGGERS, CODE)
    assert again == made
    assert model.rows == 0


def test_words_that_nobody_knows_are_left_out_and_counted():
    made = augment(task(), FiveProposer(), ["ant yak bee", "yak", "cat dog"], SETTINGS)
    first, second, third = made.triggers
    assert (first.start, first.unknown, first.scored > 0) == ("ant bee", 1, True)
    assert (second.start, second.unknown, second.scored, second.prompts) == ("", 1, 0, ())
    assert (third.start, third.unknown) == ("cat dog", 0)


@pytest.mark.parametrize(
    ("triggers", "said"),
    [
        ([], "triggers must be one prompt or more, each given once"),
        (["a", "a"], "triggers must be one prompt or more, each given once"),
        (["yak", "gnu"], "no word of the 2 triggers is in the vocabulary"),
    ],
)
def test_triggers_that_cannot_be_are_refused(triggers, said):
    with pytest.raises(VisleakError, match=said):
        augment(task(), FiveProposer(), triggers, SETTINGS)


def test_repeats_meet_noises_of_their_own():
    """The mean D of a prompt that several runs score at one step is a mean over noises."""
    model = FiveWords(noisy=True)
    settings = dataclasses.replace(
        SETTINGS, iterations=1, kappa=0.0, preset="official-code", candidates=5, repeats=4
    )
    held = []
    made = augment(task(model), FiveProposer(), ["ant"], settings, bank=held.extend)
    strengths = [
        float(model.noises([seed]).abs().mean())
        for repeat in range(4)
        for seed in seeds_of(0, gibbs.draw_of_step(0, 0, repeat), 1)
    ]
    assert len(set(strengths)) == 4
    for each in held:
        assert each.times == 4
        assert each.mean == pytest.approx(d_of(each.prompt) * sum(strengths) / 4, rel=1e-5)
        assert each.best == pytest.approx(d_of(each.prompt) * max(strengths), rel=1e-5)
    # five words and the empty prompt, for every repeat
    assert made.calls == model.rows == 4 * (5 + 1)


PROMPTS = [text_of(state) for state in all_states(2)]


def exhaustive(vectors, count, first):
    """Yield the picks of Algorithm 3 and their cosines, each worked out anew for every pick."""
    rest = [row for row in range(len(vectors)) if row != first]
    picked = [first]
    while rest and len(picked) < count:
        worst = [max(cosine(vectors[row], vectors[other]) for other in picked) for row in rest]
        picked.append(rest.pop(worst.index(min(worst))))
        yield picked[-1], min(worst)


def cosine(one, other):
    return one @ other / math.sqrt((one @ one) * (other @ other))


@pytest.mark.parametrize("seed", range(4))
def test_picks_are_those_of_exhaustive_search(seed):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((30, 8)) * rng.uniform(0.1, 50.0, (30, 1))
    for count in (1, 2, 12, 99):
        first = int(rng.integers(30))
        (begin, _), *picks = farthest_points(vectors, count, first)
        wanted = list(exhaustive(vectors, count, first))
        assert [begin, *(row for row, _ in picks)] == [first, *(row for row, _ in wanted)]
        assert [c for _, c in picks] == pytest.approx([c for _, c in wanted], abs=1e-12)


def test_ties_go_to_the_first():
    """Copies of a vector have equal cosines to the last bit."""
    rng = np.random.default_rng(0)
    few = rng.standard_normal((4, 7))
    vectors = np.concatenate([few, few, few])
    picks = [row for row, _ in farthest_points(vectors, 12, 5)]
    assert picks[0] == 5
    assert sorted(picks[1:4]) == [0, 2, 3]
    assert sorted(picks) == list(range(12))


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_vectors_without_a_direction_are_refused(value):
    with pytest.raises(VisleakError, match=r"zero or not finite; such prompts have no direction"):
        list(farthest_points(np.array([[1.0, 0.0], [value, 0.0]]), 2, 0))


def test_the_first_pick_is_seeded_and_each_prompt_is_picked_once():
    firsts = set()
    for seed in range(8):
        picks = diversify(FiveWords(), PROMPTS, 30, seed=seed)
        assert sorted(pick.row for pick in picks) == list(range(25))
        assert picks[0].closeness is None
        assert all(pick.closeness is not None for pick in picks[1:])
        firsts.add(picks[0].row)
        assert picks == diversify(FiveWords(), PROMPTS, 30, seed=seed)
    assert len(firsts) > 2


@pytest.mark.parametrize(
    ("prompts", "given_", "said"),
    [
        ([], {}, "no prompt to pick from: give at least one"),
        (["a"], {"count": 0}, "count is at least 1; got 0"),
        (["a"], {"sources": ["b", "c"]}, "sources are one per prompt, 1; got 2"),
    ],
)
def test_what_cannot_be_picked_from_is_refused(prompts, given_, said):
    with pytest.raises(UsageError, match=said):
        diversify(FiveWords(), prompts, **given_)
