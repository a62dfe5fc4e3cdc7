"""The verbs together, and the function behind the ``visleak`` command.

Only typer is imported here: everything else is imported by the verb that needs it, so that
``visleak --help`` comes at once.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from visleak.cli import (
    audit_folders,
    audits,
    edges,
    image_sets,
    impact_verb,
    memorization,
    remedies,
)
from visleak.cli.command import CommandGroup, add, group
from visleak.cli.dlede_verb import dlede
from visleak.errors import UsageError, VisleakError, did_you_mean

app = typer.Typer(
    cls=CommandGroup,
    help="Find, explain and measure visual data leakage between test and training images.",
    add_completion=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
add(app, audits.audit, "--test test/ --train train.zip --fail-on near=1%")
add(app, image_sets.encode, "photos/ --encoder clip -o photos-clip")
add(app, audit_folders.report)
add(app, audit_folders.show, "visleak-audit thing/copy.png -o pair.png")
add(app, image_sets.find, "holiday.jpg --against train/")
add(app, image_sets.same, "holiday.jpg copy-of-holiday.png")
add(app, audit_folders.review, "visleak-audit --candidates nearest")
add(app, audit_folders.export, "visleak-audit --format ids -o leaks.txt")
add(app, audit_folders.diff, "audit-before audit-after -o changes.csv")
add(
    app,
    remedies.purge,
    "visleak-audit --remove-from test --grade near -o clean --format copy --apply",
)
add(app, audit_folders.stats, "visleak-audit --grade near -o counts")
add(app, audit_folders.verdicts, "visleak-audit import list.csv --reviewer Ada")
add(app, image_sets.robustness, "photos/ -o photos-robustness")
add(app, image_sets.calibrate, "photos/ --fpr 1e-5,1e-4")
add(app, image_sets.train_encoder, "train/ --test test/")
add(app, remedies.split, "photos/ --ratios train=0.8,test=0.2 --stratify label -o photos-split")
add(app, remedies.replace, "visleak-audit --pool unused/ --select auto")
evaluate = group(
    app, "evaluate", "Run a model on a test set; the file of its predictions is for visleak impact."
)
add(evaluate, impact_verb.classify, "test/ --model hf:microsoft/resnet-50 -o resnet-50.parquet")
add(evaluate, impact_verb.zeroshot, "val/ --classes names.tsv --templates openai -o clip.parquet")
FLICKR: Final = "flickr30k-images/ --captions dataset_flickr30k.json"
add(evaluate, impact_verb.retrieve, f"{FLICKR} -o clip.parquet")
add(app, impact_verb.impact, "visleak-audit --predictions resnet=resnet.csv -o impact")
YOLO: Final = "--test yolo:data.yaml#val --train yolo:data.yaml#train"
add(app, dlede, f"{YOLO} --trainer torch:detector --dry-run")
ABOUT: Final = "Memorized training images of text-to-image models."
mem = group(app, "memorization", ABOUT, memorization.show_notice)
SSCD: Final = "--similarity sscd:sscd_disc_large.torchscript.pt"
SD: Final = "--model sd-1.4/"
add(
    mem,
    memorization.detect,
    f"{SD} --prompts SD1_final.csv --general captions_val2014.json -o detected",
)
add(mem, memorization.search, f"{SD} --banned own --max-calls 100000 -o searched")
add(mem, memorization.augment, f"{SD} --triggers searched/prompts.parquet -o augmented")
add(
    mem, memorization.diversify, f"{SD} --prompts augmented/prompts.parquet --per-source -o diverse"
)
add(mem, memorization.extract, f"{SD} --prompts searched/prompts.csv {SSCD} -o extracted")
add(mem, memorization.trace, f"extracted --source laion=laion-subset/ {SSCD} -o traced")
add(
    mem,
    memorization.compare,
    f"{SD} --methods gibbs,random,greedy --prompts captions.txt --max-calls 100000"
    " --source laion=laion-subset/ -o compared",
)
add(mem, memorization.dataset, "diverse/prompts.parquet --trace traced -o triggers")
add(
    mem,
    memorization.benchmark,
    f"{SD} --triggers SD1_final.csv --references memorized/ --general captions_val2017.json"
    f" --method rna:4 --method wen:3 {SSCD} -o benchmark",
)
add(app, audit_folders.check_audit, "visleak-audit --images", name="check")
add(app, audit_folders.doctor)


@app.command("help")
def _help(
    context: typer.Context,
    command: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND]..")] = None,
) -> None:
    """Print the help of a command, as COMMAND --help does."""
    root = context.find_root()
    root.command.main(
        [*(command or ()), "--help"], prog_name="visleak", standalone_mode=False, obj=root.obj
    )


def _version(wanted: bool) -> None:
    if wanted:
        import visleak
        from visleak.doctor import commit

        made_from = commit()
        edges.print_text(f"visleak {visleak.__version__}{f' ({made_from})' if made_from else ''}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Print the version and, where known, the commit.",
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        edges.print_text(context.get_help() + "\n")


_commands = cache(partial(typer.main.get_command, app))


def run(arguments: Sequence[str]) -> int:
    """Run a command line, without the program's name, and return its exit code."""
    return edges.run(_commands(), arguments, defaults)


