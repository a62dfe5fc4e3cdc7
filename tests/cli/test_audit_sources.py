"""The same images from whatever source make the same audit; tables made elsewhere."""

import csv
import shlex
import tarfile

import pytest
from calling import run

import visleak
from visleak.auditing import Audit


def test_the_same_files_on_both_sides_are_named(dataset, tmp_path):
    whole, part = dataset / "train", dataset / "train" / "thing"
    ran = run(f"audit --test {part} --train {whole} -o {tmp_path}/out --workers 1", code=0)
    assert "visleak: 6 of 6 images of test are the very files of images of train" in ran.err
    ran = run("audit", "--set", part, "-o", tmp_path / "own", "--workers", 1)
    assert "the very files" not in ran.err


#: Where the files were when the table was made.
ELSEWHERE = "/home/ann/photos"


def table(path, files, root, prefix=""):
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
    ran = run("audit", *given, "-o", out, code=1)
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
    ran = run(f"purge {out} --remove-from test -o clean --format copy --apply", code=0)


def test_lists_and_python(dataset, tmp_path, files):
    lines = tmp_path / "test.txt"
    lines.write_text("".join(f"{ELSEWHERE}/{path.name}\n" for path in files["test"]))
    root = f"{ELSEWHERE}={dataset}/test/thing"
    images = visleak.open_images(lines, root=root)
    assert all(isinstance(data, bytes) for data in images.opener.read(range(len(images))))
    for wrong in ("nowhere", "a=nowhere"):
        with pytest.raises(visleak.VisleakError, match="there is no folder"):
            visleak.open_images(lines, root=wrong)


def test_groups_are_counted_and_doubted(dataset, tmp_path):
    given = ("audit", dataset, "-o", tmp_path / "out", "--no-verify", "--no-images", "--group")
    ran = run(*given, "/([a-z]+)[0-9]*\\.png$/")
    assert "groups: 3 in 7 images of test, 1 in 6 images of train" in ran.err
    rows = "".join(f"{dataset}/train/thing/t{n % 6}.png,{n}\n" for n in range(30))
    (tmp_path / "many.csv").write_text(f"path,group\n{rows}")
    ran = run("audit", "--set", tmp_path / "many.csv", "-o", tmp_path / "many", "--no-verify")
    assert "nearly every image of many is a group of its own, such as '0'" in ran.err


def test_shards_make_the_same_audit(dataset, audited, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for side in ("train", "test"):
        files = sorted((dataset / side / "thing").iterdir())
        for number, part in enumerate((files[:4], files[4:])):
            with tarfile.open(f"{side}-{number}.tar", "w") as archive:
                for file in part:
                    archive.add(file, f"thing/{file.name}")
    sides = ("--test", "test-{0..1}.tar", "--train", "train-*.tar")
    run("audit", *sides, "-o", "a", code=0)
    columns = ["similarity", "background", "view", "grade", "probability"]
    found, wanted = (
        sorted(map(str, Audit(folder).pairs().select(columns).to_pylist()))
        for folder in (tmp_path / "a", audited)
    )
    assert found == wanted
    assert {problem.id for problem in Audit(tmp_path / "a").unreadable()} == {"thing/text"}
    assert "reused: " in run("audit", *sides, "-o", "a").err
