"""Encoders by name, and objects that are one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from visleak.encoders import load_encoder
from visleak.encoders.request import Request, parse, published
from visleak.errors import UsageError

PARTS = ("name", "digest", "width", "enough", "views", "thresholds", "cohort", "encode", "view")


class Whole:
    name, digest, width, enough, views = "mine", "mine-1", 3, 0, 1
    thresholds = cohort = None

    def encode(self, pictures):
        raise NotImplementedError

    def view(self, vectors, view):
        raise NotImplementedError


def test_an_encoder_object_is_passed_on() -> None:
    encoder = Whole()
    assert load_encoder(encoder) is encoder


@pytest.mark.parametrize("part", PARTS)
def test_an_object_that_lacks_a_part_is_refused(part: str) -> None:
    """Else it would fail in the middle of an audit, by AttributeError."""
    lacking = type("Lacking", (), {p: getattr(Whole, p) for p in PARTS if p != part})()
    with pytest.raises(UsageError, match=rf"^the encoder object lacks {part}$"):
        load_encoder(lacking)


def asked(text: str, name: str, argument: str = "", **options: str) -> tuple[str, Request]:
    return text, Request(text, name, argument, options)


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        asked("clip", "clip"),
        asked("clip:a/b-c", "clip", "a/b-c"),
        asked("clip:hf-hub:a/b", "clip", "hf-hub:a/b"),
        asked("clip:/x,y/z", "clip", "/x,y/z"),
        asked("clip?prep=laion", "clip", prep="laion"),
        asked("sscd:/a?b/c.pt?resize=288&batch=8", "sscd", "/a?b/c.pt", resize="288", batch="8"),
        asked("clip?a=b=c", "clip", a="b=c"),
        asked("", ""),
    ],
)
def test_a_text_is_parsed(text: str, request_: Request) -> None:
    assert parse(text) == request_


WRONG = {
    "clip2": r"encoder must be one of builtin.*; got 'clip2'; did you mean 'clip'\?",
    "": r"encoder must be one of builtin.*; got ''",
    "builtin:x": r"encoder builtin takes nothing after its name; got 'builtin:x'",
    "builtin?batch=3": r"encoder builtin has no option 'batch'; it has none; got .*",
    "builtin?": r"options .* are written NAME\?OPTION=VALUE.*; got '' in 'builtin\?'",
    "builtin?batch": r"options .* are written NAME\?OPTION.*; got 'batch' in 'builtin\?batch'",
    "builtin?a=1&a=2": r"option a is given twice in encoder 'builtin\?a=1&a=2'",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_text_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"^{WRONG[text]}$"):
        load_encoder(text)


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", "9" * 5000, "²"])
def test_a_number_is_a_whole_number(value: str) -> None:
    said = r"^option batch of encoder x must be a whole number, 1 or more; got "
    with pytest.raises(UsageError, match=said):
        parse(f"x?batch={value}").number("batch", 32)


def test_choices_and_arguments() -> None:
    request = parse("x?prep=b&batch=7")
    assert request.choice("prep", ("a", "b"), "a") == "b"
    assert request.choice("to", ("c",), "c") == "c"
    assert (request.number("batch", 32), request.number("more", 5)) == (7, 5)
    with pytest.raises(UsageError, match="prep of encoder x must be one of a, c; got 'b'"):
        request.choice("prep", ("a", "c"), "a")
    said = r"^encoder x needs FILE after its name: x:FILE; got 'x\?prep=b&batch=7'$"
    with pytest.raises(UsageError, match=said):
        request.wanted_argument("FILE")
    assert parse("x:y").wanted_argument("FILE") == "y"


@pytest.mark.parametrize(
    ("text", "known"),
    [
        *((text, True) for text in ("clip", "clip?device=cpu&batch=3", "clip?prep=laion")),
        *(("clip:openai/clip-vit-base-patch32", True), ("clip?backend=open_clip", True)),
        ("clip:ViT-B-32/openai?backend=open_clip", True),
        ("clip:openai/clip-vit-large-patch14", False),
        ("clip:laion/CLIP-ViT-B-32-laion2B-s34B-b79K", False),
        ("clip:ViT-B-32/laion2b_s34b_b79k?backend=open_clip", False),
        *((text, False) for text in ("clip:/some/folder", "clip?prep=laion-nojpeg", "dinov2")),
        *(("builtin", False), ("clipper", False)),
    ],
)
def test_only_the_network_of_the_paper_has_its_thresholds(text, known):
    found = published(text)
    assert (found is not None) == known
    if known:
        assert (found["hard"], found["soft"]) == (0.98, 0.95)
        assert found["provenance"].startswith("Ramos et al. 2025")


def test_published_thresholds_are_read_without_heavy_libraries():
    code = (
        "import sys; from visleak.encoders.request import published; published('clip');"
        "print([m for m in ('torch', 'transformers', 'cv2', 'PIL') if m in sys.modules])"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "[]"
