"""Commands derived from settings, and what all commands do before and after their work.

A command is a function of settings (dataclasses whose fields are declared by
:func:`visleak.options.option`) that calls one public function and returns a :class:`Reply`.
"""

from __future__ import annotations

import inspect
import os
import shlex
import sys
import webbrowser
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from visleak.cli import edges
from visleak.errors import UsageError, VisleakError
from visleak.options import (
    AUDIT_DIR,
    MESSAGES,
    OUTPUT,
    SETS,
    SPEED,
    Columns,
    Messages,
    Option,
    build,
    leaves,
)
from visleak.progress import Silent, Steps, display_for, steps
from visleak.quantities import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from visleak.records import ImageSet
    from visleak.reporting import Document


@dataclass
class Call:
    """The call of a command; a parameter of this type is given to commands that have one."""

    # names of the fields that were given on the command line, each with its flag
    given: Mapping[str, str] = field(default_factory=dict)
    line: str = ""  # the command line, as it may be pasted into a shell
    messages: Messages = field(default_factory=Messages)  # what is reported meanwhile
    progress: Steps = field(default_factory=lambda: Steps(Silent()))  # shows how far each step is
    kept: str = ""  # what an interrupted run keeps, for the message; may be set by the command

    @contextmanager
    def steps(self, name: str = "") -> Iterator[Steps]:
        """Give what shows how far each step is, on stderr; a name comes before all of them."""
        display = display_for(sys.stderr, edges.print_note, verbose=self.messages.verbose)
        with steps(Silent() if self.messages.quiet else display, name and f"{name}: ") as progress:
            yield progress

    def opened(
        self, source: str, columns: Columns | None = None, out: Path | None = None
    ) -> ImageSet:
        """Open a set of images; a result ``out`` must not lie among them."""
        from visleak.formats.opening import open_set
        from visleak.storage import refuse_inputs

        self.progress("listing images", 0, 0)
        images = open_set(source, columns or Columns())
        if out is not None:
            refuse_inputs(out, [(images.name, images.source)], Path())
        self.progress("listing images", 1, 1)
        return images

    def only_with(self, mode: str, allowed: Iterable[str]) -> None:
        """Refuse all options but some, in a mode where the others mean nothing."""
        known = {*allowed, *(own.name for own, _, _ in leaves(Messages))}
        wrong = [flag for name, flag in self.given.items() if name not in known]
        if wrong:
            raise UsageError(f"{', '.join(wrong)} cannot be used with {mode}; leave it out")


@dataclass(frozen=True)
class Reply:
    """The result of a command: what is printed, and how it ends."""

    shown: object = ()  # a Document, or parts for the terminal: lines, texts and tables of rich
    content: Any = None  # what --json prints: plain values, or a JSON file that is printed as it is
    # lines for stderr, before and after the result; a warning that begins with two blanks
    # continues the one before
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    files: Sequence[Path] = ()  # that were written; listed after the summary
    code: int = 0  # exit code
    raw: str = ""  # printed as it is, in place of a summary
    page: Path | None = None  # that --open shows


def whole(document: Document) -> Iterator[RenderableType]:
    """Return a document for the terminal with all tables and all rows."""
    from visleak.reporting import terminal

    return terminal(document, rows=sys.maxsize, tables=sys.maxsize)


class _PlainFlags:
    def get_params(self, ctx: Any) -> Any:
        """Return all parameters; flags have no metavariable."""
        found = super().get_params(ctx)  # type: ignore[misc]
        for parameter in found:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return found


class _Command(_PlainFlags, TyperCommand):
    pass


class CommandGroup(_PlainFlags, TyperGroup):
    """Commands under one name."""


