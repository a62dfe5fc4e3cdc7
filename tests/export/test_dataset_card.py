"""What a published data set says of its leaks."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from visleak.export import export


def test_the_section_has_the_rates_of_the_audit(folder: Path, tmp_path: Path) -> None:
    (path,) = export(folder, "card", tmp_path / "README.part.md")
    text = path.read_text()
    assert text.startswith("## ")
    (row,) = [line for line in text.splitlines() if line.startswith("| test ")]
    assert "1 of 3" in row
    assert "2 of 3" in row
    assert "visleak" in text


def test_the_section_is_one_of_a_card_of_the_hub(folder: Path, tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    (path,) = export(folder, "card", tmp_path / "section.md")
    card = hub.DatasetCard(f"---\nlicense: mit\n---\n# Photos\n\n{path.read_text()}")
    assert card.data.license == "mit"
    assert "near or exact" in card.text


def test_the_description_names_the_list_and_its_columns(folder: Path, tmp_path: Path) -> None:
    described, listed = export(folder, "croissant", tmp_path / "leaks.json")
    content = json.loads(described.read_text())
    (file,) = content["distribution"]
    assert file["sha256"] == hashlib.sha256(listed.read_bytes()).hexdigest()
    header, *rows = listed.read_text().splitlines()
    assert len(rows) == 2
    fields = content["recordSet"][0]["field"]
    assert [each["source"]["extract"]["column"] for each in fields] == header.split(",")


@pytest.mark.filterwarnings("ignore:ConjunctiveGraph")
def test_mlcroissant_reads_the_records(folder: Path, tmp_path: Path) -> None:
    croissant = pytest.importorskip("mlcroissant")
    described, _ = export(folder, "croissant", tmp_path / "leaks.json")
    dataset = croissant.Dataset(jsonld=described)
    assert not dataset.metadata.ctx.issues.errors
    records = [
        {name.removeprefix("leaks/"): value for name, value in record.items()}
        for record in dataset.records("leaks")
    ]
    assert [record["image"] for record in records] == [b"0.png", b"1.png"]
    assert [record["grade"] for record in records] == [b"near", b"exact"]
    assert records[1]["probability"] > 0.9
