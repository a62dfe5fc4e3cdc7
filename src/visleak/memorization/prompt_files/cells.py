"""Single values of files of prompts: a prompt, a label, the images a prompt is a trigger of."""

from __future__ import annotations

import ast
import json
import re
from typing import Any, Final

from visleak.errors import VisleakError
from visleak.images.request import writable

#: Characters of a prompt or of the name of an image: far above any real one.
MOST_CHARACTERS: Final = 100_000

_LABELS: Final = {
    **dict.fromkeys(("1", "1.0", "true", "yes", "memorized"), True),
    **dict.fromkeys(("0", "0.0", "false", "no", "not memorized"), False),
    **dict.fromkeys(("", "unknown"), None),
}

_STRING: Final = r"""(?:'(?:[^'\\\n]|\\.)*+'|"(?:[^"\\\n]|\\.)*+")"""

#: A flat list of texts and nothing else: no nesting, so no bomb, gets as far as a parser.
_FLAT_LIST: Final = re.compile(rf"\s*+\[\s*+(?:{_STRING}\s*+(?:,\s*+{_STRING}\s*+)*+,?\s*+)?\]\s*+")


def checked_text(text: str, where: str) -> str:
    """Return a prompt without the spaces around it, as one that can be written.

    Raises:
        VisleakError: it is too long, or holds a null byte.
    """
    if len(text) > MOST_CHARACTERS:
        raise VisleakError(
            f"{where}: a prompt of {len(text):,} characters; at most {MOST_CHARACTERS:,} are read"
        )
    if "\0" in text:
        raise VisleakError(f"{where}: a prompt with a null byte; save the file as UTF-8 text")
    return writable(text.strip())


def label_of(value: Any, where: str) -> bool | None:
    """Return what a label says: memorized, not, or unknown.

    >>> label_of("TRUE", "a"), label_of(0, "a"), label_of("", "a")
    (True, False, None)
    """
    said = "" if value is None else str(value).strip().lower()
    if said not in _LABELS:
        raise VisleakError(
            f"{where}: a label is 1, 0, true, false, yes, no or empty; got {said[:40]!r} (another"
            " meaning needs another column name)"
        )
    return _LABELS[said]


def sources_of(value: Any, where: str) -> list[str]:
    """Return the images a cell names: a list, the text of a list of Python or JSON, or one name.

    >>> sources_of("['a.png', 'b.png']", "line 1"), sources_of("a.png", "line 1")
    (['a.png', 'b.png'], ['a.png'])
    """
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        value = _parsed(value, where)
    elif isinstance(value, str) or value is None:
        value = [value or ""]
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise VisleakError(f"{where}: images of a prompt are a list of texts; got {shown(value)}")
    names = [writable(each.strip()) for each in value]
    if any("\0" in name or len(name) > MOST_CHARACTERS for name in names):
        raise VisleakError(
            f"{where}: the name of an image has a null byte or more than {MOST_CHARACTERS:,}"
            " characters"
        )
    return [name for name in names if name]


def _parsed(cell: str, where: str) -> Any:
    """Return the list that a cell spells, in JSON or as a literal of Python."""
    if _FLAT_LIST.fullmatch(cell):
        if cell.lstrip().removeprefix("[").lstrip()[:1] == '"':
            # a text in double quotes is JSON more often, whose escapes are others
            try:
                return json.loads(cell)
            except ValueError:
                pass
        try:
            return ast.literal_eval(cell.strip())
        except (ValueError, SyntaxError):
            pass
    raise VisleakError(
        f"{where}: images of a prompt are a flat list of texts, such as ['a', 'b']; got"
        f" {cell[:60]!r}"
    )


def shown(value: Any) -> str:
    """Return a value for an error: one with parts by its type, for its parts may go on for ever.

    >>> shown(3), shown(["a"]), shown([3])
    ('3', 'a list', 'a list')
    """
    if value is None or isinstance(value, str | int | float):
        return repr(value)[:60]
    return f"a {type(value).__name__}"


def as_cell(value: Any) -> str:
    """Return a value of a further column as text; what has parts as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return json.dumps(value, ensure_ascii=False, default=str)