def group(
    app: typer.Typer, name: str, help: str, before: Callable[[], None] = lambda: None
) -> typer.Typer:
    """Add a group of commands to an application; ``before`` runs before each of them."""
    made = typer.Typer(cls=CommandGroup, name=name, help=help, rich_markup_mode="rich")

    @made.callback(invoke_without_command=True)
    def _group(context: typer.Context) -> None:
        # idle threads of torch spin on the cores that the workers need: measured, two to four
        # times slower on a busy machine; it is read once, when torch is imported
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        if context.invoked_subcommand is None:
            edges.print_text(context.get_help() + "\n")
        # a request for help is not a run
        elif not {"--help", "-h"} & set(context.obj or ()):
            before()

    app.add_typer(made)
    return made


def add(
    app: typer.Typer, function: Callable[..., Reply], example: str = "", *, name: str = ""
) -> None:
    """Add a command to an application, by default named like its function."""
    name = name or function.__name__.replace("_", "-")
    # an application has no name, a group of its commands has
    root = f"{app.info.name} " if isinstance(app.info.name, str) else ""
    epilog = f"Example: visleak {root}{name} {example}" if example else None
    app.command(name, epilog=epilog, cls=_Command)(derived(function))


def derived(function: Callable[..., Reply]) -> Callable[..., None]:
    """Return a command as typer takes it: one parameter per option, which is what it runs."""
    hints = {name: hint for name, hint in get_type_hints(function).items() if name != "return"}
    groups = {name: hint for name, hint in hints.items() if hint is not Call}
    if wrong := [name for name, hint in groups.items() if not is_dataclass(hint)]:
        raise TypeError(f"{function.__name__}: {', '.join(wrong)} must be settings")
    every = [leaf for group in (*groups.values(), Messages) for leaf in leaves(group)]
    options = dict(sorted(((leaf[0].name, leaf) for leaf in every), key=_place))
    if len(options) != len(every):
        raise TypeError(f"{function.__name__}: two of its settings declare one option")

    @wraps(function)
    def command(context: typer.Context, **values: Any) -> None:
        given = {
            name: _flag(name, declared)
            for name, (_, _, declared) in options.items()
            if (source := context.get_parameter_source(name)) and source.name == "COMMANDLINE"
        }
        for name, (own, hint, declared) in options.items():
            values[name] = _value(name, values[name], own.default, hint, declared)
        line = shlex.join(["visleak", *(context.find_root().obj or ())])
        line = line.encode("utf-8", "backslashreplace").decode("utf-8")
        call = Call(given, line, build(Messages, values))
        with edges.messages(call.messages, call.line):
            for name, (_, _, declared) in options.items():
                if declared.metavar == AUDIT_DIR and values[name] is not None:
                    announce_audit(values[name])
            settings = {name: build(group, values) for name, group in groups.items()}
            calls = {name: call for name, hint in hints.items() if hint is Call}
            with call.steps() as call.progress:
                try:
                    reply = function(**settings, **calls)
                except KeyboardInterrupt as error:
                    if not call.kept:
                        raise
                    word, code = edges.error_line(error)
                    raise edges.Stopped(f"{word}; {call.kept}", code) from error
            if values.get("open") and reply.page is not None:
                webbrowser.open(reply.page.absolute().as_uri())
            json = values.get("json") or values.get("format") == "json"
            answer(reply, json=bool(json), quiet=call.messages.quiet)

    parameters = [_parameter(*each) for each in options.values()]
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    command.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in (context, *parameters)}
    return command


def answer(reply: Reply, *, json: bool, quiet: bool = False) -> None:
    """Print a reply, and end with its exit code."""
    for line in reply.notes:
        edges.note(line)
    if reply.raw:
        edges.print_text(reply.raw)
    elif json and isinstance(reply.content, Path):
        edges.print_bytes(reply.content.read_bytes())
    elif json:
        edges.print_json(reply.content)
    else:
        from visleak.reporting.rendering import rendered, shown

        parts = [*shown(reply.shown), *shown(map(str, reply.files))]
        edges.print_text(rendered(parts[:1] if quiet else parts))
    for line in reply.warnings:
        (edges.note if line.startswith("  ") else edges.warn)(line)
    if reply.code:
        raise typer.Exit(reply.code)


