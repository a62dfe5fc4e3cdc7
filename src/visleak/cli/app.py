"""The verbs together, and the function behind the ``visleak`` command.

Only typer is imported here: everything else is imported by the verb that needs it, so that
``visleak --help`` comes at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Annotated

import typer

from visleak.cli import audit_folders, audits, edges, image_sets, remedies
from visleak.cli.command import add
from visleak.cli.defaults import defaults
from visleak.cli.dlede_verb import dlede
from visleak.cli.evaluate_verb import evaluate
from visleak.cli.impact_verb import impact
from visleak.cli.memorization import (
    augment,
    benchmark,
    compare,
    dataset,
    detect,
    diversify,
    extract,
    memorization,
    search,
    trace,
)

app = typer.Typer(
    name="visleak",
    help="Find, explain and measure visual data leakage between test and training images.",
    add_completion=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
add(app, "audit", audits.audit, "audit --test test/ --train train.zip --fail-on near=1%")
add(app, "encode", image_sets.encode, "encode photos/ --encoder clip -o photos-clip")
add(app, "report", audit_folders.report)
add(app, "show", audit_folders.show, "show visleak-audit thing/copy.png -o pair.png")
add(app, "find", image_sets.find, "find holiday.jpg --against train/")
add(app, "same", image_sets.same, "same holiday.jpg copy-of-holiday.png")
add(app, "review", audit_folders.review, "review visleak-audit --candidates nearest")
add(app, "export", audit_folders.export, "export visleak-audit --format ids -o leaks.txt")
add(app, "diff", audit_folders.diff, "diff audit-before audit-after -o changes.csv")
add(
    app,
    "purge",
    remedies.purge,
    "purge visleak-audit --remove-from test --grade near -o clean --format copy --apply",
)
add(app, "stats", audit_folders.stats, "stats visleak-audit --grade near -o counts")
add(
    app, "verdicts", audit_folders.verdicts, "verdicts visleak-audit import list.csv --reviewer Ada"
)
add(app, "robustness", image_sets.robustness, "robustness photos/ -o photos-robustness")
add(app, "calibrate", image_sets.calibrate, "calibrate photos/ --fpr 1e-5,1e-4")
add(app, "train-encoder", image_sets.train_encoder, "train-encoder train/ --test test/")
add(
    app,
    "split",
    remedies.split,
    "split photos/ --ratios train=0.8,test=0.2 --stratify label -o photos-split",
)
add(app, "replace", remedies.replace, "replace visleak-audit --pool unused/ --select auto")
app.add_typer(evaluate, name="evaluate")
add(app, "impact", impact, "impact visleak-audit --predictions resnet=resnet.csv -o impact")
add(
    app,
    "dlede",
    dlede,
    "dlede --test yolo:data.yaml#val --train yolo:data.yaml#train --trainer torch:detector"
    " --dry-run",
)
app.add_typer(memorization, name="memorization")
for _command, _example in (
    (detect, "--model sd-1.4/ --prompts SD1_final.csv --general captions_val2014.json -o detected"),
    (search, "--model sd-1.4/ --banned own --max-calls 100000 -o searched"),
    (augment, "--model sd-1.4/ --triggers searched/prompts.parquet -o augmented"),
    (diversify, "--model sd-1.4/ --prompts augmented/prompts.parquet --per-source -o diverse"),
    (
        extract,
        "--model sd-1.4/ --prompts searched/prompts.csv"
        " --similarity sscd:sscd_disc_large.torchscript.pt -o extracted",
    ),
    (
        trace,
        "extracted --source laion=laion-subset/ --similarity sscd:sscd_disc_large.torchscript.pt"
        " -o traced",
    ),
    (
        compare,
        "--model sd-1.4/ --methods gibbs,random,greedy --prompts captions.txt --max-calls 100000"
        " --source laion=laion-subset/ -o compared",
    ),
    (dataset, "diverse/prompts.parquet --trace traced -o triggers"),
    (
        benchmark,
        "--model sd-1.4/ --triggers SD1_final.csv --references memorized/"
        " --general captions_val2017.json --method rna:4 --method wen:3"
        " --similarity sscd:sscd_disc_large.torchscript.pt -o benchmark",
    ),
):
    _name = _command.__name__
    add(memorization, _name, _command, f"memorization {_name} {_example}")
add(app, "check", audit_folders.check_audit, "check visleak-audit --images")
add(app, "doctor", audit_folders.doctor)


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
        edges.say(f"visleak {visleak.__version__}{f' ({made_from})' if made_from else ''}\n")
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
        edges.say(context.get_help() + "\n")


_commands = cache(partial(typer.main.get_command, app))


def run(arguments: Sequence[str]) -> int:
    """Run a command line, without the program's name, and return its exit code."""
    return edges.run(_commands(), arguments, defaults)
