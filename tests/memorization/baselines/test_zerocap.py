"""ZeroCap: losses by hand, the shift by finite differences, beams by exhaustion."""

import itertools

import numpy as np
import pytest
import torch

from linear_model import linear_model, score_of
from visleak.errors import UsageError
from visleak.memorization.baselines.gradients import (
    Beam,
    Zerocap,
    ZerocapSettings,
    grown,
    load_causal,
    losses,
    next_words,
    nudged,
    shifted,
    target,
)
from visleak.memorization.search.driver import SearchTask
from visleak.memorization.settings import Budget

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


def test_errors(gpt, language, tmp_path):
    with pytest.raises(UsageError, match="length 15 of zerocap is more than the 12 tokens"):
        Zerocap(language)
    with pytest.raises(UsageError, match=r"no such folder; give one .* \(--causal-lm FOLDER\)"):
        load_causal(str(tmp_path / "none"))
    bare = load_causal(str(gpt))
    bare._tokenizer.bos_token = None
    with pytest.raises(UsageError, match="has no token that begins a text: give a prefix"):
        bare.begin("")
    assert bare.begin("ant") == [3]