def _place(named: tuple[str, tuple[object, object, Option]]) -> tuple[int, bool]:
    """Return where an option is listed: by panel, and what all commands have last in its own."""
    name, (_, _, declared) = named
    ranks = {"": 0, SETS: 1, OUTPUT: 3, SPEED: 4, MESSAGES: 5}
    return ranks.get(declared.panel, 2), name in ("json", "dry_run", "apply", "force")


def _parameter(own: Any, hint: Any, declared: Option) -> inspect.Parameter:
    default, kind = own.default, hint
    if declared.parse is not None:
        kind = str | None
        # as the user would write it
        if isinstance(default, tuple):
            default = ",".join(map(str, default))
        elif isinstance(default, int | float):
            default = f"{default:g}"
    elif get_origin(hint) is tuple:
        kind = list[get_args(hint)[0]] | None  # type: ignore[misc]
        default = default or None
    elif get_origin(hint) is Literal:
        # settings check their choices
        kind = str
    elif hint is bool:
        default = False
    keywords: dict[str, Any] = {
        "metavar": "" if hint in (bool, bool | None) else declared.metavar or None,
        "help": declared.help,
        "rich_help_panel": declared.panel or None,
        "show_default": not declared.hides_default and default not in (None, MISSING, False, 0),
    }
    if declared.choices:
        keywords["autocompletion"] = lambda: list(declared.choices)
    about = (
        typer.Argument(**keywords)
        if declared.positional
        else typer.Option(*(declared.flags or (_flag(own.name, declared),)), **keywords)
    )
    return inspect.Parameter(
        own.name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[kind, about],
        default=inspect.Parameter.empty if default is MISSING else default,
    )


def _value(name: str, value: Any, default: Any, hint: Any, declared: Option) -> Any:
    if hint is bool:
        return default is not value if value else default
    if declared.parse is not None:
        try:
            return None if value is None else declared.parse(value)
        except UsageError as error:
            flag, text = _flag(name, declared), str(error)
            raise UsageError(text if text.startswith(flag) else f"{flag}: {text}") from None
    return tuple(value or ()) if get_origin(hint) is tuple else value


def _flag(name: str, declared: Option) -> str:
    """Return what the user writes for a field."""
    if declared.positional:
        return declared.metavar
    return declared.flags[0] if declared.flags else f"--{name.strip('_').replace('_', '-')}"


def replaces(out: Path, result: str, *, force: bool, file: bool = False) -> bool:
    """Whether an earlier result may be replaced: it is kept aside, or forced.

    ``out``: a folder with the file ``result``, or a ``file`` of the kind ``result``.
    """
    from visleak.storage import LEDGER, keep_file, keep_previous

    if force:
        return True
    aside = keep_file(out, result) if file else keep_previous(out, result)
    if aside is None:
        return False
    more = f"; verdicts of people stay in {out}" if any(out.rglob(LEDGER)) else ""
    edges.note(f"the earlier result is kept in {aside}{more}")
    return True


def free(out: Path, result: str, *, force: bool) -> None:
    """Make room for a result in a folder, as :func:`replaces`."""
    from visleak.storage import free_folder

    free_folder(out, result, force=replaces(out, result, force=force))


def announce_audit(folder: Path) -> None:
    """Announce the sources of an audit, and warn if it is unfinished."""
    from visleak.formats.sources import announce
    from visleak.storage import read_summary

    try:
        summary = read_summary(folder)
    except (VisleakError, OSError):
        return  # a command reports itself what is wrong with its folder
    for each in summary.sets:
        announce(each.source, Path(summary.opened_in))
    if summary.unfinished:
        edges.warn(
            f"the audit {folder} is unfinished: {counted(summary.unfinished, 'image')} could not be"
            " read again and counted in no rate; run the audit again"
        )
