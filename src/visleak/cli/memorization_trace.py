"""``visleak memorization trace``: which training images are generated images copies of?"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from visleak.cli import edges, options
from visleak.cli import memorization_options as shared
from visleak.cli.memorization_options import OUT, argument, option
from visleak.errors import UsageError

if TYPE_CHECKING:
    from visleak.memorization.tracing import Trace
    from visleak.records import AnySet

SOURCES: Final = "Who is asked"
COUNTS: Final = "What counts"

Target = Annotated[
    str,
    argument(
        "EXTRACT|S", "Folder of visleak memorization extract, or any SOURCE of generated images."
    ),
]
Sources = Annotated[
    list[str] | None,
    option(
        "--source [NAME=]S",
        "Training images: any SOURCE, or published fingerprints (emb:DIR), which verify"
        " nothing. May be repeated.",
        SOURCES,
    ),
]
Unverified = Annotated[
    bool,
    option(
        "--unverified",
        "There is no training set: list the images as unverified candidates.",
        SOURCES,
    ),
]
Every = Annotated[
    bool,
    option(
        "--all",
        "Trace all images of the extraction, not one per cluster, and say which prompts"
        " replicate (D_mem).",
        SOURCES,
    ),
]
Tau = Annotated[
    float,
    option(
        "--tau X",
        "M_tau = 1 where the similarity to some training image is above X (definition 1).",
        COUNTS,
    ),
]
KappaShare = Annotated[
    str,
    option(
        "--kappa-share RATE",
        "A prompt is in D_mem if more than RATE (0.5 or 50%) of its images have M_tau ="
        " 1; with --all.",
        COUNTS,
    ),
]
Similarity = Annotated[
    str | None,
    option(
        "--similarity E",
        "Encoder whose cosine tau belongs to: sscd:FILE (MemBench), or any other of"
        " --encoder. By default that of published fingerprints, else builtin.",
        COUNTS,
    ),
]
Views = Annotated[
    str,
    option(
        "--views V",
        "Views of the generated images that are compared: none (definition 1), mirror"
        " (for models trained with random flips) or all.",
        COUNTS,
    ),
]
NoLayouts = Annotated[
    bool,
    option(
        "--no-layouts",
        "Do not look for copies in other colours, which takes one more pass over the sources.",
        COUNTS,
    ),
]
Categories = Annotated[
    Path | None,
    option(
        "--categories FILE.csv",
        "What memorized images show: columns category (commercial product, human, artwork,"
        " other) and reference, image or prompt.",
        COUNTS,
    ),
]
FailOn = Annotated[
    list[str] | None,
    option(
        "--fail-on memorized[=RATE]",
        "Exit with 3 if more than RATE (0.01 or 1%, default 0) of the traced images count"
        " as memorized.",
        OUT,
    ),
]


#: The only gate of this verb.
GATE: Final = "memorized"


def trace(
    context: typer.Context,
    target: Target,
    source: Sources = None,
    unverified: Unverified = False,
    every: Every = False,
    tau: Tau = 0.7,
    kappa_share: KappaShare = "50%",
    similarity: Similarity = None,
    views: Views = "none",
    no_layouts: NoLayouts = False,
    categories: Categories = None,
    out: shared.Out = Path("visleak-trace"),
    fail_on: FailOn = None,
    no_pictures: options.NoPictures = False,
    json: shared.Json = False,
    force: shared.Force = False,
    device: shared.Device = "cpu",
    workers: options.Workers = None,
    cache: options.CacheFolder = None,
) -> None:
    """Match generated images to training images.

    Writes the matches, and an audit folder whose pairs visleak review opens; run the command again
    to count the verdicts.
    """
    from visleak.cli.audit_verb import cache_folder
    from visleak.cli.progress import bars
    from visleak.memorization.tracing import trace as traced

    gates = [_gate(text) for text in fail_on or ()]
    share = _share("--kappa-share", kappa_share)
    shared.refuse_other_kind(out, "trace")
    if not source and not unverified:
        raise UsageError(
            "--source is missing: give the training images, or --unverified if they are not known"
        )
    with bars() as progress:
        result = traced(
            target,
            training_sets(source or ()),
            out,
            tau=tau,
            kappa_share=share,
            similarity=similarity or "",
            views=views,
            layouts=not no_layouts,
            every=every,
            categories=categories,
            workers=workers,
            cache=cache_folder(cache),
            device=device,
            progress=progress,
            force=force,
            command=_command(context),
        )
        _write_page(result, private=no_pictures)
    _say(result, json=json)
    _pass(gates, result)


def _gate(text: str) -> float:
    """Return the largest share that passes ``memorized[=RATE]``.

    Raises:
        UsageError: it is another gate, or RATE is no share.
    """
    name, equals, rate = text.partition("=")
    if name != GATE:
        raise UsageError(f"--fail-on is memorized or memorized=RATE; got {text!r}")
    return _share("--fail-on memorized", rate) if equals else 0.0


def _share(option: str, text: str) -> float:
    from visleak.cli.gates import share_of

    share = share_of(text)
    if share is None:
        raise UsageError(
            f"{option}: the rate is a share from 0 to 1 or a percentage, such as 0.01 or 1%; got"
            f" {text!r}"
        )
    return share


def _command(context: typer.Context) -> str:
    """Return the command line as one may paste it into a shell."""
    text = shlex.join(["visleak", *(context.find_root().obj or ())])
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def training_sets(texts: Sequence[str]) -> list[AnySet]:
    """Open the sources; one alone is called train unless it is named."""
    from visleak.cli.sets import Asked, named
    from visleak.images import open_images, parse_set
    from visleak.images.addresses import redacted
    from visleak.images.request import writable
    from visleak.images.sources import derived_name

    asked = []
    for text in texts:
        dataset, name, source = parse_set(text)
        names: tuple[str, ...] = (name,)
        if source == text:
            parent = Path(redacted(source).partition("#")[0]).resolve().parent.name
            names = (derived_name(source), f"{parent}/{derived_name(source)}")
            names = ("train", *names) if len(texts) == 1 else names
        names = tuple(writable(each) for each in names)
        asked.append(Asked("--source", "training", writable(dataset), source, names))
    return [
        open_images(each.source, name=name, dataset=each.dataset, roles=(each.role,))
        for each, name in zip(asked, named(asked), strict=True)
    ]


def _write_page(result: Trace, *, private: bool) -> None:
    """Write the page of the audit, with the section of the trace on it."""
    from visleak.auditing import Audit
    from visleak.cli.pictures import show_in_report
    from visleak.memorization.tracing.document import SECTION, document
    from visleak.memorization.tracing.sets import AUDIT_FOLDER
    from visleak.reporting import section
    from visleak.storage import AUDIT

    folder = result.folder / AUDIT_FOLDER
    if (folder / AUDIT).is_file():
        show_in_report(Audit(folder), SECTION, section(document(result)), private=private)


def _say(result: Trace, *, json: bool) -> None:
    from visleak.memorization.tracing.document import document
    from visleak.memorization.tracing.sets import AUDIT_FOLDER
    from visleak.storage import AUDIT, REPORT

    shared.say_result(document(result), result.folder / "trace.json", json=json)
    audit = result.folder / AUDIT_FOLDER
    if not json and (audit / AUDIT).is_file():
        edges.say(f"{edges.plain(str(audit / REPORT))}\n")
        edges.say(f"judge the pairs: visleak review {edges.plain(str(audit))}\n")


def _pass(gates: Sequence[float], result: Trace) -> None:
    """Say which gates tripped; end with 3 if any."""
    from visleak.stats import Rate, percent

    rate = Rate.of(len(result.verified), len(result.matches))
    tripped = [allowed for allowed in gates if rate.total and rate.share > allowed]
    for allowed in tripped:
        edges.complain(
            f"gate {GATE}: {rate.count:,} of {rate.total:,} traced images"
            f" ({percent(rate.share)} %) count as memorized; allowed {percent(allowed)} %"
        )
    if tripped:
        raise typer.Exit(3)
