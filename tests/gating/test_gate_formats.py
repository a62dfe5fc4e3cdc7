"""Results of gates for other tools."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import visleak
from visleak.gating.baseline import read_baseline
from visleak.gating.gates import parse_all, render

#: A name with characters that every format has to escape.
ODD = "a,b:c 100%<&>.png"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, natural: dict[str, np.ndarray]) -> Path:
    root = tmp_path_factory.mktemp("gates")
    for side, names in (("test", (ODD, "other.png")), ("train", ("t.png",))):
        (root / side).mkdir()
        for name in names:
            pixels = natural["coffee" if name == "other.png" else "astronaut"][:96, :96]
            Image.fromarray(pixels).save(root / side / name)
    visleak.audit(root / "test", root / "train", out=root / "out", cache=None)
    return root / "out"


def test_junit(folder: Path) -> None:
    root = ElementTree.fromstring(render("junit", parse_all(["near", "exact=60%"]), folder))
    (suite,) = root
    assert (suite.get("tests"), suite.get("failures")) == ("4", "1")
    cases = {(case.get("classname"), case.get("name")): case for case in suite}
    failed = cases["visleak.near", "test"].find("failure")
    assert failed is not None
    assert "1 of 2 test images" in str(failed.get("message"))
    assert ODD in str(failed.text)
    assert cases["visleak.exact", "test"].find("failure") is None


def test_sarif(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    content = json.loads(render("sarif", parse_all(["near"]), folder))
    (made,) = content["runs"]
    assert content["version"] == "2.1.0"
    assert {rule["id"] for rule in made["tool"]["driver"]["rules"]} == {
        "leak/near", "leak/unreadable",
    }  # fmt: skip
    gate, pair = made["results"]
    assert "locations" not in gate
    uri = pair["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "test/a%2Cb%3Ac%20100%25%3C%26%3E.png"


def test_annotations_of_github(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    gate, pair, *passed = render("github", parse_all(["near"]), folder).splitlines()
    assert gate.startswith("::error title=visleak::gate near: 1 of 2 test images (50.00 %25)")
    assert pair.startswith("::error file=test/a%2Cb%3Ac 100%25<&>.png,title=visleak near::test ")
    assert all(line.startswith("::notice ") for line in passed)


def test_known_leaks_pass(folder: Path) -> None:
    known = read_baseline([folder], None)
    lines = render("github", parse_all(["near"]), folder, known).splitlines()
    assert all(line.startswith("::notice ") for line in lines)
    assert any("1 known from baseline" in line for line in lines)
