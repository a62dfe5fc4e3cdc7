"""The baselines against brute force, finite differences and torch."""

import itertools

import numpy as np
import pytest
import torch

from linear_model import WordProposer, linear_model, score_of
from visleak.errors import UsageError
from visleak.memorization.baselines.gradients import (
    Beam,
    Moments,
    Pez,
    PezSettings,
    Vocabulary,
    Zerocap,
    ZerocapSettings,
    adamw,
    ascent,
    grown,
    load_causal,
    losses,
    next_words,
    nudged,
    shifted,
    target,
)
from visleak.memorization.prompts import Prompts
from visleak.memorization.search import methods
from visleak.memorization.search.driver import SearchTask, generator
from visleak.memorization.search.methods import Conzic, ConzicSettings, Greedy
from visleak.memorization.settings import Budget

TEXTS = tuple(
    " ".join(two) for two in itertools.permutations(("ant", "bee", "cow", "dog", "elk"), 2)
)


def test_the_best_of_the_list_are_those_of_brute_force(monkeypatch):
    monkeypatch.setattr(methods, "LISTED", 4)
    model = linear_model()
    found = Greedy(Prompts(TEXTS)).search(SearchTask(score_of(model), chains=5))
    by_hand = sorted((model.d(text) for text in TEXTS), reverse=True)
    assert [each.score for each in found.best] == pytest.approx(by_hand[:5], rel=1e-5)
    assert [model.d(each.prompt) for each in found.best] == pytest.approx(by_hand[:5], rel=1e-5)
    assert all(TEXTS[each.step] == each.prompt for each in found.best)
    assert {each.prompt for each in found.bank} == set(TEXTS)


def test_lists_that_greedy_cannot_score():
    with pytest.raises(UsageError, match="greedy needs prompts to score; the list holds none"):
        Greedy(Prompts(()))
    task = SearchTask(score_of(linear_model(), noises=2), budget=Budget(calls=3))
    with pytest.raises(UsageError, match="a budget of 3 calls scores no prompt: give at least 4"):
        Greedy(Prompts(TEXTS)).search(task)
    with pytest.raises(UsageError, match="chains must be at least 1; got 0"):
        Greedy(Prompts(TEXTS)).search(SearchTask(score_of(linear_model()), chains=0))


def plain(model, proposer, settings, order):
    """One chain of a model without a wobble, literally."""
    state, visited = [0] * settings.length, []
    for step in range(settings.iterations):
        at = order[step % len(order)]
        chances = proposer.chances[at]
        top = sorted(range(len(chances)), key=lambda word: -chances[word])[: settings.candidates]
        raised = np.array([chances[word] for word in top]) ** (1 / settings.lm_temperature)
        fluent = raised / raised.sum()
        sums = []
        for word, chance in zip(top, fluent, strict=True):
            tried = [*state[:at], word + 1, *state[at + 1 :]]
            d = model.d(model.prompt_of([each for each in tried if each]))
            sums.append(settings.alpha * chance + settings.beta * d)
        state[at] = top[int(np.argmax(sums))] + 1
        visited.append(model.prompt_of([each for each in state if each]))
    return visited


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("alpha", "beta"), [(0.02, 2.0), (50.0, 1.0), (1.0, 0.0), (0.0, 2.0)])
def test_every_step_of_conzic_takes_the_argmax(seed, alpha, beta):
    model = linear_model(seed)
    proposer = WordProposer(model, seed)
    settings = ConzicSettings(4, 11, 5, alpha, beta, 0.7)
    found = Conzic(proposer, settings).search(SearchTask(score_of(model), chains=2))
    for chain, each in enumerate(found.best):
        order = generator(0, chain).permutation(4).tolist()
        visited = plain(model, proposer, settings, order)
        top = max(model.d(text) for text in visited)
        assert each.score == pytest.approx(top, rel=1e-5)
        assert each.prompt == visited[each.step]
    assert found.complete


