"""The audit of the split: whether it proves a leak, so that retraining answers no question.

D-LeDe needs a leak of a large part of the test set to show in the scores
(:mod:`visleak.dlede.judge.detection_limit`); an audit proves a smaller one image by image.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc

from visleak.auditing import Audit, apply_verdicts
from visleak.dlede.draw.split import Split
from visleak.errors import UsageError, VisleakError

#: Share of the test images with a near-duplicate or exact copy in training that proves a leak.
ENOUGH: Final = 0.05


def check_audit(audit: Audit, split: Split) -> None:
    """Refuse an audit that did not compare the images of the split.

    Raises:
        UsageError: it did not.
    """
    table = audit.images()
    compared = {
        name for each in audit.summary.comparisons for name in (each.query_set, each.reference_set)
    }
    seen = [set(table.filter(pc.equal(table["set"], name))["id"].to_pylist()) for name in compared]
    for images in (split.test, split.train):
        ids = set(images.ids.to_pylist())
        # the tables of an audit do not contain unreadable images
        if not any(found and found <= ids and 2 * len(found) > len(ids) for found in seen):
            raise UsageError(
                f"--audit {audit.folder} is of other sets: none of them has the images of"
                f" {images.name!r}; leave it out to run one"
            )


def audit_summary(audit: Audit, split: Split, output: Path) -> Mapping[str, Any]:
    """Return what a result holds of an audit, people's verdicts included.

    Args:
        audit: of the split.
        split: the split.
        output: folder of the result; an audit inside it is named relative to it.

    Raises:
        VisleakError: the audit is unfinished, and may have missed a leak.
    """
    if audit.unfinished:
        raise VisleakError(
            f"the audit {audit.folder} is unfinished: {audit.unfinished:,} images could not be read"
            " again; run it again when the source is complete"
        )
    judged = apply_verdicts(audit)
    inside = audit.folder.parent == output
    return {
        "folder": audit.folder.name if inside else str(audit.folder),
        "headline": judged.headline,
        **_copies(judged, split),
    }


def _copies(audit: Audit, split: Split) -> Mapping[str, int]:
    """Return how many test images have a near or exact copy in training, if that is known.

    An audit may use other names for the sets; then its only comparison counts, if it is of the
    test images.
    """
    compared = audit.summary.comparisons
    names = (split.test.name, split.train.name)
    own = [each for each in compared if (each.query_set, each.reference_set) == names]
    (found, *others) = own or compared
    table = audit.images()
    queries = table.filter(pc.equal(table["set"], found.query_set))["id"].to_pylist()
    rate = found.rates.get("near_or_exact")
    if others or rate is None or not set(queries) <= set(split.test.ids.to_pylist()):
        return {}
    return {"copies": rate.count, "images": rate.total}


def shared_files(split: Split) -> Mapping[str, Any] | None:
    """Return a summary of test images that are training files as well; ``None`` if there are none.

    No image is read, and links are followed.
    """
    test, train = (
        [os.path.realpath(each) for each in images.locators.to_pylist() if each]
        for images in (split.test, split.train)
    )
    trained = frozenset(train)
    # images in memory may have equal names, and are not files
    shared = sum(file in trained and os.path.exists(file.partition("!")[0]) for file in test)
    if not shared:
        return None
    total = len(split.test)
    headline = f"{shared:,} of {total:,} test images are the same files as training images"
    return {"headline": headline, "copies": shared, "images": total}


def proof_of(summary: Mapping[str, Any] | None) -> str:
    """Return the proof of a leak as a line; empty if there is none.

    Equal perceptual hashes are not a proof: images without detail have them, too.

    Args:
        summary: ``copies`` of the ``images`` of the test set have a near-duplicate or exact copy
            in training, with the line ``headline``; ``None`` without an audit.
    """
    copies, images = ((summary or {}).get(name) for name in ("copies", "images"))
    if not copies or not images or copies < ENOUGH * images:
        return ""
    return str((summary or {}).get("headline", ""))


def audit_line(summary: Mapping[str, Any]) -> str:
    """Return what was found by the audit, or without one."""
    found = str(summary.get("headline", ""))
    return f"pairs, by the audit: {found}" if "folder" in summary else found
