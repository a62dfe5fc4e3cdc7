"""Sentences that a class name is put into before a text tower sees it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from visleak.errors import UsageError, VisleakError

#: Stands in a template for the name of a class.
PLACE: Final = "{}"

#: Names of the templates that come along, and what they are called on the command line.
SIMPLE: Final = "simple"
OPENAI: Final = "openai"

#: Radford et al. (2021), section 3.1.4: the one template that is good anywhere.
_SIMPLE: Final = ("a photo of a {}.",)

#: The 80 for ImageNet, with source and licence.
_OPENAI_FILE: Final = "openai_templates.json"


@dataclass(frozen=True, slots=True)
class Templates:
    """The sentences of a classifier.

    Attributes:
        name: ``simple``, ``openai`` or the file.
        sentences: each with :data:`PLACE` in it, all different.
    """

    name: str
    sentences: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Digest of the sentences in their order."""
        return hashlib.blake2b("\n".join(self.sentences).encode(), digest_size=16).hexdigest()

    def prompts(self, name: str) -> list[str]:
        """Return the sentences about one class.

        >>> Templates("mine", ("a {}.", "the {}.")).prompts("red fox")
        ['a red fox.', 'the red fox.']
        """
        # str.format would read {0} and {name.x} in what a file says
        return [sentence.replace(PLACE, name) for sentence in self.sentences]


def load_templates(text: str) -> Templates:
    """Return templates by name, or those of a text file with one a line.

    Raises:
        UsageError: there is no such file.
        VisleakError: a line has no place for the name, or is there twice; or there is none.

    >>> load_templates("simple").sentences
    ('a photo of a {}.',)
    >>> len(load_templates("openai").sentences)
    80
    """
    if text == SIMPLE:
        return Templates(SIMPLE, _SIMPLE)
    if text == OPENAI:
        content = (
            files("visleak.impact.evaluators").joinpath(_OPENAI_FILE).read_text(encoding="utf-8")
        )
        return Templates(OPENAI, tuple(json.loads(content)["templates"]))
    path = Path(text)
    if not path.is_file():
        raise UsageError(
            f"templates must be {OPENAI}, {SIMPLE} or a text file with one a line; got {text!r}"
        )
    return Templates(text, _checked(path, _lines(path)))


def _lines(path: Path) -> list[tuple[int, str]]:
    """Return the lines that are not blank, with their numbers."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise VisleakError(f"templates {path} cannot be read as UTF-8 text ({error})") from error
    numbered = enumerate((line.strip() for line in text.splitlines()), start=1)
    return [(number, line) for number, line in numbered if line]


def _checked(path: Path, lines: Sequence[tuple[int, str]]) -> tuple[str, ...]:
    if not lines:
        raise VisleakError(
            f"templates {path}: the file is empty; write one a line, such as {_SIMPLE[0]}"
        )
    seen: dict[str, int] = {}
    for number, line in lines:
        if PLACE not in line:
            raise VisleakError(
                f"templates {path}, line {number}: {line[:80]!r} has no {PLACE} where the name of a"
                f" class goes; write such as {_SIMPLE[0]}"
            )
        if line in seen:
            raise VisleakError(
                f"templates {path}, line {number}: {line[:80]!r} stands in line {seen[line]} too;"
                " it would count twice"
            )
        seen[line] = number
    return tuple(seen)