@pytest.mark.parametrize("norm", ["l2", "squared"])
@pytest.mark.parametrize("noises", [1, 3])
def test_the_gradient_of_pez_is_that_of_finite_differences(norm, noises):
    model = linear_model(2, wobble=0.4)
    model.table, model.weight = model.table.double(), model.weight.double()
    score = score_of(model, norm=norm, noises=noises, batch=2)
    vocabulary = Vocabulary(model)
    ids = torch.tensor([[1, 2, 3], [4, 4, 5], [6, 7, 8]])
    values, slopes = ascent(score, vocabulary, ids, 5)
    by_text = score([model.prompt_of(row) for row in ids.tolist()], draw=5).by(norm)
    assert values == pytest.approx(list(by_text), rel=1e-9)

    def d(embeddings):
        total = 0.0
        for noise, empty in score.noises(5):
            squared = score.squared_distance(model.encode_embeddings(embeddings), noise, empty)
            total = total + (squared if norm == "squared" else squared.sqrt())
        return (total / noises).detach()

    start, step = model.table[ids], 1e-6
    for token, axis in itertools.product(range(3), range(4)):
        nudge = torch.zeros_like(start)
        nudge[:, token, axis] = step
        slope = (d(start + nudge) - d(start - nudge)) / (2 * step)
        assert slopes[:, token, axis].tolist() == pytest.approx(slope.tolist(), rel=1e-4, abs=1e-5)


def test_adamw_is_that_of_torch():
    source = torch.Generator().manual_seed(0)
    start = torch.randn((3, 2, 4), generator=source)
    theirs = start.clone().requires_grad_(True)
    optimizer = torch.optim.AdamW([theirs], lr=0.1, weight_decay=0.1)
    ours = Moments(start, torch.zeros_like(start), torch.zeros_like(start))
    for step in range(1, 30):
        gradient = torch.randn((3, 2, 4), generator=source)
        theirs.grad = gradient.clone()
        optimizer.step()
        ours = adamw(ours, gradient, step, 0.1, 0.1)
    assert torch.allclose(ours.soft, theirs.detach(), rtol=1e-5, atol=1e-6)


def test_pez_reaches_the_best_prompt_of_a_linear_model():
    hits = 0
    for seed in range(5):
        model = linear_model(seed)
        best = max(
            model.d(" ".join(words))
            for words in itertools.combinations_with_replacement(model.words[1:], 3)
        )
        settings = PezSettings(length=3, iterations=100)
        found = Pez(model, settings).search(SearchTask(score_of(model), chains=6, seed=seed))
        top = max(each.score for each in found.best)
        assert top <= best * (1 + 1e-5)
        assert model.d(found.bank[0].prompt) == pytest.approx(top, rel=1e-5)
        hits += top == pytest.approx(best, rel=1e-5)
    assert hits == 5


def test_settings_of_pez_that_cannot_be():
    with pytest.raises(UsageError, match="length 13 of pez is more than the 12 tokens that linear"):
        Pez(linear_model(), PezSettings(length=13))
    with pytest.raises(UsageError, match="decay must be below 1 / rate"):
        PezSettings(rate=2.0, decay=0.5)


VOCABULARY = 11
PLAIN = ZerocapSettings(4, 3, prefix="", end="", steps=2, top=6)


def by_word(ids):
    return np.asarray(ids, np.float64) / 100.0


def test_the_memory_gives_what_the_whole_text_gives(language):
    rows = language.rows([[0, 3, 4, 5], [0, 9, 9, 2]])
    memory = language.memory(rows)
    assert len(memory) == 2
    assert memory[0][0].shape == (2, 2, 3, 8)
    after = language.logits_after(memory, rows[:, -1:])
    assert torch.allclose(after, language.logits(rows), atol=1e-5)
    assert language.memory(rows[:, :1]) == []


def test_the_target_is_the_softmax_of_d_over_the_most_probable_words():
    logs = torch.tensor([[0.1, 0.4, 0.3, 0.2]]).log()
    asked = []

    def judge(ids):
        asked.append(ids.tolist())
        return np.array([[1.0, 3.0]])

    found = target(logs, frozenset({1}), judge, ZerocapSettings(top=2, temperature=2.0))
    assert asked == [[[2, 3]]]
    low, high = np.exp(0.5), np.exp(1.5)
    assert found.tolist()[0] == pytest.approx([0, 0, low / (low + high), high / (low + high)])
    # more words than there are
    assert target(logs, frozenset({1}), by_word, ZerocapSettings()).shape == (1, 4)


