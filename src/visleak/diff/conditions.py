"""What else differs between two audits: how they were made, and who judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def conditions(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return what differs and can change an answer: name to the value before and after.

    Args:
        before, after: ``audit.json`` of the two.

    >>> conditions({"visleak": "1.0"}, {"visleak": "1.1"})
    {'visleak': ('1.0', '1.1')}
    """
    old, new = dict(_conditions(before)), dict(_conditions(after))
    names = dict.fromkeys([*old, *new])
    found = {name: (old.get(name), new.get(name)) for name in names}
    return {name: pair for name, pair in found.items() if pair[0] != pair[1]}


def _conditions(audit: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "visleak", audit.get("visleak")
    for what, keys in (
        ("encoder", ("name", "digest")),
        ("thresholds", ("hard", "soft")),
        ("search", ("engine",)),
        ("verifier", ("digest",)),
        ("grader", ("digest", "near_at")),
    ):
        content = audit.get(what) or {}
        for key in keys:
            yield f"{what} {key}", content.get(key)
    for name, value in (audit.get("settings") or {}).items():
        # these are said above
        if name not in ("encoder", "search", "near_at"):
            yield f"setting {name}", value
    for package, version in (audit.get("versions") or {}).items():
        yield f"version of {package}", version
    review = audit.get("review") or {}
    for name in ("judged", "disputed"):
        yield f"pairs {name} by people", review.get(name, 0)
