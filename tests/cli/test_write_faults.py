"""Each write fails once: one line, exit code 1, outputs absent, old or whole, and a way on."""

import errno

import pytest
from fault_commands import COMMANDS, chosen, most
from faults import Faults

#: Commands of which every write fails in every test run; of the others some, in slow tests.
QUICK = ("show", "diff", "verdicts")


def whole_of(scene):
    """Return what an undisturbed run leaves, and its acts of writing."""
    scene.set()
    faults = Faults(scene.root)
    with faults.at_work():
        ran = scene.run()
    assert ran.code == 0, ran.err
    return scene.contents(), faults.acts


def check(scene, whole, fatal, code):
    scene.set()
    before = scene.contents()
    faults = Faults(scene.root, fatal, code)
    with faults.at_work():
        ran = scene.run()
    act = f"{faults.acts[fatal]} failed with {errno.errorcode[code]}: {ran}"
    after = scene.contents()
    lines = [line for line in ran.err.splitlines() if line.startswith("visleak: ")]
    if ran.code == 0:
        # what failed was needed by nobody, or can be made again
        assert after == whole, act
    else:
        assert ran.code == 1, act
        assert len(lines) == 1, act
        assert "defect" not in lines[0], act
        assert str(scene.root) in lines[0], act
    for name, data in after.items():
        if name.startswith(".out"):
            # completed epochs, from which the next run resumes
            continue
        assert data in (whole.get(name), before.get(name)), f"{name}: {act}"
    assert [name for name in after if ".part" in name or "scratch" in name] == [], act
    assert all(after.get(name, whole.get(name)) for name in before), act
    # a result that must be asked to be replaced is whole
    again = scene.run()
    if again.code == 2 and "--force" in again.err:
        assert all(name in after for name in whole if name.startswith("out")), act
        again = scene.run("--force")
    assert again.code == 0, f"{again}; after {act}"
    assert scene.results() == whole, act


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
        for name in COMMANDS
        if name not in ("find", "same", "check")
    ],
)
def test_a_write_that_fails(scene, name):
    here = scene(name)
    whole, acts = whole_of(here)
    assert acts
    # of many alike, as the files of a copy, a few; the last acts make a result one
    for number, fatal in enumerate(chosen(len(acts), most(name))):
        check(here, whole, fatal, (errno.ENOSPC, errno.EIO)[number % 2])


@pytest.mark.parametrize("name", ["audit", "encode"])
def test_a_finished_result_that_is_read_only(scene, name):
    here = scene(name)
    here.set()
    assert here.run().code == 0
    before = here.contents()
    with Faults(here.root / "out", 0, errno.EROFS).at_work():
        again, forced = here.run(), here.run("--force")
    assert (again.code, "reused" in again.out + again.err) == (0, True), again
    assert forced.code == 1
    assert "Read-only file system" in forced.err
    assert here.contents() == before
