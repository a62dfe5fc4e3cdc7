"""Commands of which one read fails: no wrong answer, nothing half done, no traceback."""

import io
import os
from collections import Counter
from functools import cache

import pytest
from fault_commands import COMMANDS, OTHERS, chosen, every_command, most, picture
from faults import READS, ReadFaults

from visleak.memorization.tracing.sources import Sets

#: Audits within the result of a command, which are made again.
WITHIN = ("out/audit", "out/layouts", "out/proof")

#: Commands that are run in every test run; the others are slow.
QUICK = ("find", "same", "show", "purge", "check", "encode")


def test_every_command_has_a_fault_test():
    there = {name.partition(":")[0] for name in COMMANDS} | set(OTHERS)
    assert there == set(every_command())


def counted(scene, fault):
    """Return which files a fault is for, by name and by how often they were opened before."""
    of_audit = COMMANDS[scene.name].startswith("audit ")

    def counts(name, before):
        # half of a list of prompts is another list, and the first content of an image is its own
        own = name.startswith(("out", ".out"))
        changed = not own and name.endswith((".png", ".jpg"))
        if fault == "other":
            return changed and (before > 0 or (of_audit and name.startswith("data/")))
        return changed or fault != "short"

    return counts


def reads(scene, fault="", fatal=None):
    scene.set()
    other = io.BytesIO()
    picture(99).save(other, "PNG")
    counts = counted(scene, fault)
    faults = ReadFaults(scene.root, scene.root.parent, other.getvalue(), fatal, fault, counts)
    with faults.at_work():
        return scene.run(), faults


@cache
def undisturbed(scene):
    """Return what a run leaves, and the files that it reads, each with how often it was before."""
    # a later run in one process may read less: digests of unchanged tables are remembered
    reads(scene)
    ran, faults = reads(scene)
    assert ran.code == 0, ran.err
    before = Counter()
    opened = []
    for name in faults.opened:
        opened.append((name, before[name]))
        before[name] += 1
    return scene.contents(), opened


#: An encoder states the digest of the pixels that it was trained on, whatever a file held before.
LEARNED = ("train-encoder", "other")


def sweep(scene):
    """Let reads of a command fail, in every way; of the chosen ones each fails in one way."""
    whole, every = undisturbed(scene)
    for number, fault in enumerate(READS):
        counts = counted(scene, fault)
        opened = [name for name, before in every if counts(name, before)]
        assert opened or fault in ("short", "other")
        if not opened or (scene.name, fault) == LEARNED:
            continue
        places = chosen(len(opened), most(scene.name))
        if len(places) < len(opened):
            places = places[number :: len(READS)] or places[-1:]
        for fatal in places:
            ran, _ = reads(scene, fault, fatal)
            check(scene, ran, whole, f"read {fatal} of {opened[fatal]} {fault}: {ran}")
        # a finished result that lacks an image is not what the same command gives when it is back
        if fault == "broken" and scene.name not in ("split", "verdicts"):
            again = scene.run()
            if again.code == 2 and "--force" in again.err:
                again = scene.run("--force")
            assert again.code == 0, again.err
            assert scene.results() == whole


def check(scene, ran, whole, act):
    found = scene.contents()
    # .out: completed epochs, from which the next run resumes
    before = {name: data for name, data in found.items() if not name.startswith(("out", ".out"))}
    unfinished = "unfinished" in ran.out
    printed = f"{ran.out}{ran.err}"
    named = any(words in printed for words in ("unreadable", "not be read", "is damaged"))
    # the report shows a section that cannot be read as such
    named |= any(b"cannot be shown" in data for data in found.values())
    if ran.code:
        assert ran.code == 1, act
        assert "defect" not in ran.err, act
        if not (unfinished or "is damaged" in ran.out):
            assert len([x for x in ran.err.splitlines() if x.startswith("visleak: ")]) == 1, act
            wrong = [
                name
                for name, data in found.items()
                if name.startswith("out")
                and not name.startswith(WITHIN)
                and whole.get(name) != data
            ]
            assert not wrong, f"{wrong}; {act}"
    elif found != whole:
        assert named or os.path.basename(act.split()[3]) in ran.err, act
    # inputs are as they were
    for name, data in before.items():
        assert whole.get(name) == data or name.startswith("audit"), f"{name}: {act}"


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in COMMANDS],
)
def test_a_read_that_fails(scene, name):
    sweep(scene(name))


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("test/cat/a.jpg", False, "could be read at first, and not again (1)"),
        ("train/dog/d.png", True, "images of set 'train' changed meanwhile (1)"),
    ],
)
def test_images_lost_before_layouts_are_compared(scene, monkeypatch, name, changes, words):
    here = scene("memorization trace")
    here.set()
    file, listed = here.root / "data" / name, Sets._listed

    def disturbed(*given):
        content = file.read_bytes()
        file.unlink()
        if changes:
            picture(99).save(file)
        try:
            return listed(*given)
        finally:
            file.write_bytes(content)

    monkeypatch.setattr(Sets, "_listed", disturbed)
    ran = here.run()
    assert ran.code == 1
    assert words in ran.err
    assert not (here.root / "out" / "trace.csv").exists()
