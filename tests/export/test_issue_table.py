"""``export --format issues``: a row per image, as other tools have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import visleak
from visleak.export import export


@pytest.mark.parametrize("alone", [False, True])
def test_every_image_has_a_row(tmp_path: Path, natural: dict[str, np.ndarray], alone: bool) -> None:
    pandas = pytest.importorskip("pandas")
    for side, names in (("test", ("astronaut", "coffee")), ("train", ("astronaut", "chelsea"))):
        (tmp_path / side).mkdir()
        for name in names:
            Image.fromarray(natural[name][:96, :96]).save(tmp_path / side / f"{side}_{name}.png")
    out = tmp_path.parent / f"{tmp_path.name}-audit"
    sides = [tmp_path] if alone else [tmp_path / "test", tmp_path / "train"]
    sides = [visleak.open_images(each, name=each.name if not alone else "all") for each in sides]
    visleak.audit(*sides, out=out, cache=None)
    export(out, "issues", out / "issues.csv")
    table = pandas.read_csv(out / "issues.csv").set_index("id")
    flagged = sorted(Path(id_).name for id_ in table.index[table["is_leak_issue"]])
    assert flagged == ["test_astronaut.png"] + (["train_astronaut.png"] if alone else [])
    assert len(table) == (4 if alone else 2)
    assert set(table["leak_grade"].dropna()) == {"exact"}
    clean = table[~table["is_leak_issue"]]
    assert set(clean["leak_score"]) == {1.0}
    assert table["leak_score"][table["is_leak_issue"]].max() < 0.1
