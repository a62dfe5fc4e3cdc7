"""Cross-attention with a heavier begin token and hidden summary tokens, worked out by hand."""

import math

import numpy as np
import pytest
import torch
from mitigated_models import tiny
from smooth_model import SmoothModel

from visleak.diffusion.model import Sampling
from visleak.errors import UsageError, VisleakError
from visleak.memorization.extraction.images import Job
from visleak.memorization.mitigate import mitigation
from visleak.memorization.mitigate.ren import Change, Rescaling, processors

PROMPTS = ["a photo of a cat", "the sun", ""]
QUICK = Sampling(3, 7.5, 4)
LOUD = 6.0
KINDS = pytest.mark.parametrize("kind", ["AttnProcessor", "AttnProcessor2_0"])


@pytest.fixture(scope="module")
def model():
    return tiny("sd1", loud=LOUD)


def attention(heads=2, width=3):
    """Return an attention module of diffusers in float64."""
    from diffusers.models.attention_processor import Attention

    torch.manual_seed(heads)
    made = Attention(query_dim=4, cross_attention_dim=width, heads=heads, dim_head=5)
    return made.double().eval().requires_grad_(False)


def stock(name):
    from diffusers.models import attention_processor

    return getattr(attention_processor, name)()


def by_hand(module, hidden, states, factors, kept):
    """Return cross-attention by equation 16, row by row."""
    out = []
    for row, (factor, seen) in enumerate(zip(factors, kept, strict=True)):
        q, k, v = (
            (given[row] @ part.weight.T).unflatten(1, (module.heads, -1)).numpy()
            for given, part in ((hidden, module.to_q), (states, module.to_k), (states, module.to_v))
        )
        logits = np.einsum("qhd,khd->hqk", q, k[:seen]) / math.sqrt(q.shape[2])
        logits[:, :, 0] *= factor
        weights = np.exp(logits) / np.exp(logits).sum(2, keepdims=True)
        mixed = torch.tensor(np.einsum("hqk,khd->qhd", weights, v[:seen])).flatten(1)
        out.append(mixed @ module.to_out[0].weight.T + module.to_out[0].bias)
    return torch.stack(out)


@KINDS
@pytest.mark.parametrize(("heads", "tokens"), [(1, 3), (2, 7), (4, 7)])
def test_attention_is_the_softmax_of_equation_16(kind, heads, tokens):
    module = attention(heads)
    draw = torch.Generator().manual_seed(4)
    hidden = torch.randn((4, 6, 4), generator=draw, dtype=torch.float64)
    states = torch.randn((4, tokens, 3), generator=draw, dtype=torch.float64)
    change = Change(1.3, [2, 1])
    found = Rescaling(stock(kind), change)(module, hidden, states)
    # rows with the empty prompt come first
    expected = by_hand(module, hidden, states, [1.0, 1.0, 1.3, 1.3], [tokens, tokens, 2, 1])
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    alone = Rescaling(stock(kind), change)(module, hidden[2:], states[2:])
    torch.testing.assert_close(alone, expected[2:], atol=1e-12, rtol=0)


@KINDS
def test_a_mask_of_the_pipeline_stays(kind):
    module = attention()
    draw = torch.Generator().manual_seed(5)
    hidden = torch.randn((1, 6, 4), generator=draw, dtype=torch.float64)
    states = torch.randn((1, 5, 3), generator=draw, dtype=torch.float64)
    given = torch.tensor([[[0.0, -math.inf, 0, 0, 0]]], dtype=torch.float64)
    change = Change(1.5, [4])
    found = Rescaling(stock(kind), change)(module, hidden, states, given)
    left = states[:, [0, 2, 3]]
    expected = by_hand(module, hidden, left, [1.5], [3])
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


@KINDS
def test_with_c_of_1_and_nothing_hidden_it_is_the_stock_processor_bit_for_bit(kind):
    module = attention()
    hidden, states = torch.randn(2, 6, 4).double(), torch.randn(2, 5, 3).double()
    found = Rescaling(stock(kind), Change(1.0, [5]))(module, hidden, states)
    assert torch.equal(found, stock(kind)(module, hidden, states))
    with pytest.raises(VisleakError, match="got 3 rows at once for 2 images"):
        Change(1.0, [2, 2]).of(torch.zeros((3, 5, 2)))


def test_models_that_lack_something_are_refused(model):
    smooth = SmoothModel()
    with pytest.raises(UsageError, match="ren needs the tokens of a prompt, which smooth"):
        mitigation("ren:1.1").prepared(smooth, [])
    smooth.token_ids = str.split
    with pytest.raises(UsageError, match="ren needs a network of diffusers with attention"):
        mitigation("ren:1.1").prepared(smooth, [])
    for family, why in (
        ("sd3", r"\(sd3\): it attends to prompt and image jointly and has no cross-attention"),
        ("if", r"\(if\): its T5 puts no begin token before a prompt; leave ren out"),
        ("unheard", "its cross-attention is not known"),
    ):
        smooth.family = family
        with pytest.raises(UsageError, match=why):
            mitigation("ren:1.1").prepared(smooth, [])
    odd = type("AsPublished", (), {})()
    error = pytest.raises(UsageError, match="which AsPublished computes; load the model without")
    with processors(model.network, lambda _: odd), error:
        mitigation("ren:1.1").prepared(model, [])


@pytest.mark.parametrize(("summary", "around"), [("all", 1), ("padding", 2)])
def test_tokens_up_to_the_summary_are_seen(model, summary, around):
    method = mitigation(f"ren:1.1,summary={summary}")
    jobs = [Job(prompt, 0) for prompt in (*PROMPTS, "cat " * 50)]
    assert method.change(model, jobs).kept == [5 + around, 2 + around, around, 8 + around]


def test_processors_are_back_afterwards_and_after_errors(model, monkeypatch):
    before = model.network.attn_processors
    maker = mitigation("ren:1.2").prepared(model, [])
    maker(model, [Job("a cat", 1)], QUICK)
    assert model.network.attn_processors == before
    seen = []

    def broken(*_):
        seen.extend(type(each).__name__ for each in model.network.attn_processors.values())
        raise KeyboardInterrupt

    monkeypatch.setattr(model, "sample", broken)
    with pytest.raises(KeyboardInterrupt):
        maker(model, [Job("a cat", 1)], QUICK)
    assert set(seen) == {"Rescaling"}
    assert model.network.attn_processors == before
