"""Which set of one audit is which of the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from visleak.errors import UsageError
from visleak.storage import AuditSummary


def parse_map(texts: Sequence[str]) -> dict[str, str]:
    """Return the sets of ``old=new`` texts.

    Raises:
        UsageError: a text is none, or names a set twice.

    >>> parse_map(["test=test-clean"])
    {'test': 'test-clean'}
    """
    given: dict[str, str] = {}
    for text in texts:
        old, equals, new = text.partition("=")
        if not (old and equals and new):
            raise UsageError(
                f"--rename must be OLD=NEW, names of one set in both audits; got {text!r}"
            )
        if old in given or new in given.values():
            raise UsageError(f"--rename names a set twice: {text!r}")
        given[old] = new
    return given


def match_sets(
    before: AuditSummary, after: AuditSummary, given: Mapping[str, str]
) -> dict[str, str]:
    """Return the sets that are in both audits: name before to name after.

    Those given come first, then equal names. What is left of a side (queries, references) is
    matched if it is one set before and one after.

    Args:
        before, after: ``audit.json`` of the two.
        given: names before to names after.

    Raises:
        UsageError: a given set does not exist, or it is not clear what is what.
    """
    names = [{each.name: each.side for each in audit.sets} for audit in (before, after)]
    for which, wanted, known in zip(
        ("A", "B"), (list(given), list(given.values())), names, strict=True
    ):
        for name in wanted:
            if name not in known:
                raise UsageError(
                    f"--rename: {which} has no set {name!r}; it has {', '.join(known)}"
                )
    matched = dict(given)
    for name in names[0]:
        if name in names[1] and name not in matched and name not in matched.values():
            matched[name] = name
    for side in ("query", "reference"):
        old = [name for name, own in names[0].items() if own == side and name not in matched]
        taken = set(matched.values())
        new = [name for name, own in names[1].items() if own == side and name not in taken]
        if len(old) == len(new) == 1:
            matched[old[0]] = new[0]
        elif old and new:
            raise UsageError(
                f"the sets {', '.join(old)} of A and {', '.join(new)} of B have other names; say"
                f" which is which, as in --rename {old[0]}={new[0]}"
            )
    return {name: matched[name] for name in names[0] if name in matched}
