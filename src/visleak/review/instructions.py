"""Labelling instructions: what an image of a class must be like, in the words of the user."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from visleak.errors import UsageError, VisleakError
from visleak.replacements.pool import class_of

#: Most bytes of a file of instructions.
MOST: Final = 1_000_000


@dataclass(frozen=True)
class Instructions:
    """Instructions by class.

    Attributes:
        general: for all classes; may be empty.
        classes: class, as labels are compared, to text.
    """

    general: str = ""
    classes: Mapping[str, str] = field(default_factory=dict)

    def of(self, label: str | None) -> str:
        """Return what is said of a class; empty where nothing is."""
        return self.classes.get(class_of(label) or "", "")


def read_instructions(path: Path | None) -> Instructions:
    """Read a file of instructions; ``None`` is a file without any.

    Either a JSON object of class to text, or a text with a line ``## CLASS`` above the text of
    each class; what stands before the first of them holds for all.

    Raises:
        UsageError: there is no such file.
        VisleakError: it is too large, no UTF-8, or no JSON object of texts.
    """
    if path is None:
        return Instructions()
    if not path.is_file():
        raise UsageError(f"instructions {path} is no file; give a JSON file or a text")
    if path.stat().st_size > MOST:
        raise VisleakError(f"{path} has more than {MOST:,} bytes; it is hardly instructions")
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise VisleakError(f"{path} is no text in UTF-8 ({error.reason})") from error
    if path.suffix.lower() == ".json":
        return Instructions(classes=_of_json(path, text))
    general, *rest = re.split(r"^##[ \t]+(.+?)[ \t#]*$", text, flags=re.MULTILINE)
    names, texts = rest[::2], rest[1::2]
    return Instructions(general.strip(), _by_class(zip(names, texts, strict=True)))


def _of_json(path: Path, text: str) -> Mapping[str, str]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise VisleakError(f"{path} is no JSON ({error})") from error
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise VisleakError(f'{path} must be a JSON object of texts: {{"class": "instruction"}}')
    return _by_class(value.items())


def _by_class(items: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, text in items:
        found[class_of(name) or ""] = text.strip()
    return found
