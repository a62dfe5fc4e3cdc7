"""``visleak split``: parts between which nothing leaks, made new or mended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visleak.cli import edges, options

if TYPE_CHECKING:
    from visleak.remedy.plan import Split

NEW = "A new split"
MEND = "A split that is there"


def split(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME=]SET",
            show_default=False,
            help="The set to split, as for audit: a folder, list, archive, table, cifar:..",
        ),
    ] = None,
    parts: Annotated[
        str | None,
        typer.Option(
            "--ratios",
            metavar="NAME=SHARE,..",
            show_default=False,
            rich_help_panel=NEW,
            help="Names and shares of the parts, such as train=0.8,test=0.2 or train=80%,test=20%.",
        ),
    ] = None,
    stratify: Annotated[
        str | None,
        typer.Option(
            "--stratify",
            metavar="label|COLUMN",
            show_default=False,
            rich_help_panel=NEW,
            help="Hold the shares of classes: label takes those that the set has (folders, label"
            " columns), another word is the column that they are in.",
        ),
    ] = None,
    tolerance: Annotated[
        str,
        typer.Option(
            "--tolerance",
            metavar="RATE",
            rich_help_panel=NEW,
            help="How far sizes and class shares may be off, such as 0.01 or 1%.",
        ),
    ] = "1%",
    audit: Annotated[
        Path | None,
        typer.Option(
            "--audit",
            metavar="A",
            show_default=False,
            callback=options.told,
            rich_help_panel=NEW,
            help="A finished audit of this very set with itself (audit --set S), with the verdicts"
            " of a review; by default the set is audited into DIR/audit.",
        ),
    ] = None,
    allow_unbalanced: Annotated[
        bool,
        typer.Option(
            "--allow-unbalanced",
            rich_help_panel=NEW,
            help="With --apply: also write what misses the tolerance.",
        ),
    ] = False,
    encoder: options.EncoderName = None,
    id_: options.Id = None,
    label: options.Label = None,
    fix: Annotated[
        Path | None,
        typer.Option(
            "--repair",
            metavar="A",
            show_default=False,
            callback=options.told,
            rich_help_panel=MEND,
            help="An audit of an existing split: move as few images as can be so that nothing"
            " leaks any more.",
        ),
    ] = None,
    keep_sizes: Annotated[
        bool,
        typer.Option(
            "--keep-sizes",
            rich_help_panel=MEND,
            help="Move others back, or unite some the other way, so that sizes and classes stay.",
        ),
    ] = False,
    group: options.Group = None,
    grade: Annotated[
        str,
        typer.Option(
            "--grade",
            metavar="exact|near|similar",
            rich_help_panel=options.HOW,
            help="Images of pairs of this grade or stronger stay together.",
        ),
    ] = "near",
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            metavar="N",
            min=0,
            rich_help_panel=options.HOW,
            help="Decides among what is equally good.",
        ),
    ] = 0,
    out: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            rich_help_panel=options.OUT,
            help="Folder of the plan; with --apply also of the parts (data) and of the audit that"
            " found nothing between them (proof).",
        ),
    ] = Path("visleak-split"),
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            rich_help_panel=options.OUT,
            help="Write the parts; without this, only the plan.",
        ),
    ] = False,
    as_: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="manifest|link|copy",
            rich_help_panel=options.OUT,
            help="Lists of what is where; or data sets in their own layout, of symbolic links or of"
            " copies.",
        ),
    ] = "manifest",
    json: Annotated[
        bool,
        typer.Option("--json", rich_help_panel=options.OUT, help="Print split.json instead."),
    ] = False,
    workers: options.Workers = None,
    cache: options.CacheFolder = None,
) -> None:
    """Split a set, or mend a split, so that no two images that belong together are parted.

    Images belong together if they are near-duplicates, equal, or of one group. The set itself is
    never changed.
    """
    from visleak.cli.audit_verb import cache_folder
    from visleak.remedy.plan import Unbalanced

    given = {
        "--ratios": parts, "--stratify": stratify, "--audit": audit, "--encoder": encoder,
        "--id": id_, "--label": label, "--allow-unbalanced": allow_unbalanced or None,
        "--tolerance": None if tolerance == "1%" else tolerance,
    }  # fmt: skip
    _refuse_mixtures(source, fix, parts, given, keep_sizes)
    shared: dict[str, Any] = {
        "out": out, "group": group, "grade": grade, "seed": seed, "apply": apply, "how": as_,
        "workers": workers, "cache": cache_folder(cache),
    }  # fmt: skip
    try:
        if fix is not None:
            result = _fixed(fix, keep_sizes, shared)
        else:
            own = {
                "tolerance": _rate(tolerance), "stratify": stratify, "audited": audit, "id": id_,
                "label": label, "encoder": encoder or "", "allow_unbalanced": allow_unbalanced,
            }  # fmt: skip
            result = _split(source or "", parts or "", own | shared)
    except Unbalanced as error:
        _say(error.content, out, json=json)
        raise
    _say(result.content, out, json=json)


def _split(source: str, parts: str, wishes: dict[str, Any]) -> Split:
    from visleak.cli.progress import bars
    from visleak.cli.sets import Columns, one
    from visleak.remedy import split as made
    from visleak.remedy.splitting import column_of

    columns = Columns(
        wishes.pop("id"), column_of(wishes["stratify"], wishes.pop("label")), wishes["group"]
    )
    with bars() as progress:
        return made(one(source, columns), parts, progress=progress, **wishes)


def _fixed(audited: Path, keep_sizes: bool, wishes: dict[str, Any]) -> Split:
    from visleak.cli.progress import bars
    from visleak.remedy import fix as mended

    with bars() as progress:
        return mended(audited, keep_sizes=keep_sizes, progress=progress, **wishes)


def _refuse_mixtures(
    source: str | None,
    fix: Path | None,
    parts: str | None,
    given: dict[str, Any],
    keep_sizes: bool,
) -> None:
    """Refuse a call that asks for neither or both.

    Raises:
        UsageError: see its message.
    """
    from visleak.errors import UsageError

    if fix is not None:
        other = "a set" if source is not None else None
        other = other or next((name for name, value in given.items() if value is not None), None)
        if other is not None:
            raise UsageError(
                f"--repair A mends the split that A audited, so {other} has no place beside it"
            )
    elif source is None or parts is None:
        raise UsageError(
            "split needs a set and --ratios, as in: visleak split photos/ --ratios"
            " train=0.8,test=0.2; or --repair A with an audit of a split that is there"
        )
    elif keep_sizes:
        raise UsageError("--keep-sizes goes with --repair A; a new split has the sizes of --ratios")


def _rate(text: str) -> float:
    """Return the number of ``--tolerance``.

    Raises:
        UsageError: it is none.
    """
    from visleak.errors import UsageError

    try:
        value = float(text.strip().removesuffix("%")) / (100 if text.strip()[-1:] == "%" else 1)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise UsageError(f"--tolerance must be a share such as 0.01 or 1%; got {text!r}")
    return value


def _say(content: Any, out: Path, *, json: bool) -> None:
    if json:
        import json as js

        edges.say(js.dumps(content, indent=1, ensure_ascii=False) + "\n")
        return
    from visleak.cli.split_view import shown
    from visleak.cli.terminal import rendered

    edges.say(rendered(shown(content, out)))
