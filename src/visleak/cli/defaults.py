"""Defaults of options: from visleak.toml or pyproject.toml, and from the environment."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from visleak.errors import UsageError, VisleakError, did_you_mean

#: What variables of the environment begin with: VISLEAK_AUDIT_FAIL_ON, VISLEAK_WORKERS.
PREFIX: Final = "VISLEAK_"

#: Of the file, and of the table in pyproject.toml.
NAME: Final = "visleak"

#: Variables that mean something else.
OTHERS: Final = ("VISLEAK_CACHE", "VISLEAK_DATA", "VISLEAK_DEBUG")

Table = Mapping[str, object]


class Parameter(Protocol):
    """A parameter of a command, whichever click typer carries."""

    name: str
    opts: Sequence[str]
    multiple: bool
    is_flag: bool


class Command(Protocol):
    """A command."""

    params: Sequence[Parameter]


@runtime_checkable
class Group(Protocol):
    """A group of commands."""

    commands: Mapping[str, Command | Group]


def defaults(command: Group) -> dict[str, object]:
    """Return the defaults of all commands, as click takes them; the environment comes first.

    Args:
        command: the group of all commands.
    """
    place, table = _file(Path.cwd())
    named = any(name.startswith(PREFIX) for name in os.environ if name not in OTHERS)
    if not table and not named:
        return {}
    result = _Defaults(f"{place}").of_group(command, table, {}, PREFIX)
    if table:
        from visleak.cli.edges import note

        note(f"defaults from {place}")
    return result


def _file(folder: Path) -> tuple[Path | None, Table]:
    """Return the first file of this folder or one above it that sets defaults, and what it sets."""
    for parent in (folder, *folder.parents):
        for name, keys in ((f"{NAME}.toml", ()), ("pyproject.toml", ("tool", NAME))):
            path = parent / name
            if not path.is_file():
                continue
            table = _read(path)
            for key in keys:
                inner = table.get(key)
                table = inner if isinstance(inner, Mapping) else {}
            if table:
                return path, table
    return None, {}


def _read(path: Path) -> Table:
    import tomllib

    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise VisleakError(f"{path} cannot be read as TOML: {error}") from error


class _Defaults:
    """Matches the keys of a file with the options of commands."""

    def __init__(self, place: str) -> None:
        self._place = place

    def of_group(self, group: Group, table: Table, shared: Table, prefix: str) -> dict[str, object]:
        """Return the defaults of the commands of a group, by name."""
        own = {key: value for key, value in table.items() if key not in group.commands}
        options = {flag for each in _leaves(group) for flag in _flags(each)}
        for key in own:
            if key not in options:
                hint = did_you_mean(key, [*options, *group.commands])
                raise UsageError(f"{self._place}: {key!r} is not an option or a command{hint}")
        result: dict[str, dict[str, object]] = {}
        for name, command in group.commands.items():
            mine = table.get(name, {})
            if not isinstance(mine, Mapping):
                raise UsageError(f"{self._place}: {name} must be a table of options")
            inner = f"{prefix}{_variable(name)}_"
            if isinstance(command, Group):
                result[name] = self.of_group(command, mine, {**shared, **own}, inner)
            else:
                result[name] = self._of_command(name, command, mine, {**shared, **own}, inner)
        # an option of the group may have the name of a command: help
        return {name: values for name, values in result.items() if values}

    def _of_command(
        self, name: str, command: Command, table: Table, shared: Table, prefix: str
    ) -> dict[str, object]:
        flags = _flags(command)
        for key in table:
            if key not in flags:
                hint = did_you_mean(key, flags)
                raise UsageError(f"{self._place}: {name} has no option {key!r}{hint}")
        given = {flag: value for flag, value in {**shared, **table}.items() if flag in flags}
        values: dict[str, object] = {
            flags[flag].name: self._value(flag, flags[flag], value) for flag, value in given.items()
        }
        for flag, parameter in flags.items():
            for variable in (f"{PREFIX}{_variable(flag)}", f"{prefix}{_variable(flag)}"):
                if text := os.environ.get(variable):
                    values[parameter.name] = shlex.split(text) if parameter.multiple else text
        return values

    def _value(self, flag: str, parameter: Parameter, value: object) -> object:
        """Return the value of an option as click takes it."""
        kind = "true or false" if parameter.is_flag else "a text or number"
        if parameter.multiple:
            return [str(each) for each in (value if isinstance(value, list) else [value])]
        if isinstance(value, bool) is not parameter.is_flag or isinstance(value, list | Mapping):
            raise UsageError(f"{self._place}: {flag} must be {kind}; got {value!r}")
        return value if parameter.is_flag else str(value)


def _leaves(group: Group) -> Iterator[Command]:
    for command in group.commands.values():
        if isinstance(command, Group):
            yield from _leaves(command)
        else:
            yield command


def _flags(command: Command) -> dict[str, Parameter]:
    """Return the options of a command by their long names, without dashes."""
    return {
        text.removeprefix("--"): parameter
        for parameter in command.params
        for text in parameter.opts
        if text.startswith("--")
    }


def _variable(name: str) -> str:
    return name.replace("-", "_").upper()
