"""``visleak purge`` as a stranger calls it, on a real audit."""

from calling import check_refused, refusals, run

from visleak.cli.command import whole
from visleak.formats import open_images
from visleak.remedy.documents import purge_document
from visleak.remedy.manifest import RemovedImage
from visleak.remedy.removal import Advice, ClassChange, Purge, SetPlan
from visleak.remedy.settings import PurgeSettings
from visleak.reporting.rendering import rendered


def test_write_audit_again_and_take_back(audited, dataset, tmp_path):
    out = tmp_path / "clean"
    ran = run(f"purge {audited} --remove-from test -o {out} --format copy --apply", code=0)
    assert ran.out.startswith("3 of 7 images of test were removed (near and exact pairs); 4 stay\n")
    assert f" test={out}\n" in ran.out
    assert f" visleak audit --test test={out} --train train=" in ran.out
    images = open_images(out)
    assert images.ids.to_pylist() == [*(f"thing/q{i}.png" for i in range(3)), "thing/text.jpg"]
    again = run("audit", "--test", out, "--train", dataset / "train", "-o", tmp_path / "again")
    assert again.out.startswith("0 of 3 ")
    ran = run(f"purge {audited} --remove-from test -o {out} --format copy --apply")
    assert "was there already, unchanged" in ran.out
    (out / "thing" / "q0.png").write_bytes(b"mine")
    planned = run("purge", "--undo", out)
    assert planned.out.splitlines()[-2:] == [
        "  kept: thing/q0.png: its content changed",
        "dry run: nothing was removed; add --apply",
    ]
    run("purge", "--undo", out, "--apply", code=0)
    assert [p.name for p in out.rglob("*")] == ["thing", "q0.png"]


@refusals("""
    {audit} -> purge needs --remove-from test or train, or --undo MANIFEST
     -> purge needs AUDIT_DIR, or --undo MANIFEST
    {audit} --remove-from test --apply -> --apply needs a folder to write: -o DIR
    {audit} --remove-from test --grade near --degree hard -> give either --grade or --degree
    {audit} --undo x -> AUDIT_DIR cannot be used with --undo
    --undo x -> x does not exist; give the manifest.json of a clean data set
""")
def test_a_wrong_call_is_one_line(arguments, words, audited, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_refused(f"purge {arguments}", words, audit=audited)


def test_many_classes_are_counted_not_dropped_in_silence():
    classes = [f"c{number:02d}" for number in range(30)]
    removed = tuple(RemovedImage("test", name, label=name, why="near") for name in classes)
    changes = tuple(ClassChange(name, 3, 2) for name in classes)
    about = {"name": "test", "writable": True, "total": 90, "unreadable": 0}
    plan = SetPlan(**about, removed=removed, classes=changes)
    found = Purge(PurgeSettings(), (plan,), 2, 0, Advice("test", "because"), ("a caveat",))
    lines = rendered(whole(purge_document(found, {}, None))).splitlines()
    assert lines[0] == "30 of 90 images of test would be removed (near and exact pairs); 60 stay"
    assert sum(line.startswith("c") and " 3.33 %" in line for line in lines) == 25
    assert "test, 25 of 30 classes" in purge_document(found, {}, None).grids()[0].title
    assert any(line.startswith("not seen ") and line.endswith("a caveat") for line in lines)
