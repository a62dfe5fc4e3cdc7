"""Encoders by name, and objects that are one."""

from types import SimpleNamespace

import pytest

from visleak.encoders import load_encoder
from visleak.encoders.request import parse, published
from visleak.errors import UsageError


class Whole:
    name, digest, width, enough, views = "mine", "mine-1", 3, 0, 1
    thresholds = cohort = None

    def encode(self, pictures):
        raise NotImplementedError

    def view(self, vectors, view):
        raise NotImplementedError


@pytest.mark.parametrize("part", ["name", "thresholds", "view"])
def test_an_object_that_lacks_a_part_is_refused(part):
    """Else it would fail in the middle of an audit, by AttributeError."""
    parts = {name: value for name, value in vars(Whole).items() if name != part}
    lacking = SimpleNamespace(**{n: value for n, value in parts.items() if not n.startswith("_")})
    with pytest.raises(UsageError, match=rf"^the encoder object lacks {part}$"):
        load_encoder(lacking)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("clip:hf-hub:a/b", ("clip", "hf-hub:a/b", {})),
        ("clip:/x,y/z", ("clip", "/x,y/z", {})),
        ("sscd:/a?b/c?resize=288&batch=8", ("sscd", "/a?b/c", {"resize": "288", "batch": "8"})),
        ("clip?a=b=c", ("clip", "", {"a": "b=c"})),
    ],
)
def test_a_text_is_parsed(text, parts):
    found = parse(text)
    assert (found.name, found.argument, found.options) == parts


WRONG = {
    "clip2": r"encoder must be one of builtin.*; got 'clip2'; did you mean 'clip'\?",
    "builtin:x": r"encoder builtin takes nothing after its name; got 'builtin:x'",
    "builtin?batch=3": r"encoder builtin has no option 'batch'; it has none; got .*",
    "builtin?batch": r"options .* are written NAME\?OPTION.*; got 'batch' in 'builtin\?batch'",
    "builtin?a=1&a=2": r"option a is given twice in encoder 'builtin\?a=1&a=2'",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_text_is_refused(text):
    with pytest.raises(UsageError, match=f"^{WRONG[text]}$"):
        load_encoder(text)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        *((text, True) for text in ("clip?device=cpu&batch=3", "clip?prep=laion")),
        ("clip:ViT-B-32/openai?backend=open_clip", True),
        ("clip:ViT-B-32/laion2b_s34b_b79k?backend=open_clip", False),
        *((text, False) for text in ("clip:/some/folder", "clip?prep=laion-nojpeg", "dinov2")),
    ],
)
def test_only_the_network_of_the_paper_has_its_thresholds(text, known):
    found = published(text)
    assert (found is not None) == known
    if known:
        assert (found["hard"], found["soft"]) == (0.98, 0.95)
        assert found["provenance"].startswith("Ramos et al. 2025")
