"""The verbs together, and the function behind the ``visleak`` command.

Only typer is imported here: everything else is imported by the verb that needs it, so that
``visleak --help`` comes at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from visleak.cli import audit_folders, edges
from visleak.cli.audit_verb import audit
from visleak.cli.calibrate_verb import calibrate
from visleak.cli.command import add
from visleak.cli.dlede_verb import dlede
from visleak.cli.encode_verb import encode
from visleak.cli.evaluate_verb import evaluate
from visleak.cli.find_verb import find
from visleak.cli.impact_verb import impact
from visleak.cli.memorization_verb import memorization
from visleak.cli.purge_verb import purge
from visleak.cli.replace_verb import replace
from visleak.cli.review_verb import review
from visleak.cli.robustness_verb import robustness
from visleak.cli.split_verb import split
from visleak.cli.stats_verb import stats
from visleak.cli.train_verb import train_encoder
from visleak.cli.verdicts_verb import verdicts

app = typer.Typer(
    name="visleak",
    help="Find, explain and measure visual data leakage between test and training images.",
    add_completion=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(
    "audit",
    epilog="For example: visleak audit --test test/ --train train.zip --fail-on near=1%",
)(audit)
app.command(
    "encode",
    epilog="For example: visleak encode photos/ --encoder clip -o photos-clip",
)(encode)
add(app, "report", audit_folders.report)
add(app, "show", audit_folders.show, "show visleak-audit thing/copy.png -o pair.png")
app.command(
    "find",
    epilog="For example: visleak find holiday.jpg --against train/",
)(find)
app.command(
    "review",
    epilog="For example: visleak review visleak-audit --candidates nearest",
)(review)
add(app, "export", audit_folders.export, "export visleak-audit --format ids -o leaks.txt")
add(app, "diff", audit_folders.diff, "diff audit-before audit-after -o changes.csv")
app.command(
    "purge",
    epilog="For example: visleak purge visleak-audit --remove-from test --grade near -o clean"
    " --format copy --apply",
)(purge)
app.command(
    "stats",
    epilog="For example: visleak stats visleak-audit --grade near -o counts",
)(stats)
app.command(
    "verdicts",
    epilog="For example: visleak verdicts visleak-audit import duplicates.csv --reviewer Ada",
)(verdicts)
app.command(
    "robustness",
    epilog="For example: visleak robustness photos/ -o photos-robustness",
)(robustness)
app.command(
    "calibrate",
    epilog="For example: visleak calibrate photos/ --fpr 1e-5,1e-4 -o thresholds.json",
)(calibrate)
app.command(
    "train-encoder",
    epilog="For example: visleak train-encoder train/ --test test/ -o model.onnx",
)(train_encoder)
app.command(
    "split",
    epilog="For example: visleak split photos/ --ratios train=0.8,test=0.2 --stratify label"
    " -o photos-split",
)(split)
app.command(
    "replace",
    epilog="For example: visleak replace visleak-audit --pool unused/ --select auto",
)(replace)
app.add_typer(evaluate, name="evaluate")
app.command(
    "impact",
    epilog="For example: visleak impact visleak-audit --predictions resnet=answers.csv -o impact",
)(impact)
add(
    app,
    "dlede",
    dlede,
    "dlede --test yolo:data.yaml#val --train yolo:data.yaml#train --trainer torch:detector"
    " --dry-run",
)
app.add_typer(memorization, name="memorization")
add(app, "check", audit_folders.check_audit, "check visleak-audit --images")
add(app, "doctor", audit_folders.doctor)


def _version(wanted: bool) -> None:
    if wanted:
        import visleak

        edges.say(f"visleak {visleak.__version__}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        edges.say(context.get_help() + "\n")


def run(arguments: Sequence[str]) -> int:
    """Run a command line, without the program's name, and return its exit code."""
    return edges.run(typer.main.get_command(app), arguments)
