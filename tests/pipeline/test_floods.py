"""Many copies of one image: counts are true, rows and work stay bounded."""

import cv2
import pyarrow.compute as pc
import pytest
from frames import textured

import visleak
from visleak.remedy import PurgeSettings, purge
from visleak.report.counts import count
from visleak.settings import Settings
from visleak.verdicts import Verdict

#: Copies of an image, of the same image as JPEG, and of another one.
COPIES = (70, 5, 3)


def encoded(seed, ending, *options):
    return bytes(cv2.imencode(ending, textured(seed, 128), list(options))[1])


@pytest.fixture(scope="module")
def flooded(tmp_path_factory):
    """A set of copies, compared with itself."""
    root = tmp_path_factory.mktemp("flood")
    jpeg = encoded(1, ".jpg", cv2.IMWRITE_JPEG_QUALITY, 95)
    contents = encoded(1, ".png"), jpeg, encoded(2, ".png")
    folder = root / "images"
    folder.mkdir()
    for kind, (content, copies) in enumerate(zip(contents, COPIES, strict=True)):
        for number in range(copies):
            (folder / f"{number:03d}-{kind}.png").write_bytes(content)
    return visleak.audit(folder, out=root / "out", workers=1, cache=None, settings=Settings())


def true_pairs():
    """Return the pairs of near or exact copies in the set."""
    many, recoded, others = COPIES
    equal = sum(n * (n - 1) // 2 for n in (many, recoded, others))
    return equal + many * recoded


def counts(found):
    """Return the pairs of near or exact copies, and the sizes of the largest groups."""
    (comparison,) = found.summary.as_dict()["comparisons"]
    pairs = comparison["within"]["duplicate_pairs"]
    return pairs["exact"] + pairs["near"], comparison["duplicate_groups"]["largest"]


def test_every_pair_of_copies_is_counted(flooded):
    assert counts(flooded)[0] == true_pairs()
    assert len(flooded.pairs()) < true_pairs()
    assert flooded.rate("near_or_exact").count == sum(COPIES)
    total = flooded.images()["pairs_total"]
    assert pc.sum(total).as_py() == 2 * true_pairs()
    after = count(flooded.folder).sets[0].after
    assert after.pairs == true_pairs()
    assert after.within is not None
    assert after.within.pairs["exact"] >= true_pairs() - COPIES[0] * COPIES[1]


def test_copies_in_two_sets_are_one_group(tmp_path):
    """Of 6,400 pairs of copies a part is listed, which does not connect them all."""
    sides = [textured(1, 128)] * 40, [textured(1, 128)] * 160
    found = visleak.audit(*sides, settings=Settings(within=False), cache=None, workers=1)
    assert found.pairs().num_rows <= 5 * 200
    assert purge(found, PurgeSettings(remove_from="train")).sets[0].stays == 0
    (comparison,) = found.summary.comparisons
    assert comparison.duplicate_groups.largest == (200,)
    assert "largest group of duplicates has 200 images" in found.headline


def test_a_verdict_counts_for_all_copies(flooded):
    pairs = flooded.pairs().to_pylist()
    row = next(p for p in pairs if p["query"].endswith("-0.png") and "-1.png" in p["reference"])
    digest = dict(zip(*flooded.images().select(["id", "digest"]).to_pydict().values(), strict=True))
    ends = sorted(digest[row[end]] for end in ("query", "reference"))
    verdict = Verdict(*ends, "different", "Ada", "2026-01-01T00:00:00Z")
    judged = visleak.apply_verdicts(flooded, [verdict])
    assert counts(judged) == (true_pairs() - COPIES[0] * COPIES[1], list(COPIES))
