"""Options of public functions: declared once, on the fields of their settings.

The command line is derived from these declarations (``visleak.cli.command``). This module imports
nothing heavy, and neither may a module of settings: all are imported at start-up.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import ge, gt, le, lt
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, get_type_hints

from visleak.errors import UsageError, not_one_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

#: Panels of ``--help`` that several commands have.
SETS: Final = "Data"
METHOD: Final = "Method"
OUTPUT: Final = "Output"
SPEED: Final = "Execution (never changes results)"
MESSAGES: Final = "Messages"

#: Metavariable of an audit folder; a command warns if one is unfinished.
AUDIT_DIR: Final = "AUDIT_DIR"

#: Groups that are found in the names of the images, in place of a column or pattern.
AUTO: Final = "auto"

_KEY: Final = "option"


@dataclass(frozen=True, slots=True)
class Option:
    """How a field of settings appears on the command line."""

    help: str  # one or two sentences
    # by default ``--`` and the name of the field; a flag for a boolean whose default is true turns
    # it off
    flags: tuple[str, ...] = ()
    metavar: str = ""  # of its value; by default the choices, or N of a whole number
    panel: str = ""  # heading of ``--help`` under which it is listed
    choices: tuple[str, ...] = ()  # values that are allowed
    least: float | None = None  # bounds, inclusive
    most: float | None = None
    above: float | None = None  # bounds, exclusive
    below: float | None = None
    parse: Callable[[str], object] | None = None  # makes the value; raises ``UsageError``
    positional: bool = False  # it is an argument, without flag
    hides_default: bool = False  # a command needs it, although functions have a default

    def allows(self, value: float) -> bool:
        """Whether a number is within the bounds; NaN is within none."""
        ends = ((self.least, ge), (self.most, le), (self.above, gt), (self.below, lt))
        return all(end is None or within(value, end) for end, within in ends)

    @property
    def bounds(self) -> str:
        """The bounds in words.

        >>> Option("", least=1).bounds, Option("", above=0, most=2).bounds
        ('1 or more', 'above 0 and at most 2')
        """
        if self.least is not None and self.most is not None:
            return f"from {self.least:,} to {self.most:,}"
        words = {"{:,} or more": self.least, "above {:,}": self.above}
        words |= {"at most {:,}": self.most, "below {:,}": self.below}
        return " and ".join(text.format(end) for text, end in words.items() if end is not None)


T = TypeVar("T")


def option(default: T | EllipsisType, help: str, flags: str = "", **declared: Any) -> T:
    """Declare a field of settings that is an option; keywords are the fields of :class:`Option`.

    ``default``: ``...`` for a required one. ``flags``: separated by blanks, where the name of the
    field is not enough: ``--name -n``.
    """
    made = Option(help, tuple(flags.split()), **declared)
    metadata = {_KEY: dataclasses.replace(made, metavar=made.metavar or "|".join(made.choices))}
    if isinstance(default, EllipsisType):
        # by keyword, so that it may follow fields that have defaults
        required: T = dataclasses.field(kw_only=True, metadata=metadata)
        return required
    return dataclasses.field(default=default, metadata=metadata)


def output(default: T | EllipsisType, help: str, *, metavar: str = "DIR") -> T:
    """Declare the field for the file or folder of a result, ``-o``."""
    return option(default, help, "--output -o", metavar=metavar, panel=OUTPUT)


def argument(default: T | EllipsisType, help: str, *, metavar: str) -> T:
    """Declare a field of settings that is a positional argument."""
    return option(default, help, metavar=metavar, positional=True)


def leaves(settings: type) -> Iterator[tuple[dataclasses.Field[Any], Any, Option]]:
    """Yield the options of a settings class: field, type, declaration; nested classes included."""
    hints, panel = get_type_hints(settings), getattr(settings, "panel", "")
    for field in dataclasses.fields(settings):
        hint = hints[field.name]
        if _KEY in field.metadata:
            declared: Option = field.metadata[_KEY]
            metavar = declared.metavar or ("N" if hint in (int, int | None) else "")
            usual = "" if declared.positional else panel
            own = dataclasses.replace(declared, panel=declared.panel or usual, metavar=metavar)
            yield field, hint, own
        elif dataclasses.is_dataclass(hint):
            yield from leaves(hints[field.name])


def build(settings: type, values: Mapping[str, object]) -> Any:
    """Create settings, nested ones included, from the values of their options by name."""
    hints, own = get_type_hints(settings), {}
    for field in dataclasses.fields(settings):
        if _KEY in field.metadata:
            own[field.name] = values[field.name]
        elif dataclasses.is_dataclass(hints[field.name]):
            own[field.name] = build(hints[field.name], values)
    return settings(**own)


def check(settings: DataclassInstance) -> None:
    """Check the choices and bounds that the fields of settings declare.

    >>> @dataclass
    ... class Settings:
    ...     size: int = option(1, "Size.", least=1)
    >>> check(Settings(0))
    Traceback (most recent call last):
    ...
    visleak.errors.UsageError: size must be 1 or more; got 0

    Where the option has another name than the field, both are stated.
    """
    for field in dataclasses.fields(settings):
        declared = field.metadata.get(_KEY)
        value = getattr(settings, field.name)
        if declared is None or value is None:
            continue
        if declared.choices and value not in declared.choices:
            raise not_one_of(_named(field.name, declared), value, declared.choices)
        for each in value if isinstance(value, tuple) else (value,):
            if declared.bounds and not declared.allows(each):
                name = _named(field.name, declared)
                raise UsageError(f"{name} must be {declared.bounds}; got {each}")


def _named(name: str, declared: Option) -> str:
    """Return the name of a field, and of its option where that differs."""
    flag = next((each for each in declared.flags if each.startswith("--")), "")
    return name if flag in ("", "--" + name.replace("_", "-")) else f"{name} ({flag})"


def share_of(text: str) -> float | None:
    """Return the share of a text, a number or a percentage; ``None`` if it is none.

    >>> share_of("0.05"), share_of("5 %"), share_of("5")
    (0.05, 0.05, None)
    """
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)(?:[eE](-?\d+))?\s*(%?)", text.strip(), re.ASCII)
    if found is None:
        return None
    share = float(text.strip().rstrip("%")) / (100.0 if found[3] else 1.0)
    return share if 0.0 <= share <= 1.0 else None


def share(text: str) -> float:
    """Return the share of a text, as :func:`share_of`."""
    value = share_of(text)
    if value is None:
        raise UsageError(f"a share is a number from 0 to 1 or a percentage (1%); got {text!r}")
    return value


@dataclass(frozen=True)
class Options:
    """Base of settings: choices and bounds are checked when they are created.

    ``class Speed(Options, panel=SPEED)`` names the panel of options that name none themselves.
    """

    panel: ClassVar[str] = ""

    def __init_subclass__(cls, panel: str = "", **more: object) -> None:
        super().__init_subclass__(**more)
        cls.panel = panel or cls.panel

    def __post_init__(self) -> None:
        check(self)


def id_column(panel: str = SETS) -> str | None:
    """Declare the option for the column with the ids."""
    return option(None, "Column with the ids.", metavar="COLUMN", panel=panel)


def label_column(panel: str = SETS) -> str | None:
    """Declare the option for the column with the labels."""
    return option(None, "Column with the labels.", metavar="COLUMN", panel=panel)


def group_column(panel: str = SETS) -> str | None:
    """Declare the option for the column with the groups."""
    return option(
        None,
        "Column with the groups (a video, a patient), or a pattern whose first group is searched"
        " in the id; auto uses what names state and the images confirm.",
        metavar="COLUMN|/REGEX/|auto",
        panel=panel,
    )


@dataclass(frozen=True)
class Columns(Options, panel=SETS):
    """Columns of the tables of a source."""

    id: str | None = id_column()
    label: str | None = label_column()
    group: str | None = group_column()
    root: str | None = option(
        None,
        "Where the files are that tables and lists name, if these were made elsewhere: the folder"
        " of relative names, or OLD=NEW to replace what names begin with.",
        metavar="DIR|OLD=NEW",
    )


@dataclass(frozen=True)
class Execution(Options, panel=SPEED):
    """How fast a result comes; never what it is."""

    workers: int | None = option(
        None, "Worker processes. Default: one per core.", metavar="N", least=1
    )
    cache: str | None = option(
        None,
        "Folder for fingerprints and evidence between runs. Default: the user's cache folder or"
        " $VISLEAK_CACHE.",
        metavar="DIR|off",
    )

    def chosen(self) -> dict[str, Any]:
        """Return ``workers`` and ``cache`` as public functions take them."""
        cache = None if self.cache == "off" else self.cache or "default"
        return {"workers": self.workers, "cache": cache}


@dataclass(frozen=True)
class Backend(Options, panel=SPEED):
    """Where tasks run."""

    engine: str = option(
        "local", "Execution backend: local processes or a Ray cluster.", choices=("local", "ray")
    )
    ray_address: str | None = option(
        None,
        "Cluster to join, from one of its nodes. Default: $RAY_ADDRESS, else one is started here"
        " for this run. Implies --engine ray.",
        metavar="auto|HOST:PORT",
    )


@dataclass(frozen=True)
class Messages(Options, panel=MESSAGES):
    """What a command reports while it runs; all commands have it."""

    quiet: bool = option(
        False, "Print the first line of the summary, warnings and errors only.", "--quiet -q"
    )
    verbose: bool = option(False, "Print a line for every step.", "--verbose -v")
    log_file: Path | None = option(
        None, "Append steps, notes, warnings and errors, with times, to a file.", metavar="FILE"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.quiet and self.verbose:
            raise UsageError("give either --quiet or --verbose")


@dataclass(frozen=True)
class Printed(Options):
    """What is printed."""

    json: bool = option(False, "Print the result as JSON instead of a summary.", panel=OUTPUT)


@dataclass(frozen=True)
class Replaced(Options):
    """What is done with an earlier result."""

    force: bool = option(False, "Replace an existing result.", panel=OUTPUT)


def keywords(*settings: DataclassInstance) -> dict[str, Any]:
    """Return the options of settings by name, as keyword arguments of a public function.

    What is not said (``None``) is left to the defaults of the function.
    """
    values = {}
    for each in settings:
        for field in dataclasses.fields(each):
            value = getattr(each, field.name)
            if dataclasses.is_dataclass(value) and not isinstance(value, type):
                values.update(keywords(value))
            elif value is not None:
                values[field.name] = value
    return values
