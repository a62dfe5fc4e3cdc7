"""A folder that was damaged or mixed up is not whole; one that was not is."""

import json
import shutil
from functools import reduce
from operator import getitem

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import visleak
from planted_pool import png, scene, store
from visleak.cli.app import app
from visleak.errors import VisleakError
from visleak.formats import open_images
from visleak.integrity import check_audit
from visleak.settings import Settings
from visleak.storage import file_digest, write_tables
from visleak.storage.audit_folder import summary_digest
from visleak.verdicts import Ledger, Verdict

FILES = ("audit.json", "pairs.parquet", "images.parquet", "unreadable.csv")


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """Return a folder with an audit of two small sets, which lie beside it."""
    root = tmp_path_factory.mktemp("whole")
    for name, chosen in (("test", range(5)), ("train", range(2, 8))):
        for number in chosen:
            store(root / name, f"{number}.png", png(scene(number)))
        (root / name / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 nothing more")
    visleak.audit(root / "test", root / "train", out=root / "audit", cache=None, workers=1)
    return root


@pytest.fixture
def folder(audited, tmp_path):
    """Return a copy of the audit that may be damaged."""
    shutil.copytree(audited / "audit", tmp_path / "audit")
    return tmp_path / "audit"


def test_an_audit_is_whole(audited):
    found = check_audit(audited / "audit", images=True)
    assert found.findings == ()
    assert found.notes == ()
    assert (found.images, found.compared) == (11, 11)
    assert found.pairs > 0


@pytest.mark.parametrize("name", FILES[1:])
def test_any_changed_byte_is_found(folder, name):
    content = (folder / name).read_bytes()
    for place in np.random.default_rng(3).integers(0, len(content), 12):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(place) % 8
        (folder / name).write_bytes(damaged)
        assert any(name in finding.where for finding in check_audit(folder).findings), place
    (folder / name).unlink()
    assert name in {finding.where for finding in check_audit(folder).findings}


def test_any_changed_character_of_the_summary_is_found(folder):
    """All but what differs between runs: times, the command and where it was called."""
    path = folder / "audit.json"
    text, found = path.read_text("utf-8"), 0
    before = json.loads(text)
    for place in np.random.default_rng(4).integers(0, len(text), 40).tolist():
        path.write_text(text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :], "utf-8")
        try:
            after = json.loads(path.read_text("utf-8"))
            for content in (before, after):
                for name in ("timings", "opened_in", "command"):
                    content.pop(name, None)
            if after == before:
                continue
            assert any(each.where == "audit.json" for each in check_audit(folder).findings), place
        except (ValueError, VisleakError):
            pass  # refused
        found += 1
    assert found > 20


def edit(folder, change):
    """Change ``audit.json`` and its own digest, but not its digests of the other files."""
    content = json.loads((folder / "audit.json").read_text())
    change(content)
    if "digest" in content:
        content["digest"] = summary_digest(content)
    (folder / "audit.json").write_text(json.dumps(content))


def cleaner(content):
    headline = content["headline"].replace("3 of 5", "0 of 5")
    content["totals"][0]["headline"] = content["headline"] = headline


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content.update(headline="0 of 5 test images leak"), "headline"),
        (cleaner, "headline"),
        (lambda content: content.update(totals=[], headline=""), "totals are not those"),
        (lambda content: content.update(files={}), "is not the file"),
        (lambda content: content.update(comparisons=[]), "lacks the comparison"),
    ],
)
def test_an_edited_summary(folder, change, message):
    edit(folder, change)
    found = check_audit(folder, images=True)
    assert any(message in finding.what for finding in found.findings), found.findings


def sealed(folder, name, change):
    """Change a table, and its digest in ``audit.json`` too."""
    path = folder / name
    schema, table = pq.read_schema(path), pq.read_table(path)
    write_tables(path, schema, [change(table).cast(schema)])
    edit(folder, lambda content: content["files"].update({name: file_digest(path)}))


def reverse(table):
    return table.take(list(range(len(table)))[::-1])


#: A table, what is changed in the row of an exact pair or of an image, and a word of the finding.
TABLE_EDITS = [
    ("pairs", {"grade": "similar"}, "grade"),
    ("pairs", {"grade": "different", "probability": 0.1, "reason": "nothing"}, "equal"),
    ("pairs", {"probability": 1.5}, "outside"),
    ("pairs", {"transform": "mirrored"}, "transforms"),
    ("pairs", {"degree": "soft"}, "degree of 1 rows"),
    ("pairs", {"similarity": 0.2}, "order"),
    ("pairs", {"background": 0.9}, "background of 1 rows"),
    ("pairs", {"reference_set": "other"}, "does not compare"),
    ("pairs", {"grade": "good"}, "not one of"),
    ("pairs", lambda table: table.slice(1), "pairs"),
    ("images", reverse, "order"),
    ("images", {"nearest_similarity": 0.1}, "nearest_sim"),
    ("images", {"pairs_total": 0}, "below the listed"),
    ("images", {"flat": True}, "blank"),
    ("images", {"digest": "0" * 32}, "other contents"),
]