#: What variables of the environment begin with: VISLEAK_AUDIT_FAIL_ON, VISLEAK_WORKERS.
PREFIX: Final = "VISLEAK_"

#: Of the file, and of the table in pyproject.toml.
NAME: Final = "visleak"

#: Variables that mean something else.
OTHERS: Final = ("VISLEAK_CACHE", "VISLEAK_DATA", "VISLEAK_DEBUG")

Table = Mapping[str, object]

#: A group, a command or a parameter of click, whichever of them typer carries.
Click = Any


def defaults(group: Click) -> dict[str, object]:
    """Return the defaults of all commands that the environment, visleak.toml or pyproject.toml set.

    The environment comes first; the result is as click takes it.
    """
    place, table = _file(Path.cwd())
    named = any(name.startswith(PREFIX) for name in os.environ if name not in OTHERS)
    if not table and not named:
        return {}
    try:
        result = _of_group(group, table, {}, PREFIX)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None
    if table:
        edges.note(f"defaults from {place}")
    return result


def _file(folder: Path) -> tuple[Path | None, Table]:
    """Return the first file of this folder or one above it that sets defaults, and what it sets."""
    import tomllib

    for parent in (folder, *folder.parents):
        for name, keys in ((f"{NAME}.toml", ()), ("pyproject.toml", ("tool", NAME))):
            path = parent / name
            if not path.is_file():
                continue
            try:
                table: Table = tomllib.loads(path.read_text("utf-8"))
            except (OSError, ValueError) as error:
                raise VisleakError(f"{path} cannot be read as TOML: {error}") from error
            for key in keys:
                inner = table.get(key)
                table = inner if isinstance(inner, Mapping) else {}
            if table:
                return path, table
    return None, {}


def _of_group(group: Click, table: Table, shared: Table, prefix: str) -> dict[str, object]:
    own = {key: value for key, value in table.items() if key not in group.commands}
    options = {flag for each in _leaves(group) for flag in _flags(each)}
    for key in own:
        if key not in options:
            hint = did_you_mean(key, [*options, *group.commands])
            raise UsageError(f"{key!r} is not an option or a command{hint}")
    result: dict[str, object] = {}
    for name, command in group.commands.items():
        mine = table.get(name, {})
        if not isinstance(mine, Mapping):
            raise UsageError(f"{name} must be a table of options")
        of = _of_group if hasattr(command, "commands") else _of_command
        result[name] = of(command, mine, {**shared, **own}, f"{prefix}{_variable(name)}_")
    # an option of the group may have the name of a command: help
    return {name: values for name, values in result.items() if values}


def _of_command(command: Click, table: Table, shared: Table, prefix: str) -> dict[str, object]:
    flags = _flags(command)
    for key in table:
        if key not in flags:
            hint = did_you_mean(key, flags)
            raise UsageError(f"{command.name} has no option {key!r}{hint}")
    given = {flag: value for flag, value in {**shared, **table}.items() if flag in flags}
    values = {flags[flag].name: _value(flag, flags[flag], value) for flag, value in given.items()}
    for flag, parameter in flags.items():
        for variable in (f"{PREFIX}{_variable(flag)}", f"{prefix}{_variable(flag)}"):
            if text := os.environ.get(variable):
                values[parameter.name] = shlex.split(text) if parameter.multiple else text
    return values


def _value(flag: str, parameter: Click, value: object) -> object:
    if parameter.multiple:
        return [str(each) for each in (value if isinstance(value, list) else [value])]
    if isinstance(value, bool) is not parameter.is_flag or isinstance(value, list | Mapping):
        kind = "true or false" if parameter.is_flag else "a text or number"
        raise UsageError(f"{flag} must be {kind}; got {value!r}")
    return value if parameter.is_flag else str(value)


def _leaves(group: Click) -> Iterator[Click]:
    for command in group.commands.values():
        if hasattr(command, "commands"):
            yield from _leaves(command)
        else:
            yield command


def _flags(command: Click) -> dict[str, Click]:
    """Return the options of a command by their long names, without dashes."""
    return {
        text.removeprefix("--"): parameter
        for parameter in command.params
        for text in parameter.opts
        if text.startswith("--")
    }


def _variable(name: str) -> str:
    return name.replace("-", "_").upper()
