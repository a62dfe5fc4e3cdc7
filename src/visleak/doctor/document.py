"""The state of an installation for people."""

from __future__ import annotations

from collections.abc import Iterator

from visleak.doctor.checkup import Checkup
from visleak.quantities import counted, size
from visleak.reporting import Document, Fact


def document(found: Checkup) -> Document:
    """Return what :func:`visleak.doctor.examine` found."""
    count = len(found.issues)
    headline = f"{counted(count, 'problem')} found" if count else "no problems found"
    return Document("Installation", headline, facts=tuple(_facts(found)))


def _facts(found: Checkup) -> Iterator[Fact]:
    versions = {name: version for name, version in found.versions.items() if version}
    own = f"visleak {versions.pop('visleak')}, Python {versions.pop('python')}, {found.system}"
    yield Fact("version", own)
    yield Fact("packages", ", ".join(f"{name} {version}" for name, version in versions.items()))
    complete = [each.name for each in found.extras if not each.missing]
    yield Fact("extras", ", ".join(complete) or "none installed")
    for each in found.extras:
        if each.missing:
            yield Fact("", f"{each.name} lacks {', '.join(each.missing)}: {each.install}")
    yield Fact("cache", f"{found.cache['folder']}, {size(found.cache['bytes'])}")
    yield Fact("threads", ", ".join(_threads(found)))
    for number, device in enumerate(found.devices):
        memory = f", {size(device['bytes'])}" if device["bytes"] else ""
        yield Fact("" if number else "devices", f"{device['name']} ({device['what']}{memory})")
    for issue in found.issues:
        yield Fact("problem", issue.what, "caution")
        yield Fact("", f"fix: {issue.remedy}")


def _threads(found: Checkup) -> Iterator[str]:
    yield counted(found.threads["cores"], "core")
    for name, value in found.threads["limits"].items():
        yield f"{name}={value}"
    pools = [pool for pool in found.threads["pools"] if pool["api"] == "blas"]
    for pool in {pool["library"]: pool for pool in pools}.values():
        yield f"BLAS {pool['library']} {pool['version'] or ''} with {pool['threads']} threads"
