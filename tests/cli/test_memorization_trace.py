"""``visleak memorization trace``."""

import pytest
from calling import check_refused, refusals, run
from PIL import Image
from starlette.testclient import TestClient

from visleak.auditing import Audit
from visleak.memorization.tracing import read_trace
from visleak.review.app import create_app
from visleak.review.security import Access
from visleak.review.session import ReviewSession
from visleak.verdicts import Ledger, Verdict, digests_of


@pytest.fixture(scope="session")
def folders(tmp_path_factory, natural):
    """Three training images; two generated ones, of which one is a copy."""
    root = tmp_path_factory.mktemp("to-trace")
    for name in ("train", "made"):
        (root / name).mkdir()
    parts = {name: natural[name][:128, :128] for name in ("astronaut", "coffee", "coins", "brick")}
    for name in ("astronaut", "coffee", "coins"):
        Image.fromarray(parts[name]).save(root / "train" / f"{name}.png")
    Image.fromarray(parts["astronaut"]).save(root / "made" / "copy.jpg", quality=60)
    Image.fromarray(parts["brick"]).save(root / "made" / "new.png")
    return root


@pytest.fixture(scope="session")
def traced(folders, tmp_path_factory):
    out = tmp_path_factory.mktemp("traced") / "out"
    ran = run("memorization", "trace", folders / "made", "--source", folders / "train", "-o", out)
    assert ran.code == 0
    return out


def test_the_summary(folders, traced):
    ran = run(
        "memorization", "trace", folders / "made", "--source", folders / "train", "-o", traced
    )
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == "1 of 2 generated images is a near-duplicate of 1 training image in train"
    assert any(line.startswith("recall: the default similarity ") for line in lines)
    assert any(line.startswith("astronaut.png") for line in lines)
    assert lines[-3:] == [
        str(traced),
        str(traced / "audit" / "report.html"),
        f"judge the pairs: visleak review {traced / 'audit'}",
    ]
    page = (traced / "audit" / "report.html").read_text()
    assert "sources of the generated images" in page


def test_the_gate(folders, traced):
    asked = ("memorization", "trace", folders / "made", "--source", folders / "train")
    ran = run(*asked, "--fail-on", "memorized", "-o", traced)
    assert ran.code == 3
    assert ran.err.startswith("visleak: gate memorized: 1 of 2 traced images (50.00 %)")
    assert run(*asked, "--fail-on", "memorized=50%", "-o", traced).code == 0


def test_the_review_opens_and_counts(folders, traced, tmp_path):
    asked = ("memorization", "trace", folders / "made", "--source", folders / "train", "-o")
    out = tmp_path / "out"
    assert run(*asked, out).code == 0
    with ReviewSession(out / "audit", "ada") as session:
        access = Access(8765)
        client = TestClient(create_app(session, access), base_url="http://127.0.0.1:8765")
        page = client.get(f"/?token={access.token}")
        assert page.status_code == 200
        assert "copy.jpg" in page.text
    table = Audit(out / "audit").pairs(grade="near")
    left, right = (side.to_pylist() for side in digests_of(out / "audit", table))
    with Ledger(out / "audit") as ledger:
        ledger.add(Verdict.of(left[0], right[0], "different", "ada"))
    assert run(*asked, out).code == 0
    (copy,) = (each for each in read_trace(out).matches if each.image == "copy.jpg")
    assert (copy.verified, copy.judged, copy.grade) == (False, "human", "different")


@refusals("""
     -> --source is missing: give the training images, or --unverified
    --unverified --fail-on near -> --fail-on must be memorized or memorized=RATE; got 'near'
    --unverified --fail-on memorized=5 -> a share is a number from 0 to 1 or a percentage
    --unverified --kappa-share much -> --kappa-share: a share is a number from 0 to 1
    --unverified --tau 2 -> tau must be -1 or more and below 1; got 2.0
""")
def test_refused(folders, tmp_path, arguments, words):
    check_refused(f"memorization trace {folders}/made -o {tmp_path} {arguments}", words)


def test_unverified(folders, tmp_path):
    ran = run("memorization", "trace", folders / "made", "--unverified", "-o", tmp_path)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0].startswith("2 generated images are candidates, unverified: ")
    assert lines[-1] == str(tmp_path)
    assert (tmp_path / "trace.csv").is_file()