def test_one_step_is_the_gradient_of_finite_differences(language):
    rows = language.rows([[0, 3, 4], [0, 7, 8]])
    memory, last = language.memory(rows), rows[:, -1:]
    own = language.logits(rows).log_softmax(-1)
    how = ZerocapSettings(steps=1, top=4, temperature=0.05, stepsize=0.7, ce_scale=0.5)
    wanted = target(own, language.special, by_word, how)

    def loss(at):
        return losses(language.logits_after(at, last).log_softmax(-1), own, wanted, how)

    moved = shifted(language, memory, last, own, by_word, how)
    step = 1e-2
    for layer, part in itertools.product(range(2), range(2)):
        base = memory[layer][part]
        slope = torch.zeros_like(base)
        for place in itertools.product(*map(range, base.shape[1:])):
            sides = []
            for sign in (1.0, -1.0):
                nudge = torch.zeros_like(base)
                nudge[(slice(None), *place)] = sign * step
                pairs = [list(pair) for pair in memory]
                pairs[layer][part] = base + nudge
                sides.append(loss([tuple(pair) for pair in pairs]))
            slope[(slice(None), *place)] = (sides[0] - sides[1]) / (2 * step)
        for beam in range(2):
            size = slope[beam].norm()
            expected = -0.7 * slope[beam] / size**0.9
            difference = (moved[layer][part] - base)[beam]
            assert torch.allclose(difference, expected, rtol=0.05, atol=0.02 * float(size) ** 0.1)


def test_a_beam_is_shifted_as_if_it_were_alone(language):
    rows = [[0, 3, 4], [0, 7, 8], [0, 5, 5]]
    how = ZerocapSettings(steps=3, top=5)
    together = next_words(language, rows, by_word, how)
    alone = torch.cat([next_words(language, [row], by_word, how) for row in rows])
    allowed = [at for at in range(VOCABULARY) if at not in language.special]
    assert torch.allclose(together[:, allowed], alone[:, allowed], atol=1e-3)
    assert torch.isinf(together[:, sorted(language.special)]).all()


def test_enough_beams_find_the_best_of_all_texts():
    source = torch.Generator().manual_seed(0)
    table = torch.randn((4, 4), generator=source).double().log_softmax(-1)
    first = torch.randn((1, 4), generator=source).double().log_softmax(-1)
    beams = grown([Beam()], first, 16, None)
    beams = grown(beams, torch.stack([table[beam.ids[-1]] for beam in beams]), 16, None)
    every = {
        (one, two): float(first[0, one] + table[one, two]) / 2
        for one, two in itertools.product(range(4), repeat=2)
    }
    assert {beam.ids: beam.mean for beam in beams} == pytest.approx(every)
    assert [beam.ids for beam in beams] == sorted(every, key=lambda ids: -every[ids])


def test_a_text_that_has_ended_is_not_gone_on_with():
    logs = torch.tensor([[0.5, 0.5]]).double().log()
    beams = [Beam((1,), -0.1, ended=True), Beam((0,), -0.2)]
    found = grown(beams, logs, 3, 1)
    assert found[0] == beams[0]
    assert found[2].ids == (0, 1)
    assert found[2].ended
    assert not found[1].ended


def test_the_end_is_made_likelier_from_the_second_word_on():
    logits = torch.tensor([[1.0, 2.0], [1.0, -2.0]])
    assert nudged(logits, 1, 3, 1.25).tolist() == [[1.0, 2.5], [1.0, pytest.approx(-1.6)]]
    assert nudged(logits, 1, 0, 1.25).flatten().tolist() == pytest.approx([1.0, 1.25, 1.0, -3.2])
    assert nudged(logits, None, 3, 1.25) is logits


def test_every_chain_has_its_share_of_the_budget(language):
    model = linear_model(wobble=0.5)
    task = SearchTask(score_of(model), chains=3, budget=Budget(calls=75))
    found = Zerocap(language, PLAIN).search(task)
    assert found.calls == model.passes <= 75
    assert len(found.best) == 3
    assert not found.complete


def test_settings_and_models_that_zerocap_cannot_use(gpt, language, tmp_path):
    with pytest.raises(UsageError, match="length 15 of zerocap is more than the 12 tokens"):
        Zerocap(language)
    with pytest.raises(UsageError, match=r"no such folder; give one .* \(--causal-lm FOLDER\)"):
        load_causal(str(tmp_path / "none"))
    bare = load_causal(str(gpt))
    bare._tokenizer.bos_token = None
    with pytest.raises(UsageError, match="has no token that begins a text: give a prefix"):
        bare.begin("")
    assert bare.begin("ant") == [3]
