"""Whether a leak is proved before anything is trained: then training again answers no question.

D-LeDe needs a leak of a large part of the test set to show in the scores
(:mod:`visleak.dlede.detecting`); an audit proves a smaller one image by image.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from visleak.dlede.lesson import Split
from visleak.dlede.plan import Plan
from visleak.dlede.reasons import PROVED
from visleak.dlede.results import Judgement
from visleak.dlede.rules import LEAKING, UNDECIDED
from visleak.dlede.scores import Scores

#: Share of the test images with a near-duplicate or exact copy in training that proves a leak.
ENOUGH: Final = 0.05


def shared_files(split: Split) -> Mapping[str, Any] | None:
    """Return what to say of test images that are training files as well; ``None`` if none is.

    No image is read, and links are followed.
    """
    test, train = (
        [os.path.realpath(each) for each in images.locators.to_pylist() if each]
        for images in (split.test, split.train)
    )
    trained = frozenset(train)
    # images in memory may be called the same, and are no files
    shared = sum(file in trained and os.path.exists(file.partition("!")[0]) for file in test)
    if not shared:
        return None
    total = len(split.test)
    headline = f"{shared:,} of {total:,} test images are the same files as training images"
    return {"headline": headline, "copies": shared, "images": total}


def proof_of(audit: Mapping[str, Any] | None) -> str:
    """Return what proves a leak, in words; empty where nothing does.

    Equal perceptual hashes are no proof: pictures without detail have them, too.

    Args:
        audit: ``copies`` of the ``images`` of the test set have a near-duplicate or exact copy in
            training, by an audit with the line ``headline``; ``None`` where there is none.
    """
    copies, images = ((audit or {}).get(name) for name in ("copies", "images"))
    if not copies or not images or copies < ENOUGH * images:
        return ""
    return str((audit or {}).get("headline", ""))


def nothing_trained(plan: Plan) -> Scores:
    """Return the scores of a plan of which nothing was trained."""
    return Scores((), plan.steps, (), np.zeros((0, 0, len(plan.steps))))


def proved(plan: Plan, rule: str, threshold: float, certainty: float) -> Judgement:
    """Return the judgement of a split that is proved to leak: ``leaking``, by no score."""
    return Judgement(
        rule=rule,
        threshold=threshold,
        certainty=certainty,
        decided_by=plan.steps[:3],
        repetitions=0,
        left_out=0,
        metrics=(),
        on_means=UNDECIDED,
        leaking=math.nan,
        clean=math.nan,
        verdict=LEAKING,
        reason_code=PROVED,
    )
