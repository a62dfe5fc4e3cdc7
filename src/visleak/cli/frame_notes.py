"""What is said of ``--frame`` and its bounds where they do nothing, or more than was asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from visleak.cli import gates

if TYPE_CHECKING:
    import typer

    from visleak.records import AnySet

#: How near frames leak.
BOUNDS: Final = frozenset({"within_frames", "within_seconds"})
#: The parameters that notes are about.
PARAMETERS: Final = ("frame", *sorted(BOUNDS))


def given(context: typer.Context) -> frozenset[str]:
    """Return which of the parameters stand on the command line."""
    sources = {name: context.get_parameter_source(name) for name in PARAMETERS}
    return frozenset(
        name for name, source in sources.items() if source and source.name == "COMMANDLINE"
    )


def notes(
    queries: Sequence[AnySet], references: Sequence[AnySet], asked: Collection[str]
) -> Iterator[str]:
    """Yield a line on each option that does nothing, and on whole numbers taken for times.

    Args:
        queries, references: the sets, opened.
        asked: which of :data:`PARAMETERS` were given.
    """
    others = [images for images in references if all(images is not query for query in queries)]
    framed: list[Any] = [
        images for images in (*queries, *others) if getattr(images, "frames", None) is not None
    ]
    units = dict.fromkeys(images.stamps for images in framed if images.stamps)
    for unit in units:
        names = ", ".join(images.name for images in framed if images.stamps == unit)
        yield f"frames of {names}: their whole numbers are taken for {unit} since 1970, as times"
    if "frame" in asked and not gates.both_have(("groups",), queries, references):
        yield "--frame is not used: no recordings are known on both sides; give --group"
    for option, timed, other, kind in (
        ("within_frames", False, "--max-time-gap", "times"),
        ("within_seconds", True, "--max-frame-gap", "numbers"),
    ):
        if option not in asked or any(images.timed == timed for images in framed):
            continue
        why = "nobody knows when pictures were taken; give --frame"
        if framed:
            why = f"the frames are {kind}; {other} says how near they leak"
        yield f"--{option.replace('_', '-')} is not used: {why}"
