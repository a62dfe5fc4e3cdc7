"""New leaks against a plain search over all pairs, written another way."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from toy_audit import World, digest, worlds
from visleak.gating import new_leaks, read_baseline
from visleak.verdicts import (
    Ledger,
    Verdict,
    consensus_of,
    judged_pairs,
    judged_summary,
    read_verdicts,
)
from visleak.verdicts.overlay import COLUMNS, Level

ORDER = ("exact", "near", "similar", "different")
DEGREES = ("hard", "soft")
LEVELS = ("exact", "near", "similar", "hard", "soft")


def scale(level: str) -> tuple[str, tuple[str, ...]]:
    return ("degree", DEGREES) if level in DEGREES else ("grade", ORDER)


class Plain:
    """An audit or a baseline as dictionaries."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.rows = judged_pairs(folder).to_pylist()
        self.people = {
            frozenset(key): verdict.grade
            for key, verdict in consensus_of(read_verdicts(folder)).items()
            if verdict.grade
        }
        self.content = {
            (name, id_): digest(content) or f"{name}/{id_}"
            for name, own in world.images.items()
            for id_, content, _ in own
        }

    def key(self, row: dict[str, Any]) -> frozenset[str]:
        ends = ("query", "reference")
        return frozenset(self.content[row[f"{end}_set"], row[end]] for end in ends)

    def kind(self, row: dict[str, Any]) -> bool:
        """Whether a pair is a repeat of a set that is compared with others too."""
        inside = row["coverage"] == "within"
        return inside and any(q != r for q, r in self.world.comparisons if q == row["query_set"])


def known(new: Plain, row: dict[str, Any], level: str, old: Plain, accepted: Any) -> bool:
    column, names = scale(level)
    at_level = names[: names.index(level) + 1]
    key = new.key(row)
    if key in accepted:
        grade = accepted[key]
        if grade == "" or level in DEGREES or grade in at_level:
            return True
    grade = old.people.get(key)
    if grade is not None:
        strong = at_level if column == "grade" else ORDER[:2]
        if grade not in strong:
            return True
    return any(
        old.key(other) == key and other[column] in at_level and old.kind(other) == new.kind(row)
        for other in old.rows
    )


def judge(drawn: st.DataObject, world: World, folder: Path) -> None:
    contents = sorted({d for own in world.images.values() for _, d, _ in own if d is not None})
    if not contents:
        return
    with Ledger(folder) as ledger:
        for _ in range(drawn.draw(st.integers(0, 3))):
            left, right = (str(digest(drawn.draw(st.sampled_from(contents)))) for _ in range(2))
            grade, reviewer = drawn.draw(st.sampled_from(ORDER)), drawn.draw(st.sampled_from("AB"))
            ledger.add(Verdict.of(left, right, grade, reviewer))


def accepted_files(
    drawn: st.DataObject, root: Path
) -> tuple[list[Path], dict[frozenset[str], str]]:
    """Write two files of accepted pairs of any contents; return them and what they accept."""
    numbers: Any = st.integers(0, 9)
    listed = drawn.draw(
        st.lists(st.tuples(numbers, numbers, st.sampled_from(["", *ORDER])), max_size=4)
    )
    lines = [f"{digest(a)},{digest(b)},{grade},q,r,why" for a, b, grade in listed]
    paths = [root / "1.csv", root / "2.csv"]
    for at, path in enumerate(paths):
        path.write_text("\n".join([",".join(COLUMNS), *lines[at::2], ""]))
    best: dict[frozenset[str], str] = {}
    for a, b, grade in listed:
        key = frozenset((str(digest(a)), str(digest(b))))
        order = ["", *ORDER]
        best[key] = min(best.get(key, grade), grade, key=order.index)
    return paths, best


@settings(max_examples=40)
@given(worlds(), worlds(), st.data(), st.sampled_from(LEVELS))
def test_what_is_new(world: World, old: World, drawn: st.DataObject, level: str) -> None:
    column, names = scale(level)
    at_level = set(names[: names.index(level) + 1])
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        folders = [world.write(root / "new"), old.write(root / "old")]
        for folder, each in zip(folders, (world, old), strict=True):
            judge(drawn, each, folder)
        paths, accepted = accepted_files(drawn, root)
        baseline = read_baseline([folders[1], *paths])
        summary = judged_summary(folders[0])
        (found,) = new_leaks(folders[0], summary, Level(level), baseline)
        mine, theirs = (Plain(w, f) for w, f in zip((world, old), folders, strict=True))
        every = world.leaking(mine.rows, "test", at_level)
        fresh = [row for row in mine.rows if not known(mine, row, level, theirs, accepted)]
        new = world.leaking(fresh, "test", at_level)
        assert (found.rate.count, found.known) == (len(new), len(every - new))
        assert found.rate.total == len(world.images["test"])
        assert set(found.pairs["query"].to_pylist()) | _others(found.pairs, world) == new
        assert all(row[column] in at_level for row in found.pairs.to_pylist())


def _others(pairs: Any, world: World) -> set[str]:
    """Return the references of repeats, where a set was compared with itself only."""
    alone = all(query == reference for query, reference in world.comparisons)
    return set(pairs["reference"].to_pylist()) if alone else set()


@settings(max_examples=20)
@given(worlds(), st.data(), st.sampled_from(LEVELS))
def test_no_new_leaks_against_itself(world: World, drawn: st.DataObject, level: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = world.write(Path(name))
        judge(drawn, world, folder)
        summary = judged_summary(folder)
        (found,) = new_leaks(folder, summary, Level(level), read_baseline([folder]))
        assert (found.rate.count, found.pairs.num_rows) == (0, 0)
        (every,) = new_leaks(folder, summary, Level(level))
        assert every.known == 0
        assert every.rate.count == found.known == summary.totals[0].rates[Level(level).rate].count
