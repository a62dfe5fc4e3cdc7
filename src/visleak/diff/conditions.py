"""What else differs between two audits: how they were made, and who judged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from visleak.storage import AuditSummary


def conditions(before: AuditSummary, after: AuditSummary) -> dict[str, tuple[Any, Any]]:
    """Return what differs and can change an answer: name to the value before and after.

    Args:
        before, after: ``audit.json`` of the two.

    >>> conditions(AuditSummary(visleak="1.0"), AuditSummary(visleak="1.1"))
    {'visleak': ('1.0', '1.1')}
    """
    old, new = dict(_conditions(before)), dict(_conditions(after))
    names = dict.fromkeys([*old, *new])
    found = {name: (old.get(name), new.get(name)) for name in names}
    return {name: pair for name, pair in found.items() if pair[0] != pair[1]}


def _conditions(audit: AuditSummary) -> Iterator[tuple[str, Any]]:
    yield "visleak", audit.visleak
    for what, keys in (
        ("encoder", ("name", "digest")),
        ("thresholds", ("hard", "soft")),
        ("search", ("engine",)),
        ("verifier", ("digest",)),
        ("grader", ("digest", "near_at")),
    ):
        content = getattr(audit, what)
        for key in keys:
            yield f"{what} {key}", getattr(content, key, None)
    for name, value in audit.settings.as_dict().items():
        # these are said above
        if name not in ("encoder", "search", "near_at"):
            yield f"setting {name}", value
    for package, version in audit.versions.items():
        yield f"version of {package}", version
    for name in ("judged", "disputed"):
        yield f"pairs {name} by people", getattr(audit.review, name, 0)