@pytest.mark.parametrize(("name", "change", "message"), TABLE_EDITS)
def test_an_edited_table_with_its_digest(folder, name, change, message):
    def changed(table):
        if callable(change):
            return change(table)
        rows = table.to_pylist()
        place = table["grade"].to_pylist().index("exact") if name == "pairs" else 3
        rows[place] |= change
        return pa.Table.from_pylist(rows, table.schema)

    sealed(folder, f"{name}.parquet", changed)
    found = check_audit(folder).findings
    assert any(message in each.what for each in found), found


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("totals", 0, "rates", "exact", "count"), 2, "2 of 5 in audit.json, 3 of 5 in the tables"),
        (("totals", 0, "rates", "exact", "high"), 1.0, "interval"),
        (("comparisons", 0, "duplicate_groups", "groups"), 9, ""),
        (("comparisons", 1, "within", "duplicate_pairs", "exact"), 4, ""),
        (("totals", 0, "rates", "hard", "count"), 0, ""),
        (("sets", 0, "images"), 500, ""),
        (("sets", 1, "distinct"), 5, ""),
        (("thresholds", "hard"), 0.999, ""),
        (("grader", "near_at"), 0.9, ""),
        (("unfinished",), 1, ""),
        (("verification", "stopped"), 77, ""),
    ],
)
def test_any_number_of_the_summary_follows_from_the_tables(folder, path, value, message):
    edit(folder, lambda content: reduce(getitem, path[:-1], content).update({path[-1]: value}))
    found = check_audit(folder).findings
    assert found
    assert message in found[0].what


@pytest.mark.parametrize("options", [
    {"sample": 3}, {"verify": False}, {"group": "/(.)/"}, {"train": "again"}, {"near_at": 0.99},
    {"candidates": "nearest"}, {"within": False}, {"hard": 0.3, "soft": 0.2}, {"soft": 0.99},
])  # fmt: skip
def test_audits_of_all_kinds_are_whole(audited, tmp_path, options):
    given = dict(options)
    group, train = given.pop("group", None), given.pop("train", None)
    sides = [
        open_images(audited / name, name=name, dataset="one", roles=roles, group=group)
        for name, roles in (("test", ("benchmark",)), ("train", ("training",)))
    ]
    if train:
        sides.append(open_images(audited / "test", name=train, dataset="two"))
    settings, out = Settings(**given), tmp_path / "audit"
    visleak.audit(sides[:1], sides[1:], settings=settings, out=out, cache=None, workers=1)
    assert check_audit(out).findings == ()


def test_a_summary_of_another_form_is_refused(folder):
    edit(folder, lambda content: content.update(sets=None))
    with pytest.raises(VisleakError, match=r"audit\.json is damaged"):
        check_audit(folder)


def test_tables_of_another_audit_without_digests(folder):
    """An older audit has no digests; what its tables say is compared all the same."""
    edit(folder, lambda content: [content.pop(name) for name in ("files", "digest")])
    found = check_audit(folder)
    assert found.findings == ()
    assert len(found.notes) == 2
    table = pq.read_table(folder / "pairs.parquet")
    pq.write_table(table.slice(1), folder / "pairs.parquet")
    images = pq.read_table(folder / "images.parquet")
    pq.write_table(images.slice(1), folder / "images.parquet")
    findings = check_audit(folder).findings
    assert "images.parquet" in {each.where for each in findings}
    assert any("pairs.parquet" in each.what for each in findings)


def test_images_that_changed_since(audited, tmp_path):
    shutil.copytree(audited, tmp_path / "copy")
    root = tmp_path / "copy"
    visleak.audit(root / "test", root / "train", out=root / "again", cache=None, workers=1)
    shutil.copy(root / "train" / "7.png", root / "train" / "6.png")
    (root / "test" / "0.png").unlink()
    assert check_audit(root / "again").findings == ()
    found = {each.where: each.what for each in check_audit(root / "again", images=True).findings}
    assert found.keys() == {"test", "train"}
    assert "1 image is gone" in found["test"]
    assert "1 image is changed" in found["train"]
    assert "6.png" in found["train"]


def test_verdicts_on_images_of_another_audit(folder):
    with Ledger(folder) as ledger:
        ledger.add(Verdict.of("0" * 32, "1" * 32, "near", "Ada"))
    found = check_audit(folder)
    assert found.verdicts == 1
    assert "1 of 1 verdicts" in found.notes[0]


def test_the_command(folder):
    (folder / "pairs.parquet").unlink()
    result = CliRunner().invoke(app, ["check", str(folder), "--json"])
    found = json.loads(result.stdout)
    assert (result.exit_code, found["whole"]) == (1, False)
    assert not any("run the audit" in each["what"] for each in found["findings"])  # once, as remedy


def test_a_changed_value_is_never_read_as_another(folder):
    """Every page of a table has a checksum, which every reader compares."""
    table = pq.read_table(folder / "pairs.parquet")
    content = (folder / "pairs.parquet").read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    refused = 0
    for place in range(4, footer, 3):
        damaged = bytearray(content)
        damaged[place] ^= 4
        (folder / "pairs.parquet").write_bytes(damaged)
        try:
            read = visleak.Audit(folder).pairs()
        except VisleakError:
            refused += 1
        else:
            assert read.select(table.column_names).equals(table), place
    assert refused > footer / 6
