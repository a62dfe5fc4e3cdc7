"""Mitigations by name: what a text stands for, what is stored of it, and what is refused."""

import math
from types import SimpleNamespace

import pytest
from smooth_model import SmoothModel

from refusals import refusal
from visleak.errors import UsageError
from visleak.memorization.mitigate import (
    AttentionRescaling,
    NumberAddition,
    PromptOptimisation,
    TokenAddition,
    Unmitigated,
    mitigation,
    paper_settings,
)


@pytest.mark.parametrize(
    ("text", "method", "setting", "strength"),
    [
        ("none", Unmitigated(), "", math.nan),
        ("rna:1,draw=image,seed=3", NumberAddition(1, "image", 3), "n=1, draw=image, seed=3", 1.0),
        ("rta:n=2,tokens=words", TokenAddition(2, tokens="words"), "n=2, tokens=words", 2.0),
        ("wen:3", PromptOptimisation(3.0), "l=3", -3.0),
        (" wen:0.25, scope=batch ,lr=0.2", PromptOptimisation(0.25, "batch", rate=0.2),
         "l=0.25, batch, lr=0.2", -0.25),
        ("ren:C=1,summary=padding", AttentionRescaling(1.0, "padding"), "C=1, summary=padding", 1),
    ],
)  # fmt: skip
def test_a_text_stands_for_a_method_and_its_setting(text, method, setting, strength):
    made = mitigation(text)
    assert made == method
    assert made.setting == setting
    assert made.strength == pytest.approx(strength, nan_ok=True)
    assert made.name == text.strip().partition(":")[0]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "a method is one of none, rna, rta, wen, ren, with its strength such as rna:4; got"),
        ("none:1", "'1' of 'none:1' cannot be; none stands alone"),
        ("rna", "'rna' has no n; give rna:N, then if need be, each once and with commas between"),
        ("rna:4.5", "n of rna is a whole number; got '4.5'"),
        ("rna:0", "n of rna is 1 to 1,000; got 0"),
        ("rta:2,seed=-1", "seed of rta is 0 or more; got -1"),
        ("rta:2,3", "'3' of 'rta:2,3' cannot be; give rta:N"),
        ("rna:2,draw=", "'draw=' of 'rna:2,draw=' cannot be"),
        ("wen:3,l=4", "'l=4' of 'wen:3,l=4' cannot be; give wen:L, then if need be"),
        ("wen:3,scope=all", "scope of wen is one of image, prompt, batch; got 'all'"),
        ("wen:much", "l of wen is a number; got 'much'"),
        ("wen:nan", "l of wen is 0 or more, the D to reach; got nan"),
        ("wen:1,steps=0", "steps of wen is 1 to 10,000 (the paper: 10); got 0"),
        ("wen:1,lr=0", "lr of wen is above 0 (the paper: 0.05); got 0"),
        ("ren:nan", "C of ren is above 0, at most 100 (the paper: 1 to 1.3); got nan"),
    ],
)
def test_other_texts_are_refused_in_one_line(text, error):
    assert error in refusal(UsageError, mitigation, text)


@pytest.mark.parametrize(
    ("text", "depends"),
    [
        *(("none", False), ("rna:2", False), ("rta:2,draw=image", False), ("ren:1.1", False)),
        *(("wen:3", False), ("wen:3,scope=prompt", True), ("wen:3,scope=batch", True)),
    ],
)
def test_seeds_are_part_of_the_key_where_images_depend_on_each_other(text, depends):
    model = SmoothModel()
    # its prompts can be taken apart, and its attention passes for one of diffusers
    model.token_ids = str.split
    model.network = SimpleNamespace(attn_processors={}, set_attn_processor=None)
    keys = {mitigation(text).prepared(model, seeds).key for seeds in ([1, 2], [1, 2, 3])}
    assert len(keys) == 1 + depends


def test_the_paper_has_the_settings_of_its_tables():
    first = [mitigation(text) for text in paper_settings("sd1")]
    assert [(each.name, each.setting) for each in first] == [
        ("none", ""),
        *(("rna", f"n={n}") for n in range(1, 7)),
        *(("rta", f"n={n}") for n in range(1, 7)),
        *(("wen", f"l={n}, batch") for n in (7, 6, 5, 4, 3, 2)),
        *(("ren", setting) for setting in ("C=1", "C=1.1", "C=1.2", "C=1.3")),
    ]
    second = [mitigation(text).setting for text in paper_settings("sd2")]
    assert second[1:11] == [f"n={n}" for n in range(1, 6)] * 2
    assert second[11:15] == [f"l={n}, batch" for n in (70, 60, 50, 40)]
    strengths = [each.strength for each in first if each.name == "wen"]
    assert strengths == sorted(strengths), "a curve runs from weak to strong"


@pytest.mark.parametrize(("width", "known"), [(768, "sd1"), (1024, "sd2")])
def test_a_model_is_told_by_the_width_of_its_states(width, known):
    model = SmoothModel()
    model.network = SimpleNamespace(config=SimpleNamespace(cross_attention_dim=width))
    model.shape = (4, 64, 64)
    assert paper_settings(model) == paper_settings(known)
    model.family = "sdxl"
    with pytest.raises(UsageError, match="for 'smooth' name each method and setting"):
        paper_settings(model)
