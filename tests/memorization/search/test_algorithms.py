"""Algorithms 1 to 3 against brute force and literal readings of them, and random words."""

import dataclasses
import json
import math
import sqlite3
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from toy_prompt_models import (
    WORDS,
    FiveProposer,
    FiveWords,
    all_states,
    brute_matrix,
    brute_transition,
    d_of,
    task,
    text_of,
)
from visleak.errors import UsageError, VisleakError
from visleak.memorization.scores import seeds_of
from visleak.memorization.search import gibbs
from visleak.memorization.search.driver import FILE, begun, generator
from visleak.memorization.search.gibbs import (
    AugmentSettings,
    GibbsSearch,
    GibbsSettings,
    Move,
    advance,
    augment,
    boltzmann,
)
from visleak.memorization.search.methods import RandomSettings, RandomWords
from visleak.memorization.search.run import diversify, farthest_points
from visleak.memorization.settings import Budget

MOVES = GibbsSettings(length=3, iterations=8, candidates=5, temperature=0.5, kappa=None, norm="l2")


def walks_in(folder):
    """Return where the chains of a search stand, after how many moves, and whether at an end."""
    with sqlite3.connect(folder / FILE) as db:
        (text,) = db.execute("SELECT value FROM about WHERE name = 'state'").fetchone()
    return json.loads(text)["state"]


def sampled(state, position, count, temperature):
    """Return the probabilities that the sampler itself draws from."""
    with begun("moves", {}, task()) as run:
        made = advance(run, FiveProposer(), [Move(state, position, 0.5)], count, temperature, 0)
    chances = boltzmann(made[0].scores, temperature)
    return dict(zip(made[0].states, chances.tolist(), strict=True))


@pytest.mark.parametrize("count", [5, 3])
@pytest.mark.parametrize("temperature", [0.1, 0.5, 50.0])
def test_a_move_has_the_probabilities_of_equations_7_to_9(count, temperature):
    """T_i to 1e-12, for every state and position, masks among them."""
    for state in all_states(2, masks=True):
        for position in range(2):
            wanted = brute_transition(FiveProposer(), state, position, count, temperature)
            found = sampled(state, position, count, temperature)
            assert found.keys() == wanted.keys()
            for target, chance in wanted.items():
                assert found[target] == pytest.approx(chance, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(("steps", "count"), [(3, 5), (3, 3)])
def test_chains_are_distributed_as_the_brute_force_chain(tmp_path, steps, count):
    """Chi-square: 2,000 chains after so many moves, against powers of T from n masks."""
    settings, chains = (
        dataclasses.replace(MOVES, length=2, iterations=steps, candidates=count),
        2000,
    )
    GibbsSearch(FiveProposer(), settings).search(task(chains=chains, seed=5, folder=tmp_path))
    states, matrix = brute_matrix(FiveProposer(), 2, count, settings.temperature)
    start = np.zeros(len(states))
    start[states.index((len(WORDS), len(WORDS)))] = 1.0
    expected = start @ np.linalg.matrix_power(matrix, steps) * chains
    seen = Counter(tuple(state) for state, *_ in walks_in(tmp_path))
    observed = np.array([seen[state] for state in states], float)
    assert observed[expected == 0.0].sum() == 0
    # states that are expected less than five times are one
    enough = expected >= 5.0
    merged = [np.append(each[enough], each[~enough].sum()) for each in (observed, expected)]
    keep = merged[1] > 0.0
    assert chisquare(merged[0][keep], merged[1][keep]).pvalue > 0.01


def test_the_code_answers_with_the_best_scored_and_the_paper_with_the_best_visited():
    visited, scored = (
        GibbsSearch(
            FiveProposer(), dataclasses.replace(MOVES, preset=preset, temperature=5.0)
        ).search(task(chains=1))
        for preset in ("paper", "official-code")
    )
    assert scored.best[0].score == scored.bank[0].score
    assert visited.best[0].score < visited.bank[0].score


def test_rounds_begin_from_masks_until_kappa(tmp_path):
    """As printed: an outer round is run whole, and the next one restarts from p^0."""
    high = sorted(d_of(text_of(state)) for state in all_states(3))[-6]
    settings = dataclasses.replace(MOVES, kappa=high, rounds=None, iterations=3)
    found = GibbsSearch(FiveProposer(), settings).search(
        task(chains=4, budget=Budget(calls=100_000), folder=tmp_path)
    )
    assert found.complete
    assert all(each.score >= high for each in found.best)
    steps = [walk[1] for walk in walks_in(tmp_path)]
    assert all(number % settings.iterations == 0 for number in steps)
    assert max(steps) > settings.iterations
    # no kappa is reached
    limited = dataclasses.replace(MOVES, kappa=9.0, rounds=2)
    found = GibbsSearch(FiveProposer(), limited).search(task(model := FiveWords(), chains=2))
    assert found.complete
    assert found.calls == model.rows <= 2 * 8 * (2 * 5 + 1)
    with pytest.raises(UsageError, match="nothing ends the search gibbs"):
        GibbsSearch(FiveProposer(), dataclasses.replace(limited, rounds=None)).search(task())
    with pytest.raises(UsageError, match="on the squared scale, and D is on the l2 one"):
        GibbsSearch(FiveProposer(), GibbsSettings(length=3)).search(task())


def test_words_are_drawn_uniformly_among_those_allowed():
    proposer = FiveProposer()
    proposer.banned = (1,)
    model = FiveWords()
    search = RandomWords(proposer, RandomSettings(length=1, prompts=1))
    told = Counter()
    for seed in range(400):
        (best,) = search.search(task(model, seed=seed)).best
        told[best.prompt] += 1
    assert "bee" not in told
    assert chisquare(list(told.values())).pvalue > 0.01
    assert len(told) == len(WORDS) - 1


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
