"""Tables and lists that were made on another machine, and groups that are none."""

import csv
import shlex
from pathlib import Path

import pytest
from calling import check_refused, run

import visleak

#: Where the files were when the table was made.
ELSEWHERE = "/home/ann/photos"


def table(path: Path, files: list[Path], root: Path, prefix: str = "") -> None:
    rows = [{"path": f"{prefix}{file.relative_to(root)}", "label": "thing"} for file in files]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, ["path", "label"])
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def files(dataset):
    found = {side: sorted((dataset / side).rglob("*.png")) for side in ("test", "train")}
    return {
        side: [path for path in paths if "\n" not in path.name] for side, paths in found.items()
    }


@pytest.mark.parametrize("prefix", ["", f"{ELSEWHERE}/"])
def test_files_of_a_table_made_elsewhere(dataset, tmp_path, files, prefix, monkeypatch):
    """The line on missing files names the option, which then works, also for later commands."""
    monkeypatch.chdir(dataset.parent)
    out, given = tmp_path / "out", []
    for side, paths in files.items():
        table(tmp_path / "lists" / f"{side}.csv", paths, dataset, prefix)
        given.append(f"--{side}={tmp_path}/lists/{side}.csv")
    ran = run("audit", *given, "-o", out)
    assert ran.code == 1
    option = shlex.split(ran.err.partition("did you mean ")[2].rstrip("?\n"))
    assert option[0] == "--root"
    assert run("audit", *given, *option, "-o", out).code == 0
    found = visleak.Audit(out)
    assert found.rate().count == 2
    # ids are the names of the table, wherever the files are
    assert set(found.pairs()["query"].to_pylist()) <= {
        f"{prefix}{path.relative_to(dataset)}" for path in files["test"]
    }
    monkeypatch.chdir(tmp_path)
    assert len(visleak.Audit(out).decoded_images("test", found.pairs()["query"].to_pylist())) > 1
    ran = run("purge", out, "--remove-from", "test", "-o", "clean", "--format", "copy", "--apply")
    assert ran.code == 0, ran.err


def test_lists_and_python(dataset, tmp_path, files):
    lines = tmp_path / "test.txt"
    lines.write_text("".join(f"{ELSEWHERE}/{path.name}\n" for path in files["test"]))
    root = f"{ELSEWHERE}={dataset}/test/thing"
    images = visleak.open_images(lines, root=root)
    assert all(isinstance(data, bytes) for data in images.opener.read(range(len(images))))
    for wrong in ("nowhere", "a=nowhere"):
        with pytest.raises(visleak.VisleakError, match="there is no folder"):
            visleak.open_images(lines, root=wrong)


def test_a_table_without_header(tmp_path):
    (tmp_path / "a.csv").write_text("x/a.png,cat\nx/b.png,dog\n")
    check_refused(f"audit --set {tmp_path}/a.csv", "add a header, such as path,label", code=1)


def test_groups_are_counted_and_doubted(dataset, tmp_path):
    given = ("audit", dataset, "-o", tmp_path / "out", "--no-verify", "--no-images", "--group")
    ran = run(*given, "/([a-z]+)[0-9]*\\.png$/")
    assert "groups: 3 in 7 images of test, 1 in 6 images of train" in ran.err
    rows = "".join(f"{dataset}/train/thing/t{n % 6}.png,{n}\n" for n in range(30))
    (tmp_path / "many.csv").write_text(f"path,group\n{rows}")
    ran = run("audit", "--set", tmp_path / "many.csv", "-o", tmp_path / "many", "--no-verify")
    assert "nearly every image of many is a group of its own, such as '0'" in ran.err
