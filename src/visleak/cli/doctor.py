"""``visleak doctor``: versions, extras, cache, threads, devices, and what is broken."""

from __future__ import annotations

import json as js
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from visleak.cli import edges

if TYPE_CHECKING:
    from visleak.doctor import Checkup

#: Width of the names in front of the lines.
NAMES: Final = 12


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
) -> None:
    """Look at the installation: versions, extras, cache, threads, devices, what is broken.

    Exits with 1 if something is broken.
    """
    from visleak.doctor import examine

    found = examine()
    if json:
        edges.say(js.dumps(found.as_dict(), indent=1) + "\n")
    else:
        edges.say("".join(f"{edges.plain(line)}\n" for line in lines(found)))
    if found.issues:
        raise typer.Exit(1)


def lines(found: Checkup) -> Iterator[str]:
    """Yield what the terminal shows of a checkup."""
    from visleak.cli.cost_view import size

    there = {name: version for name, version in found.versions.items() if version}
    own = f"visleak {there.pop('visleak')}, Python {there.pop('python')}, {found.system}"
    yield _fact("version", own)
    yield _fact("packages", ", ".join(f"{name} {version}" for name, version in there.items()))
    complete = [each.name for each in found.extras if not each.missing]
    yield _fact("extras", ", ".join(complete) or "none")
    for each in found.extras:
        if each.missing:
            yield _fact("", f"{each.name} lacks {', '.join(each.missing)}: {each.install}")
    yield _fact("cache", f"{found.cache['folder']}, {size(found.cache['bytes'])}")
    yield _fact("threads", ", ".join(_threads(found)))
    for number, device in enumerate(found.devices):
        memory = f", {size(device['bytes'])}" if device["bytes"] else ""
        yield _fact("" if number else "devices", f"{device['name']} ({device['what']}{memory})")
    for trouble in found.issues:
        yield _fact("broken", trouble.what)
        yield _fact("", f"to mend it: {trouble.remedy}")
    if not found.issues:
        yield _fact("broken", "nothing")


def _threads(found: Checkup) -> Iterator[str]:
    cores = found.threads["cores"]
    yield f"{cores} core{'' if cores == 1 else 's'}"
    for name, value in found.threads["limits"].items():
        yield f"{name}={value}"
    pools = [pool for pool in found.threads["pools"] if pool["api"] == "blas"]
    for pool in {pool["library"]: pool for pool in pools}.values():
        yield f"BLAS {pool['library']} {pool['version'] or ''} with {pool['threads']} threads"


def _fact(name: str, words: str) -> str:
    return f"{name:<{NAMES}}{words}"
