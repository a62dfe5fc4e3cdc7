"""The errors visleak raises on purpose: one line each, with the exit code of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class VisleakError(Exception):
    """Something the caller can fix, such as an empty set, a corrupt archive or a full disk."""

    exit_code = 1


class VisleakWarning(UserWarning):
    """Something went wrong that changes no answer; one line."""


class UsageError(VisleakError):
    """The call itself is wrong: an unknown option or encoder, a source that does not exist."""

    exit_code = 2


class HeldError(UsageError):
    """The output holds another result of the same command."""


class MissingExtra(VisleakError):
    """A feature needs a package that is not installed.

    >>> str(MissingExtra("faiss", "the faiss search engine"))
    "the faiss search engine needs an extra: pip install 'visleak[faiss]'"
    """

    def __init__(self, extra: str, what: str) -> None:
        super().__init__(f"{what} needs an extra: pip install 'visleak[{extra}]'")
        self.extra = extra
        self._what = what

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str]]:
        # errors travel from workers by pickle, which would pass on the message alone
        return type(self), (self.extra, self._what)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error on a name that is not known: the most similar one, if any.

    >>> did_you_mean("neer", ("exact", "near")), did_you_mean("x", ("exact", "near"))
    ("; did you mean 'near'?", '')
    """
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def not_one_of(what: str, value: object, known: Iterable[str]) -> UsageError:
    """Return the error on a value that is none of those allowed, with the most similar one.

    >>> print(not_one_of("grade", "neer", ("exact", "near")))
    grade must be one of exact, near; got 'neer'; did you mean 'near'?
    """
    allowed = list(known)
    hint = did_you_mean(str(value), allowed)
    return UsageError(f"{what} must be one of {', '.join(allowed)}; got {value!r}{hint}")


def one_line(error: BaseException, context: str = "") -> str:
    r"""Return the text of an error in one line without its number, its type where it has none.

    The file of the error is left out if ``context``, the text before it, names the file.

    >>> one_line(ValueError("a\n  b")), one_line(EOFError()), one_line(OSError(5, "Invalid data"))
    ('a b', 'EOFError', 'Invalid data')
    >>> one_line(OSError(21, "Is a directory", "a.csv"), "a.csv cannot be read")
    'Is a directory'
    """
    name = getattr(error, "filename", None)
    text = str(error)
    if str(name) in context:
        text = text.removesuffix(f": {name!r}")
    text = re.sub(r"^\[Errno -?\d+\] ", "", text)
    return " ".join(text.split())[:200] or type(error).__name__


def brief(error: BaseException, most: int = 160) -> str:
    """Return the kind and the message of a library's error as a part of one line.

    >>> brief(ValueError("two" + chr(10) + "lines"))
    'ValueError: two lines'
    """
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:most]}" if text else type(error).__name__


@contextmanager
def explaining(what: str, *kinds: type[Exception]) -> Iterator[None]:
    """Raise errors of some kinds as a :class:`VisleakError` whose line begins with ``what``."""
    try:
        yield
    except VisleakError:
        raise
    except kinds as error:
        raise VisleakError(f"{what}: {one_line(error, what)}") from error
