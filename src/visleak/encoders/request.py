"""The text that names an encoder or a model: ``NAME[:ARGUMENT][?OPTION=VALUE&...]``, parsed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from visleak.errors import UsageError


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of such a text."""

    text: str  # as given
    name: str  # before the first :; a name of ENCODERS
    argument: str = ""  # after it, such as a file or the name of a model; may be empty
    options: Mapping[str, str] = field(default_factory=dict)  # what follows the last ?, by name
    kind: str = "encoder"  # of what is named, in a word, for messages

    @property
    def called(self) -> str:
        """Kind and name, for messages.

        >>> parse("clip").called, parse("onnx:a.onnx", "model").called
        ('encoder clip', 'model onnx')
        """
        return f"{self.kind} {self.name}"

    def updated(self, options: Mapping[str, object]) -> Request:
        """Return the request with more options, which take precedence.

        >>> parse("clip?batch=8").updated({"batch": 4}).options
        {'batch': '4'}
        """
        more = {name: str(value) for name, value in options.items()}
        return replace(self, options={**self.options, **more})

    def allow_only(self, *options: str) -> None:
        """Refuse all options but some."""
        for option in self.options:
            if option not in options:
                have = ", ".join(sorted(options))
                raise UsageError(
                    f"{self.called} has no option {option!r};"
                    f" {f'its options are {have}' if have else 'it has none'}; got {self.text!r}"
                )

    def no_argument(self) -> None:
        """Refuse an argument after the name."""
        if self.argument:
            raise UsageError(f"{self.called} takes nothing after its name; got {self.text!r}")

    def wanted_argument(self, what: str) -> str:
        """Return the argument."""
        if not self.argument:
            raise UsageError(
                f"{self.called} needs {what} after its name: {self.name}:{what}; got {self.text!r}"
            )
        return self.argument

    def choice(self, option: str, allowed: Sequence[str], default: str) -> str:
        """Return an option that is one of the allowed words."""
        value = self.options.get(option, default)
        if value not in allowed:
            raise self.refused(option, f"one of {', '.join(allowed)}")
        return value

    def number(
        self, option: str, default: int, least: int = 1, most: int | None = None, multiple: int = 1
    ) -> int:
        """Return an option that is a whole number."""
        value = self.options.get(option, str(default))
        # int() refuses thousands of digits with a message of its own
        whole = value.isascii() and value.isdecimal() and len(value) < 10
        if not whole or not least <= int(value) <= (most or math.inf) or int(value) % multiple:
            kind = "whole number" if multiple == 1 else f"multiple of {multiple}"
            bounds = f", {least} or more" if most is None else f" from {least} to {most:,}"
            raise self.refused(option, f"a {kind}{bounds}")
        return int(value)

    def refused(self, option: str, allowed: str) -> UsageError:
        """Return the error for an invalid value of an option.

        >>> str(parse("clip?batch=0").refused("batch", "1 or more"))
        "option batch of encoder clip must be 1 or more; got '0'"
        """
        return UsageError(
            f"option {option} of {self.called} must be {allowed};"
            f" got {self.options.get(option, '')!r}"
        )

    def named(self, *options: str) -> str:
        """Return the text with only the options that determine what the vectors mean.

        >>> parse("clip:M?device=cpu&prep=laion").named("prep")
        'clip:M?prep=laion'
        """
        shown = [f"{option}={self.options[option]}" for option in options if option in self.options]
        argument = f":{self.argument}" if self.argument else ""
        return f"{self.name}{argument}{'?' if shown else ''}{'&'.join(shown)}"


def parse(text: str, kind: str = "encoder") -> Request:
    """Parse the text of an encoder, or of something else that is named in this way.

    >>> request = parse("sscd:disc.pt?resize=320x320&batch=8")
    >>> request.name, request.argument, dict(request.options)
    ('sscd', 'disc.pt', {'resize': '320x320', 'batch': '8'})
    """
    rest, mark, query = text.rpartition("?")
    name, _, argument = (rest if mark else text).partition(":")
    options: dict[str, str] = {}
    for part in query.split("&") if mark else ():
        option, equals, value = part.partition("=")
        if not (option and equals and value):
            raise UsageError(
                "options of an encoder or a model are written NAME?OPTION=VALUE&OPTION=VALUE;"
                f" got {part!r} in {text!r}"
            )
        if option in options:
            raise UsageError(f"option {option} is given twice in {kind} {text!r}")
        options[option] = value
    return Request(text, name, argument, options, kind)


def stated_thresholds(value: object) -> Mapping[str, object] | None:
    """Return stated thresholds as plain values, ``None`` for none.

    >>> stated_thresholds({"hard": 1, "soft": 0.5, "provenance": "measured"})
    {'hard': 1.0, 'soft': 0.5, 'provenance': 'measured'}
    """
    if value is None:
        return None
    found: Mapping[str, object] = value if isinstance(value, Mapping) else {}
    hard, soft, provenance = (found.get(key) for key in ("hard", "soft", "provenance"))
    stated = [float(number) for number in (soft, hard) if isinstance(number, int | float)]
    if len(stated) == 2 and -1 <= stated[0] <= stated[1] <= 1 and isinstance(provenance, str):
        return {"hard": stated[1], "soft": stated[0], "provenance": provenance}
    raise ValueError(
        "thresholds must hold hard and soft, similarities with -1 <= soft <= hard <= 1, and"
        f" provenance, a text; got {value!r}"
    )


#: CLIP of the paper: its name in transformers, and with the names in open_clip.
OPENAI_CLIP: Final = "openai/clip-vit-base-patch32"
OPENAI_CLIP_NAMES: Final = (OPENAI_CLIP, "ViT-B-32/openai", "ViT-B-32-quickgelu/openai")
#: Ramos et al. (2025), "Data Leakage in Visual Datasets", sections 3 and 4: for cosines of CLIP
#: ViT-B/32 with OpenAI's weights, including LAION's own vectors, made of resized images.
RAMOS: Final[Mapping[str, object]] = MappingProxyType(
    {
        "hard": 0.98,
        "soft": 0.95,
        "provenance": "Ramos et al. 2025, for CLIP ViT-B/32 with OpenAI's weights",
    }
)


def published(request: str | Request) -> Mapping[str, object] | None:
    """Return the thresholds published for the encoder of a text; ``None`` where there are none.

    Only a name identifies the weights: a folder has no published thresholds.

    >>> published("clip?device=cpu")["hard"]
    0.98
    >>> published("clip:laion/CLIP-ViT-B-32-laion2B-s34B-b79K") is None
    True
    """
    request = parse(request) if isinstance(request, str) else request
    theirs = request.name == "clip" and (request.argument or OPENAI_CLIP) in OPENAI_CLIP_NAMES
    if not theirs or request.options.get("prep", "none") not in ("none", "laion"):
        return None
    return dict(RAMOS)
